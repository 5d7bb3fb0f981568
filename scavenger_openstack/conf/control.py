# SPDX-License-Identifier: Apache-2.0


"""Options of the control plane, and those by which an agent finds it."""

from __future__ import annotations

from typing import Any

from oslo_config import cfg

from scavenger_openstack import errors

DATABASE_OPTS: list[cfg.Opt] = [
    cfg.StrOpt('connection', secret=True,
               help='URL of the database of the control plane: '
                    'mysql+pymysql://USER:PASSWORD@HOST/DATABASE, '
                    'postgresql+psycopg2://USER:PASSWORD@HOST/DATABASE or, '
                    'for one host, '
                    'sqlite:////var/lib/scavenger-control/scavenger.sqlite.  '
                    '"scavenger-manage db upgrade" makes its tables.  Only '
                    'the API and the conductor need it, never an agent.'),
    cfg.IntOpt('max_connections', default=20, min=1, max=1000,
               help='Connections to the database that one process has open '
                    'at the same time, at most; scavenger-conductor has up '
                    'to 7 more, for what one of all conductors does.  All '
                    'processes together need fewer than the server allows.  '
                    'Not for SQLite.'),
    cfg.IntOpt('keep_days', default=30, min=0, max=36500,
               help='Days after which a conductor deletes by itself what is '
                    'over: incidents, limits, workloads, overrides, '
                    'evictions, and priorities and exemptions of instances '
                    'that no host has had for so long.  The longest rankings '
                    'are of 30 days.  0 deletes nothing: 1,000 hosts may '
                    'fill 1 to 3 GB a day.'),
    cfg.IntOpt('keep_audit_days', default=365, min=0, max=36500,
               help='Days after which a conductor deletes audit records by '
                    'itself.  0 deletes none.'),
    cfg.IntOpt('keep_rows', default=0, min=0, max=10 ** 9,
               sample_default='200000 where scavenger-standalone has a '
                              'control plane of its own, else 0',
               help='Rows of each table above which a conductor deletes by '
                    'itself the oldest of what is over, however young; audit '
                    'records that agents caused are counted apart from '
                    'others.  '
                    'What is open, in force or still there stays.  0 deletes '
                    'nothing.'),
]

CONDUCTOR_OPTS: list[cfg.Opt] = [
    cfg.BoolOpt('enabled', default=False,
                help='Report to the control plane and follow what its '
                     'operators ask for: kill switch, overrides, exemptions.  '
                     'This host is protected without it, too, and goes on by '
                     'itself while it is away.  It takes transport_url in '
                     '[DEFAULT], or a url.  scavenger-standalone without '
                     'either has a control plane of its own, unless this is '
                     'false.'),
    cfg.StrOpt('url',
               help='Conductor that is called over HTTPS instead of a '
                    'message broker, https://NAME[:PORT][/PREFIX].'),
    cfg.StrOpt('token_file', default='/etc/scavenger/token',
               help='File with the token of this host, which '
                    '"scavenger-manage host enroll" made.  Mode 0600, of the '
                    'user that the agent runs as.  With a url there has to be '
                    'one; over a broker reports are signed with it when it is '
                    'there, and no answer is followed that is not.'),
    cfg.StrOpt('ca_file', sample_default='those of the system',
               help='With a url: certificates that sign that of the '
                    'conductor, in PEM.'),
    cfg.BoolOpt('require_token', default=False,
                help='Of the conductor: take reports only of hosts that '
                     '"scavenger-manage host enroll" has given a token, '
                     'which their agents sign with.  Without it any client '
                     'that the broker lets in may report as a host that has '
                     'no token yet.  Enroll all hosts first: reports of '
                     'others are refused.'),
    cfg.BoolOpt('allow_background', default=False,
                sample_default='true where scavenger-standalone has a '
                               'control plane of its own, else false',
                help='Let operators of the control plane make VMs background '
                     'whose flavor says no priority, so that they are '
                     'limited, and tell the floors of their flavors: that of '
                     'memory may be below the RAM, but not below [cgroups] '
                     'floor_memory_bytes.  Without it the control plane can '
                     'only make VMs foreground, or have less limited.  VMs '
                     'whose '
                     'flavor says foreground stay foreground in any case.'),
    cfg.FloatOpt('sync_s', default=10.0, min=1, max=600,
                 help='Seconds from one report to the next.  Shorter shows '
                      'and follows sooner, and costs the broker and the '
                      'database more.'),
    cfg.IntOpt('spool_mib', default=16, min=1, max=4096,
               help='Most that statistics and the measurements of incidents '
                    'may take on disk, in MiB, while the conductor does not '
                    'answer; then the oldest go.  Incidents, limits and '
                    'kills, some 300 bytes each, are kept all the same, in '
                    '[agent] history_dir.'),
]

API_OPTS: list[cfg.Opt] = [
    cfg.PortOpt('port', default=8799,
                help='Where scavenger-api, which scavenger-standalone starts, '
                     'listens on 127.0.0.1.  A WSGI server has options of '
                     'its own for this.'),
    cfg.StrOpt('auth_strategy', default='keystone',
               choices=[('keystone', 'tokens of Keystone, with the section '
                                     '[keystone_authtoken]'),
                        ('http_basic', 'names and passwords in '
                                       'http_basic_file; each may do '
                                       'everything'),
                        ('noauth', 'every client may do everything; for tests '
                                   'only')],
               help='How the API finds out who asks.'),
    cfg.StrOpt('http_basic_file', default='/etc/scavenger/htpasswd',
               help='Names and bcrypt hashes for auth_strategy = http_basic, '
                    'as "htpasswd -B" writes them.  Only the user that the '
                    'API runs as may be able to read it (mode 0600).'),
    cfg.ListOpt('operator_projects', default=[],
                help='Ids of projects whose readers see the whole cloud.  '
                     'Readers of other projects see the incidents of their '
                     'own instances, and nothing of what disturbed them.'),
    cfg.IntOpt('profile_hosts', default=1, min=0, max=1000,
               help='Hosts on which profiles of workloads may be measured at '
                    'the same time, by injecting load beside their tenants.  '
                    'It also takes an aggregate that allows it.  0: none.'),
    cfg.FloatOpt('profile_seconds_per_day', default=900.0, min=0, max=86400,
                 help='Most seconds of a day in which load is injected on '
                      'one host to measure profiles.  The agent has an '
                      'option of the same name; the lower one counts.'),
    cfg.FloatOpt('silent_s', default=120.0, min=1,
                 help='Seconds without a report after which the API shows a '
                      'host as silent, Nova gives it no background, and a '
                      'conductor says so in its log.  After an outage agents '
                      'report again within 4 times their [conductor] sync_s '
                      'and 8 s; this should be a minute more.'),
]


def database(conf: cfg.ConfigOpts) -> str:
    """The URL of the database.

    :raises ConfigError: there is none.
    """
    if not conf.database.connection:
        raise errors.ConfigError(
            '[database] connection is not set in a configuration file: name '
            'the database of the control plane there, such as '
            'sqlite:////var/lib/scavenger-control/scavenger.sqlite')
    return conf.database.connection


def keeping(conf: cfg.ConfigOpts) -> dict[str, Any]:
    """Return how long a conductor keeps rows, as its arguments."""
    return {name: conf.database[name]
            for name in ('keep_days', 'keep_audit_days', 'keep_rows')}
