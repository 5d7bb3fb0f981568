# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pathlib
import struct

import fixtures
import testtools

from scavenger_openstack.drivers.kernel import bpf
from scavenger_openstack.drivers.kernel import disk_programs
from scavenger_openstack.drivers.kernel import disk_waits
from scavenger_openstack.tests.unit.drivers.kernel import bpf_machine
from scavenger_openstack.types import Resource
from scavenger_openstack.types import THE_HOST

DISK, OTHER = 8 << 20, 8 << 20 | 16
VICTIM, HOG, LIGHT = 100, 200, 300
MAPS = disk_programs.Maps(*range(3, 10))
OFFSETS = {'dev': 8, 'sector': 16, 'nr_sector': 24, 'new_sector': 24}


class Disk:
    """What the programs count of requests on two disks, in us."""

    def __init__(self, victims: int = 1, submitters: int = 16,
                 cgroups: int = 0) -> None:
        self.victims = victims
        table = bpf_machine.Table
        self.machine = bpf_machine.Machine({
            MAPS.disks: table(4, 4, 2), MAPS.victims: table(4, 8, 8),
            MAPS.start: table(16, 24, 64),
            MAPS.devices: table(4, 32 * (1 + victims), 2, array=True),
            MAPS.totals: table(16, 32 + 16 * victims, submitters),
            MAPS.rest: table(16, 32 + 16 * victims, cgroups),
            MAPS.lost: table(4, 8, 1, array=True)})
        word = struct.Struct('=I').pack
        self.machine.tables[MAPS.disks].update({
            word(DISK): bytearray(word(0)), word(OTHER): bytearray(word(1))})
        if victims:
            self.watch(VICTIM, 1)

    def watch(self, process: int, victim: int) -> None:
        self.machine.tables[MAPS.victims][struct.pack('=I', process)] = (
            bytearray(struct.pack('=Q', victim)))

    def event(self, name: str, us: int, sector: int, more: int = 0,
              device: int = DISK) -> None:
        fields, program = disk_programs.PROGRAMS[f'block:{name}']
        self.machine.now_ns = 1000 * (us + 1000)
        record = bytearray(32)
        struct.pack_into('=I4xQQ', record, 8, device, sector, more)
        event = bpf.Event(1, {name: OFFSETS[name] for name in fields})
        self.machine.run(program(event, MAPS, self.victims), bytes(record))

    def queue(self, process: int, us: int, sector: int, device: int = DISK,
              cgroup: int = 7) -> None:
        self.machine.process, self.machine.cgroup = process, cgroup
        self.event('block_bio_queue', us, sector, 8, device)

    def complete(self, us: int, sector: int, device: int = DISK,
                 sectors: int = 8) -> None:
        self.event('block_rq_complete', us, sector, sectors, device)

    def totals(self) -> dict[tuple[int, int], tuple[int, ...]]:
        """By process and disk: requests, in flight, served, shortest, and
        beside each victim, in us."""
        return {key[1:]: (requests, *(ns // 1000 for ns in times[:3]),
                          *(ns // 1000 for ns in times[3::2]))
                for key, (requests, *times) in self.values().items()}

    def values(self) -> dict[tuple[int, int, int], tuple[int, ...]]:
        """By cgroup, process and disk."""
        tables, whole = self.machine.tables, f'={4 + 2 * self.victims}Q'
        return {struct.unpack('=QII', key): struct.unpack(whole, value)
                for table in (MAPS.totals, MAPS.rest)
                for key, value in tables[table].items()}

    def costs(self) -> dict[int, int]:
        """By process, what was served beside the first victim, in sectors."""
        return {process: values[5] for (_, process, _), values
                in self.values().items()}

    def waited(self, disk: int = 0) -> int:
        value = self.machine.tables[MAPS.devices][struct.pack('=I', disk)]
        return struct.unpack_from('=Q', value, 32 + 16)[0] // 1000

    def waits(self, disk: int = 0) -> bool:
        value = self.machine.tables[MAPS.devices][struct.pack('=I', disk)]
        return bool(struct.unpack_from('=Q', value, 32)[0])

    def in_flight(self) -> int:
        return len(self.machine.tables[MAPS.start])


class ProgramsTestCase(testtools.TestCase):

    def test_time_of_the_disk(self):
        disk = Disk()
        disk.queue(HOG, 10, 800)
        disk.queue(VICTIM, 20, 0)
        disk.queue(HOG, 30, 900)
        disk.complete(100, 800)
        disk.complete(150, 900)
        disk.complete(170, 0)
        # The hog had 80 us of what passed since the victim began, and 50.
        self.assertEqual({(HOG, 0): (2, 210, 140, 90, 130),
                          (VICTIM, 0): (1, 150, 20, 150, 20)},
                         disk.totals())
        self.assertEqual(150, disk.waited())
        self.assertFalse(disk.waits())
        self.assertEqual(0, disk.in_flight())

    def test_split_beyond_32_bits(self):
        """The kernel cuts the new sector."""
        disk, high = Disk(), 1 << 32
        disk.queue(VICTIM, 0, high + 1000)
        disk.event('block_split', 1, high + 1000, 1100)
        disk.complete(50, high + 1000)
        disk.complete(60, high + 1100)
        self.assertEqual((2, 0), (disk.totals()[VICTIM, 0][0],
                                  disk.in_flight()))

    def test_merged_in_front(self):
        """The request begins where the last that was merged does."""
        disk = Disk()
        disk.queue(VICTIM, 0, 80)
        for sector in (72, 64):
            disk.queue(VICTIM, 1, sector)
            disk.event('block_bio_frontmerge', 1, sector, 8)
        self.assertTrue(disk.waits())
        disk.complete(30, 64)
        self.assertEqual({(VICTIM, 0): (1, 29, 29, 29, 29)}, disk.totals())
        self.assertEqual((0, False), (disk.in_flight(), disk.waits()))

    def test_requests_merged(self):
        disk = Disk()
        disk.queue(HOG, 0, 0)
        disk.queue(HOG, 1, 8)
        disk.event('block_rq_merge', 2, 8)
        disk.complete(30, 0)
        self.assertEqual({(HOG, 0): (1, 30, 30, 30, 0)}, disk.totals())
        self.assertEqual(0, disk.in_flight())

    def test_all_merged_later(self):
        """By the scheduler, out of order; the victim rests then."""
        for order in ((1, 2, 3), (3, 2, 1), (2, 3, 1)):
            disk = Disk()
            for number in range(4):
                disk.queue(VICTIM, number, 8 * number)
            for number in order:
                disk.event('block_rq_merge', 9, 8 * number)
            disk.complete(30, 0)
            self.assertEqual((0, False), (disk.in_flight(), disk.waits()))
            self.assertEqual(1, disk.totals()[VICTIM, 0][0])

    def test_merged_after_the_one_before_was_completed(self):
        disk = Disk()
        disk.queue(VICTIM, 0, 0)
        disk.queue(VICTIM, 1, 80)
        disk.complete(2, 0)
        disk.event('block_bio_backmerge', 3, 80, 8)
        self.assertFalse(disk.waits())

    def test_flush(self):
        """The kernel completes one of its own, and then that which waited
        for it."""
        disk = Disk()
        disk.queue(VICTIM, 0, 0)
        disk.complete(30, (1 << 64) - 1)
        disk.complete(31, 0)
        self.assertEqual({(VICTIM, 0): (1, 31, 31, 31, 31)}, disk.totals())

    def test_completion_that_was_missed(self):
        """The kernel leaves out a program that interrupts another one."""
        disk = Disk()
        disk.queue(VICTIM, 0, 0)
        # It is done, but nothing told of it; now the next begins.
        disk.queue(VICTIM, 100, 8)
        disk.complete(110, 8)
        self.assertFalse(disk.waits())
        disk.queue(HOG, 200, 800)
        disk.complete(900, 800)
        self.assertEqual(0, disk.totals()[HOG, 0][-1])
        self.assertEqual(10, disk.waited())

    def test_the_same_sector_twice(self):
        disk = Disk()
        disk.queue(HOG, 0, 0)
        disk.queue(VICTIM, 5, 0)
        disk.complete(10, 0)
        disk.complete(12, 0)
        self.assertEqual({(HOG, 0): (1, 10, 10, 10, 0)}, disk.totals())
        self.assertFalse(disk.waits())

    def test_clock_of_another_cpu(self):
        disk = Disk()
        disk.queue(VICTIM, 100, 0)
        disk.complete(99, 0)
        self.assertEqual({(VICTIM, 0): (1, 0, 0, 0, 0)}, disk.totals())

    def test_no_room_for_processes(self):
        """Their cgroup has them."""
        disk = Disk(submitters=1, cgroups=1)
        for process in (VICTIM, HOG, LIGHT):
            disk.queue(process, 0, process, cgroup=7 if process != HOG else 8)
            disk.complete(10, process)
        for us in 20, 30:
            disk.queue(HOG, us, 8, cgroup=8)
            disk.complete(us + 5, 8)
        self.assertEqual({(7, VICTIM, 0): 1, (8, 0, 0): 3}, {
            key: values[0] for key, values in disk.values().items()})
        self.assertEqual([bytearray(struct.pack('=Q', 1))], list(
            disk.machine.tables[MAPS.lost].values()))

    def test_a_discard(self):
        disk = Disk()
        disk.queue(VICTIM, 0, 0)
        disk.queue(HOG, 0, 8000)
        disk.complete(10, 8000, sectors=1 << 30)
        disk.complete(20, 0)
        self.assertEqual({HOG: 8192 + 32, VICTIM: 40}, disk.costs())

    def test_what_is_served_costs(self):
        """Many small requests complete more often than few large ones, but
        these are what the disk serves."""
        disk = Disk()
        disk.queue(VICTIM, 0, 0)
        disk.queue(HOG, 0, 8000)
        for number in range(1, 31):
            disk.queue(LIGHT, 10 * number - 5, 8 * number)
            disk.complete(10 * number, 8 * number)
        disk.complete(301, 8000, sectors=2048)
        disk.complete(302, 0)
        self.assertEqual({LIGHT: 30 * 40, HOG: 2080, VICTIM: 40},
                         disk.costs())
        self.assertGreater(disk.totals()[LIGHT, 0][4],
                           100 * disk.totals()[HOG, 0][4])
        # Not while the victim rests.
        disk.queue(HOG, 400, 8000)
        disk.complete(500, 8000, sectors=2048)
        self.assertEqual(2080, disk.costs()[HOG])
        value = disk.machine.tables[MAPS.devices][bytes(4)]
        self.assertEqual(30 * 40 + 2080 + 40, struct.unpack_from(
            '=Q', value, 32 + 24)[0])


class FormatTestCase(testtools.TestCase):

    def test_each_tracepoint_needs_its_fields(self):
        """A kernel where one is missing is refused."""
        for name, (fields, _) in disk_programs.PROGRAMS.items():
            lines = {field: f'\tfield:u64 {field};\toffset:{OFFSETS[field]};'
                            f'\tsize:{size};\tsigned:0;\n'
                     for field, size in fields.items()}
            text = 'ID: 7\n' + ''.join(lines.values())
            self.assertEqual(7, bpf.parse_format(text, fields).id)
            for field, line in lines.items():
                for other in ('', line.replace('size:', 'size:1')):
                    exc = self.assertRaises(
                        ValueError, bpf.parse_format,
                        text.replace(line, other), fields)
                    self.assertIn(field, str(exc), name)


class DisksTestCase(testtools.TestCase):

    def test_those_with_requests(self):
        root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        for name, number, queues in (
                ('vda', '254:0', True), ('nvme0n1', '259:0', True),
                ('nvme1c1n1', None, True),      # a hidden path
                ('dm-0', '253:0', False)):
            where = root / 'sys/block' / name
            where.mkdir(parents=True)
            if number:
                (where / 'dev').write_text(f'{number}\n')
            if queues:
                (where / 'mq').mkdir()
        self.assertEqual({'254:0', '259:0'},
                         set(disk_waits.disks(str(root))))
        self.assertEqual((), disk_waits.disks(f'{root}/none'))


def served(**beside: float) -> disk_waits.Served:
    return disk_waits.Served(1, 1.0, 1.0, 0.1, beside)


class EvidenceTestCase(testtools.TestCase):

    def waits(self, **waited: float) -> disk_waits.Waits:
        submitter = disk_waits.Submitter
        return disk_waits.Waits(2.0, {
            submitter('8:0', HOG, 7): served(web=0.5),
            submitter('8:16', HOG, 7): served(web=0.25),
            submitter('8:0', VICTIM, 8): served(web=0.125, db=1.0),
            submitter('8:0', LIGHT, 9): served(),
            submitter('8:0', 400, 10): served(web=0.0625),
            submitter('8:0', 2, 1): served(web=0.03125),
            submitter('8:0', 3, 1): served(web=0.015625)}, waited, 0)

    def test_holders(self):
        owners = {(HOG, 7): '/hog', (VICTIM, 8): 'web',
                  (LIGHT, 9): '/light', (2, 1): THE_HOST, (3, 1): THE_HOST}
        answer = disk_waits.evidence(
            'web', self.waits(web=1.5), owners,
            {2: 'kworker/u8:1-flush-8:0', 3: 'jbd2'})
        self.assertEqual(('web', Resource.DISK, 2.0, 1.5, False), (
            answer.workload, answer.resource, answer.window_s,
            answer.waited_s, answer.shared))
        self.assertEqual({'/hog': 0.75, 'web': 0.125, THE_HOST: 0.046875},
                         answer.holders)
        self.assertEqual({'kworker/u8:1-flush-8:0': 0.03125,
                          'jbd2': 0.015625}, answer.threads)

    def test_two_cpus_counted_the_same_time(self):
        answer = disk_waits.evidence('web', self.waits(web=0.5),
                                     {(HOG, 7): '/hog'}, {})
        self.assertEqual(0.75, answer.waited_s)

    def test_not_one_of_the_victims(self):
        answer = disk_waits.evidence('/light', self.waits(), {}, {})
        self.assertEqual((0.0, {}), (answer.waited_s, answer.holders))
