# SPDX-License-Identifier: Apache-2.0


"""Guests of a hypervisor of the tests: what they are, as libvirt is told."""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
import os
import pathlib
from typing import Any
import uuid
from xml.sax import saxutils

from scavenger_openstack.tests.functional import domain_image

NOVA = 'http://openstack.org/xmlns/libvirt/nova/1.1'

MACHINES = {'pc': 'qemu-system-x86_64', 'q35': 'qemu-system-x86_64',
            'isapc': 'qemu-system-i386'}

CONSOLES = '/var/lib/consoles'
"""Where QEMU makes the sockets of consoles, as QEMU sees it."""


TRANSLATED_MIB = 32
"""For translated code; QEMU would take a gigabyte when it can get it."""


def new_uuid() -> str:
    return str(uuid.uuid4())


def direct_io(path: pathlib.Path) -> bool:
    """Whether the filesystem of this file does direct I/O."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        return False
    return True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Nova:
    """What nova-compute writes into a domain about its instance.

    :param extra_specs: of the flavor; ``None``: not written, as before 2025.2
    :param properties: of the image, which a tenant may set
    """

    name: str = 'vm'
    flavor: str = 'm1.tiny'
    extra_specs: Mapping[str, str] | None = dataclasses.field(
        default_factory=dict)
    project: str = 'tenant'
    project_uuid: str = dataclasses.field(default_factory=new_uuid)
    properties: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def xml(self, guest: DomainGuest) -> str:
        specs = '' if self.extra_specs is None else ''.join((
            '<nova:extraSpecs>', *(
                f'<nova:extraSpec name={saxutils.quoteattr(key)}>'
                f'{saxutils.escape(value)}</nova:extraSpec>'
                for key, value in self.extra_specs.items()),
            '</nova:extraSpecs>'))
        properties = ''.join(
            f'<nova:property name={saxutils.quoteattr(key)}>'
            f'{saxutils.escape(value)}</nova:property>'
            for key, value in self.properties.items())
        return f"""
    <nova:instance xmlns:nova="{NOVA}">
      <nova:package version="34.0.0"/>
      <nova:name>{saxutils.escape(self.name)}</nova:name>
      <nova:creationTime>2026-10-05 08:00:00</nova:creationTime>
      <nova:flavor name={saxutils.quoteattr(self.flavor)} id="{new_uuid()}">
        <nova:memory>{guest.memory_bytes // 2**20}</nova:memory>
        <nova:disk>0</nova:disk>
        <nova:swap>0</nova:swap>
        <nova:ephemeral>0</nova:ephemeral>
        <nova:vcpus>{guest.vcpus}</nova:vcpus>
        {specs}
      </nova:flavor>
      <nova:image uuid="{new_uuid()}">
        <nova:containerFormat>bare</nova:containerFormat>
        <nova:diskFormat>raw</nova:diskFormat>
        <nova:minDisk>0</nova:minDisk>
        <nova:minRam>0</nova:minRam>
        <nova:properties>{properties}</nova:properties>
      </nova:image>
      <nova:owner>
        <nova:user uuid="{new_uuid()}">user</nova:user>
        <nova:project uuid="{self.project_uuid}">{
            saxutils.escape(self.project)}</nova:project>
      </nova:owner>
      <nova:root type="image" uuid="{new_uuid()}"/>
      <nova:ports/>
    </nova:instance>"""


BROKEN_NOVA = f"""
    <nova:instance xmlns:nova="{NOVA}">
      <nova:name/>
      <nova:flavor>
        <nova:vcpus>many</nova:vcpus>
        <nova:extraSpecs><nova:extraSpec>high</nova:extraSpec></nova:extraSpecs>
      </nova:flavor>
      <nova:owner><nova:project/></nova:owner>
    </nova:instance>"""
"""Metadata that libvirt accepts and that nova-compute would not write."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Disk:
    """A raw disk on a file or a block device, ``/dev/vd`` + a, b, c ..."""

    path: pathlib.Path

    @classmethod
    def make(cls, path: pathlib.Path, size_bytes: int = 64 * 2**20) -> Disk:
        """A disk on a new file whose blocks exist."""
        with open(path, 'wb') as file:
            os.posix_fallocate(file.fileno(), 0, size_bytes)
        return cls(path=path)

    def xml(self, number: int) -> str:
        kind, attribute = (('block', 'dev') if self.path.is_block_device()
                           else ('file', 'file'))
        cache = 'none' if direct_io(self.path) else 'writeback'
        return f"""
    <disk type='{kind}' device='disk'>
      <driver name='qemu' type='raw' cache='{cache}'/>
      <source {attribute}={saxutils.quoteattr(str(self.path))}/>
      <target dev='vd{"abcdefgh"[number]}' bus='virtio'/>
    </disk>"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class VhostUserDisk:
    """A disk whose requests pass QEMU by, to a daemon that listens there.

    The guest's memory has to be shared: see :data:`SHARED_MEMORY`.
    """

    socket: pathlib.Path

    def xml(self, number: int) -> str:
        return f"""
    <disk type='vhostuser' device='disk'>
      <driver name='qemu' type='raw'/>
      <source type='unix' path={saxutils.quoteattr(str(self.socket))}/>
      <target dev='vd{"abcdefgh"[number]}' bus='virtio'/>
    </disk>"""


SHARED_MEMORY = """
  <memoryBacking>
    <source type='memfd'/>
    <access mode='shared'/>
  </memoryBacking>"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interface:
    """A virtio NIC on a tap that libvirt makes.

    :param tap: name of the tap on the host, up to 15 characters; of another
        form than ``vnetN``, which libvirt takes for its own
    :param bridge: to put the tap on; None: it belongs to no bridge
    """

    tap: str
    mac: str
    bridge: str | None = None

    def xml(self) -> str:
        source = (f"<source bridge='{self.bridge}'/>" if self.bridge else '')
        return f"""
    <interface type='{"bridge" if self.bridge else "ethernet"}'>
      <mac address='{self.mac}'/>
      {source}
      <target dev='{self.tap}'/>
      <model type='virtio'/>
    </interface>"""


class UserInterface:
    """A NIC whose packets QEMU itself hands on: it has no tap."""

    def xml(self) -> str:
        return """
    <interface type='user'>
      <model type='virtio'/>
    </interface>"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class DomainGuest:
    """A guest, and its domain XML.

    :param nova: a :class:`Nova`; or any XML to stand as the metadata; or
        None for a domain that Nova did not make
    :param image: kernel and initramfs to boot, None: nothing to boot
    :param paused: started, but its CPUs never run
    :param translated_mib: for translated code, of which QEMU ends where a
        vCPU that is plugged in finds no 2 MiB left
    :param cpuset: host CPUs that all of it may use, such as ``0-1``
    :param extra: more XML for the domain, such as ``<cputune>``
    """

    name: str
    uuid: str = dataclasses.field(default_factory=new_uuid)
    vcpus: int = 1
    memory_bytes: int = 96 * 2**20
    nova: Nova | str | None = dataclasses.field(default_factory=Nova)
    disks: tuple[Disk | VhostUserDisk, ...] = ()
    interfaces: tuple[Interface | UserInterface, ...] = ()
    machine: str = 'pc'
    image: domain_image.Image | None = dataclasses.field(
        default_factory=domain_image.image)
    paused: bool = False
    translated_mib: int = TRANSLATED_MIB
    cpuset: str = ''
    extra: str = ''

    def xml(self) -> str:
        """The domain as libvirt wants it."""
        metadata = (self.nova.xml(self) if isinstance(self.nova, Nova)
                    else self.nova or '')
        cpuset = f" cpuset='{self.cpuset}'" if self.cpuset else ''
        return f"""\
<domain type='qemu'>
  <name>{self.name}</name>
  <uuid>{self.uuid}</uuid>
  <metadata>{metadata}</metadata>
  <memory unit='b'>{self.memory_bytes}</memory>
  <vcpu placement='static'{cpuset}>{self.vcpus}</vcpu>
  <os>
    <type arch='{"i686" if self.machine == "isapc" else "x86_64"}' machine='{
        self.machine}'>hvm</type>{self._boot_xml()}
  </os>
  <features>
    <acpi/>
    <apic/>
    <tcg>
      <tb-cache unit='MiB'>{self.translated_mib}</tb-cache>
    </tcg>
  </features>{self.extra}
  <clock offset='utc'/>
  <on_poweroff>destroy</on_poweroff>
  <on_reboot>restart</on_reboot>
  <on_crash>destroy</on_crash>
  <devices>
    <emulator>/usr/bin/{MACHINES[self.machine]}</emulator>{
        ''.join(disk.xml(n) for n, disk in enumerate(self.disks))}{
        ''.join(one.xml() for one in self.interfaces)}{self._console_xml()}
  </devices>
</domain>
"""

    def _boot_xml(self) -> str:
        if self.image is None:
            return ''
        return f"""
    <kernel>{self.image.kernel}</kernel>
    <initrd>{self.image.initrd}</initrd>
    <cmdline>{saxutils.escape(domain_image.APPEND)}</cmdline>"""

    def _console_xml(self) -> str:
        if self.image is None:
            return "\n    <memballoon model='none'/>"
        return f"""
    <serial type='unix'>
      <source mode='bind' path='{CONSOLES}/{self.name}'/>
      <target port='0'/>
    </serial>
    <memballoon model='virtio'/>"""


def tiny(name: str, **more: Any) -> DomainGuest:
    """A domain for scale: 8 MB, nothing to run, but a real QEMU.

    ``more`` are further arguments of :class:`DomainGuest`.
    """
    return DomainGuest(**{
        'name': name, 'memory_bytes': 8 * 2**20, 'machine': 'isapc',
        'image': None, 'paused': True, **more})
