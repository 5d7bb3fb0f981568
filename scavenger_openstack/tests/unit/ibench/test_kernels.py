# SPDX-License-Identifier: Apache-2.0

"""The kernels of iBench as real processes, by meters of their own."""

from __future__ import annotations

import collections
import os
import pathlib
import subprocess

import testtools

from scavenger_openstack.tests import tiers
from scavenger_openstack.tests.unit.ibench import kernels
from scavenger_openstack.tests.unit.ibench import meters

MIB = kernels.MIB
LEVELS = 'levels=20:{0},100:{0}'
ORDERS = r"""
#include "soi.h"
#include <stdlib.h>
int main(void)
{
    for (uint64_t n = 1; n < 1500; n++) {
        char *got = calloc(n, 1);
        for (uint64_t i = 0; i < n; i++)
            if (got[shuffle(i, n, n * 77)]++)
                return 1;
        free(got);
    }
    return 0;
}
"""

FRAMES = '''
set -e
ip link set lo up
{program} serve address=127.0.0.1:7000 >{directory}/serving &
while ! grep -q port {directory}/serving; do sleep 0.05; done
grep lo: /proc/net/dev
{program} network_bandwidth address=127.0.0.1:7000 chunk_s=0.001 \
    levels=60:0.3
grep lo: /proc/net/dev
kill $!
'''


class EachKernel(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        kernels.needs_compiler(self)
        self.program = kernels.program()

    def check(self, program: pathlib.Path, name: str, address: str) -> None:
        """Calibrated, two levels in order, the end; no more."""
        arguments = kernels.arguments(name, address=address,
                                      cpus=kernels.two_cpus(self))
        for seconds in 0.1, 1.0, 10.0:  # where others use the CPUs
            done = kernels.run(program, name, LEVELS.format(seconds),
                               'calibrate_s=0.02', *arguments)
            self.assertEqual((0, ''), (done.returncode, done.stderr), name)
            calibrated, *levels, end = kernels.events(done.stdout)
            last = {level['percent']: level for level in levels}
            if all(level['operations'] for level in last.values()):
                break
        self.assertEqual('calibrated', calibrated['event'])
        self.assertGreater(calibrated['chunk_s'], 0)
        self.assertGreater(calibrated['operations_per_s'], 0)
        self.assertEqual({'event': 'end'}, end)
        self.assertEqual([20, 100], list(last))
        counts = name in kernels.COUNTS_BYTES
        self.assertEqual(counts, 'bytes_per_s' in calibrated)
        for level in levels:
            self.assertEqual(counts, 'bytes' in level, name)
            self.assertEqual(name in kernels.HOLDS, 'held_bytes' in level)
        for level in last.values():
            self.assertGreaterEqual(level['seconds'], 0.1)
            self.assertGreater(level['operations'], 0, name)

    def check_all(self, program: pathlib.Path) -> None:
        with kernels.remote_end(program) as (_pid, address):
            for name in kernels.KERNELS:
                with self.subTest(name):
                    self.check(program, name, address)

    def test_two_levels(self) -> None:
        self.check_all(self.program)

    def test_an_idle_level_does_nothing(self) -> None:
        for name, *arguments in (('tlb', 'entries=10'), ('integer',)):
            done = kernels.run(self.program, name, *arguments,
                               'levels=100:0.02,0:0.1', 'calibrate_s=0.01')
            last = kernels.events(done.stdout)[-2]
            self.assertEqual((0, 0, 0), (
                last['percent'], last['operations'],
                last.get('held_bytes', 0)))

    @tiers.only_in_all('the compiler takes a minute')
    def test_sanitizers_and_portable_code(self) -> None:
        for options in (('-fsanitize=address,undefined',
                         '-fno-sanitize-recover=all'),
                        ('-fsanitize=thread',), ('-DSOI_PORTABLE',)):
            with self.subTest(options[0]):
                target = kernels.directory() / 'checked'
                kernels.compile_program(target, '-g', *options)
                self.check_all(target)


class Orders(testtools.TestCase):

    def test_each_place_once(self) -> None:
        kernels.needs_compiler(self)
        source = kernels.directory() / 'orders.c'
        source.write_text(ORDERS)
        target = source.with_suffix('')
        subprocess.run(['cc', '-O2', f'-I{kernels.SOURCES}', '-o',
                        str(target), str(source)], check=True)
        self.assertEqual(0, kernels.run(target).returncode)


class Held(testtools.TestCase):
    """Capacity: a rise, and what a lower level does not hold any more."""

    def setUp(self) -> None:
        super().setUp()
        kernels.needs_compiler(self)
        self.program = kernels.program()

    def test_memory(self) -> None:
        for levels, percent in (('25:20', 25), ('75:0.2,25:20', 25),
                                ('75:20', 75)):
            held = 64 * MIB * percent // 100
            resident = kernels.metered(
                self.program, ['memory_capacity', f'size={64 * MIB}',
                               'chunk_s=0.001', f'levels={levels}'],
                percent=percent, held=held, meter=meters.anonymous_bytes)
            self.assertAlmostEqual(held / MIB, resident / MIB, delta=1)

    def test_storage(self) -> None:
        for levels, percent in (('25:20', 25), ('75:0.5,25:20', 25),
                                ('75:20', 75)):
            held = 16 * MIB * percent // 100
            blocks = kernels.metered(
                self.program, ['storage_capacity', f'size={16 * MIB}',
                               'chunk_s=0.001', f'levels={levels}',
                               f'path={kernels.directory()}'],
                percent=percent, held=held, meter=meters.file_bytes)
            self.assertAlmostEqual(held / MIB, blocks / MIB, delta=0.25)

    def test_translations(self) -> None:
        page = os.sysconf('SC_PAGESIZE')
        pages = [kernels.metered(
            self.program, ['tlb', 'entries=4000', f'levels={levels}',
                           'chunk_s=0.001', 'every_s=0.1'],
            percent=percent, held=4000 * percent // 100 * page,
            meter=meters.mapped_pages)
            for levels, percent in (('25:20', 25), ('75:20', 75),
                                    ('75:0.2,25:20', 25))]
        self.assertAlmostEqual(2000, pages[1] - pages[0], delta=20)
        self.assertAlmostEqual(pages[0], pages[2], delta=20)

    def test_lines_of_caches_cover_the_sets_evenly(self) -> None:
        for name, sets, ways, percent in (
                ('l1d', 64, 8, 30), ('l2_capacity', 512, 8, 70),
                ('llc_capacity', 1000, 11, 45)):
            lines = round(sets * ways * percent / 100)
            held: set[int] = set()

            def meter(pid: int, held: set[int] = held, lines_at_most: int =
                      sets * ways) -> int:
                held.update(meters.chained_lines(
                    pid, lines_at_most))
                return len(held)

            self.assertEqual(lines, kernels.metered(
                self.program, [name, f'sets={sets}', f'ways={ways}',
                               'l1d=32768', 'l2=65536', 'chunk_s=0.001',
                               f'levels={percent}:20'],
                percent=percent, held=lines * 64, meter=meter), name)
            in_set = collections.Counter(line % sets for line in held)
            self.assertEqual(min(sets, lines), len(in_set))
            self.assertLessEqual(
                max(in_set.values()) - min(in_set.values()), 1)

    def test_network(self) -> None:
        """By the counters of a loopback device of its own."""
        script = FRAMES.format(program=self.program,
                               directory=kernels.directory())
        done = subprocess.run(
            ['unshare', '--net', 'sh', '-c', script], capture_output=True,
            text=True, timeout=60, check=False)
        if done.returncode and 'unshare' in done.stderr:
            self.skipTest(done.stderr.strip())
        before, *lines, after = done.stdout.splitlines()
        sent = kernels.events('\n'.join(lines))[-2]['bytes']
        metered = int(after.split()[9]) - int(before.split()[9])
        self.assertGreater(sent, MIB)
        self.assertBetween(metered, sent, 1.05 * sent)

    def assertBetween(self, value: float, low: float, high: float) -> None:
        self.assertTrue(low <= value <= high, (low, value, high))


class Rates(testtools.TestCase):

    def test_linear_in_the_percent(self) -> None:
        """By the largest rate of three: the host is not alone."""
        kernels.needs_compiler(self)
        percents = (25, 50, 75, 100)
        levels = ','.join(f'{percent}:0.06' for percent in 3 * percents)
        for name in ('integer', 'floating_point', 'vector'):
            done = kernels.run(kernels.program(), name, f'levels={levels}',
                               'calibrate_s=0.05', preexec_fn=first)
            if done.returncode:
                self.skipTest('no real-time priority: a busy host would be '
                              'measured instead')
            rates: dict[float, float] = collections.defaultdict(float)
            for event in kernels.events(done.stdout)[1:-1]:
                rates[event['percent']] = max(
                    rates[event['percent']],
                    event['operations'] / event['seconds'])
            for percent in percents:
                self.assertAlmostEqual(
                    percent / 100, rates[percent] / rates[100], delta=0.1,
                    msg=f'{name} at {percent} %')


def first() -> None:
    """Before all other programs, for the fraction of a second that it runs.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        os._exit(9)
