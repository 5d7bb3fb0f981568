# SPDX-License-Identifier: Apache-2.0


"""How long cgroups wait for a disk, on this machine's kernel.

The disk is a loop device on a file; processes go past the page cache.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import errno
import os
import pathlib
import resource
import socket
import subprocess
import sys
import textwrap
import time

import fixtures
from oslo_config import cfg

from scavenger_openstack import conf as conf_
from scavenger_openstack.decision import rates
from scavenger_openstack.drivers.cgroup import cgroups
from scavenger_openstack.drivers.delay.accounting import Settings
from scavenger_openstack.drivers.delay import totals
from scavenger_openstack.drivers import host
from scavenger_openstack.tests import descriptors
from scavenger_openstack.tests.functional import base
from scavenger_openstack.tests.functional import confinement
from scavenger_openstack.tests.functional import delays
from scavenger_openstack.tests import tiers
from scavenger_openstack.types import WorkloadRates
from scavenger_openstack.types import WorkloadSample

MIB = 1 << 20
TRIES = 5

READ = '''
import mmap, os, sys, time
fd = os.open({path!r}, os.O_RDONLY | os.O_DIRECT)
buffer, at = mmap.mmap(-1, {size}), 0
def read(times, pause):
    global at
    for _ in range(times):
        at = (at + {size}) % (32 << 20)
        os.preadv(fd, [buffer], at)
        time.sleep(pause)
'''
"""Defines ``read(times, pause)`` from a disk, past the page cache."""

ALONE = '''
import logging, sys, time
from scavenger_openstack.drivers.delay import accounting as delay_accounting
from scavenger_openstack.drivers.kernel import cgroup_mounts
from scavenger_openstack.types import Priority, Workload, WorkloadSample
logging.basicConfig(format='%(message)s')
one = delay_accounting.DelayAccounting(delay_accounting.Settings(),
                                 cgroup_mounts.find_mounts())
for _ in range(3):
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    [sample] = one.add((WorkloadSample(Workload(
        id=sys.argv[1], priority=Priority.FOREGROUND)),), now)
    time.sleep(0.3)
print(sample.io_wait_s, sample.io_bytes, one.facts()['why'])
'''


def known(value: float | None) -> float:
    assert value is not None
    return value


@contextlib.contextmanager
def no_more_files() -> Iterator[None]:
    """This process can open nothing meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Disk(fixtures.Fixture):
    """A loop device, on a file of 32 MiB; ``path`` such as /dev/loop0.

    :param direct: past the page cache of the file, as slow as its disk
    """

    def __init__(self, *, direct: bool) -> None:
        super().__init__()
        self._direct = 'on' if direct else 'off'

    def _setUp(self) -> None:
        # Not where /tmp may be, in memory: that answers at once.
        directory = self.useFixture(fixtures.TempDir('/var/tmp')).path
        file = pathlib.Path(directory) / 'disk'
        file.write_bytes(bytes(32 * MIB))
        self.path = subprocess.run(
            ['losetup', f'--direct-io={self._direct}', '--find', '--show',
             file], check=True,
            capture_output=True, text=True).stdout.strip()
        self.addCleanup(subprocess.run, ['losetup', '--detach', self.path],
                        check=True)


class DelaysTest(delays.DelaysTestCase):

    def disk(self, *, direct: bool = False) -> str:
        try:
            path = self.useFixture(Disk(direct=direct)).path
        except (OSError, subprocess.CalledProcessError) as exc:
            self.skipTest(f'needs a loop device (losetup of util-linux): '
                          f'{exc}')
        if self.tree.version == 2:
            # There the cgroup counts by itself, on the disks it is told.
            self.new(Settings(), [path])
        return path

    def reader(self, disk: str, code: str, below: str = '/fore/victim',
               size: int = 4096) -> subprocess.Popen[str]:
        """A process that has read ``disk`` available, and runs ``code``."""
        return self.spawn(READ.format(path=disk, size=size) + code,
                          self.tree, below)

    def test_it_rises_when_another_hammers_the_disk(self) -> None:
        if base.pace() > base.EMULATED:
            self.skipTest('needs CPUs that are faster than the disk: where '
                          'they are emulated, no disk is waited for')
        disk = self.disk(direct=True)
        self.tree.make('/back/batch')
        conf = cfg.ConfigOpts()
        conf_.register(conf)
        conf([], project='scavenger', default_config_files=[])
        conf.set_override('background_parents', [f'{self.tree.name}/back'],
                          'cgroups')
        conf.set_override('foreground_parents', [f'{self.tree.name}/fore'],
                          'cgroups')
        conf.set_override('io_devices', [disk], 'cgroups')
        real = host.Host(conf)
        self.addCleanup(real.close)
        self.said(self.reader(
            disk, 'print("up")\nwhile True: read(1, 0.002)'))

        def over_a_second() -> WorkloadRates:
            before = real.sample()
            time.sleep(1)
            found = {one.workload.id: one for one in rates.rates(
                before, real.sample()).workloads}
            batch = found[f'{self.tree.name}/back/batch']
            self.batch_bytes_per_s = batch.io_bytes_per_s
            return found[f'{self.tree.name}/fore/victim']

        # Where CPUs are busy, the disk is, in some seconds, slow by itself.
        for _ in range(TRIES):
            self.settle(real)
            alone = over_a_second()
            readers = [self.reader(
                disk, 'print("up")\nwhile True: read(1, 0)', '/back/batch',
                size=MIB) for _ in range(4)]
            for reader in readers:
                self.said(reader)
            self.settle(real)
            beside = over_a_second()
            if (known(beside.io_wait_s_per_op)
                    > 2 * known(alone.io_wait_s_per_op)):
                break
            for reader in readers:
                reader.kill()
                reader.wait()
        grade = (real.facts().grade or {})['delays']
        assert isinstance(grade, dict)
        self.assertTrue(grade['on'])
        self.assertGreater(known(alone.io_ops_per_s), 50)
        self.assertAlmostEqual(4096, known(alone.io_bytes_per_s)
                               / known(alone.io_ops_per_s), delta=409)
        self.assertGreater(known(self.batch_bytes_per_s), 10 * MIB)
        self.assertGreater(known(beside.io_wait_s_per_op),
                           2 * known(alone.io_wait_s_per_op))

    @staticmethod
    def settle(real: host.Host) -> None:
        """Until new processes are known."""
        for _ in range(totals.LIST_TICKS):
            time.sleep(0.1)
            real.sample()

    @tiers.only_in_all('a figure under load')
    def test_who_has_no_cpu_waits_for_one(self) -> None:
        """Two that always run, on one CPU: each waits half of the time."""
        busy = textwrap.dedent('''
            import os
            os.sched_setaffinity(0, [max(os.sched_getaffinity(0))])
            print('up', flush=True)
            while True:
                pass
            ''')
        self.said(self.spawn(busy, self.tree, '/fore/victim'))

        def over_two_seconds() -> WorkloadSample:
            before = self.victim()
            time.sleep(2)
            after = self.victim()
            waited = known(after.run_delay_s) - known(before.run_delay_s)
            ran = known(after.cpu_s) - known(before.cpu_s)
            self.assertLess(abs(waited + ran - 2.0), 0.3)
            return after._replace(run_delay_s=waited, cpu_s=ran)

        self.victim()
        alone = over_two_seconds()
        self.tree.make('/back/batch')
        for _ in range(2):
            self.said(self.spawn(busy, self.tree, '/back/batch'))
        beside = over_two_seconds()
        self.assertGreater(known(beside.run_delay_s),
                           known(alone.run_delay_s) + 0.5)
        self.assertGreater(
            known(beside.run_delay_s) / known(beside.cpu_s), 0.7)

    def test_off_is_unknown_and_costs_no_answer(self) -> None:
        self.switch.set('0')
        disk = self.disk()
        self.reader(disk, 'while True: read(1, 0.001)')
        time.sleep(0.3)
        for _ in range(3):
            sample = self.victim()
            self.assertIsNone(sample.io_wait_s)
            self.assertIsNone(sample.run_delay_s)
        self.assertEqual(0, self.io.facts()['measured_workloads'])
        self.assertIn('kernel.task_delayacct=1', self.io.facts()['why'])
        self.assertEqual(1, self.logs.output.count('are not measured'))
        self.switch.set('1')
        self.reader(disk, 'while True: read(1, 0.001)')
        self.victim()
        self.assertTrue(self.io.facts()['on'])
        self.switch.set('0')
        sample = self.victim()
        self.assertEqual((None, None),
                         (sample.io_wait_s, sample.run_delay_s))
        self.assertEqual(2, self.logs.output.count('are not measured'))

    def test_who_began_before_it_was_on_is_unknown(self) -> None:
        self.switch.set('0')
        disk = self.disk()
        old = self.reader(disk, 'print("up")\nwhile True: read(1, 0.001)')
        self.said(old)
        time.sleep(0.3)
        self.switch.set('1')
        self.victim()
        time.sleep(0.2)
        sample = self.victim()
        self.assertIsNone(sample.io_wait_s)
        if self.tree.version == 1:
            self.assertIsNone(sample.io_ops)
        # Waits for a CPU are counted of all.
        self.assertIsNotNone(sample.run_delay_s)
        facts = self.io.facts()
        self.assertEqual((1, 0), (facts['measured_workloads'],
                                  facts['measured_io_wait']))
        self.assertIn('restart it', self.logs.output)
        self.assertEqual(1, self.logs.output.count('restart it'))
        old.kill()
        old.wait()
        self.reader(disk, 'while True: read(1, 0.001)')

        self.wait_for('the new one waits', lambda: (
            self.victim().io_wait_s or 0) > 0)

    def test_bytes_and_waits_are_exact_for_who_stays(self) -> None:
        disk = self.disk()
        self.victim()
        self.said(self.reader(
            disk, 'read(64, 0)\nprint("read")\ntime.sleep(60)'))
        sample = self.victim()
        self.assertAlmostEqual(64 * 4096, known(sample.io_bytes),
                               delta=16 * 4096)
        self.assertAlmostEqual(64, known(sample.io_ops), delta=16)
        self.assertGreater(known(sample.io_wait_s), 0)
        self.assertLess(known(sample.io_wait_s), 5)

    def test_one_that_ends_leaves_what_it_had(self) -> None:
        disk = self.disk()
        self.victim()
        one = self.reader(disk, 'read(50, 0)\nprint("read")\ntime.sleep(60)')
        self.said(one)
        before = self.victim()
        one.kill()
        one.wait()
        after = self.victim()
        self.assertEqual(before.io_ops, after.io_ops)
        self.assertEqual(before.io_wait_s, after.io_wait_s)
        self.assertGreater(known(after.io_ops), 40)

    def test_one_that_is_moved_in_begins_at_what_it_has(self) -> None:
        disk = self.disk()
        self.tree.make('/elsewhere')
        one = self.reader(
            disk, 'read(500, 0)\nprint("read")\ntime.sleep(60)',
            '/elsewhere')
        self.said(one)
        for _ in range(totals.LIST_TICKS + 1):
            self.victim()
        for controller in self.tree.mounts:
            self.tree.write(controller, '/fore/victim', 'cgroup.procs',
                            str(one.pid))
        for _ in range(totals.LIST_TICKS):
            self.assertEqual((0, 0, 0), self.victim()[11:14])
        self.assertIn(one.pid, self.io._totals[
            f'{self.tree.name}/fore/victim'].processes)

    def test_those_in_cgroups_below_count(self) -> None:
        disk = self.disk()
        self.victim()
        self.tree.make('/fore/victim/one/two')
        self.reader(disk, 'while True: read(1, 0.001)',
                    '/fore/victim/one/two')
        self.wait_for('it counts', lambda: (
            self.victim().io_ops or 0) > 20)
        self.tree.delete('/fore/victim/one')
        before = self.victim().io_ops
        self.assertIsNotNone(before)
        self.assertEqual(before, self.victim().io_ops)

    def test_a_cgroup_that_counts_is_believed(self) -> None:
        """Once some limit was set on a device, v1 counts what goes there."""
        self.needs_v1('version 2 always counts')
        disk = self.disk()
        number = os.stat(disk).st_rdev
        device = f'{os.major(number)}:{os.minor(number)}'
        self.tree.make('/back/limited')
        self.tree.write('blkio', '/back/limited',
                        'blkio.throttle.read_bps_device',
                        f'{device} 1000000000')
        self.addCleanup(self.tree.write, 'blkio', '/back/limited',
                        'blkio.throttle.read_bps_device', f'{device} 0')
        self.cgroup = cgroups.Cgroups(
            [f'{self.tree.name}/back'], [f'{self.tree.name}/fore'],
            io_devices=[disk])
        self.addCleanup(self.cgroup.close)
        self.victim()
        self.reader(disk, 'while True: read(1, 0.001)')
        self.wait_for('the kernel counts', lambda: (
            self.cgroup.sample()[-1].io_bytes
            or self.cgroup.sample()[0].io_bytes))
        plain = {sample.workload.id: sample
                 for sample in self.cgroup.sample()}
        sample = self.victim()
        counted = plain[f'{self.tree.name}/fore/victim']
        more = known(sample.io_bytes) - known(counted.io_bytes)
        self.assertGreaterEqual(more, 0)
        self.assertLess(more, MIB)

    def test_without_the_capability(self) -> None:
        disk = self.disk()
        self.reader(disk, 'while True: read(1, 0.001)')

        def run(*capabilities: str) -> tuple[str, str]:
            done = subprocess.run(
                [*confinement.confined(list(capabilities)),
                 sys.executable, '-c', ALONE,
                 f'{self.tree.name}/fore/victim'],
                capture_output=True, text=True, timeout=60)
            self.assertEqual(0, done.returncode, done.stderr)
            return done.stdout, done.stderr

        said, warned = run('CAP_DAC_OVERRIDE')
        self.assertTrue(said.startswith('None None '), said)
        self.assertEqual(1, warned.count('give the agent CAP_NET_ADMIN'))
        said, warned = run('CAP_NET_ADMIN')
        wait_s, read_bytes, _ = said.split(' ', 2)
        self.assertGreater(float(wait_s), 0)
        self.assertGreater(int(read_bytes), 0)
        self.assertEqual('', warned)

    def test_no_descriptor_is_left_for_a_while(self) -> None:
        """The conversation cannot begin, and begins half a minute later."""
        self.switch.set('0')
        samples = self.cgroup.sample()
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        self.io.add(samples, now)       # opens the switch
        self.switch.set('1')
        with no_more_files():
            [sample] = self.io.add(samples, now + 1)
            self.assertEqual((None, None),
                             (sample.io_wait_s, sample.run_delay_s))
            self.assertIn('raise LimitNOFILE', self.io.facts()['why'])
            self.io.add(samples, now + 32)
        self.io.add(samples, now + 33)
        self.assertFalse(self.io.facts()['on'])
        [sample] = self.io.add(samples, now + 63)
        self.assertIsNotNone(sample.run_delay_s)
        self.assertTrue(self.io.facts()['on'])
        self.assertEqual((1, 1), (
            self.logs.output.count('Too many open files'),
            self.logs.output.count('delays are measured')))

    def test_answers_that_are_lost(self) -> None:
        """Once costs one tick; twice in a row is a fault that may pass."""
        self.reader(self.disk(), 'while True: read(1, 0.001)')
        for _ in range(8):
            self.spawn('import time; time.sleep(60)', self.tree,
                       '/fore/victim')
        self.wait_for('all are there', lambda: len(self.tree.read(
            'cpu', '/fore/victim', 'cgroup.procs').split()) == 9)
        samples = self.cgroup.sample()
        now = time.clock_gettime(time.CLOCK_BOOTTIME)

        def run_delay(seconds: float, *, lost: bool = False) -> float | None:
            if lost:    # the least buffer that there is holds one answer
                kernel = self.io._kernel
                assert kernel is not None
                kernel._talk._socket.setsockopt(
                    socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            [found] = self.io.add(samples, now + seconds)
            return found.run_delay_s

        before = known(run_delay(0))
        self.assertIsNone(run_delay(1, lost=True))
        self.assertEqual(f'taskstats: {os.strerror(errno.ENOBUFS)}',
                         self.io.facts()['why'])
        self.assertGreaterEqual(known(run_delay(2)), before)
        self.assertIsNone(run_delay(3, lost=True))
        for seconds in (4, 32):
            self.assertIsNone(run_delay(seconds))
        self.assertIsNotNone(run_delay(34))
        # Accounting was on all the time, so none is a stranger.
        self.assertEqual(1, self.io.facts()['measured_io_wait'])
        self.assertEqual((2, 3), (
            self.logs.output.count('are not measured'),
            self.logs.output.count('delays are measured')))

    def test_nothing_stays_open(self) -> None:
        with descriptors.given_back() as opened:
            self.new(Settings())
            self.look()
            self.assertNotEqual(set(), opened())
            self.io.close()
            self.cgroup.close()
