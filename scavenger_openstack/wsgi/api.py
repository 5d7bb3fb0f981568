# SPDX-License-Identifier: Apache-2.0

"""``application``, for uwsgi, gunicorn and Apache's mod_wsgi.

The configuration is /etc/scavenger/scavenger.conf, or the file that the
environment variable ``SCAVENGER_CONFIG_FILE`` names.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
import os

from oslo_config import cfg

from scavenger_openstack.api import app
from scavenger_openstack import cloud_metrics
from scavenger_openstack import conf as conf_package
from scavenger_openstack.conf import check as conf_check
from scavenger_openstack.conf import control as conf_control
from scavenger_openstack.db import connect
from scavenger_openstack import errors
from scavenger_openstack import state_report


def _create() -> Callable[..., Iterable[bytes]]:
    file = os.environ.get('SCAVENGER_CONFIG_FILE')
    conf = cfg.ConfigOpts()
    conf_package.register(conf)
    state_report.register(conf)
    conf_package.read(conf, ['--config-file', file] if file else [],
                      'scavenger-api')
    conf_package.set_up_log(conf)
    state_report.on_file(conf, 'scavenger-api')
    findings = list(conf_check.wrong_values(
        conf, [('database', conf_control.DATABASE_OPTS),
               ('api', conf_package.SECTIONS['api'])]))
    if findings:
        raise errors.ConfigError(*findings)
    engine = connect.engine_of(conf)
    served = cloud_metrics.Served(
        conf.api.metrics_listen,
        cloud_metrics.Database(engine, conf.api.silent_s))
    return cloud_metrics.beside(
        cloud_metrics.Api(app.create(engine, conf), served), served)


application = _create()
