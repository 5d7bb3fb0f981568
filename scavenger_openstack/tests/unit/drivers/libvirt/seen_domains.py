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

"""Domains as they are seen, with the limits that a test needs."""

from __future__ import annotations

from scavenger_openstack.drivers.libvirt.domain_cache import Snapshot
from scavenger_openstack.drivers.libvirt import xml

UUID = '5e1bc1c3-310c-4e22-9612-764abf6ac7db'


def seen(*, tune: str = '', disks: str = '', vcpu: str = '<vcpu>2</vcpu>',
         more: str = '', metadata: str = '', paused: bool = False
         ) -> Snapshot:
    """A domain with this in its XML."""
    text = (f'<domain type="kvm"><name>one</name><uuid>{UUID}</uuid>'
            f'<metadata>{metadata}</metadata><memory>1024</memory>{vcpu}'
            f'<cputune>{tune}</cputune>{more}<devices>{disks}'
            '<memballoon model="virtio"/></devices></domain>')
    return Snapshot(xml.parse(text), 5, 77, paused)


def disk(target: str, *limits: str) -> str:
    tune = ''.join(f'<{name}>{value}</{name}>' for name, _, value in
                   (limit.partition('=') for limit in limits))
    return (f'<disk><source file="/x"/><target dev="{target}"/>'
            f'<iotune>{tune}</iotune></disk>')
