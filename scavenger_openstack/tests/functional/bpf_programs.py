# SPDX-License-Identifier: Apache-2.0

"""Which BPF programs the kernel has, as bpftool lists them, and what reads
what they count."""

from __future__ import annotations

from collections.abc import Iterable
import ctypes
import os
import struct
import subprocess
import sys
from typing import Any

from scavenger_openstack.drivers.kernel import bpf
from scavenger_openstack.drivers.kernel import cpu_waits
from scavenger_openstack.drivers.kernel import disk_waits
from scavenger_openstack import errors
from scavenger_openstack.tests import descriptors
from scavenger_openstack.tests.functional import base

ALONE = '''
import sys
sys.path[:0] = {path!r}
import {module} as module
from scavenger_openstack import errors
{first}
try:
    reader = module.{name}({{}})
    print('opened', flush=True)
except errors.Unsupported as exc:
    print(exc)
    sys.exit()
'''
"""A reader in a process of its own."""


def loaded() -> set[int]:
    """Ids of all BPF programs in the kernel (BPF_PROG_GET_NEXT_ID)."""
    ids: set[int] = set()
    last = 0
    libc = ctypes.CDLL(None, use_errno=True)
    calls = bpf.system_calls()
    assert calls is not None
    number = ctypes.c_long(calls.bpf)
    while True:
        buffer = ctypes.create_string_buffer(struct.pack('=II', last, 0), 128)
        if libc.syscall(number, 11, buffer, 128):
            return ids
        last = struct.unpack_from('=4xI', buffer.raw)[0]
        ids.add(last)


class ReaderCase(base.FunctionalTestCase):
    """What is true of each reader of what its programs count."""

    kind: type[cpu_waits.CpuWaits] | type[disk_waits.DiskWaits]
    programs: int
    """So many at least."""
    purpose: str
    """What is not possible without them."""

    def setUp(self) -> None:
        super().setUp()
        self.before = loaded()

    def waits(self, **victims: Iterable[int]) -> Any:
        try:
            reader = self.kind(victims)
        except errors.Unsupported as exc:
            self.skipTest(str(exc))
        self.addCleanup(reader.close)
        return reader

    def alone(self, first: str = '') -> str:
        return ALONE.format(path=sys.path, module=self.kind.__module__,
                            name=self.kind.__name__, first=first)

    def left(self) -> None:
        self.wait_for('the programs leave the kernel',
                      lambda: loaded() <= self.before)

    def test_nothing_is_left_behind(self) -> None:
        with descriptors.given_back():
            reader = self.waits(victim=[os.getpid()])
            self.assertLessEqual(self.programs, len(loaded() - self.before))
            reader.close()
            reader.close()
        self.left()
        self.assertRaises(errors.DriverError, reader.waits)

    def test_gone_with_its_process(self) -> None:
        process = self.spawn(self.alone() + 'import time\ntime.sleep(60)')
        assert process.stdout is not None
        self.assertEqual('opened\n', process.stdout.readline())
        process.kill()
        process.wait(30)
        self.left()

    def test_without_the_right_to(self) -> None:
        process = self.spawn(self.alone(
            'import os\nos.setgroups([])\nos.setgid(65534)\n'
            'os.setuid(65534)'))
        assert process.stdout is not None
        answer = process.stdout.readline()
        self.assertIn(f'cannot {self.purpose}', answer)
        self.assertIn('CAP_BPF', answer)
        self.assertEqual(0, process.wait(30))

    def test_in_another_pid_namespace(self) -> None:
        """Its ids would be taken for those of others."""
        done = subprocess.run(
            ['unshare', '--pid', '--fork', '--mount-proc', sys.executable,
             '-c', self.alone()], capture_output=True, text=True, timeout=60)
        self.assertIn('PID namespace', done.stdout, done.stderr)
