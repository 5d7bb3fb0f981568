# SPDX-License-Identifier: Apache-2.0

"""Whose waits are measured, on a host of plain files and a real kernel."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
import os
import pathlib
import struct
import subprocess

import fixtures
import testtools

from scavenger_openstack.drivers.delay import accounting as accounting_
from scavenger_openstack.drivers.kernel.cgroup_mounts import Mount
from scavenger_openstack.drivers.kernel import netlink
from scavenger_openstack.drivers.kernel import taskstats
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadSample


def workload(name: str) -> WorkloadSample:
    return WorkloadSample(Workload(name, Priority.FOREGROUND))


class Sleeper(fixtures.Fixture):

    def _setUp(self) -> None:
        process = subprocess.Popen(['sleep', '60'])
        self.pid = process.pid
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)


class TestAccounting(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        try:
            taskstats.Taskstats().close()
        except (OSError, ValueError) as exc:
            self.skipTest(f'needs taskstats: {exc}')
        self.root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.logs = self.useFixture(fixtures.FakeLogger())
        self.mounts = {name: Mount(f'{self.root}/cg/{name}', 1)
                       for name in ('blkio', 'memory')}
        self.put(accounting_.SWITCH, '1')
        self.now = 1.0

    def put(self, path: str, text: str) -> None:
        file = self.root / path.lstrip('/')
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f'{text}\n')

    def cgroup(self, path: str, pid: int = 0) -> None:
        """One that a process is in, this one by default."""
        for name in ('cgroup.procs', 'tasks'):
            self.put(f'cg/{path}/{name}', str(pid or os.getpid()))

    def accounting(self) -> accounting_.DelayAccounting:
        found = accounting_.DelayAccounting(accounting_.Settings(),
                                           self.mounts, str(self.root))
        self.addCleanup(found.close)
        return found

    def measured(self, one: accounting_.DelayAccounting, *names: str
                 ) -> set[str]:
        self.now += 1
        return {sample[0].id for sample in one.add(
            tuple(map(workload, names)), self.now)
            if sample.run_delay_s is not None}

    def test_who_is_older_than_the_switch_is_logged_once(self) -> None:
        kernel = taskstats.Taskstats()
        self.addCleanup(kernel.close)
        first, = kernel.ask(((taskstats.TASK, 1),))
        if first is None or first.copies or first.waits:
            self.skipTest('needs a process that is not accounted')
        for name in 'abc':
            self.cgroup(f'blkio/{name}', 1)
        one = self.accounting()
        for _ in range(5):
            self.measured(one, '/a', '/b', '/c')
            self.measured(one, '/b')
        line, = [line for line in self.logs.output.splitlines()
                 if 'io_wait is unknown' in line]
        self.assertIn('delayacct', line)

    def test_a_controller_that_is_enabled_later_counts(self) -> None:
        """What the processes have moved counts until then."""
        self.mounts['blkio'] = Mount(f'{self.root}/cg/blkio', 2)
        self.cgroup('blkio/a')
        self.put('cg/blkio/a/cgroup.threads', str(os.getpid()))
        one = self.accounting()
        for counted, known in ((None, True), (None, True), (700, False),
                               (700, True), (900, True), (None, False),
                               (None, True)):
            self.now += 1
            (self.root / 'junk').write_text('something to count')
            sample, = one.add((workload('/a')._replace(
                io_bytes=counted, io_ops=counted),), self.now)
            self.assertEqual(known, sample.io_bytes is not None,
                             str(counted))
            if counted and known:
                self.assertEqual(counted, sample.io_bytes)

    def test_one_odd_answer_says_nothing_of_the_others(self) -> None:
        child = self.useFixture(Sleeper()).pid
        for name, pid in (('a', os.getpid()), ('b', child)):
            self.put(f'cg/blkio/{name}/cgroup.procs', str(pid))
            self.put(f'cg/blkio/{name}/tasks', '')
        one = self.accounting()
        real = netlink.Netlink.ask_all

        def cut(talk: netlink.Netlink, kind: int, bodies: Sequence[bytes]
                ) -> Iterator[tuple[int, bytes | bytearray, int]]:
            """As the kernel, but for what it says of the child."""
            for body, answer in zip(bodies, real(talk, kind, bodies),
                                    strict=True):
                odd = body.endswith(struct.pack('=I', child))
                yield (*answer[:2], netlink.BODY if odd else answer[2])

        with fixtures.MonkeyPatch(
                'scavenger_openstack.drivers.kernel.netlink.Netlink.ask_all',
                cut):
            self.now += 1
            for _ in range(3):
                found = one.add((workload('/a'), workload('/b')), self.now)
            self.assertIsNotNone(found[0].run_delay_s)
            self.assertTrue(one.facts()['on'])

    def test_a_cgroup_that_not_all_hierarchies_have(self) -> None:
        self.cgroup('memory/a')
        self.cgroup('blkio/b')
        self.assertEqual({'/a', '/b'},
                         self.measured(self.accounting(), '/a', '/b'))
