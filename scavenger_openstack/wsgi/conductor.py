# SPDX-License-Identifier: Apache-2.0

"""``application``: the conductor over HTTP, for a WSGI server.

The configuration is /etc/scavenger/scavenger.conf, or the file that the
environment variable ``SCAVENGER_CONFIG_FILE`` names.  Loading it fails while
the tables are not those of this version.  Each process does, if
no other one does, what a conductor does from time to time; what is done in
Nova and Placement is left to ``scavenger-conductor``.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
import os

from oslo_config import cfg

from scavenger_openstack import cloud_metrics
from scavenger_openstack.conductor import http
from scavenger_openstack.conductor import leader
from scavenger_openstack.conductor import service
from scavenger_openstack.conductor import silence
from scavenger_openstack import conf as conf_package
from scavenger_openstack.conf import control as conf_control
from scavenger_openstack.db import connect
from scavenger_openstack.db import schema
from scavenger_openstack import state_report


def _create() -> Callable[..., Iterable[bytes]]:
    file = os.environ.get('SCAVENGER_CONFIG_FILE')
    conf = cfg.ConfigOpts()
    conf_package.register(conf)
    state_report.register(conf)
    conf_package.load(conf, ['--config-file', file] if file else [],
                      'scavenger-conductor')
    conf_package.set_up_log(conf)
    state_report.on_file(conf, 'scavenger-conductor')
    engine = connect.engine_of(conf)
    connect.read(engine, schema.check)
    engine.dispose()    # no connection is shared by processes that fork
    served = cloud_metrics.Served(
        conf.conductor.metrics_listen,
        cloud_metrics.Database(engine, conf.api.silent_s))
    metrics = cloud_metrics.Conductor(served)
    conductor = service.Conductor(
        engine, reported=metrics.report, **conf_control.keeping(conf))

    def leaders() -> list[leader.Leader]:
        watchers = [silence.make_leader(engine, conf.api.silent_s,
                                        conductor.name)]
        metrics.follow(watchers)
        return watchers

    return cloud_metrics.beside(http.Application(conductor, leaders), served)


application = _create()
