# SPDX-License-Identifier: Apache-2.0

"""A whole slow loop on a host of files, with less than a new kernel has."""

from __future__ import annotations

import pathlib
from typing import Any

import fixtures
from oslo_config import cfg
import testtools

from scavenger_openstack.agent.apply import actuator
from scavenger_openstack.agent.apply import refusals
from scavenger_openstack.agent.isolation import blind_isolation
from scavenger_openstack.agent.lease import leases
from scavenger_openstack.agent import loop as loop_
from scavenger_openstack.agent import parts
from scavenger_openstack.algorithms.perfiso import perfiso
from scavenger_openstack import conf as conf_
from scavenger_openstack import errors
from scavenger_openstack.tests.unit import cpusets
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Decision
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Mode
from scavenger_openstack.types import Rates

JOB = '/batch/a'
TICKS = 2 * actuator.READ_TICKS


class Wish:
    """A regulator that wants the idle class, a quota and a CPU set."""

    name = 'wish'
    kind = 'regulator'
    params_type = None
    at_start: frozenset[str] = frozenset()
    caps = (Cap('/batch', Knob.CPU_IDLE, 1, 'wish', 'a test'),
            Cap(JOB, Knob.CPU_CORES, 0.5, 'wish', 'a test'),
            Cap('/batch', Knob.CPU_SET, '2-5', 'wish', 'a test'))

    def tune(self, params: object) -> None:
        """It has none."""

    def step(self, now: float, rates: Rates) -> Decision:
        return Decision(self.caps)

    def state(self) -> dict[str, object]:
        return {}

    def load(self, state: object, now: float) -> None:
        pass


def no_bpf() -> None:
    raise errors.Unsupported('no BPF')


class OddKernel(testtools.TestCase):

    version = 1

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        self.host = self.useFixture(cpusets.Host(8, self.version))
        for path in ('/batch', JOB, '/web', '/web/b'):
            self.host.cgroup(path)
        device = self.host.top.stat().st_dev
        mounts = ([(str(self.host.top / name), 'cgroup', device)
                   for name in ('cpu', 'cpuset')] if self.version == 1 else
                  [(str(self.host.top), 'cgroup2', device)])
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.restore.cgroup.mounts',
            lambda: mounts))
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.drivers.kernel.sched_switch.SchedSwitch',
            no_bpf))
        self.now = 1000.0

    def loop(self) -> loop_.Loop:
        where = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (where / 'conf').write_text(
            '[cgroups]\nbackground_parents = /batch\n'
            'foreground_parents = /web\n[libvirt]\nuri =\n'
            '[perf]\nenabled = off\n')
        conf = cfg.ConfigOpts()
        conf_.register(conf)
        conf_.load(conf, [
            '--config-file', str(where / 'conf'), '--state-dir',
            str(where / 'state'), '--root-dir', str(self.host.root)], 'test')
        self.driver = parts.load_driver(conf)
        self.addCleanup(self.driver.close)
        self.leases = leases.Leases(where / 'state', 600.0)
        self.leases.open()
        self.addCleanup(self.leases.close)
        return loop_.Loop(
            self.driver, [(Wish(), Mode.ENFORCE)], self.leases,
            actuator.Actuator(self.driver, self.leases, 2.0),
            where / 'stop', require_watcher=False,
            isolation=blind_isolation.BlindIsolation(
                self.driver, self.leases, perfiso.Params(buffer_cores=1),
                Mode.ENFORCE))

    def turn(self, one: loop_.Loop) -> loop_.Tick:
        for _ in range(TICKS):
            self.now += 1
            tick = one.tick(self.now)
        return tick

    def files(self, name: str) -> list[pathlib.Path]:
        return sorted(self.host.top.rglob(name))

    def in_force(self) -> tuple[str, set[int]]:
        """The quota of the job, and the CPUs of all."""
        return (self.files('cpu.cfs_quota_us' if self.version == 1
                           else 'cpu.max')[0].read_text().split()[0],
                self.host.set_of('/batch'))

    def assert_the_rest_is_set_and_restored(self, one: loop_.Loop) -> None:
        self.assertEqual(('50000', {2, 3, 4, 5}), self.in_force())
        self.assertEqual([], one.close())
        self.assertEqual({}, dict(self.leases.held()))
        self.assertEqual('-1' if self.version == 1 else 'max',
                         self.in_force()[0])
        self.assertEqual(set(range(8)), self.host.set_of('/batch'))

    def test_no_idle_no_bpf_and_no_pressure(self) -> None:
        """As on Linux 5.10 without BPF and PSI."""
        for file in self.files('cpu.idle'):
            file.unlink()
        one = self.loop()
        tick = self.turn(one)
        assert tick.sample is not None
        for found in tick.sample.workloads:
            self.assertEqual((None, None, None), (
                found.psi_cpu_s, found.psi_io_s, found.psi_memory_s))
        self.assertEqual(1, self.log.output.count('cpu.idle does not exist'))
        self.assertEqual(1, self.log.output.count('no BPF'))
        self.assertNotIn(('/batch', Knob.CPU_IDLE), self.leases.held())
        self.assert_the_rest_is_set_and_restored(one)
        self.assertNotIn('Traceback', self.log.output)

    def test_what_a_kernel_lacks_is_logged_once_for_all(self) -> None:
        """Though each job that comes is to have a quota."""
        self.host.cgroup('/batch/b')
        quota = ('cpu.cfs_quota_us' if self.version == 1 else 'cpu.max')
        for file in self.files(quota):
            file.unlink()
        one = self.loop()
        with fixtures.MonkeyPatch(
                'scavenger_openstack.tests.unit.agent.test_odd_kernel.'
                'Wish.caps', tuple(Cap(f'/batch/{job}', Knob.CPU_CORES, 0.5,
                                       'wish', 'a test') for job in 'abc')):
            tick = self.turn(one)
            self.assertEqual(2, sum(
                'does not exist' in problem
                for problem in tick.outcome.problems))
            self.host.delete('/batch/a')
            self.host.delete('/batch/b')
            self.turn(one)
            self.host.cgroup('/batch/c')
            for file in self.files(quota):
                file.unlink()
            self.turn(one)
        line, = [line for line in self.log.output.splitlines()
                 if f'{quota} does not exist' in line]
        self.assertIn('kernel', line)

    def test_cpu_idle_is_refused(self) -> None:
        """By a kernel that has the file."""
        self.host.refused.add('cpu.idle')
        one = self.loop()
        self.turn(one)
        self.assertEqual(1, self.log.output.count('cpu_idle = 1 not set'))
        self.assertEqual({'0\n'}, {
            file.read_text() for file in self.files('cpu.idle')})
        self.assert_the_rest_is_set_and_restored(one)
        self.assertNotIn('Traceback', self.log.output)

    def test_what_is_refused_is_tried_ever_later(self) -> None:
        self.host.refused |= {'cpu.idle', 'cpuset.cpus'}
        one = self.loop()
        tries = []
        for _ in range(100):
            before = self.host.tries
            self.now += 1
            tick = one.tick(self.now)
            # The reasons stay in the status meanwhile.
            for knob in 'cpu_idle = 1', 'cpu_set = CPUs 2-5':
                self.assertIn(f'{knob} not set, tried again within 30 ticks',
                              ''.join(tick.outcome.problems))
            tries.append(self.host.tries - before)
        self.assertEqual([1, 2, 4, 8, 16, 32, 62, 92], [
            number for number, found in enumerate(tries, 1) if found])
        self.host.refused.clear()
        for _ in range(refusals.LONGEST_TICKS):
            self.now += 1
            tick = one.tick(self.now)
        self.assertEqual([], tick.outcome.problems)
        self.assert_the_rest_is_set_and_restored(one)
        self.assertEqual(2, self.log.output.count('not set'))

    def test_what_is_made_again_is_tried_at_once(self) -> None:
        """Another cgroup of the same name has been refused nothing."""
        for file in self.files('cpu.idle'):
            file.unlink()
        one = self.loop()
        for _ in range(8):      # the next try is in half a minute
            self.turn(one)
        for path in (JOB, '/batch'):
            self.host.delete(path)
        for path in ('/batch', JOB):
            self.host.cgroup(path)
        for _ in range(2):      # it is met in the second
            self.now += 1
            one.tick(self.now)
        self.assertIn(('/batch', Knob.CPU_IDLE), self.leases.held())
        self.assertIn('1', [file.read_text().strip()
                            for file in self.files('cpu.idle')])

    def test_what_is_missing_is_looked_for_ever_later(self) -> None:
        for file in self.files('cpu.idle'):
            file.unlink()
        one = self.loop()
        tries: list[float] = []
        read = self.driver.read

        def count(workload: str, knob: Knob, *state: Any) -> object:
            if knob is Knob.CPU_IDLE:
                tries.append(self.now)
            return read(workload, knob, *state)

        with fixtures.MonkeyPatch(
                'scavenger_openstack.drivers.host.Host.read',
                lambda host, *key: count(*key)):
            self.turn(one)
        self.assertEqual([1001, 1002, 1004, 1008], tries)


class OddKernel2(OddKernel):

    version = 2
