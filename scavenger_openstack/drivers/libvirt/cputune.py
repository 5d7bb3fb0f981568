# SPDX-License-Identifier: Apache-2.0
"""What a domain's ``<cputune>`` says: pins, schedulers, quota.

Pure: XML in, values out.
"""

from __future__ import annotations

from collections.abc import Mapping
from xml.etree import ElementTree

from scavenger_openstack.drivers.libvirt import metadata
from scavenger_openstack.drivers.libvirt import nova_metadata
from scavenger_openstack.drivers.libvirt.safe_xml import count
from scavenger_openstack.drivers.libvirt.safe_xml import cpu_count
from scavenger_openstack.drivers.libvirt.safe_xml import cpus
from scavenger_openstack.drivers.libvirt.safe_xml import some
from scavenger_openstack.restore import grammar

REALTIME = frozenset(('fifo', 'rr'))

MAX_PINNED = 1 << 18
"""So many CPUs all different pins of a domain may name together: those of 512
vCPUs on a host of 512 CPUs do."""

_PIN = 'vcpupin.'


def pins(tune: ElementTree.Element | None
         ) -> tuple[dict[int, frozenset[int]], frozenset[int] | None]:
    """vCPU -> CPUs, and the emulator's.

    :raises ValueError: they are none, or more than any host's.
    """
    texts: dict[str, str | None] = {}
    for pin in some(tune, metadata.MAX_VALUES):
        if pin.tag == 'emulatorpin':
            texts['emulatorpin'] = pin.get('cpuset')
        elif pin.tag == 'vcpupin':
            texts[f'{_PIN}{count(pin.get("vcpu"))}'] = pin.get('cpuset')
    different = set(texts.values())
    named = sum(cpu_count(text) for text in different if text is not None)
    if named > MAX_PINNED:
        raise ValueError(f'its pins name {named} CPUs, at most {MAX_PINNED}')
    sets = {text: cpus(text) for text in different}
    vcpus = {int(key.removeprefix(_PIN)): cpu_set
             for key, text in texts.items()
             if key.startswith(_PIN)
             and (cpu_set := sets[text]) is not None}
    return vcpus, sets.get(texts.get('emulatorpin'))


def reserved(asked: nova_metadata.CpuRequest,
             pins: Mapping[int, frozenset[int]],
             emulator_pin: frozenset[int] | None, vcpus: int,
             allowed: frozenset[int] | None) -> frozenset[int] | None:
    """Return the CPUs that an instance has to itself; ``None`` if it shares
    all of them.

    What flavor and image ask for decides; only where they ask for nothing,
    the form of the pins does.

    :param vcpus: how many it has
    :param allowed: where it may run, ``None`` for everywhere
    """
    by_form = asked.policy is None
    if asked.policy == nova_metadata.SHARED or by_form and not (
            _one_to_one(pins, vcpus) or not asked.known and _mixed(pins)):
        return None
    own = {pin for vcpu, pin in pins.items() if (
        len(pin) == 1 if asked.vcpus is None else vcpu in asked.vcpus)}
    if not own:
        # A tenant's word alone reserves nothing.
        if asked.source == nova_metadata.IMAGE:
            return None
        if asked.source == nova_metadata.FLAVOR and allowed is not None:
            own.add(allowed)
    if emulator_pin is not None and (
            asked.isolates_emulator or by_form and len(emulator_pin) == 1
            and not any(emulator_pin & pin for pin in pins.values())):
        own.add(emulator_pin)
    return frozenset().union(*own)


def _one_to_one(pins: Mapping[int, frozenset[int]], vcpus: int) -> bool:
    """Whether each vCPU has a CPU of its own."""
    return (len(pins) >= vcpus and all(len(pin) == 1 for pin in pins.values())
            and len(frozenset().union(*pins.values())) == len(pins))


def _mixed(pins: Mapping[int, frozenset[int]]) -> bool:
    """Whether some vCPUs have a CPU of their own, beside others that share
    several: what Nova makes of the policy ``mixed``."""
    sizes = [len(pin) for pin in pins.values()]
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
