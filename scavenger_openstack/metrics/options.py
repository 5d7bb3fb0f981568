# SPDX-License-Identifier: Apache-2.0

"""Options of the metrics of agent, API and conductor."""

from __future__ import annotations

from oslo_config import cfg

_PORT = (r'([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}'
         r'|655[0-2][0-9]|6553[0-5])')
_ANY = r'([0.]+|\[[0:.Ff]+\]):'
"""All ways to write "all addresses": 0.0.0.0, 0, [::], [::ffff:0.0.0.0]."""
_ADDRESS = rf'(?!{_ANY})([0-9.]+|\[[0-9A-Fa-f:.]+\])'

MOST_INSTANCES = 1000

PROCESSES = ('Of several processes of a WSGI server one serves them; they are '
             'those of all with the environment variable '
             'PROMETHEUS_MULTIPROC_DIR, an empty directory at the start.')


def listen_opt(program: str, more: str) -> cfg.StrOpt:
    """Return the option with the address of a program's metrics."""
    return cfg.StrOpt(
        'metrics_listen', regex=rf'\A({_ADDRESS}:{_PORT})?\Z',
        help=f'ADDRESS:PORT where {program} serves its metrics at /metrics '
             'for Prometheus, without a password: an address of loopback or '
             'of the management network, such as 127.0.0.1:9877 or '
             f'[::1]:9877.  Empty: nowhere.  {more}')


SECTIONS: dict[str, list[cfg.Opt]] = {'agent': [
    cfg.StrOpt('metrics_file',
               help='File that the agent replaces by its metrics every 5 s, '
                    'for the textfile collector of node_exporter, such as '
                    '/var/lib/prometheus/node-exporter/scavenger.prom.  Its '
                    'name has to end with .prom, and the user of the agent '
                    'needs to be able to write into its directory.  Empty: '
                    'none; "scavenger-agent metrics" prints them all the '
                    'same.'),
    listen_opt('the agent', 'For hosts whose node_exporter has no textfile '
                            'directory.'),
    cfg.IntOpt('metrics_instances', default=0, min=0, max=MOST_INSTANCES,
               help='How many VMs have metrics of their own, with project '
                    'and server_id as labels: 3 series each.  Of more VMs '
                    'those with the lowest UUIDs have them, and a metric has '
                    'how many are left out.  0: none.'),
], 'conductor': [listen_opt('scavenger-conductor', PROCESSES)],
   'api': [listen_opt('scavenger-api', PROCESSES)]}
"""The options by section."""


def address(listen: str) -> tuple[str, int]:
    """Return host and port of a ``metrics_listen``."""
    host, _, port = listen.rpartition(':')
    return host.strip('[]'), int(port)
