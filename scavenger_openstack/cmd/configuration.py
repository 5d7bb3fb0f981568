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
