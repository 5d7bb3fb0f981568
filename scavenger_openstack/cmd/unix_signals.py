# SPDX-License-Identifier: Apache-2.0

"""What the services of the control plane do on SIGHUP."""

from __future__ import annotations

import logging
import threading

from oslo_config import cfg

from scavenger_openstack import conf as conf_
from scavenger_openstack import errors

LOG = logging.getLogger(__name__)

_reading = threading.Lock()


def read_again(conf: cfg.ConfigOpts) -> None:
    """Read the options again that may change in a running process."""
    try:
        with _reading:
            conf_.check_files(conf)
            conf.mutate_config_files()
    except (errors.ScavengerError, cfg.Error, ValueError, OSError) as exc:
        LOG.error('the configuration cannot be read again, what was read '
                  'before holds: %s', '; '.join(map(str, exc.args)) or exc)
    else:
        LOG.info('read the configuration again: log levels hold now, other '
                 'options after a restart')
