# SPDX-License-Identifier: Apache-2.0

"""A disk of the tests' own, and what reads it."""

from __future__ import annotations

import os
import platform
import subprocess
from typing import Any

import fixtures

from scavenger_openstack.tests.functional import base

DISK_BYTES = 64 << 20

AIO = {'x86_64': (206, 207, 208, 209), 'aarch64': (0, 1, 4, 2)}
"""Numbers of io_setup, io_destroy, io_getevents and io_submit."""

READS = '''
import mmap, os, random, threading, time
def work():
    fd, space = os.open({path!r}, os.O_RDONLY | os.O_DIRECT), mmap.mmap(
        -1, {size})
    blocks = os.lseek(fd, 0, os.SEEK_END) // {size}
    while True:
        while {period_s} and int(time.time() / {period_s}) % 2 != {turn}:
            time.sleep(0.002)
        os.preadv(fd, [space], random.randrange(blocks) * {size})
        time.sleep({pause_s})
for _ in range({threads}):
    threading.Thread(target=work, daemon=True).start()
print(flush=True)
time.sleep(1e6)
'''
DEEP = '''
import ctypes, mmap, os, random, struct
fd, space = os.open({path!r}, os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, {size})
libc, context = ctypes.CDLL(None), ctypes.c_ulong(0)
setup, _, get, submit = {calls}
assert not libc.syscall(setup, 32, ctypes.byref(context))
at = ctypes.addressof(ctypes.c_char.from_buffer(space))
# struct iocb: IOCB_CMD_PREAD is 0.
blocks = [ctypes.create_string_buffer(struct.pack(
    '=QIIHhIQQqQII', 0, 0, 0, 0, 0, fd, at, {size}, number * {size}, 0, 0, 0))
    for number in random.sample(range({blocks}), 32)]
pointers = (ctypes.c_void_p * 32)(*map(ctypes.addressof, blocks))
events = ctypes.create_string_buffer(32 * 32)
print(flush=True)
count = 32
while True:
    assert libc.syscall(submit, context, count, pointers) == count
    count = libc.syscall(get, context, 1, 32, events, None)
    # The same again: no two are of one sector.
    for number in range(count):
        pointers[number], = struct.unpack_from('=8xQ', events, 32 * number)
'''
WRITES = '''
import ctypes, os
fd, data = os.open({path!r}, os.O_RDWR | os.O_CREAT), bytes(1 << 20)
libc = ctypes.CDLL(None)
print(flush=True)
while True:
    for number in range(16):
        os.pwrite(fd, data, number << 20)
    libc.syncfs(fd)     # by the threads of the kernel, as after 30 s
'''


class LoopDeviceTestCase(base.FunctionalTestCase):
    """``path`` is a loop device, whose requests are real ones of this
    machine's disk."""

    def setUp(self) -> None:
        super().setUp()
        self.path = self.disk()

    def disk(self) -> str:
        directory = self.useFixture(fixtures.TempDir(
            rootdir='/var/tmp')).path
        file = f'{directory}/disk'
        with open(file, 'wb') as data:
            for _ in range(DISK_BYTES >> 20):
                data.write(os.urandom(1 << 20))
            os.fsync(data.fileno())
        try:
            done = subprocess.run(
                ['losetup', '--find', '--show', '--partscan',
                 '--direct-io=on', file], capture_output=True, text=True,
                check=True)
        except (OSError, subprocess.CalledProcessError) as exc:
            self.skipTest(f'needs loop devices: {exc}')
        path = done.stdout.strip()
        self.addCleanup(self.detach, path)
        return path

    def detach(self, path: str) -> None:
        subprocess.run(['losetup', '--detach', path], check=False,
                       capture_output=True)
        self.wait_for('the loop device is free', lambda: subprocess.run(
            ['losetup', path], capture_output=True,
            check=False).returncode)

    def reads(self, path: str = '', **words: Any) -> int:
        """The process id of one that reads."""
        return self.reader(path, **words).pid

    def deep(self, size: int = 65536) -> str:
        """What always has 32 requests in flight, and needs little of a CPU
        for it."""
        return DEEP.format(path=self.path, calls=AIO[platform.machine()],
                           blocks=DISK_BYTES // size, size=size)

    def reader(self, path: str = '', *, size: int = 4096, threads: int = 1,
               pause_s: float = 0.0, period_s: float = 0.0, turn: int = 0,
               tree: base.CgroupTree | None = None, below: str = ''
               ) -> subprocess.Popen[str]:
        process = self.spawn(READS.format(
            path=path or self.path, size=size, threads=threads,
            pause_s=pause_s, period_s=period_s, turn=turn), tree, below)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    def writes(self, tree: base.CgroupTree | None = None, below: str = ''
               ) -> int:
        """The same of one that writes a file there, by the page cache."""
        where = self.useFixture(fixtures.TempDir()).path
        for command in (['mkfs.ext4', '-q', self.path],
                        ['mount', self.path, where]):
            try:
                subprocess.run(command, check=True, capture_output=True)
            except (OSError, subprocess.CalledProcessError) as exc:
                self.skipTest(f'needs a file system: {exc}')
        self.addCleanup(subprocess.run, ['umount', where], check=True)
        process = self.spawn(WRITES.format(path=f'{where}/file'), tree, below)
        assert process.stdout is not None
        process.stdout.readline()
        return process.pid
