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

"""What the services of the control plane do on SIGHUP and SIGUSR2."""

from __future__ import annotations

import logging
import threading

from oslo_config import cfg
from oslo_reports.generators import conf as report_conf
from oslo_reports import guru_meditation_report
from oslo_reports import opts as report_opts

from scavenger_openstack import conf as conf_
from scavenger_openstack import errors
from scavenger_openstack import version

LOG = logging.getLogger(__name__)

_reading = threading.Lock()


def register(conf: cfg.ConfigOpts) -> None:
    """Make the options of reports known, before files are read."""
    report_opts.set_defaults(conf)


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


def report_on_sigusr2(conf: cfg.ConfigOpts, program: str) -> None:
    """Print the state of this process on SIGUSR2: threads and options."""
    report = guru_meditation_report.TextGuruMeditation
    # Its own section "Configuration" is of a global that we do not use.
    report.register_section('Options',
                            report_conf.ConfigReportGenerator(conf))
    report.setup_autorun(_Version(program), program, conf=conf)


class _Version:
    """What a report says of this program."""

    def __init__(self, program: str) -> None:
        self._program = program

    def vendor_string(self) -> str:
        return 'scavenger_openstack'

    def product_string(self) -> str:
        return self._program

    def version_string_with_package(self) -> str:
        return version()
