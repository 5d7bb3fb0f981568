# SPDX-License-Identifier: Apache-2.0

"""Options of ``nova.conf``, in its section ``[scavenger]``."""

from __future__ import annotations

from keystoneauth1 import loading
from oslo_config import cfg

SECTION = 'scavenger'
SERVICE_TYPE = 'interference'

OPTS: list[cfg.Opt] = [
    cfg.FloatOpt('summary_s', default=10.0, min=1, max=600,
                 help='Seconds from one reading of the summary of all hosts '
                      'to the next, from the API of the interference '
                      'service, for the filter and the weigher.  Shorter '
                      'follows the hosts sooner.'),
    cfg.FloatOpt('summary_timeout_s', default=3.0, min=0.1, max=60,
                 help='Longest wait for that API, in seconds, and for '
                      'Keystone, unless timeout says another.  The '
                      'scheduler itself never waits for it, but for one '
                      'second the first time, and after 15 minutes in '
                      'which nothing was scheduled.'),
    cfg.FloatOpt('summary_max_age_s', default=60.0, min=1, max=3600,
                 help='A summary that is older, in seconds, counts as none: '
                      'every host passes and weighs the same.'),
    cfg.FloatOpt('interference_weight_multiplier', default=1.0,
                 help='Weight of InterferenceWeigher among the weighers; 0 '
                      'turns it off.  The metadata of an aggregate may set '
                      'another for its hosts, under the same name.'),
    cfg.IntOpt('tag_queue', default=1000, min=1, max=100000,
               help='Instances whose priority waits to be sent, at most; '
                    'then new ones are dropped and counted in the log.  '
                    'The conductor learns of those from Nova later.'),
    cfg.StrOpt('transport_url', secret=True,
               sample_default='that of Nova',
               help='Message broker of scavenger-conductor, as its own '
                    'transport_url.'),
    cfg.StrOpt('control_exchange', default='openstack',
               help='The control_exchange of scavenger-conductor.'),
]


def list_opts() -> list[tuple[str, list[cfg.Opt]]]:
    """Return all options, for the sample file."""
    return [(SECTION, [
        *OPTS, *loading.get_session_conf_options(),
        *loading.get_auth_common_conf_options(),
        *loading.get_adapter_conf_options(include_deprecated=False)])]


def register(conf: cfg.ConfigOpts) -> None:
    """Register the options; may be repeated."""
    conf.register_opts(OPTS, SECTION)
    loading.register_session_conf_options(conf, SECTION)
    loading.register_auth_conf_options(conf, SECTION)
    loading.register_adapter_conf_options(conf, SECTION,
                                          include_deprecated=False)
    conf.set_default('service_type', SERVICE_TYPE, SECTION)
