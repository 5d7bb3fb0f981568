# SPDX-License-Identifier: Apache-2.0



"""A libvirtd in memory, below libvirt-python: what
:mod:`.drivers.libvirt.client` calls of that library, for what no real
libvirtd can be made to do at will: something happens between two certain
calls."""

from __future__ import annotations

import collections
from collections.abc import Callable
import pathlib
import subprocess
import threading
import time
from typing import Any

import fixtures

from scavenger_openstack.drivers.libvirt import domain_cache
from scavenger_openstack.drivers.libvirt import domains

NOVA = 'http://openstack.org/xmlns/libvirt/nova/1.1'
DEADLINE_S = 30.0
WAIT_S = 0.000123
MEMORY_KIB = 2**20
UUID = '11111111-2222-3333-4444-555555555555'
OCCUPIED = 3
ODD_UUID = '99999999-2222-3333-4444-555555555555'


class libvirtError(Exception):
    """As libvirt-python has it."""

    def __init__(self, text: str, code: int = -1) -> None:
        super().__init__(text)
        self._code = code

    def get_error_code(self) -> int:
        return self._code

    def get_error_domain(self) -> int:
        return -1

    def get_error_message(self) -> str:
        return str(self)


class Machine:
    """One domain that runs, of background.

    ``calls`` counts them by name, and look-ups by thread; what is in
    ``before`` is called once, before the call of that name is carried out.
    ``refusals`` are called with each limit of a disk, and may raise.
    """

    def __init__(self, run_dir: pathlib.Path, vcpus: int) -> None:
        self.run_dir = run_dir
        self.vcpus = vcpus
        self.persistent = self.occupied = False
        self.runs = True
        self.is_defined = True
        self.calls: collections.Counter[str] = collections.Counter()
        self.before: dict[str, Callable[[], object]] = {}
        self.refusals: dict[
            str, Callable[[dict[str, int | str]], object]] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start it, or start it again: nothing is as it was set."""
        self.stop()
        self.quota, self.period = -1, 100_000
        self.records: dict[str, str] = {}
        self.disks: dict[str, dict[str, int | str]] = {'vda': {}}
        self.balloon_kib = MEMORY_KIB
        self.devices = ''
        # The command line is all that anything looks at.
        self._process = subprocess.Popen(
            ['sh', '-c', 'read _', '-uuid', UUID], stdin=subprocess.PIPE)
        (self.run_dir / 'one.pid').write_text(str(self._process.pid))

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    @property
    def xml(self) -> str:
        records = ''.join(
            text.replace('<lease>', f'<lease xmlns="{uri}">')
            for uri, text in self.records.items())
        disks = ''.join(
            f'<disk><source file="/{name}"/><target dev="{name}"/><iotune>'
            + ''.join(f'<{key}>{value}</{key}>'
                      for key, value in limits.items() if value)
            + '</iotune></disk>' for name, limits in self.disks.items())
        return (
            f'<domain type="qemu"><name>one</name><uuid>{UUID}</uuid>'
            f'<metadata><instance xmlns="{NOVA}"><owner><project uuid="p">x'
            '</project></owner><flavor name="m"><extraSpecs><extraSpec '
            'name="scavenger:priority">background</extraSpec></extraSpecs>'
            f'</flavor></instance>{records}</metadata>'
            f'<memory>{MEMORY_KIB}</memory>'
            f'<currentMemory>{self.balloon_kib}</currentMemory>'
            f'<vcpu>{self.vcpus}</vcpu><cputune>'
            f'<period>{self.period}</period><quota>{self.quota}</quota>'
            f'</cputune><devices>{disks}{self.devices}'
            '<memballoon model="virtio"/></devices></domain>')


class Odd:
    """Another domain, whose XML libvirt-python cannot decode."""

    def __init__(self) -> None:
        self.looks = 0
        self.hangs = False

    def UUIDString(self) -> str:
        return ODD_UUID

    def state(self) -> list[int]:
        return [0, 0]

    def controlInfo(self) -> list[int]:
        return [OCCUPIED * self.hangs, 0, 1000]

    def jobStats(self) -> dict[str, int]:
        return {}

    def XMLDesc(self, flags: int = 0) -> str:
        self.looks += 1
        return b'<domain>\xff</domain>'.decode()


class Domain:
    """A handle of the machine, as libvirt-python gives it out."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def _called(self, name: str) -> Machine:
        machine = self._machine
        machine.calls[name] += 1
        before = machine.before.pop(name, None)
        if before is not None:
            before()
        return machine

    def UUIDString(self) -> str:
        return UUID

    def state(self) -> list[int]:
        return [0, 0]

    def XMLDesc(self, flags: int = 0) -> str:
        if flags:       # as it is defined: without anything of ours
            self._called('inactive')
            return (f'<domain><name>one</name><uuid>{UUID}</uuid>'
                    f'<memory>{MEMORY_KIB}</memory><vcpu>1</vcpu></domain>')
        return self._called('XMLDesc').xml

    def isActive(self) -> int:
        return int(self._machine.runs)

    def isPersistent(self) -> int:
        return int(self._machine.persistent)

    def setMemoryFlags(self, kib: int, flags: int) -> None:
        self._called('balloon').balloon_kib = kib

    def controlInfo(self) -> list[int]:
        return [OCCUPIED * self._called('control').occupied, 0, 1000]

    def jobStats(self) -> dict[str, int]:
        return {}

    def setSchedulerParametersFlags(self, values: dict[str, int],
                                    flags: int) -> None:
        machine = self._called('quota')
        machine.quota = values['vcpu_quota']
        machine.period = values['vcpu_period']

    def setBlockIoTune(self, disk: str, limits: dict[str, int | str],
                       flags: int) -> None:
        found = self._called('iotune').disks[disk]
        self._machine.refusals.get(disk, bool)(limits)
        found.update(limits)
        if not any(limit for name, limit in found.items()
                   if name != 'group_name'):
            found.clear()

    def setMetadata(self, kind: int, text: str | None, key: str | None,
                    uri: str, flags: int) -> None:
        if text is None:
            self._called('drop').records.pop(uri, None)
        else:
            self._called('record').records[uri] = text


class Connection:

    def __init__(self, library: Library) -> None:
        self._library = library

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *_: None      # keepalive, end of callbacks

    def domainEventRegisterAny(self, domain: None, kind: int,
                               tell: Callable[..., None], more: str
                               ) -> None:
        self._library.told[kind] = tell, more

    def getLibVersion(self) -> int:
        return 9_000_000

    def getVersion(self) -> int:
        return 7_002_022

    def isAlive(self) -> int:
        before = self._library.machine.before.pop('isAlive', None)
        if before is not None:
            before()
        return 1

    def close(self) -> None:
        self._library.machine.calls['close'] += 1

    def getAllDomainStats(self, what: int, flags: int
                          ) -> list[tuple[Domain, dict[str, int]]]:
        """It does a thousand operations from one question to the next, and
        each time they take longer."""
        machine = self._library.machine
        machine.calls['stats'] += 1
        if not (self._library.tells_disks and machine.is_defined):
            return []
        return [(Domain(machine), {
            'block.count': 1,
            'block.0.rd.reqs': 1000 * machine.calls['stats'],
            'block.0.rd.bytes': 4096, 'block.0.rd.times': int(
                1e12 * WAIT_S * machine.calls['stats'] ** 2)})]

    def listAllDomains(self, flags: int) -> list[Domain]:
        machine = self._library.machine
        return [Domain(machine)] if machine.is_defined else []

    def lookupByUUIDString(self, uuid: str) -> Domain | Odd:
        if uuid == ODD_UUID:
            return self._library.odd
        if not self._library.machine.is_defined:
            raise libvirtError('no', self._library.VIR_ERR_NO_DOMAIN)
        name = threading.current_thread().name
        self._library.machine.calls[f'in {name}'] += 1
        return Domain(self._library.machine)


class Library:
    """The module."""

    libvirtError = libvirtError

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.told: dict[int, tuple[Callable[..., None], str]] = {}
        self.odd = Odd()
        self.tells_disks = True
        self._numbers: dict[str, int] = {}

    def __getattr__(self, name: str) -> int:
        if not name.startswith('VIR_'):
            raise AttributeError(name)
        if name == 'VIR_DOMAIN_JOB_NONE':
            return 0
        if name == 'VIR_DOMAIN_CONTROL_OCCUPIED':
            return OCCUPIED
        return self._numbers.setdefault(name, 1 << len(self._numbers))

    def getVersion(self) -> int:
        return 8_000_000

    def open(self, uri: str) -> Connection:
        self.machine.calls['open'] += 1
        return Connection(self)


class Libvirtd(fixtures.Fixture):
    """A libvirtd with one machine, and the driver that talks to it."""

    def __init__(self, vcpus: int = 1) -> None:
        super().__init__()
        self._vcpus = vcpus

    def _setUp(self) -> None:
        self.path = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.machine = Machine(self.path, self._vcpus)
        self.addCleanup(self.machine.stop)
        self.library = Library(self.machine)
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.drivers.libvirt.client.LOOP.module',
            lambda: self.library))
        self.driver = domains.Domains(
            'qemu:///system', run_dir=str(self.path), timeout_s=30.0)
        self.addCleanup(self.driver.close)
        until_s = time.monotonic() + DEADLINE_S
        while self.driver._libvirt.versions.qemu is None:
            assert time.monotonic() < until_s
            time.sleep(0.001)

    @property
    def snapshot(self) -> domain_cache.Snapshot:
        """What the driver knows of the machine."""
        return self.driver._cache.snapshots[UUID]

    def happens(self, event: str, domain: Domain | Odd | None = None,
                *details: int) -> None:
        """An event of a domain; default: of the machine."""
        tell, more = self.library.told[
            getattr(self.library, f'VIR_DOMAIN_EVENT_ID_{event}')]
        tell(None, domain or Domain(self.machine), *details, more)

    def tell(self, until: Callable[[], bool]) -> None:
        """Let the driver know that something changed, and wait until it
        does."""
        self.happens('TUNABLE')
        self.wait(until)

    def wait(self, until: Callable[[], bool]) -> None:
        """Wait until the driver knows something."""
        end_s = time.monotonic() + DEADLINE_S
        while not until():
            if time.monotonic() > end_s:
                raise AssertionError('the driver does not see what changed')
            time.sleep(0.001)
