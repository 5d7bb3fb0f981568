# SPDX-License-Identifier: Apache-2.0

"""What an agent knows of libvirt, in a process of its own."""

from __future__ import annotations

from oslo_config import cfg

from scavenger_openstack import conf as conf_
from scavenger_openstack.drivers import host as host_


def print_facts(config: str) -> None:
    """What an agent with this configuration says of libvirt."""
    conf = cfg.ConfigOpts()
    conf_.register(conf)
    conf_.load(conf, ['--config-file', config], 'test')
    driver = host_.Host(conf)
    found = driver.sample()
    print(len(found.cpu_busy_s) > 0, driver.facts().libvirt)
    driver.close()
