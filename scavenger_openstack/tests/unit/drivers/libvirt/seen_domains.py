# SPDX-License-Identifier: Apache-2.0

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
