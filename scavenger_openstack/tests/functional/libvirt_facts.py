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
