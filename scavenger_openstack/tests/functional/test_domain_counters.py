# SPDX-License-Identifier: Apache-2.0

"""Counters of real processes that stand like QEMU in cgroups like libvirt's.

Their vCPU threads have QEMU's names and a cgroup each; they do what they are
told over a pipe, one line of Python each time.
"""

from __future__ import annotations

import os
import pathlib
import signal
import struct
import subprocess
import sys
import time
import uuid

import fixtures

from scavenger_openstack.decision import rates
from scavenger_openstack.drivers.kernel import cgroup_mounts
from scavenger_openstack.drivers.kernel.cgroup_mounts import Mount
from scavenger_openstack.drivers.kernel import rtnetlink
from scavenger_openstack.drivers.qemu.counters import DomainCounters
from scavenger_openstack import errors
from scavenger_openstack.tests.functional import base
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadSample

QEMU = r'''
import ctypes, os, sys, threading, time
name, prctl = 15, ctypes.CDLL(None).prctl
prctl.argtypes = [ctypes.c_int, ctypes.c_char_p]
spin, stop = {}, {}
kept = []

def vcpu(number, *tasks):
    prctl(name, b'CPU %d/TCG' % number)
    for path in tasks:
        with open(path, 'w') as file:
            file.write(str(threading.get_native_id()))
    ready.set()
    while number not in stop:
        if spin.get(number):
            for _ in range(1000):
                pass
        else:
            time.sleep(0.005)

def start(number, *tasks):
    ready.clear()
    threading.Thread(target=vcpu, args=(number, *tasks), daemon=True).start()
    ready.wait()

def burn(seconds):
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass

ready = threading.Event()
for line in sys.stdin:
    exec(line)
    print('done', flush=True)
'''

TAP_FLAGS, SET_IFF = 0x1002, 0x400454ca     # IFF_TAP | IFF_NO_PI, TUNSETIFF


class Qemu(fixtures.Fixture):
    """A process with cgroups as libvirt makes them, below one of ours.

    As on a host with a v2 tree beside v1: nothing of it is in cpuacct.
    """

    def __init__(self, tree: base.CgroupTree | None,
                 unified: str = '') -> None:
        self._tree = tree
        self._unified = unified
        self.uuid = str(uuid.uuid4())
        self.group = '/machine/qemu-7-instance-0000002a.libvirt-qemu'

    def _setUp(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, '-c', QEMU, '-uuid', self.uuid, '-S'],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end)
        self.pid = self.process.pid
        self.tell('')
        if self._tree is None:
            return
        for controller, part in (('cpu', '/emulator'), ('memory', ''),
                                 ('cpuset', '/emulator'), ('freezer', '')):
            self._tree.make(self.group + part)
            self._tree.write(controller, self.group + part, 'cgroup.procs',
                             str(self.pid))
        if self._unified:
            path = pathlib.Path(self._unified + self._tree.name + self.group)
            self.addCleanup(self._remove_unified)
            path.mkdir(parents=True)
            (path / 'cgroup.procs').write_text(str(self.pid))

    def tell(self, line: str) -> None:
        """Let it do something, and wait until it did."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(line + '\n')
        self.process.stdin.flush()
        assert self.process.stdout.readline() == 'done\n', line

    def plug(self, number: int) -> None:
        """Start a vCPU thread, in its own cgroup if there are any."""
        paths = []
        if self._tree is not None:
            for controller in ('cpu', 'cpuset'):
                below = f'{self.group}/vcpu{number}'
                self._tree.make(below)
                paths.append(str(self._tree.path(controller, below)
                                 / 'tasks'))
        self.tell(f'start({number}, *{paths})')

    def unplug(self, number: int) -> None:
        """End a vCPU thread."""
        self.tell(f'stop[{number}] = 1')

    def spin(self, number: int, on: bool = True) -> None:
        self.tell(f'spin[{number}] = {on}')

    def end(self) -> None:
        self.process.kill()
        self.process.wait(10)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()

    def _remove_unified(self) -> None:
        self.end()
        assert self._tree is not None
        top = pathlib.Path(self._unified + self._tree.name)
        for path in (top / self.group[1:], top / 'machine', top):
            base.remove_cgroup(path)


class Tap(fixtures.Fixture):
    """A TAP device, up; what is written to it arrives at it."""

    def _setUp(self) -> None:
        import fcntl
        self.name = f'scvt{uuid.uuid4().hex[:6]}'
        self.fd = os.open('/dev/net/tun', os.O_RDWR | os.O_NONBLOCK)
        self.addCleanup(os.close, self.fd)
        fcntl.ioctl(self.fd, SET_IFF,
                    struct.pack('16sH22x', self.name.encode(), TAP_FLAGS))
        subprocess.run(['ip', 'link', 'set', self.name, 'up'], check=True,
                       timeout=60)

    def send(self, size: int) -> None:
        """As the guest does: an Ethernet frame to an unused address."""
        os.write(self.fd, b'\x02' + b'\0' * 11 + b'\x88\xb5'
                 + b'x' * (size - 14))


class TestDomainCounters(base.FunctionalTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.mounts = cgroup_mounts.find_mounts()
        self.devices = rtnetlink.Rtnetlink()
        self.addCleanup(self.devices.close)

    def qemu(self) -> Qemu:
        unified = self.mounts.get('unified')
        return self.useFixture(Qemu(self.cgroups(),
                                    unified.path if unified else ''))

    def counters(self, qemu: Qemu, *interfaces: str) -> DomainCounters:
        found = DomainCounters(qemu.pid, qemu.uuid, self.mounts, interfaces,
                               pressure=True)
        self.addCleanup(found.close)
        return found

    def sample(self, counters: DomainCounters) -> WorkloadSample:
        found = counters.sample(Workload('vm', Priority.BACKGROUND),
                                link_bytes=self.devices.link_bytes())
        assert found is not None
        return found

    def test_where_it_is(self) -> None:
        qemu = self.qemu()
        qemu.plug(0)
        qemu.plug(1)
        counters = self.counters(qemu)
        assert counters.machine is not None and qemu._tree is not None
        self.assertEqual(f'{self.mounts["cpu"].path}{qemu._tree.name}'
                         f'{qemu.group}', counters.machine.path('cpu'))
        self.assertIsNone(counters.machine.path('cpuacct'))
        self.assertIsNotNone(self.sample(counters).run_delay_s)

    def test_vcpus_and_emulator(self) -> None:
        if 'unified' not in self.mounts:
            self.skipTest('needs a cgroup v2 tree: mount -t cgroup2')
        qemu = self.qemu()
        qemu.plug(0)
        counters = self.counters(qemu)
        before = self.sample(counters)
        qemu.spin(0)
        self.wait_for('vCPU 0 to run', lambda: (
            self.sample(counters).cpu_s or 0) - (before.cpu_s or 0) > 0.3,
            timeout_s=60)
        qemu.spin(0, False)
        before = self.sample(counters)
        qemu.tell('burn(0.3)')
        after = self.sample(counters)
        self.assertGreater((after.cpu_s or 0) - (before.cpu_s or 0), 0.28)
        self.assertIsNotNone(after.psi_cpu_s)

    def test_a_quota_is_told_from_a_neighbour(self) -> None:
        """Waiting by one's own quota does not count as run delay."""
        qemu = self.qemu()
        qemu.plug(0)
        tree = qemu._tree
        assert tree is not None
        group = f'{qemu.group}/vcpu0'
        counters = self.counters(qemu)
        qemu.spin(0)
        tree.write('cpu', group, 'cpu.cfs_quota_us', '5000')
        counters.wake()
        throttled, waited, _ = self.until(counters, 'throttled_s', 0.4)
        # The kernel counts it as waiting; the rules take it out again.
        self.assertGreater(waited, 0.7 * throttled)
        tree.write('cpu', group, 'cpu.cfs_quota_us', '-1')
        # Two that spin on one CPU: each waits as long as it runs.
        tree.write('cpuset', group, 'cpuset.cpus', '0')
        self.spawn('import os\nos.sched_setaffinity(0, {0})\n'
                   'while 1: pass', tree)
        counters.wake()
        time.sleep(0.2)
        self.sample(counters)
        throttled, waited, delay = self.until(counters, 'run_delay_s', 0.4)
        self.assertLess(throttled, 0.05)
        self.assertGreater(delay, 0.3)

    def until(self, counters: DomainCounters, field: str, growth: float
              ) -> tuple[float, float, float]:
        """Sample until a counter grew; by how much the throttled time and
        the run delay did, and the rate of the latter."""
        before = self.sample(counters)
        deadline = time.monotonic() + 60
        while True:
            after = self.sample(counters)
            if getattr(after, field) - getattr(before, field) > growth:
                break
            self.assertLess(time.monotonic(), deadline, f'{field} stays')
            time.sleep(0.1)
        found = rates.workload_rates(before, after, 1.0).run_delay
        return ((after.throttled_s or 0) - (before.throttled_s or 0),
                (after.run_delay_s or 0) - (before.run_delay_s or 0),
                found or 0.0)

    def assertBetween(self, low: float, value: float, high: float) -> None:
        self.assertTrue(low <= value <= high, f'{low} {value} {high}')

    def test_memory(self) -> None:
        qemu = self.qemu()
        qemu.plug(0)
        counters = self.counters(qemu)
        before = self.sample(counters).memory_bytes or 0
        qemu.tell('kept.append(b"x" * 50_000_000)')
        after = self.sample(counters).memory_bytes or 0
        self.assertBetween(48e6, after - before, 60e6)

    def test_vcpus_come_and_go(self) -> None:
        qemu = self.qemu()
        qemu.plug(0)
        counters = self.counters(qemu)
        qemu.plug(1)
        counters.relist()
        self.sample(counters)
        self.assertTrue(counters.plugged())
        waited_s = self.sample(counters).run_delay_s
        qemu.unplug(1)      # without a word
        self.wait_for('vCPU 1 to be missed', lambda: self.sample(counters)
                      and counters.plugged(), timeout_s=60)
        self.assertGreaterEqual(self.sample(counters).run_delay_s or 0,
                                waited_s or 0)

    def test_network(self) -> None:
        if not os.path.exists('/dev/net/tun'):
            self.skipTest('needs /dev/net/tun: modprobe tun')
        tap = self.useFixture(Tap())
        qemu = self.qemu()
        counters = self.counters(qemu, tap.name)
        before = self.sample(counters)
        for _ in range(10):
            tap.send(1000)
        after = self.sample(counters)
        self.assertEqual(10_000, (after.net_tx_bytes or 0)
                         - (before.net_tx_bytes or 0))

    def test_a_device_that_goes_away(self) -> None:
        if not os.path.exists('/dev/net/tun'):
            self.skipTest('needs /dev/net/tun: modprobe tun')
        tap = Tap()
        with tap:
            counters = self.counters(self.qemu(), tap.name)
            self.assertEqual(0, self.sample(counters).net_tx_bytes)
            tap.send(1000)
            self.assertEqual(1000, self.sample(counters).net_tx_bytes)
        counters.relist()
        for _ in range(3):
            self.assertEqual(1000, self.sample(counters).net_tx_bytes)

    def test_an_end_at_any_time(self) -> None:
        """Also one that was not waited for, and a cgroup still there."""
        qemu = self.qemu()
        qemu.plug(0)
        counters = self.counters(qemu)
        self.sample(counters)
        os.kill(qemu.pid, signal.SIGKILL)
        os.waitid(os.P_PID, qemu.pid, os.WEXITED | os.WNOWAIT)
        workload = Workload('vm', Priority.BACKGROUND)
        self.assertEqual([None] * 3,
                         [counters.sample(workload) for _ in range(3)])
        self.assertRaises(errors.WorkloadGone, DomainCounters, qemu.pid,
                          qemu.uuid, self.mounts)
        qemu.process.wait(10)
        self.assertIsNone(counters.sample(workload))
        self.assertRaises(errors.WorkloadGone, DomainCounters, qemu.pid,
                          qemu.uuid, self.mounts)

    def test_a_frozen_one_is_read_like_any_other(self) -> None:
        qemu = self.qemu()
        qemu.plug(0)
        counters = self.counters(qemu)
        os.kill(qemu.pid, signal.SIGSTOP)
        start = time.monotonic()
        after = self.sample(counters)
        self.assertIsNotNone(after.memory_bytes)
        self.assertIsNotNone(after.run_delay_s)
        self.assertLess(time.monotonic() - start, 30.0)
        os.kill(qemu.pid, signal.SIGCONT)

    def test_session_mode(self) -> None:
        qemu = self.useFixture(Qemu(None))
        qemu.plug(0)
        counters = self.counters(qemu)
        self.assertIsNone(counters.machine)
        before = self.sample(counters)
        qemu.spin(0)
        qemu.tell('kept.append(b"x" * 50_000_000)')
        qemu.tell('burn(0.3)')
        after = self.sample(counters)
        self.assertGreater((after.cpu_s or 0) - (before.cpu_s or 0), 0.28)
        self.assertIsNotNone(after.run_delay_s)
        self.assertBetween(48e6, (after.memory_bytes or 0)
                           - (before.memory_bytes or 0), 60e6)
        self.assertIsNone(after.throttled_s)
        self.wait_for('vCPU 0 to run', lambda: (
            self.sample(counters).cpu_s or 0) - (after.cpu_s or 0) > 0.1,
            timeout_s=60)
        os.kill(qemu.pid, signal.SIGKILL)
        qemu.process.wait(10)
        self.assertIsNone(counters.sample(before.workload))

    def test_another_process_with_its_number(self) -> None:
        qemu = self.useFixture(Qemu(None))
        self.assertRaises(errors.WorkloadGone, DomainCounters, os.getpid(),
                          qemu.uuid, {'unified': Mount('/sys/fs/cgroup', 2)})
