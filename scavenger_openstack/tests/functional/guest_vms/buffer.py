# SPDX-License-Identifier: Apache-2.0

"""Four background VMs that keep all CPUs of a host busy, and bursts of
foreground beside them: how many CPUs an observer finds idle, and what is
restored after the agent was killed.  The tests go on from each other."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import importlib
import json
import os
import pathlib
import random
import signal
import socket
import statistics
import subprocess
import sys
import time
from typing import Any

import fixtures
import testtools

from scavenger_openstack.tests.functional import domain_guest
from scavenger_openstack.tests.functional import guest_libvirt

ROOT = pathlib.Path('/sys/fs/cgroup')
SOCKET = pathlib.Path('/run/libvirt/libvirt-sock')
URI = 'qemu:///system'

CPUS, BUFFER = 8, 2         # what buffer_cores = -1 takes of 8
VMS = ('one', 'two', 'three', 'four')
SPECS = {'scavenger:priority': 'background'}
BURSTS = 3
OBSERVED_S = 10.0
LEASE_S = 6.0
ANSWERS = 10
BUSY_S = 1.0

LIBVIRTD_CONF = """\
host_uuid = "7f1bb3a0-5f0a-4e6c-8a3e-1a2b3c4d5e6f"
auth_unix_rw = "none"
auth_unix_ro = "none"
unix_sock_group = "root"
"""
QEMU_CONF = """\
user = "+0"
group = "+0"
dynamic_ownership = 0
remember_owner = 0
security_driver = "none"
namespaces = [ ]
stdio_handler = "file"
"""

AGENT_CONF = f"""\
[agent]
lease_s = {LEASE_S}
[conductor]
enabled = false
[libvirt]
uri = {URI}
timeout_s = 10
[scavenger]
mode = off
[perfiso]
mode = enforce
"""


def spin_and_sleep(seed: int) -> None:
    """Foreground: bursts of 5 to 100 ms, with rests as long."""
    dice = random.Random(seed)
    while True:
        end = time.monotonic() + dice.uniform(0.005, 0.1)
        while time.monotonic() < end:
            pass
        time.sleep(dice.uniform(0.005, 0.1))


def show(what: str, facts: object) -> None:
    print(f'{time.clock_gettime(time.CLOCK_BOOTTIME):7.1f} {what}: '
          f'{json.dumps(facts)}', flush=True)


def wait_for(what: str, condition: Callable[[], object],
             timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f'not within {timeout_s:g} s: {what}')
        time.sleep(0.2)


def parts() -> Iterator[pathlib.Path]:
    """The cgroups of all VMs."""
    for where, _, names in os.walk(ROOT):
        if 'qemu' in where and 'cpuset.cpus' in names:
            yield pathlib.Path(where)


def sets(file: str = 'cpuset.cpus.effective') -> dict[str, str]:
    """The CPU set of each cgroup of each VM."""
    return {str(part.relative_to(ROOT)): (part / file).read_text().strip()
            for part in parts()}


def used_us() -> dict[str, int]:
    """The CPU time of each vCPU."""
    return {str(part): int((part / 'cpu.stat').read_text().split()[1])
            for part in parts() if part.name.startswith('vcpu')}


class Host(fixtures.Fixture):
    """A libvirtd with the VMs, and the foreground.

    :ivar domains: of libvirt, by name
    :ivar agent: the process, once it is started
    """

    def __init__(self) -> None:
        super().__init__()
        self.domains: dict[str, Any] = {}
        self.agent: subprocess.Popen[bytes] | None = None

    def _setUp(self) -> None:
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)
        self.state_dir = self.directory / 'state'
        (self.directory / 'agent.conf').write_text(AGENT_CONF)
        self.libvirt = self._libvirtd()
        for name in VMS:
            self.domains[name] = self._guest(name)
        self.before = sets()
        show('cgroups of VMs', [path for path in self.before
                                if 'one' in path])

    def _libvirtd(self) -> Any:
        """A connection to the libvirtd of this host, which is started."""
        libvirt: Any = importlib.import_module('libvirt')
        for name, text in (('passwd', 'root:x:0:0::/:/bin/sh\n'
                            'libvirt-qemu:x:64055:64055::/:/bin/false\n'),
                           ('group', 'root:x:0:\nlibvirt-qemu:x:64055:\n'),
                           ('libvirt/libvirtd.conf', LIBVIRTD_CONF),
                           ('libvirt/qemu.conf', QEMU_CONF)):
            path = pathlib.Path('/etc', name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        for name in ('lib', 'log', 'cache'):
            pathlib.Path('/var', name, 'libvirt').mkdir(parents=True,
                                                        exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.symlink('/run', '/var/run')
        self._start('/usr/sbin/libvirtd')
        wait_for('libvirtd', SOCKET.exists, 200)
        connection: Any = None

        def connected() -> bool:
            nonlocal connection
            with contextlib.suppress(libvirt.libvirtError):
                connection = libvirt.open(URI)
            return connection is not None
        wait_for('libvirtd answers', connected, 300)
        self.addCleanup(connection.close)
        show('libvirt', connection.getLibVersion())
        return connection

    def _guest(self, name: str) -> Any:
        """A VM with two busy vCPUs, which an operator calls background.

        It is paused: all programs start sooner while the host is idle.
        """
        libvirt: Any = importlib.import_module('libvirt')
        xml = domain_guest.DomainGuest(
            name=name, vcpus=2, memory_bytes=16 * 2**20, image=None,
            nova=domain_guest.Nova(extra_specs=SPECS)).xml()
        domain = self.libvirt.createXML(xml.replace(
            '</os>', f'<kernel>/{guest_libvirt.BUSY}</kernel></os>'),
            libvirt.VIR_DOMAIN_START_PAUSED)
        self.addCleanup(domain.destroy)
        show('started', name)
        return domain

    def _all_busy(self) -> bool:
        before = used_us()
        time.sleep(BUSY_S)
        after = used_us()
        return len(after) == 2 * len(VMS) and all(
            after[vcpu] - before.get(vcpu, after[vcpu]) > 10_000
            for vcpu in after)

    def _start(self, *command: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        self.addCleanup(process.wait, 60)
        self.addCleanup(process.kill)
        return process

    def program(self, module: str, *words: str) -> subprocess.Popen[bytes]:
        return self._start(
            sys.executable, '-W', 'ignore', '-m',
            f'scavenger_openstack.{module}', *words, '--state-dir',
            str(self.state_dir))

    def work(self) -> None:
        """Let the VMs run, and the foreground beside them."""
        for domain in self.domains.values():
            domain.resume()
        wait_for('all vCPUs are busy', self._all_busy, 400)
        for seed in range(BURSTS):
            pid = os.fork()
            if not pid:
                spin_and_sleep(seed)
            self.addCleanup(os.waitpid, pid, 0)
            self.addCleanup(os.kill, pid, signal.SIGKILL)

    def isolation(self) -> dict[str, Any]:
        try:
            status = json.loads((self.state_dir / 'status.json').read_text())
        except FileNotFoundError:
            return {}
        observed: dict[str, Any] = status['isolation']
        return observed

    def answers_s(self) -> dict[str, float]:
        """How long QEMU takes to answer libvirt."""
        libvirt_qemu: Any = importlib.import_module('libvirt_qemu')
        took = []
        for _ in range(ANSWERS):
            for domain in self.domains.values():
                began = time.monotonic()
                libvirt_qemu.qemuMonitorCommand(
                    domain, '{"execute": "query-status"}', 0)
                took.append(time.monotonic() - began)
        return {'median': statistics.median(took), 'worst': max(took)}


def observe(*own: str) -> dict[str, Any]:
    """What an observer of its own finds.

    :param own: threads that count as idle
    """
    observed: dict[str, Any] = json.loads(subprocess.run(
        ['idle_observer', str(OBSERVED_S), str(BUFFER), *own],
        check=True, capture_output=True).stdout)
    return observed


class BufferTest(testtools.TestCase):

    host: Host

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        if socket.gethostname() != 'guest' or os.cpu_count() != CPUS:
            raise cls.skipException('only in a guest: see test_guest_vms')
        cls.host = Host()
        cls.host.setUp()

    @classmethod
    def tearDownClass(cls) -> None:
        cls.host.cleanUp()
        super().tearDownClass()

    def test_1_with_the_agent(self) -> None:
        host = self.host
        host.program('restore.program', '--watch', '--stop-file',
                     f'{host.state_dir}/stop')
        host.agent = host.program('cmd.agent', 'run', '--config-file',
                                  f'{host.directory}/agent.conf')
        wait_for('all VMs move', lambda: len(
            host.isolation().get('groups', ())) == len(VMS), 400)
        host.work()
        own = [task for task in os.listdir(f'/proc/{host.agent.pid}/task')
               if os.sched_getscheduler(int(task)) & ~os.SCHED_RESET_ON_FORK
               == os.SCHED_FIFO]
        observed = observe(*own)
        show('with the agent', observed)
        show('QEMU answers, s', host.answers_s())
        show('isolation', host.isolation())
        show('sets', sets())
        self.assertEqual({}, host.isolation()['left_out'])
        # Of an emulated host each CPU may stand still for a while: what has
        # to hold is most of the time, and what lacks it is short.
        self.assertGreater(observed['enough_share'], 0.7)
        self.assertLess(observed['low_ms']['median'], 20)

    def test_2_killed(self) -> None:
        host = self.host
        if host.agent is None:
            self.skipTest('the agent did not start')
        wait_for('they have fewer CPUs', lambda: sets() != host.before, 60)
        host.agent.kill()
        killed = time.monotonic()
        wait_for('the sets are back', lambda: sets() == host.before,
                 20 * LEASE_S)
        show('restored after, s', time.monotonic() - killed)
        show('written', sets('cpuset.cpus'))

    def test_3_without_the_agent(self) -> None:
        observed = observe()
        show('without the agent', observed)
        show('QEMU answers, s', self.host.answers_s())
        self.assertLess(observed['enough_share'], 0.5)
