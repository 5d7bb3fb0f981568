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

"""What a domain's XML tells about a VM, and our own record in it.

Pure: text in, values out.  The XML is written by libvirt, but names and
image properties in it come from tenants.  Who may decide what: priority,
floors and protection come from the extra specs of the flavor, which only
operators write; an image property may put instances of one project into one
application, and without any name flavor and image do.

Nova writes extra specs and image properties into the XML since 2025.2
(``nova:extraSpecs``, ``nova:image``), and of the properties only those that
it knows itself, unless an operator taught it ``scavenger_application``.
Without them ``specs_known`` is false and another service has to ask Nova.

Our record (DESIGN 7.15) is a metadata element with the values that knobs had
before our caps: it goes wherever the domain, and so the cap, goes.

Sources: nova/virt/libvirt/config.py; libvirt's formatdomain.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import re
from typing import NamedTuple
from xml.etree import ElementTree

from scavenger_openstack.algorithms import classify
from scavenger_openstack.algorithms import flavor as flavor_
from scavenger_openstack.algorithms.floors import DEFAULT_FLOORS
from scavenger_openstack.drivers.libvirt import cputune
from scavenger_openstack.drivers.libvirt import metadata as domain_record
from scavenger_openstack.drivers.libvirt import safe_xml
from scavenger_openstack.drivers.libvirt.safe_xml import count
from scavenger_openstack.drivers.libvirt.safe_xml import cpus
from scavenger_openstack.drivers.libvirt.safe_xml import shown
from scavenger_openstack.drivers.libvirt.safe_xml import some
from scavenger_openstack import errors
from scavenger_openstack.restore import grammar
from scavenger_openstack.types import Instance
from scavenger_openstack.types import Knob
from scavenger_openstack.types import printable
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload

NOVA = ('http://openstack.org/xmlns/libvirt/nova/1.1',
        'http://openstack.org/xmlns/libvirt/nova/1.0')

MAX_SPECS = 512
"""So many extra specs and image properties are looked at."""

MAX_DEVICES = 4096
"""So many devices of a domain are looked at."""

VFIO: Mapping[str, frozenset[str]] = {
    'hostdev': frozenset(('pci', 'mdev')),
    'interface': frozenset(('hostdev', 'vdpa')),
    'disk': frozenset(('nvme', 'vhostvdpa'))}
"""Devices that reach the guest's memory by themselves, so that all of it is
pinned while they are there: elements and their types."""

_OURS = flavor_.PREFIX
_IMAGE_APPLICATION = 'scavenger_application'
_UUID = re.compile(grammar.UUID)
_PROJECT = re.compile('[A-Za-z0-9_-]{1,64}')
_DISK = re.compile(grammar.DISK)
_DEVICE = re.compile(r'(?!\.\.?$)[^/\s:]{1,15}')
_NAME_CHARS = 128
_NO_DEVICE = frozenset(('hostdev', 'user', 'vdpa', 'vhostuser'))
_UNITS = {'b': 1, 'bytes': 1, 'KB': 1000, 'k': 1024, 'KiB': 1024,
          'MB': 1000 ** 2, 'M': 1024 ** 2, 'MiB': 1024 ** 2,
          'GB': 1000 ** 3, 'G': 1024 ** 3, 'GiB': 1024 ** 3,
          'TB': 1000 ** 4, 'T': 1024 ** 4, 'TiB': 1024 ** 4}


class Disk(NamedTuple):
    """One disk, and those of its ``iotune`` limits that are not 0.

    ``group``: the disks of the domain with this name share their limits.
    """

    target: str
    iotune: Mapping[str, int]
    group: str | None = None

    def family(self, what: str) -> str | None:
        """Whether the limit on ``bytes`` or ``iops`` is a ``total`` or is
        ``split`` into reads and writes; ``None`` without one."""
        for family, words in (('total', ('total',)),
                              ('split', ('read', 'write'))):
            if any(f'{word}_{what}_sec' in self.iotune for word in words):
                return family
        return None


@dataclasses.dataclass(frozen=True, slots=True)
class Domain:
    """A VM as its live XML describes it.

    ``source`` is ``flavor`` when the flavor says the priority, else
    ``default``.  ``application`` begins with the project, so that two
    projects never share one.

    ``pins``, ``emulator_pin`` and ``allowed_cpus`` are what was set without
    us: from our record where there is one, else from the XML.  All other
    limits are those in force, ours included.  ``allowed_cpus`` is ``None``
    without any restriction.  ``cpuset`` is what it says of those vCPUs that
    have no pin.  ``dedicated``: its CPUs are its own.  ``realtime``: the
    scheduler of vCPUs that heed no CPU quota.  ``fixed_memory``: why none of
    its memory can be given back.  ``found``: see :mod:`.metadata`.

    ``interfaces`` are network devices of the host; ``unseen_interfaces``
    counts those that have none (SR-IOV, vhost-user).
    """

    uuid: str
    name: str
    priority: Priority
    source: str
    project: str | None
    application: str | None
    floor: Mapping[Knob, float]
    protected: bool
    vcpus: int
    memory_allotment_bytes: int
    balloon_bytes: int
    disks: tuple[Disk, ...]
    interfaces: tuple[str, ...]
    unseen_interfaces: int
    pins: Mapping[int, frozenset[int]]
    emulator_pin: frozenset[int] | None
    allowed_cpus: frozenset[int] | None
    cpuset: frozenset[int] | None
    numa_nodes: frozenset[int] | None
    dedicated: bool
    realtime: str | None
    fixed_memory: str | None
    quota_us: int | None
    period_us: int | None
    has_balloon: bool
    cpu_model: str | None
    virt_type: str
    specs_known: bool
    found: domain_record.Found
    display_name: str
    flavor: str
    ignored: tuple[str, ...]
    ignored_properties: tuple[str, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to log of its extra specs."""
        return tuple(f'instance {shown(self.name)} ({self.uuid}): {one}'
                     for one in self.ignored)

    @property
    def instance(self) -> Instance:
        """The domain as its operator knows it."""
        return Instance(
            self.uuid, self.name, self.display_name, self.flavor,
            self.priority, self.source, self.vcpus,
            self.memory_allotment_bytes, self.specs_known,
            self.ignored + self.ignored_properties)

    def workload(self, *, created_s: float) -> Workload:
        """The domain in the words of the controllers."""
        return Workload(
            id=self.uuid, priority=self.priority, source=self.source,
            project=self.project, application=self.application,
            vcpus=float(self.vcpus), group=self.uuid, floor=self.floor,
            memory_allotment_bytes=float(self.memory_allotment_bytes),
            allowed_cpus=self.allowed_cpus, protected=self.protected,
            dedicated_cpus=self._dedicated_cpus(),
            disks=('',) * len(self.disks),  # a target is the guest's name
            interfaces=self.interfaces, created_s=created_s,
            instance=self.uuid)

    def _dedicated_cpus(self) -> frozenset[int]:
        """The CPUs that are one vCPU's alone: what a pin of a dedicated
        vCPU looks like.  A guest of mixed policy has others beside."""
        if not self.dedicated:
            return frozenset()
        own = [one for one in self.pins.values() if len(one) == 1]
        return frozenset().union(*own) or self.allowed_cpus or frozenset()


def parse(text: str, floors: Mapping[Knob, float] = DEFAULT_FLOORS
          ) -> Domain:
    """Read the XML of a live domain.

    :param floors: below these no cap goes where the flavor sets none; the
        memory of a VM is its flavor's RAM all the same
    :raises DriverError: this is not the XML of a domain.
    """
    try:
        root = safe_xml.root(text)
        if root.tag != 'domain':
            raise ValueError(f'it begins with {shown(root.tag)}')
        return _domain(root, floors)
    except ValueError as exc:
        raise errors.DriverError(
            f'this domain cannot be understood from its XML: {exc}; see '
            'virsh dumpxml') from None


def _domain(root: ElementTree.Element, floors: Mapping[Knob, float]
            ) -> Domain:
    uuid, name = root.findtext('uuid', '').strip(), root.findtext('name', '')
    if not _UUID.fullmatch(uuid) or not name:
        raise ValueError(f'name {shown(name)}, uuid {shown(uuid)}')
    memory = _bytes(root.find('memory'))
    vcpu = root.find('vcpu')
    if not memory or vcpu is None or not vcpu.text:
        raise ValueError(f'{shown(name)} has no memory or no vcpu')
    balloon = root.find('devices/memballoon')
    flavor = _Flavor(root.find('metadata'))
    found = domain_record.find(root)
    tune = root.find('cputune')
    pins, emulator_pin = cputune.pins(tune, found)
    allowed = cpuset = cpus(vcpu.get('cpuset'))
    vcpus = count(vcpu.get('current') or vcpu.text) or 1
    if pins:
        unpinned = set(range(vcpus)) - pins.keys()
        allowed = (None if unpinned and allowed is None else
                   frozenset().union(*pins.values(),
                                     allowed or () if unpinned else ()))
    interfaces = [_interface(one) for one in root.findall('devices/interface')]
    seen = tuple(filter(None, interfaces))
    return Domain(
        uuid=uuid, name=name, priority=flavor.priority, source=flavor.source,
        project=flavor.project, application=flavor.application,
        floor={**floors, Knob.MEMORY_BYTES: float(memory), **flavor.floor},
        protected=flavor.protect,
        vcpus=vcpus, memory_allotment_bytes=memory,
        # A guest writes it, and whatever it likes.
        balloon_bytes=min(_bytes(root.find('currentMemory')) or memory,
                          memory),
        disks=tuple(_disks(root)), interfaces=seen,
        unseen_interfaces=len(interfaces) - len(seen),
        pins=pins, emulator_pin=emulator_pin, allowed_cpus=allowed,
        cpuset=cpuset,
        numa_nodes=_numa_nodes(root),
        dedicated=(flavor.dedicated
                   or cputune.one_to_one(pins, vcpus)),
        realtime=cputune.realtime(tune),
        fixed_memory=_fixed_memory(root),
        quota_us=cputune.quota_us(tune),
        period_us=cputune.number(tune, 'period'),
        has_balloon=(balloon is not None
                     and balloon.get('model') != 'none'),
        cpu_model=_cpu_model(root.find('cpu')),
        virt_type=root.get('type', ''), specs_known=flavor.known,
        found=found, display_name=flavor.display_name, flavor=flavor.name,
        ignored=tuple(flavor.ignored),
        ignored_properties=tuple(flavor.ignored_properties))


class _Flavor:
    """What Nova's metadata says; all of it may be missing or wrong."""

    def __init__(self, metadata: ElementTree.Element | None) -> None:
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
        self.dedicated = (
            specs.get('hw:cpu_policy') in ('dedicated', 'mixed')
            or specs.get('resources:PCPU', '0') != '0')
        said = flavor_.read(specs)
        self._specs(said)
        properties = _named(instance.find(
            f'{nova}image/{nova}properties'), f'{nova}property')
        for key, value in properties.items():
            self._property(key, value, names=said.application is None)
        root = instance.find(f'{nova}root')
        name = flavor_.application(
            said.application, properties.get(_IMAGE_APPLICATION),
            image='' if root is None or root.get('type') != 'image'
            else root.get('uuid', ''),
            flavor='' if kind is None else kind.get('name', ''))
        # Never one of another project.
        self.application = (f'{self.project}/{name}'
                            if self.project and name else None)

    def _specs(self, said: flavor_.Flavor) -> None:
        for one in said.wrong:
            self._wrong(*one)
        self.priority, self.source, _ = classify.classify(
            flavor=said.priority)
        if said.application is not None and self.project is None:
            self._wrong(flavor_.APPLICATION, said.application,
                        'the project is not known')
        self.floor.update(said.floor)
        self.protect = said.protect

    def _property(self, key: str, value: str, *, names: bool) -> None:
        """Of an image, which tenants make: not for the log.

        :param names: whether it may name the application
        """
        why = ''
        if key == _IMAGE_APPLICATION:
            if names and not (self.project and flavor_.is_application(value)):
                why = ('the project is not known, or the name has not 1 to '
                       f'{flavor_.APPLICATION_CHARS} printable characters')
        elif _OURS + key[len(_OURS):] in (
                flavor_.PRIORITY, flavor_.PROTECT, *flavor_.FLOORS) and \
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
    """On one line, without what would move a terminal's cursor."""
    return printable(text.strip()[:_NAME_CHARS])[:_NAME_CHARS]


def _named(parent: ElementTree.Element | None, tag: str) -> dict[str, str]:
    """The texts of children by their names; the first of each counts."""
    found: dict[str, str] = {}
    for child in some(parent, MAX_SPECS):
        if child.tag == tag:
            found.setdefault(child.get('name', ''),
                             (child.text or '').strip())
    return found


def _bytes(element: ElementTree.Element | None) -> int | None:
    """:raises ValueError: a unit or number that libvirt does not know."""
    if element is None:
        return None
    unit = element.get('unit', 'KiB')
    if unit not in _UNITS:
        raise ValueError(f'{shown(unit)} is no unit of memory')
    return count(element.text) * _UNITS[unit]


def _fixed_memory(root: ElementTree.Element) -> str | None:
    """What keeps QEMU from giving back memory that the guest does not use:
    a page that is pinned, encrypted or huge stays where it is."""
    if root.find('memoryBacking/hugepages') is not None:
        return 'huge pages'
    if root.find('memoryBacking/locked') is not None:
        return 'locked memory'
    secure = root.find('launchSecurity')
    if secure is not None:
        return f'encrypted memory ({shown(secure.get("type", ""))})'
    devices = root.find('devices')
    for tag, types in VFIO.items():
        for one in some(devices, MAX_DEVICES):
            if one.tag == tag and one.get('type') in types:
                return f'a device passed through ({tag} {one.get("type")})'
    return None


def _numa_nodes(root: ElementTree.Element) -> frozenset[int] | None:
    memory = root.find('numatune/memory')
    return None if memory is None else cpus(memory.get('nodeset'))


def _disks(root: ElementTree.Element) -> Iterator[Disk]:
    for disk in root.findall('devices/disk'):
        target, source = disk.find('target'), disk.find('source')
        name = '' if target is None else target.get('dev', '')
        if not _DISK.fullmatch(name):
            continue
        if disk.get('device', 'disk') in ('cdrom', 'floppy') and (
                source is None
                or not source.attrib.keys() - {'index', 'startupPolicy'}):
            continue
        yield Disk(name, {
            one.tag: limit for one in some(disk.find('iotune'), 64)
            if one.tag != 'group_name' and (limit := count(one.text))},
            disk.findtext('iotune/group_name'))


def _interface(element: ElementTree.Element) -> str | None:
    """Its network device on this host, if it has one."""
    target = element.find('target')
    name = '' if target is None else target.get('dev', '')
    return (name if element.get('type') not in _NO_DEVICE
            and _DEVICE.fullmatch(name) else None)


def _cpu_model(cpu: ElementTree.Element | None) -> str | None:
    """What kind of CPU the guest sees: a model, or whose it is."""
    if cpu is None:
        return None
    model = cpu.findtext('model', '').strip()[:_NAME_CHARS]
    return model or cpu.get('mode')


