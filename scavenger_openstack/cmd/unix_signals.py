# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

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
