# SPDX-License-Identifier: Apache-2.0

"""The configuration that a command line names, and its second reading."""

from __future__ import annotations

import argparse
import logging
import threading

from oslo_config import cfg

from scavenger_openstack.cmd import ending
from scavenger_openstack import command_line
from scavenger_openstack import conf as conf_package
from scavenger_openstack.conf import check as conf_check
from scavenger_openstack.conf import libraries as conf_libraries
from scavenger_openstack import errors

LOG = logging.getLogger(__name__)

_reading = threading.Lock()


def load(prog: str, options: argparse.Namespace, *, has_log: bool = True
         ) -> cfg.ConfigOpts:
    """Return the configuration that a command line names, checked.

    :param has_log: the program logs what is ignored; else it is printed
    :raises ConfigError: it cannot work, with all findings.
    """
    conf = cfg.ConfigOpts()
    conf_package.register(conf)
    conf_package.load(conf, command_line.configuration(options), prog)
    if not has_log:
        for sentence in conf_libraries.unused(conf_check.files(conf)):
            ending.print_line(prog, sentence)
    return conf


def read_again(conf: cfg.ConfigOpts) -> None:
    """Read the options again that may change in a running process: what the
    services of the control plane do on SIGHUP."""
    try:
        with _reading:
            conf_package.check_files(conf)
            conf.mutate_config_files()
    except (errors.ScavengerError, cfg.Error, ValueError, OSError) as exc:
        LOG.error('the configuration cannot be read again, what was read '
                  'before holds: %s', '; '.join(map(str, exc.args)) or exc)
    else:
        LOG.info('read the configuration again: log levels hold now, other '
                 'options after a restart')
