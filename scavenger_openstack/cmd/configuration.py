# SPDX-License-Identifier: Apache-2.0

"""The configuration that a command line names."""

from __future__ import annotations

import argparse

from oslo_config import cfg

from scavenger_openstack.cmd import exit as exit_
from scavenger_openstack import command_line
from scavenger_openstack import conf as conf_
from scavenger_openstack import conf_check
from scavenger_openstack import conf_libraries


def load(prog: str, options: argparse.Namespace, *, has_log: bool = True
         ) -> cfg.ConfigOpts:
    """
    :param has_log: the program logs what is ignored; else it is printed
    :raises ConfigError: it cannot work, with all findings.
    """
    conf = cfg.ConfigOpts()
    conf_.register(conf)
    conf_.load(conf, command_line.configuration(options), prog)
    if not has_log:
        for sentence in conf_libraries.unused(conf_check.files(conf)):
            exit_.say(prog, sentence)
    return conf
