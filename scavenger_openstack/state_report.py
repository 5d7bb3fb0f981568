# SPDX-License-Identifier: Apache-2.0

"""Reports of the state of a process of the control plane (oslo.reports)."""

from __future__ import annotations

import logging
import os
import signal

from oslo_config import cfg
from oslo_reports.generators import conf as report_conf
from oslo_reports import guru_meditation_report
from oslo_reports import opts as report_opts

from scavenger_openstack import version

LOG = logging.getLogger(__name__)


def register(conf: cfg.ConfigOpts) -> None:
    """Make the options of reports known, before files are read."""
    report_opts.set_defaults(conf)


def on_sigusr2(conf: cfg.ConfigOpts, program: str) -> None:
    """Print threads and options on SIGUSR2, and when the file of
    ``[oslo_reports] file_event_handler`` changes."""
    guru_meditation_report.TextGuruMeditation.setup_autorun(
        _Version(program), program, conf=conf, signum=signal.SIGUSR2)
    _print_options(conf)
    _follow(conf, program)


def on_file(conf: cfg.ConfigOpts, program: str) -> None:
    """The same by the file alone: in a process of a WSGI server, which takes
    the signals, and of which there are several."""
    _print_options(conf)
    _follow(conf, f'{program}-{os.getpid()}')


def _print_options(conf: cfg.ConfigOpts) -> None:
    # Its own section "Configuration" is of a global that we do not use.
    guru_meditation_report.TextGuruMeditation.register_section(
        'Options', report_conf.ConfigReportGenerator(conf))


def _follow(conf: cfg.ConfigOpts, program: str) -> None:
    file = conf.oslo_reports.file_event_handler
    if not file:
        return
    try:
        guru_meditation_report.TextGuruMeditation.setup_autorun(
            _Version(program), program, conf=conf)
    except OSError as exc:
        LOG.error('no reports of the state of this process: [oslo_reports] '
                  'file_event_handler = %s: %s; make the file and restart',
                  file, exc.strerror)


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
