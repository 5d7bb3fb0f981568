# SPDX-License-Identifier: Apache-2.0

"""What a domain's XML tells about a VM, and our own record in it.

Pure: text in, values out.  The XML is written by libvirt, but names in it
come from tenants.  What Nova says there is in :mod:`.nova_metadata`.

Our record (DESIGN 7.15) is a metadata element with the values that knobs had
before our caps: it goes wherever the domain, and so the cap, goes.

Source: libvirt's formatdomain.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import re
from typing import NamedTuple
from xml.etree import ElementTree

from scavenger_openstack.drivers.libvirt import cputune
from scavenger_openstack.drivers.libvirt import metadata as domain_record
from scavenger_openstack.drivers.libvirt import nova_metadata
from scavenger_openstack.drivers.libvirt import safe_xml
from scavenger_openstack.drivers.libvirt.safe_xml import count
from scavenger_openstack.drivers.libvirt.safe_xml import cpus
from scavenger_openstack.drivers.libvirt.safe_xml import shown
from scavenger_openstack.drivers.libvirt.safe_xml import some
from scavenger_openstack import errors
from scavenger_openstack.knobs import DEFAULT_FLOORS
from scavenger_openstack.restore import grammar
from scavenger_openstack.types import Instance
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload

MAX_DEVICES = 4096
"""So many devices of a domain are looked at."""

MAX_VCPUS = 10_000
"""No host runs a VM with more: what names a vCPU has four digits."""

VFIO: Mapping[str, frozenset[str]] = {
    'hostdev': frozenset(('pci', 'mdev')),
    'interface': frozenset(('hostdev', 'vdpa')),
    'disk': frozenset(('nvme', 'vhostvdpa'))}
"""Devices that reach the guest's memory by themselves, so that all of it is
pinned while they are there: elements and their types."""

_UUID = re.compile(grammar.UUID)
_DISK = re.compile(grammar.DISK)
_DEVICE = re.compile(r'(?!\.\.?$)[^/\s:]{1,15}')
_MODEL_CHARS = 128
_NO_DEVICE = frozenset(('hostdev', 'user', 'vdpa', 'vhostuser'))
_UNITS = {'b': 1, 'bytes': 1, 'KB': 1000, 'k': 1024, 'KiB': 1024,
          'MB': 1000 ** 2, 'M': 1024 ** 2, 'MiB': 1024 ** 2,
          'GB': 1000 ** 3, 'G': 1024 ** 3, 'GiB': 1024 ** 3,
          'TB': 1000 ** 4, 'T': 1024 ** 4, 'TiB': 1024 ** 4}


class Disk(NamedTuple):
    """One disk, and those of its ``iotune`` limits that are not 0.

    ``group``: the disks of the domain with this name share their limits.
    ``path``: the file or device of the host that it is, '' for others.
    """

    target: str
    iotune: Mapping[str, int]
    group: str | None = None
    path: str = ''

    def family(self, what: str) -> str | None:
        """Return whether the limit on ``bytes`` or ``iops`` is a ``total`` or
        is ``split`` into reads and writes; ``None`` without one."""
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

    Limits are those in force, ours included.  ``allowed_cpus`` is ``None``
    without any restriction.  ``dedicated_cpus``: those of its CPUs, and of its
    emulator's, that it has to itself; ``None`` when it shares them all.
    ``whole_cores``: and the CPUs of the same cores.  ``realtime``: the
    scheduler of vCPUs that heed no CPU quota.  ``fixed_memory``: why none of
    its memory can be given back.  ``record``: see :mod:`.metadata`.

    ``interfaces`` are network devices of the host; ``other_interfaces``
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
    other_interfaces: int
    pins: Mapping[int, frozenset[int]]
    allowed_cpus: frozenset[int] | None
    numa_nodes: frozenset[int] | None
    dedicated_cpus: frozenset[int] | None
    whole_cores: bool
    realtime: str | None
    fixed_memory: str | None
    quota_us: int | None
    period_us: int | None
    has_balloon: bool
    cpu_model: str | None
    virt_type: str
    specs_known: bool
    record: domain_record.Found
    display_name: str
    flavor: str
    ignored: tuple[str, ...]
    ignored_properties: tuple[str, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return what to log of its extra specs."""
        return tuple(f'instance {shown(self.name)} ({self.uuid}): {text}'
                     for text in self.ignored)

    @property
    def instance(self) -> Instance:
        """The domain as its operator knows it."""
        return Instance(
            self.uuid, self.name, self.display_name, self.flavor,
            self.priority, self.source, self.vcpus,
            self.memory_allotment_bytes, self.specs_known,
            self.ignored + self.ignored_properties)

    @property
    def dedicated(self) -> bool:
        """Return whether the domain has CPUs to itself."""
        return self.dedicated_cpus is not None

    @property
    def memory_kept(self) -> str:
        """Return why its memory cannot be limited; '' when it can."""
        if self.fixed_memory is not None:
            return (f'domain {self.name} has {self.fixed_memory}: it can give '
                    'no memory back, so its memory is not limited')
        return '' if self.has_balloon else (
            f'domain {self.name} has no balloon: its memory cannot be '
            'limited')

    def workload(self, *, created_s: float) -> Workload:
        """The domain in the words of the controllers."""
        return Workload(
            id=self.uuid, priority=self.priority, source=self.source,
            project=self.project, application=self.application,
            vcpus=float(self.vcpus), group=self.uuid, floor=self.floor,
            memory_allotment_bytes=float(self.memory_allotment_bytes),
            allowed_cpus=self.allowed_cpus, protected=self.protected,
            dedicated_cpus=self.dedicated_cpus or frozenset(),
            disks=('',) * len(self.disks),  # a target is the guest's name
            interfaces=self.interfaces, created_s=created_s,
            instance=self.uuid, memory_kept=self.memory_kept)


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
    vcpus = count(vcpu.get('current') or vcpu.text) or 1
    if vcpus > MAX_VCPUS:
        raise ValueError(f'{shown(name)} has {vcpus} vCPUs, at most '
                         f'{MAX_VCPUS}')
    balloon = root.find('devices/memballoon')
    flavor = nova_metadata.NovaMetadata(root.find('metadata'), vcpus)
    record = domain_record.find(root)
    tune = root.find('cputune')
    pins, emulator_pin = cputune.pins(tune)
    allowed = cpus(vcpu.get('cpuset'))
    if pins:
        unpinned = not pins.keys() >= set(range(vcpus))
        allowed = (None if unpinned and allowed is None else
                   frozenset().union(*set(pins.values()),
                                     allowed or () if unpinned else ()))
    interfaces = [_interface(interface)
                  for interface in root.findall('devices/interface')]
    devices = tuple(filter(None, interfaces))
    return Domain(
        uuid=uuid, name=name, priority=flavor.priority, source=flavor.source,
        project=flavor.project, application=flavor.application,
        floor={**floors, Knob.MEMORY_BYTES: float(memory), **flavor.floor},
        protected=flavor.protect,
        vcpus=vcpus, memory_allotment_bytes=memory,
        # A guest writes it, and whatever it likes.
        balloon_bytes=min(_bytes(root.find('currentMemory')) or memory,
                          memory),
        disks=tuple(_disks(root)), interfaces=devices,
        other_interfaces=len(interfaces) - len(devices),
        pins=pins, allowed_cpus=allowed,
        numa_nodes=_numa_nodes(root),
        dedicated_cpus=cputune.reserved(flavor.cpus, pins, emulator_pin,
                                        vcpus, allowed),
        whole_cores=flavor.cpus.whole_cores,
        realtime=cputune.realtime(tune),
        fixed_memory=_fixed_memory(root),
        quota_us=cputune.quota_us(tune),
        period_us=cputune.number(tune, 'period'),
        has_balloon=(balloon is not None
                     and balloon.get('model') != 'none'),
        cpu_model=_cpu_model(root.find('cpu')),
        virt_type=root.get('type', ''), specs_known=flavor.known,
        record=record, display_name=flavor.display_name, flavor=flavor.name,
        ignored=tuple(flavor.ignored),
        ignored_properties=tuple(flavor.ignored_properties))


def _bytes(element: ElementTree.Element | None) -> int | None:
    """:raises ValueError: a unit or number that libvirt does not know."""
    if element is None:
        return None
    unit = element.get('unit', 'KiB')
    if unit not in _UNITS:
        raise ValueError(f'{shown(unit)} is no unit of memory')
    return count(element.text) * _UNITS[unit]


def _fixed_memory(root: ElementTree.Element) -> str | None:
    """Return what keeps QEMU from giving back memory that the guest does not
    use: a page that is pinned, encrypted or huge stays where it is."""
    if root.find('memoryBacking/hugepages') is not None:
        return 'huge pages'
    if root.find('memoryBacking/locked') is not None:
        return 'locked memory'
    secure = root.find('launchSecurity')
    if secure is not None:
        return f'encrypted memory ({shown(secure.get("type", ""))})'
    devices = root.find('devices')
    for tag, types in VFIO.items():
        for device in some(devices, MAX_DEVICES):
            if device.tag == tag and device.get('type') in types:
                return f'a device passed through ({tag} {device.get("type")})'
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
            element.tag: limit for element in some(disk.find('iotune'), 64)
            if element.tag != 'group_name' and (limit := count(element.text))},
            disk.findtext('iotune/group_name'),
            '' if source is None else source.get('file') or source.get(
                'dev') or '')


def _interface(element: ElementTree.Element) -> str | None:
    """Return the device of an interface on this host, if it has one."""
    target = element.find('target')
    name = '' if target is None else target.get('dev', '')
    return (name if element.get('type') not in _NO_DEVICE
            and _DEVICE.fullmatch(name) else None)


def _cpu_model(cpu: ElementTree.Element | None) -> str | None:
    """Return what kind of CPU the guest sees: a model, or whose it is."""
    if cpu is None:
        return None
    model = cpu.findtext('model', '').strip()[:_MODEL_CHARS]
    return model or cpu.get('mode')


