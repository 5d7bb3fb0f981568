# SPDX-License-Identifier: Apache-2.0

"""What Nova writes into the XML of a domain: its flavor and its image.

Pure.  Names and image properties come from tenants.  Who may decide what:
priority, floors and protection come from the extra specs of the flavor, which
only operators write; an image property may put instances of one project into
one application, and without any name flavor and image do.

Nova writes extra specs and image properties into the XML since 2025.2
(``nova:extraSpecs``, ``nova:image``), and of the properties only those that
it knows itself, unless an operator taught it ``scavenger_application``.
Without them ``known`` is false and another service has to ask Nova.

The same holds for CPUs that Nova reserves: the policy may stand in flavor or
image, and either way Nova keeps to it.

Source: nova/virt/libvirt/config.py; of CPUs nova/virt/hardware.py.
"""

from __future__ import annotations

from collections.abc import Mapping
import re
from typing import NamedTuple
from xml.etree import ElementTree

from scavenger_openstack.algorithms import classify
from scavenger_openstack.algorithms import flavor as flavor_specs
from scavenger_openstack.drivers.libvirt.safe_xml import shown
from scavenger_openstack.drivers.libvirt.safe_xml import some
from scavenger_openstack.types import Knob
from scavenger_openstack.types import printable

NOVA = ('http://openstack.org/xmlns/libvirt/nova/1.1',
        'http://openstack.org/xmlns/libvirt/nova/1.0')

MAX_SPECS = 512
"""So many extra specs and image properties are looked at."""

DEDICATED, MIXED, SHARED = 'dedicated', 'mixed', 'shared'
"""The policies that Nova has for CPUs."""

FLAVOR, IMAGE, RESOURCES = 'flavor', 'image', 'resources'
"""Where a policy may stand, the first that says one first."""

_PCPU = re.compile('resources(?:[a-zA-Z0-9_-]{1,64})?:PCPU')
_TRAIT = re.compile('trait(?:[a-zA-Z0-9_-]{1,64})?:HW_CPU_HYPERTHREADING')
_AMOUNT = re.compile('0*[1-9][0-9]{0,8}')
_MASK = re.compile(r'(\^?)([0-9]{1,5})(?:-([0-9]{1,5}))?')
_MASK_PARTS = 128
_TRUE = frozenset(('1', 't', 'true', 'on', 'y', 'yes'))

_OURS = flavor_specs.PREFIX
_IMAGE_APPLICATION = 'scavenger_application'
_NAME_CHARS = 128
_PROJECT = re.compile('[A-Za-z0-9_-]{1,64}')


class CpuRequest(NamedTuple):
    """What was asked of Nova for the CPUs of an instance.

    ``source``: where the ``policy`` stands; both ``None`` where nothing says
    one.  ``vcpus``: those that the policy ``mixed`` gives CPUs of their own,
    ``None`` where no mask says which.  ``isolates_emulator``: QEMU itself has
    a CPU of its own.  ``whole_cores``: nothing runs beside them on the same
    cores.  ``known``: flavor and image are in the definition.
    """

    policy: str | None = None
    source: str | None = None
    vcpus: frozenset[int] | None = None
    isolates_emulator: bool = False
    whole_cores: bool = False
    known: bool = False


def cpu_request(specs: Mapping[str, str], properties: Mapping[str, str],
                vcpus: int, *, known: bool) -> CpuRequest:
    """Return what flavor and image ask for.

    :param specs: the extra specs of the flavor
    :param properties: of the image
    """
    policies = {DEDICATED, MIXED, SHARED}
    policy, source = specs.get('hw:cpu_policy'), FLAVOR
    if policy not in policies:
        policy, source = properties.get('hw_cpu_policy'), IMAGE
    if policy not in policies and any(
            _PCPU.fullmatch(key) and _AMOUNT.fullmatch(value)
            for key, value in specs.items()):
        policy, source = DEDICATED, RESOURCES
    if policy not in policies:
        return CpuRequest(known=known)
    mask = specs.get('hw:cpu_dedicated_mask')
    if not mask and specs.get('hw:cpu_realtime', '').lower() in _TRUE:
        mask = (properties.get('hw_cpu_realtime_mask')
                or specs.get('hw:cpu_realtime_mask') or f'0-{vcpus - 1}')
    threads = (specs.get('hw:cpu_thread_policy')
               or properties.get('hw_cpu_thread_policy'))
    return CpuRequest(
        policy, source,
        _masked(mask, vcpus) if policy == MIXED and mask else None,
        specs.get('hw:emulator_threads_policy') == 'isolate',
        threads == 'isolate' or any(
            _TRAIT.fullmatch(key) and value == 'forbidden'
            for key, value in specs.items()), known)


def _masked(mask: str, vcpus: int) -> frozenset[int] | None:
    """The vCPUs that a mask such as ``0-3,^1`` names; ``None`` if it is one
    that Nova does not take."""
    parts = [item.strip() for item in mask.split(',', _MASK_PARTS)]
    if parts[0].startswith('^'):
        parts.append(f'0-{vcpus - 1}')
    named: dict[str, set[int]] = {'': set(), '^': set()}
    for part in filter(None, parts):
        match = _MASK.fullmatch(part)
        if match is None:
            return None
        low, high = int(match[2]), int(match[3] or match[2])
        if not low <= high < vcpus:
            return None
        named[match[1]].update(range(low, high + 1))
    return frozenset(named[''] - named['^']) or None


class NovaMetadata:
    """What it says of an instance; all of it may be missing or wrong.

    :param vcpus: how many it has
    """

    def __init__(self, metadata: ElementTree.Element | None, vcpus: int
                 ) -> None:
        self.ignored: list[str] = []
        self.ignored_properties: list[str] = []
        self.floor: dict[Knob, float] = {}
        self.protect = True
        instance, nova = None, ''
        for uri in NOVA if metadata is not None else ():
            if instance is None and metadata is not None:
                nova = f'{{{uri}}}'
                instance = metadata.find(f'{nova}instance')
        if instance is None:
            instance = ElementTree.Element('none')
        self.display_name = _name(instance.findtext(f'{nova}name', ''))
        kind = instance.find(f'{nova}flavor')
        self.name = '' if kind is None else _name(kind.get('name', ''))
        owner = instance.find(f'{nova}owner/{nova}project')
        project = '' if owner is None else owner.get('uuid', '')
        self.project = project if _PROJECT.fullmatch(project) else None
        element = instance.find(f'{nova}flavor/{nova}extraSpecs')
        self.known = element is not None
        specs = _named(element, f'{nova}extraSpec')
        flavor = flavor_specs.read(specs)
        self._specs(flavor)
        properties = _named(instance.find(
            f'{nova}image/{nova}properties'), f'{nova}property')
        self.cpus = cpu_request(specs, properties, vcpus, known=self.known)
        for key, value in properties.items():
            self._property(key, value, names=flavor.application is None)
        root = instance.find(f'{nova}root')
        name = flavor_specs.application(
            flavor.application, properties.get(_IMAGE_APPLICATION),
            image='' if root is None or root.get('type') != 'image'
            else root.get('uuid', ''),
            flavor='' if kind is None else kind.get('name', ''))
        # Never one of another project.
        self.application = (f'{self.project}/{name}'
                            if self.project and name else None)

    def _specs(self, flavor: flavor_specs.Flavor) -> None:
        for fault in flavor.wrong:
            self._wrong(*fault)
        self.priority, self.source, _ = classify.classify(
            flavor=flavor.priority)
        if flavor.application is not None and self.project is None:
            self._wrong(flavor_specs.APPLICATION, flavor.application,
                        'the project is not known')
        self.floor.update(flavor.floor)
        self.protect = flavor.protect

    def _property(self, key: str, value: str, *, names: bool) -> None:
        """Read a property of an image, which tenants make: not for the log.

        :param names: whether it may name the application
        """
        why = ''
        if key == _IMAGE_APPLICATION:
            if names and not (self.project
                              and flavor_specs.is_application(value)):
                why = ('the project is not known, or the name has not 1 to '
                       f'{flavor_specs.APPLICATION_CHARS} printable '
                       'characters')
        elif _OURS + key[len(_OURS):] in (
                flavor_specs.PRIORITY, flavor_specs.PROTECT,
                *flavor_specs.FLOORS) and \
                key.startswith((_OURS, 'scavenger_')):
            why = 'only an extra spec of the flavor can say that'
        if why:
            self.ignored_properties.append(
                f'image property {shown(key)} = {shown(value)} is ignored: '
                + why)

    def _wrong(self, key: str, value: str, why: str) -> None:
        self.ignored.append(f'extra spec {shown(key)} = {shown(value)} is '
                            f'ignored: {why}')


def _name(text: str) -> str:
    """Return a name on one line, without what moves a terminal's cursor."""
    return printable(text.strip()[:_NAME_CHARS])[:_NAME_CHARS]


def _named(parent: ElementTree.Element | None, tag: str) -> dict[str, str]:
    """The texts of children by their names; the first of each counts."""
    named: dict[str, str] = {}
    for child in some(parent, MAX_SPECS):
        if child.tag == tag:
            named.setdefault(child.get('name', ''),
                             (child.text or '').strip())
    return named
