# SPDX-License-Identifier: Apache-2.0

"""The first process of a throw-away guest: mount, load, test, switch off.

It is ``/init`` of the archives that :mod:`.guest` puts together, and runs on
the standard library.  ``/guest.json`` names the modules of the kernel to
load, the modules of tests to run and their tier; what each test comes to goes
to the virtual serial port, one line of JSON when it begins and one when it
ends.
A line more each second says that the guest lives, whatever its tests do.
What is printed goes to the console.
"""

from __future__ import annotations

import ctypes
import glob
import json
import os
import platform
import signal
import sys
import time
import traceback
from typing import Any
from typing import BinaryIO
import unittest

SITE = '/opt/site'
TEST_TIMEOUT_S = 600
AGAIN_S = 60
"""After this long a test that hangs is interrupted again, as it tidies up."""
BEAT_S = 1.0
PORT_TIMEOUT_S = 10

MOUNTS = (('proc', '/proc', ''), ('sysfs', '/sys', ''),
          ('devtmpfs', '/dev', ''), ('tmpfs', '/run', 'mode=0755'),
          ('tmpfs', '/tmp', 'mode=1777'), ('cgroup2', '/sys/fs/cgroup', ''))

MS_NOEXEC = 8
FINIT_MODULE = {'x86_64': 313, 'aarch64': 273}
REBOOT_NOW = 0x01234567

libc = ctypes.CDLL(None, use_errno=True)


def mount() -> None:
    """Mount what every test may expect."""
    for kind, where, options in MOUNTS:
        os.makedirs(where, exist_ok=True)
        flags = MS_NOEXEC if where == '/run' else 0     # as Debian has it
        if libc.mount(kind.encode(), where.encode(), kind.encode(), flags,
                      options.encode()):
            print(f'init: {where}: {os.strerror(ctypes.get_errno())}')


def load(modules: list[str]) -> None:
    """Load modules of the kernel; one that fails is named, no more."""
    call = FINIT_MODULE[platform.machine()]
    for name in modules:
        fd = os.open(f'/modules/{name}.ko', os.O_RDONLY | os.O_CLOEXEC)
        if libc.syscall(call, fd, b'', 0):
            print(f'init: {name}: {os.strerror(ctypes.get_errno())}')
        os.close(fd)


def port() -> BinaryIO:
    """The virtual serial port.

    Its device node takes a moment to appear, and can be opened a moment
    later still.
    """
    until = time.monotonic() + PORT_TIMEOUT_S
    while True:
        found = glob.glob('/dev/vport*') or ['/dev/vport*']
        try:
            # "open()" would make the file.
            return os.fdopen(os.open(found[0], os.O_WRONLY | os.O_CLOEXEC),
                             'wb', buffering=0)
        except OSError:
            if time.monotonic() > until:
                raise
        time.sleep(0.01)


class Late(Exception):
    """A test hangs.  No OSError, which code that tidies up passes over."""


class Report(unittest.TestResult):
    """Says what each test comes to, while it happens."""

    def __init__(self, out: BinaryIO) -> None:
        super().__init__()
        self._out = out
        self._began_s = 0.0
        self._came_to: dict[str, str] = {}

    def say(self, **fields: Any) -> None:
        self._out.write(json.dumps(fields).encode() + b'\n')

    def startTest(self, test: unittest.TestCase) -> None:
        super().startTest(test)
        self._began_s = time.monotonic()
        self._came_to = {'status': 'ok'}
        self.say(test=test.id(), status='running')
        wind()

    def stopTest(self, test: unittest.TestCase) -> None:
        wind()      # what is between two tests may hang, too
        super().stopTest(test)
        self.say(test=test.id(), took_s=time.monotonic() - self._began_s,
                 **self._came_to)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        super().addSkip(test, reason)
        self._came_to = {'status': 'skip', 'text': reason}

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        super().addFailure(test, err)
        self._came_to = {'status': 'fail', 'text': self.failures[-1][1]}

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        super().addError(test, err)
        self._came_to = {'status': 'fail', 'text': self.errors[-1][1]}
        if not isinstance(test, unittest.TestCase):     # a class's set-up
            self.say(test='', **self._came_to)


def processes() -> str:
    """What the processes do that are not the kernel's own, a line each."""
    said = []
    for stat in glob.glob('/proc/[0-9]*/stat'):
        try:
            with open(stat) as file:
                name, _, rest = file.read().rpartition(')')
            with open(os.path.dirname(stat) + '/wchan') as file:
                where = file.read()
            with open(os.path.dirname(stat) + '/cmdline') as file:
                command = file.read().replace('\0', ' ').strip()
        except OSError:
            continue    # it has ended
        fields = rest.split()
        if command:
            said.append(f'{name}) {fields[0]} in {where}, ticks of CPU '
                        f'{fields[11]}+{fields[12]}, policy {fields[38]}: '
                        f'{command[:100]}')
    return '\n'.join(said)


def late(number: int, frame: Any) -> None:
    print(processes())
    raise Late(f'not within {TEST_TIMEOUT_S} s')


def wind() -> None:
    """What comes now has its time from here."""
    signal.setitimer(signal.ITIMER_REAL, TEST_TIMEOUT_S, AGAIN_S)


def test(names: list[str], out: BinaryIO) -> None:
    """Run all tests of some modules."""
    signal.signal(signal.SIGALRM, late)
    report = Report(out)
    report.say(test='', status='booted', uptime_s=time.clock_gettime(
        time.CLOCK_BOOTTIME), kernel=platform.release())
    for name in names:
        wind()
        try:
            suite = unittest.defaultTestLoader.loadTestsFromName(name)
        except BaseException:
            report.say(test='', status='fail', text=traceback.format_exc())
            continue
        suite.run(report)


def attend(tests: int, out: BinaryIO) -> None:
    """Say that this guest lives until the process with the tests ends."""
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD,))
    while True:
        while ended := os.waitpid(-1, os.WNOHANG)[0]:   # orphans are ours
            if ended == tests:
                return
        signal.sigtimedwait((signal.SIGCHLD,), BEAT_S)
        out.write(json.dumps({
            'test': '', 'status': 'beat', 'uptime_s': time.clock_gettime(
                time.CLOCK_BOOTTIME)}).encode() + b'\n')


def main() -> None:
    mount()
    with open('/guest.json') as file:
        todo = json.load(file)
    load(todo['modules'])
    libc.sethostname(b'guest', 5)
    sys.path.insert(0, SITE)
    os.environ.update(PYTHONPATH=SITE, HOME='/tmp', LC_ALL='C.UTF-8',
                      SCAVENGER_TESTS=todo['tier'],
                      PATH='/usr/sbin:/usr/bin:/sbin:/bin')
    out = port()
    tests = os.fork()
    if not tests:
        try:
            test(todo['tests'], out)
        except BaseException:
            traceback.print_exc()
        os._exit(0)
    # Before all that the tests start: silence is then no lack of CPU time.
    os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK,
                          os.sched_param(1))
    attend(tests, out)
    out.write(json.dumps({
        'test': '', 'status': 'end', 'uptime_s': time.clock_gettime(
            time.CLOCK_BOOTTIME)}).encode() + b'\n')


if __name__ == '__main__':
    if os.getpid() != 1:
        sys.exit('only for the first process of a guest: it mounts, and '
                 'ends with a reset of the machine')
    try:
        main()
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    libc.reboot(REBOOT_NOW)
