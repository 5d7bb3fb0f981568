# SPDX-License-Identifier: Apache-2.0

"""The configuration that a command line names."""

from __future__ import annotations

import argparse

from oslo_config import cfg

from scavenger_openstack import command_line
from scavenger_openstack import conf as conf_


def load(prog: str, options: argparse.Namespace) -> cfg.ConfigOpts:
    """
    :raises ConfigError: it cannot work, with all findings.
    """
    conf = cfg.ConfigOpts()
    conf_.register(conf)
    conf_.load(conf, command_line.configuration(options), prog)
    return conf
