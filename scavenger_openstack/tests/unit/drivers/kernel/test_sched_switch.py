# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import mmap
import pathlib
import struct
import sys

import fixtures
import testtools

from scavenger_openstack.drivers.kernel import bpf
from scavenger_openstack.drivers.kernel import sched_switch
from scavenger_openstack.tests.unit.drivers.kernel import bpf_machine

FORMAT = '''name: sched_switch
ID: 372
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;

\tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;
\tfield:pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;

print fmt: "next_pid=%d", REC->next_pid
'''


def words(value: bytearray) -> list[int]:
    return [int.from_bytes(value[at:at + 8], sys.byteorder)
            for at in range(0, len(value), 64)]


class ProgramTestCase(testtools.TestCase):

    def switch(self, value, cpu, next_pid, offset=56):
        record = bytearray(64)
        record[offset:offset + 4] = next_pid.to_bytes(4, sys.byteorder)
        table = bpf_machine.Table(4, len(value), 1)
        table[bytes(4)] = value
        machine = bpf_machine.Machine({5: table})
        machine.cpu = cpu
        machine.run(sched_switch.program(offset, 5, 4), bytes(record))

    def test_instruction(self):
        # opcode; source in the high and destination in the low four bits
        low = sys.byteorder == 'little'
        self.assertEqual(
            b'\x61\x16' + (b'\x38\0' if low else b'\0\x38') + bytes(4),
            bpf.instruction(0x61, 6, 1, 56))
        self.assertEqual(
            b'\x07\x02' + b'\xff\xfe'[::1 if not low else -1]
            + b'\xff\xff\xff\xfc'[::1 if not low else -1],
            bpf.instruction(0x07, 2, 0, -2, -4))

    def test_next_pid_plus_one_for_this_cpu(self):
        value = bytearray(5 * 64)
        for cpu, pid in ((0, 0), (1, 77), (3, 4194303), (2, 1)):
            self.switch(value, cpu, pid)
        self.assertEqual([0, 1, 78, 2, 4194304], words(value))

    def test_later_switches_replace_earlier_ones(self):
        value = bytearray(5 * 64)
        for pid in (5, 0, 9, 0):
            self.switch(value, 2, pid)
        self.assertEqual([0, 0, 0, 1, 0], words(value))

    def test_offset_of_the_field(self):
        value = bytearray(5 * 64)
        self.switch(value, 1, 300, offset=24)
        self.assertEqual([0, 0, 301, 0, 0], words(value))

    def test_observer_leaves_no_trace(self):
        value = bytearray(5 * 64)
        value[:8] = (78).to_bytes(8, sys.byteorder)
        self.switch(value, 1, 0)
        self.switch(value, 1, 77)
        self.assertEqual([78, 0, 1, 0, 0], words(value))
        self.switch(value, 1, 78)
        self.assertEqual([78, 0, 79, 0, 0], words(value))

    def test_cpu_that_the_array_does_not_hold(self):
        value = bytearray(5 * 64)
        for cpu in (4, 5, 1 << 31):
            self.switch(value, cpu, 77)
        self.assertEqual(bytes(5 * 64), value)

    def test_length(self):
        # 12 instructions, one of which takes two places
        self.assertEqual(13 * 8, len(sched_switch.program(56, 5, 4)))


class FormatTestCase(testtools.TestCase):

    def test_id_and_offset(self):
        self.assertEqual((372, {'next_pid': 56}),
                         bpf.parse_format(FORMAT, {'next_pid': 4}))

    def test_not_the_format_of_sched_switch(self):
        for text in ('', 'garbage', FORMAT.replace('ID:', 'id:'),
                     FORMAT.replace('next_pid;', 'next;'),
                     FORMAT.replace('offset:56;\tsize:4',
                                    'offset:56;\tsize:8')):
            self.assertRaises(ValueError, bpf.parse_format, text,
                              {'next_pid': 4})


class LayoutTestCase(testtools.TestCase):

    def test_picks_the_cpus_asked_for(self):
        array = b''.join((100 + n).to_bytes(8, sys.byteorder) + bytes(56)
                         for n in range(9))
        for cpus, expected in (((), ()), ((0,), (101,)), ((7,), (108,)),
                               ((5, 1), (102, 106)),
                               (range(8), tuple(range(101, 109)))):
            self.assertEqual(expected,
                             sched_switch.layout(cpus).unpack_from(array))


class CountTestCase(testtools.TestCase):

    def test_an_offline_cpu_is_not_idle(self):
        online = pathlib.Path(self.useFixture(fixtures.TempDir()).path,
                              'online')
        online.write_text('0-3\n')
        array = mmap.mmap(-1, 5 * sched_switch.STRIDE)
        for cpu in range(4):
            struct.pack_into('=Q', array, (cpu + 1) * sched_switch.STRIDE,
                             sched_switch.IDLE)
        for name, value in (
                ('sched_switch.SchedSwitch._visit', lambda reader: None),
                ('sched_switch.SchedSwitch._open', lambda reader: setattr(
                    reader, '_memory', array)),
                ('online_cpus.path', lambda root_dir='/': str(online))):
            self.useFixture(fixtures.MonkeyPatch(
                f'scavenger_openstack.drivers.kernel.{name}', value))
        reader = sched_switch.SchedSwitch()
        self.addCleanup(reader.close)
        cpus = frozenset(range(4))
        self.assertEqual(4, reader.idle_count(cpus))
        for text, number in (('0-1\n', 2), ('0,3\n', 2), ('0-3\n', 4)):
            online.write_text(text)
            reader.refresh()
            self.assertEqual(number, reader.idle_count(cpus))
