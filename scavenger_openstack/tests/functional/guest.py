# SPDX-License-Identifier: Apache-2.0

"""A throw-away guest that runs tests on a kernel of its own.

QEMU boots the kernel and the archives of :mod:`.guest_image` without
acceleration, as any user; :mod:`.guest_init` runs the tests in there.  A
class of tests on this side has one method for each test on the other side,
and says what that came to.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import ctypes
import dataclasses
import functools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
from typing import Any
from typing import ClassVar
import unittest

import testtools
from testtools import content

from scavenger_openstack.tests.functional import guest_archive
from scavenger_openstack.tests.functional import guest_image
from scavenger_openstack.tests.functional.guest_image import Unavailable
from scavenger_openstack.tests import tiers

HERE = pathlib.Path(__file__).parent
CONSOLE_LINES = 40

LOOK_S = 5.0
SILENT_S = 240.0
"""A guest that lives says so every second.  Its seconds may be long ones: on
a busy machine, and where its clock is made of instructions."""

PR_SET_PDEATHSIG = 1
libc = ctypes.CDLL(None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Guest:
    """What to boot, and what to run in it.

    :param tests: modules of tests, importable here and there
    :param modules: modules of the kernel that these need, besides virtio
    :param options: further arguments of QEMU
    :param append: further words on the kernel's command line
    :param disk_bytes: size of an empty disk, ``/dev/vda`` in the guest
    :param programs: sources in C, a file or a directory, compiled here, by
        their name in the guest
    :param more: returns further files, by their name in the guest
    """

    tests: tuple[str, ...]
    architecture: str = 'x86_64'
    modules: tuple[str, ...] = ()
    cpus: str = '2'
    memory_bytes: int = 768 * 2**20
    disk_bytes: int = 256 * 2**20
    options: tuple[str, ...] = ()
    append: str = ''
    deadline_s: float = 900
    programs: Mapping[str, pathlib.Path] = dataclasses.field(
        default_factory=dict)
    more: Callable[[], guest_archive.Files] = dict

    def ids(self) -> list[str]:
        """The ids of all tests that the guest will run."""
        return [test.id() for name in self.tests for test in _flat(
            unittest.defaultTestLoader.loadTestsFromName(name))]

    def run(self) -> Outcome:
        """Boot, wait until it is switched off, and return what came of it.

        :raises Unavailable: there is no such guest on this machine.
        """
        kind = guest_image.ARCHITECTURES[self.architecture]
        if not shutil.which(kind.qemu):
            raise Unavailable(f'needs {kind.qemu}: install '
                              f'{kind.qemu_package}')
        began = time.monotonic()
        base = guest_image.base(kind, ('virtio_pci', 'virtio_blk',
                                       'virtio_console', *self.modules))
        with tempfile.TemporaryDirectory(prefix='guest-') as name:
            scratch = pathlib.Path(name)
            self._write_initrd(base, scratch)
            with open(scratch / 'disk', 'wb') as disk:
                disk.truncate(self.disk_bytes)
            made = time.monotonic()
            fault = self._boot(kind, base.directory / 'kernel', scratch)
            return Outcome(
                (scratch / 'report').read_text(errors='replace'),
                (scratch / 'console').read_text(errors='replace'), fault,
                made - began, time.monotonic() - made)

    def _write_initrd(self, base: guest_image.Base,
                      scratch: pathlib.Path) -> None:
        required = guest_archive.requirements(binaries=base.compatible)
        product = guest_archive.product()
        todo = {'tests': self.tests, 'modules': base.modules,
                'tier': 'all' if tiers.ALL else ''}
        own = {'guest.json': json.dumps(todo).encode(),
               'init': b'#!/usr/bin/python3 -u\n'
               + (HERE / 'guest_init.py').read_bytes()}
        with open(scratch / 'initrd', 'wb') as out:
            with open(base.directory / 'base.cpio', 'rb') as source:
                shutil.copyfileobj(source, out)
            files: guest_archive.Files = {
                **required, **product, **self._programs(scratch),
                **self.more()}
            guest_archive.write(out, {
                **files, **own, **(guest_archive.compiled(files, scratch)
                                   if base.compatible else {})})

    def _programs(self, scratch: pathlib.Path) -> dict[str, pathlib.Path]:
        """Static, so that they run with any C library."""
        found: dict[str, pathlib.Path] = {}
        for name, source in self.programs.items():
            found[name] = scratch / f'program{len(found)}'
            sources = (sorted(source.glob('*.c')) if source.is_dir()
                       else [source])
            try:
                subprocess.run(['cc', '-O2', '-pthread', '-static', '-o',
                                str(found[name]), *map(str, sources),
                                '-lm'], check=True)
            except FileNotFoundError:
                raise Unavailable('needs cc: install gcc and libc6-dev'
                                  ) from None
        return found

    def _boot(self, kind: guest_image.Architecture, kernel: pathlib.Path,
              scratch: pathlib.Path) -> Stuck | None:
        """None when it ended by itself; what it said is in ``scratch``."""
        for name in ('report', 'console'):
            (scratch / name).touch()
        qemu = subprocess.Popen(
            [kind.qemu, *kind.options, '-nodefaults', '-display', 'none',
             '-name', 'guest,debug-threads=on', '-no-reboot',
             '-smp', self.cpus,
             '-m', f'{self.memory_bytes // 2**20}M',
             '-kernel', str(kernel), '-initrd', str(scratch / 'initrd'),
             '-append', f'{kind.append} panic=-1 quiet {self.append}',
             '-serial', f'file:{scratch}/console',
             '-device', 'virtio-serial-pci',
             '-chardev', f'file,id=report,path={scratch}/report',
             '-device', 'virtserialport,chardev=report',
             '-drive', f'file={scratch}/disk,format=raw,if=virtio,'
             'cache=unsafe', *self.options],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True, preexec_fn=_before_qemu)
        try:
            said = attend(qemu, scratch / 'report', self.deadline_s)
            if qemu.returncode:
                raise RuntimeError(f'{kind.qemu} ended with '
                                   f'{qemu.returncode}: {said.strip()}')
            return None
        except Stuck as exc:
            return exc
        finally:
            qemu.kill()
            qemu.communicate()


class Stuck(Exception):
    """A guest did not end in time; the message says what QEMU did.

    ``silent`` is whether it had stopped to say that it lives.
    """

    def __init__(self, message: str, silent: bool) -> None:
        super().__init__(message)
        self.silent = silent


def attend(qemu: subprocess.Popen[str], report: pathlib.Path,
           deadline_s: float, silent_s: float = SILENT_S,
           look_s: float = LOOK_S) -> str:
    """Wait until QEMU ends; what it wrote to standard error.

    :param report: grows while the guest lives
    :raises Stuck: it took too long, or the guest was silent too long.
    """
    began = heard = time.monotonic()
    size = 0
    while True:
        try:
            return qemu.communicate(timeout=look_s)[1]
        except subprocess.TimeoutExpired:
            now = time.monotonic()
        if (grown := report.stat().st_size) > size:
            size, heard = grown, now
        if now - heard > silent_s:
            raise Stuck(f'silent for {now - heard:.0f} s\n'
                        + threads(qemu.pid, min(1.0, look_s)), True)
        if now - began > deadline_s:
            raise Stuck(f'not within {deadline_s:.0f} s\n'
                        + threads(qemu.pid, min(1.0, look_s)), False)


def threads(pid: int, seconds: float) -> str:
    """What the threads of a process do, a line each.

    :param seconds: for so long it is looked at how much CPU time they use
    """
    before = _ticks(pid)
    time.sleep(seconds)
    return '\n'.join(
        f'{what}, {ticks - before.get(task, (0, ""))[0]} ticks of CPU in '
        f'{seconds:g} s' for task, (ticks, what) in _ticks(pid).items())


def _ticks(pid: int) -> dict[str, tuple[int, str]]:
    """Of each thread: ticks of CPU time, and its name, state and place."""
    found = {}
    for task in pathlib.Path(f'/proc/{pid}/task').glob('*'):
        try:
            name, _, rest = (task / 'stat').read_text().rpartition(')')
            where = (task / 'wchan').read_text()
        except OSError:
            continue    # it has ended, or is not ours
        fields = rest.split()
        found[task.name] = (int(fields[11]) + int(fields[12]),
                            f'{name}) {fields[0]} in {where}')
    return found


def _before_qemu() -> None:
    """QEMU ends with us.  It goes before what runs beside it, if we may: what
    it emulates has deadlines, and takes ten times as long as on a machine."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    with contextlib.suppress(PermissionError):
        os.nice(-5)


def _flat(suite: Any) -> Iterator[unittest.TestCase]:
    if isinstance(suite, unittest.TestCase):
        yield suite
        return
    for test in suite:
        yield from _flat(test)


class Outcome:
    """What the tests in a guest came to.

    :param fault: why it was not switched off in time, if it was not
    :param made_s: seconds that it took to make what it booted
    :param ran_s: seconds from its start to its end
    """

    def __init__(self, report: str, console: str, fault: Stuck | None,
                 made_s: float, ran_s: float) -> None:
        self.console = console
        self.fault = fault
        self.made_s = made_s
        self.ran_s = ran_s
        self.facts: dict[str, Any] = {}
        self.tests: dict[str, dict[str, Any]] = {}
        self.outside = ''
        for line in report.splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue    # cut off
            if record['test']:
                self.tests[record['test']] = record
            elif record['status'] == 'fail':
                self.outside += record['text']
            else:
                self.facts[record['status']] = record

    def stuck(self) -> str:
        """What a guest was doing that did not end, for people."""
        running = [name for name, found in self.tests.items()
                   if found['status'] == 'running']
        last = self.facts.get('beat', {}).get('uptime_s', 0.0)
        return (f'in {running}: {self.fault or "it ended"}\nafter '
                f'{self.ran_s:.0f} s its clock had come to {last:.0f} s; its '
                f'console:\n{self.tail()}')

    def tail(self) -> str:
        """The last words on the console."""
        return '\n'.join(self.console.splitlines()[-CONSOLE_LINES:])


class GuestCase(testtools.TestCase):
    """Tests that a guest runs; see :func:`reports`."""

    guest: ClassVar[Guest]
    outcome: ClassVar[Outcome | None] = None
    stood_still: ClassVar[Outcome | None] = None
    why_not: ClassVar[str] = ''

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        try:
            cls.outcome = cls.guest.run()
            # What hangs in there is interrupted and fails; a guest that does
            # not even say that it lives shows a fault of the emulator, or of
            # its kernel.
            if cls.outcome.fault and cls.outcome.fault.silent:
                cls.stood_still = cls.outcome
                cls.outcome = cls.guest.run()
        except Unavailable as exc:
            cls.why_not = str(exc)

    def test_first_boot(self) -> None:
        if self.outcome is None:
            self.skipTest(self.why_not)
        if self.stood_still is not None:
            self.skipTest('stood still and was booted again, '
                          + self.stood_still.stuck())

    def report(self, name: str) -> None:
        """Say what the test of this name came to in the guest."""
        if self.outcome is None:
            self.skipTest(self.why_not)
        found = self.outcome.tests.get(name, {'status': 'not begun'})
        status, text = found['status'], found.get('text', '')
        if status == 'skip':
            self.skipTest(text)
        if status == 'fail':
            self.fail(f'in the guest:\n{text}')
        if status != 'ok':
            self.addDetail('guest', content.text_content(
                self.outcome.stuck()))
            self.fail(f'{status} when the guest ended'
                      f'\n{self.outcome.outside}')


def reports(guest: Guest) -> Callable[[type[GuestCase]], type[GuestCase]]:
    """Give a class one method per test that ``guest`` runs."""
    def add(cls: type[GuestCase]) -> type[GuestCase]:
        cls.guest = guest
        for name in guest.ids():
            method = name.rpartition('.')[2]
            assert not hasattr(cls, method), f'{method} is there twice'
            said = functools.partialmethod(GuestCase.report, name)
            setattr(cls, method, said)
        return cls
    return add


def show(guest: Guest) -> int:
    """Run a guest by itself and print what happens; the exit code."""
    outcome = guest.run()
    print(outcome.console)
    for name, found in outcome.tests.items():
        print(f'{found["status"]:8}{found.get("took_s", 0):7.2f} s  {name}')
        if found['status'] not in ('ok', 'running'):
            print(found.get('text', ''))
    print(f'{outcome.outside}made in {outcome.made_s:.1f} s, ran '
          f'{outcome.ran_s:.1f} s: {outcome.facts}')
    return outcome.fault is not None or any(
        found['status'] not in ('ok', 'skip')
        for found in outcome.tests.values())
