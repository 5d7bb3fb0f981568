# SPDX-License-Identifier: Apache-2.0
"""What a domain's ``<cputune>`` says: pins, schedulers, quota.

Pure: XML in, values out.
"""

from __future__ import annotations

from collections.abc import Mapping
from xml.etree import ElementTree

from scavenger_openstack.drivers.libvirt import metadata
from scavenger_openstack.drivers.libvirt.safe_xml import count
from scavenger_openstack.drivers.libvirt.safe_xml import cpus
from scavenger_openstack.drivers.libvirt.safe_xml import some
from scavenger_openstack.restore import grammar

REALTIME = frozenset(('fifo', 'rr'))


def pins(tune: ElementTree.Element | None) -> dict[int, frozenset[int]]:
    """vCPU -> CPUs."""
    texts = {count(pin.get('vcpu')): pin.get('cpuset')
             for pin in some(tune, metadata.MAX_VALUES)
             if pin.tag == 'vcpupin'}
    sets = {text: cpus(text) for text in set(texts.values())}
    return {vcpu: one for vcpu, text in texts.items()
            if (one := sets[text]) is not None}


def one_to_one(pins: Mapping[int, frozenset[int]], vcpus: int) -> bool:
    """Whether each vCPU has a CPU of its own."""
    return (len(pins) >= vcpus and all(len(one) == 1 for one in pins.values())
            and len(frozenset().union(*pins.values())) == len(pins))


def mixed(pins: Mapping[int, frozenset[int]]) -> bool:
    """Whether some vCPUs have a CPU of their own, beside others that share
    several: what Nova makes of the policy ``mixed``."""
    sizes = [len(one) for one in pins.values()]
    return 1 in sizes and max(sizes) > 1


def realtime(tune: ElementTree.Element | None) -> str | None:
    """The real-time scheduler of some of its vCPUs, if they have one."""
    for one in some(tune, metadata.MAX_VALUES):
        if one.tag == 'vcpusched' and one.get('scheduler') in REALTIME:
            return one.get('scheduler')
    return None


def number(tune: ElementTree.Element | None, tag: str) -> int | None:
    """What an element below it says, if it is there."""
    text = None if tune is None else tune.findtext(tag)
    return None if text is None else count(text)


def quota_us(tune: ElementTree.Element | None) -> int | None:
    """``None`` when vCPUs may run all the time, which libvirt writes as a
    negative number, as its greatest one, or not at all."""
    text = None if tune is None else tune.findtext('quota')
    if text is None or text.strip().startswith('-'):
        return None
    quota = count(text)
    return quota if 0 < quota < grammar.FREE_QUOTA_US else None
