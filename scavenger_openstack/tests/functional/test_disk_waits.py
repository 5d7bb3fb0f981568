# SPDX-License-Identifier: Apache-2.0

"""Whose requests a disk served while others waited, told by this kernel."""

from __future__ import annotations

import ctypes
import mmap
import os
import pathlib
import platform
import struct
import subprocess
import time
import uuid

import fixtures
from testtools import content

from scavenger_openstack.drivers.direct import thread_owners
from scavenger_openstack.drivers.kernel import disk_waits
from scavenger_openstack.tests.functional import base
from scavenger_openstack.tests.functional import bpf_programs
from scavenger_openstack.tests.functional import loop_device
from scavenger_openstack.types import DirectEvidence
from scavenger_openstack.types import THE_HOST

MODULE = disk_waits.__name__
PART_SECTORS = 2048, 65536

ONE_READ = '''
import mmap, os
fd, space = os.open({path!r}, os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, 4096)
for number in range(50):
    os.preadv(fd, [space], number << 12)
print(os.getpid(), flush=True)
'''


class Requests:
    """Asynchronous requests of 4 KiB, given to the kernel all at once."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_DIRECT)
        self._space = mmap.mmap(-1, 4096)
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._context = ctypes.c_ulong(0)
        self._call(0, 256, ctypes.byref(self._context))

    def write(self, sectors: list[int]) -> None:
        """Write at these, in this order, and wait."""
        at = ctypes.addressof(ctypes.c_char.from_buffer(self._space))
        blocks = [ctypes.create_string_buffer(struct.pack(
            '=QIIHhIQQqQII', 0, 0, 0, 1, 0, self._fd, at, 4096, sector << 9,
            0, 0, 0)) for sector in sectors]
        pointers = (ctypes.c_void_p * len(blocks))(
            *map(ctypes.addressof, blocks))
        self._call(3, self._context, len(blocks), pointers)
        events = ctypes.create_string_buffer(32 * len(blocks))
        self._call(2, self._context, len(blocks), len(blocks), events, None)

    def close(self) -> None:
        self._call(1, self._context)
        os.close(self._fd)

    def _call(self, call: int, *arguments: object) -> None:
        number = loop_device.AIO[platform.machine()][call]
        if self._libc.syscall(number, *arguments) < 0:
            raise OSError(ctypes.get_errno(), os.strerror(
                ctypes.get_errno()))


class DiskWaitsTest(loop_device.LoopDeviceTestCase,
                    bpf_programs.ReaderCase):

    kind = disk_waits.DiskWaits
    programs = 9
    purpose = 'tell whose requests'


    def setUp(self):
        super().setUp()
        self.owners = thread_owners.ThreadOwners({})
        self.name = self.path.removeprefix('/dev/')
        self.number = pathlib.Path(
            f'/sys/block/{self.name}/dev').read_text().strip()

    def evidence(self, reader: disk_waits.DiskWaits, owners: dict[int, str],
                 waited_s: float = 0.5) -> DirectEvidence:
        """What the victim waited for, once that was so long.

        What it waits for now is nobody's until the disk, which may be busy
        with other things of this machine, completes a request.
        """
        answers: list[DirectEvidence] = []

        def waited() -> bool:
            waits = reader.waits()
            answers[:] = [disk_waits.evidence('victim', waits, {
                (pid, cgroup): owners.get(pid, THE_HOST)
                for _, pid, cgroup in waits.served}, {
                    pid: self.owners.name(pid)
                    for _, pid, _ in waits.served})]
            return sum(answers[0].holders.values()) > waited_s

        self.wait_for('the victim waits', waited)
        return answers[0]

    def completed(self) -> int:
        """Requests that the kernel itself counted: reads and writes."""
        fields = pathlib.Path(
            f'/sys/block/{self.name}/stat').read_text().split()
        return int(fields[0]) + int(fields[4])

    def of_mine(self, reader: disk_waits.DiskWaits, field: str) -> float:
        """Of this process, on the disk, as counted by us."""
        return sum(getattr(served, field) for submitter, served
                   in reader.waits().served.items()
                   if submitter.device == self.number
                   and submitter.process == os.getpid())

    def counted(self, reader: disk_waits.DiskWaits) -> float:
        return self.of_mine(reader, 'requests')

    def rests(self, reader: disk_waits.DiskWaits) -> None:
        """No victim waits any more."""
        waited = reader.waits().waited_s
        time.sleep(0.02)
        self.assertEqual(waited, reader.waits().waited_s)

    def test_there_first(self):
        """It needs no past: the one in the way never rested before."""
        hog = self.reads(size=65536, threads=16)
        light = self.reads(pause_s=0.02)
        victim = self.reads(pause_s=0.005)
        reader = self.waits(victim=[victim])
        answer = self.evidence(
            reader, {hog: 'hog', light: 'light', victim: 'victim'})
        held_s = sum(answer.holders.values())
        self.assertGreater(answer.holders['hog'], 0.6 * held_s, answer)
        self.assertLess(answer.holders.get('light', 0), 0.1 * held_s, answer)
        served = reader.waits().served
        mine, = (served[key] for key in served
                 if key.process == victim and key.device == self.number)
        self.assertLess(mine.shortest_s, mine.in_flight_s / mine.requests)
        self.assertLess(0, mine.shortest_s)

    def test_partition_of_the_same_disk(self):
        start, sectors = PART_SECTORS
        subprocess.run(['addpart', self.path, '1', str(start), str(sectors)],
                       check=True, capture_output=True)
        part = f'{self.path}p1'
        self.wait_for('the partition', lambda: os.path.exists(part))
        self.assertNotEqual(self.number, pathlib.Path(
            f'/sys/block/{self.name}/{self.name}p1/dev').read_text().strip())
        hog = self.reads(size=65536, threads=16)
        victim = self.reads(part, pause_s=0.005)
        reader = self.waits(victim=[victim])
        answer = self.evidence(reader, {hog: 'hog', victim: 'victim'})
        self.assertGreater(answer.holders['hog'],
                           0.6 * sum(answer.holders.values()), answer)
        self.assertIn((self.number, victim), {
            (key.device, key.process) for key in reader.waits().served})

    def test_in_turns(self):
        """The other one has most of the disk, but never while the victim
        waits."""
        other = self.reads(size=65536, threads=8, period_s=0.1, turn=0)
        victim = self.reads(period_s=0.1, turn=1)
        reader = self.waits(victim=[victim])
        self.evidence(reader, {other: 'other', victim: 'victim'})
        served = [value for key, value in reader.waits().served.items()
                  if key.process == other]
        # On a busy machine a request may last into the other's turn.
        self.assertGreater(sum(value.served_s for value in served), 2 * sum(
            value.beside_s.get('victim', 0) for value in served), served)

    def test_buffered_writes_are_the_hosts(self):
        writer = self.writes()
        victim = self.reads(pause_s=0.002)
        reader = self.waits(victim=[victim])
        answer = self.evidence(
            reader, {writer: 'writer', victim: 'victim'}, 1.0)
        self.assertLess(answer.holders.get('writer', 0),
                        answer.holders[THE_HOST])
        self.assertIn('kworker', ' '.join(answer.threads))

    def test_large_requests_are_split(self):
        pathlib.Path(f'/sys/block/{self.name}/queue/max_sectors_kb'
                     ).write_text('64')
        reader = self.waits(victim=[os.getpid()])
        before = self.completed()
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECT)
        self.addCleanup(os.close, fd)
        space = mmap.mmap(-1, 1 << 20)
        for number in range(8):
            os.preadv(fd, [space], number << 20)
        self.assertEqual(8 * 16, self.completed() - before)
        self.assertEqual(8 * 16, self.counted(reader))
        self.rests(reader)

    def test_small_requests_are_merged(self):
        upward = list(range(0, 512, 8))
        # Two that grow together: only a scheduler merges requests later.
        mixed = [sector for first in range(0, 128, 8)
                 for sector in (first, 4096 + first)]
        for scheduler, *orders in (('none', upward, upward[::-1]),
                                   ('mq-deadline', upward, upward[::-1],
                                    mixed)):
            pathlib.Path(f'/sys/block/{self.name}/queue/scheduler'
                         ).write_text(scheduler)
            for order in orders:
                requests = Requests(self.path)
                reader = self.waits(victim=[os.getpid()])
                before = self.completed()
                requests.write(order)
                done = self.completed() - before
                self.assertLess(done, len(order), (scheduler, order))
                self.assertEqual(done, self.counted(reader),
                                 (scheduler, order))
                self.rests(reader)
                in_flight_s = self.of_mine(reader, 'in_flight_s')
                # What comes next is not taken for one that was merged.
                began = time.monotonic()
                for sector in order:
                    requests.write([sector])
                requests.close()
                more_s = time.monotonic() - began
                self.assertEqual(done + len(order), self.counted(reader))
                self.assertLess(self.of_mine(reader, 'in_flight_s')
                                - in_flight_s, more_s, (scheduler, order))
                reader.close()

    def test_process_that_has_ended(self):
        top = base.unified()
        if top is None:
            self.skipTest('needs cgroup v2')
        group = top / f'scv-test-{uuid.uuid4().hex[:8]}'
        group.mkdir()
        self.addCleanup(base.remove_cgroup, group)
        victim = self.reads()
        reader = self.waits(victim=[victim])
        job = self.spawn(f'with open("{group}/cgroup.procs", "w") as file:\n'
                         '    file.write("0")\n'
                         + ONE_READ.format(path=self.path))
        job.wait(30)
        answer = disk_waits.evidence(
            'victim', reader.waits(),
            {(job.pid, group.stat().st_ino): 'job'}, {})
        self.assertLess(0, answer.holders['job'])

    def test_requests_that_began_before(self):
        """They are nobody's, and nothing longer than the window is told."""
        victim = self.reads(size=65536, threads=32)
        for _ in range(10):
            reader = self.waits(victim=[victim])
            self.evidence(reader, {victim: 'victim'}, 0.005)
            waits = reader.waits()
            for served in waits.served.values():
                self.assertLess(served.shortest_s, waits.window_s)
                self.assertLessEqual(served.in_flight_s,
                                     served.requests * waits.window_s)
            reader.close()

    def test_disk_removed_in_the_window(self):
        victim = self.reader(threads=4)
        reader = self.waits(victim=[victim.pid])
        self.evidence(reader, {victim.pid: 'victim'}, 0.1)
        victim.kill()
        victim.wait(30)
        self.detach(self.path)
        self.rests(reader)
        self.assertIn(self.number, {
            key.device for key in reader.waits().served})

    def test_two_windows(self):
        victim = self.reads(pause_s=0.001)
        first = self.waits(victim=[victim])
        self.evidence(first, {victim: 'victim'}, 0.1)
        second = self.waits(victim=[victim])
        self.assertLess(second.waits().waited_s['victim'],
                        first.waits().waited_s['victim'] / 2)
        first.close()
        self.evidence(second, {victim: 'victim'}, 0.1)

    def test_further_processes_of_a_victim(self):
        reader = self.waits(victim=[])
        victim = self.reads()
        self.wait_for('it reads', lambda: victim in {
            key.process for key in reader.waits().served})
        self.assertEqual({'victim': 0.0}, reader.waits().waited_s)
        reader.watch({'victim': [victim], 'another': [1]})
        self.evidence(reader, {victim: 'victim'}, 0.1)

    def test_no_room(self):
        with fixtures.MonkeyPatch(f'{MODULE}.MOST_SUBMITTERS', 1), \
                fixtures.MonkeyPatch(f'{MODULE}.MOST_CGROUPS', 1), \
                fixtures.MonkeyPatch(f'{MODULE}.MOST_IN_FLIGHT', 4):
            reader = self.waits(victim=[1, os.getpid()])
            for _ in range(3):
                self.reads(threads=16)
            self.wait_for('more readers than there is room for', lambda: any(
                submitter.process == 0 for submitter in reader.waits().served))
            self.assertLessEqual(len(reader.waits().served), 2)

    def test_few_large_requests_beside_many_small(self):
        """On a disk that serves many at once the large ones hold it."""
        for rotates, most in ('0', 'large'), ('1', None):
            pathlib.Path(f'/sys/block/{self.name}/queue/rotational'
                         ).write_text(rotates)
            large = self.reader(size=1 << 20, threads=4)
            small = self.reader(pause_s=0.0005, threads=4)
            victim = self.reader(pause_s=0.002)
            reader = self.waits(victim=[victim.pid])
            answer = self.evidence(reader, {
                large.pid: 'large', small.pid: 'small',
                victim.pid: 'victim'})
            self.addDetail(rotates, content.text_content(repr(answer)))
            if most:
                shares = {name: held / sum(answer.holders.values())
                          for name, held in answer.holders.items()}
                self.assertGreater(shares['large'], 0.6, answer)
                self.assertLess(shares['small'], 0.4, answer)
            reader.close()
            for process in large, small, victim:
                process.kill()
                process.wait(30)

    def test_many_small_requests_beside_few_large(self):
        pathlib.Path(f'/sys/block/{self.name}/queue/rotational'
                     ).write_text('0')
        small = self.spawn(self.deep(4096))
        small.stdout.readline()
        large = self.reads(size=1 << 20, pause_s=0.1)
        victim = self.reads(pause_s=0.002)
        reader = self.waits(victim=[victim])
        answer = self.evidence(reader, {
            large: 'large', small.pid: 'small', victim: 'victim'})
        held_s = sum(answer.holders.values())
        self.assertGreater(answer.holders['small'], 0.6 * held_s, answer)
        self.assertLess(answer.holders.get('large', 0.0), 0.3 * held_s,
                        answer)
