# SPDX-License-Identifier: Apache-2.0


"""Many domains are restored by one virsh, whatever hangs."""

from __future__ import annotations

from collections.abc import Sequence
import contextlib
import os
import pathlib
from random import Random
import shutil
import signal
import threading
import time

import fixtures
from testtools import content
from testtools import matchers

from scavenger_openstack.drivers.libvirt import metadata
from scavenger_openstack.restore import actions
from scavenger_openstack.restore import grammar
from scavenger_openstack.restore import messages
from scavenger_openstack.restore import restoration
from scavenger_openstack.restore import virsh
from scavenger_openstack.tests.functional import domain_guest
from scavenger_openstack.tests.functional import virtual_host
from scavenger_openstack.tests import tiers
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Value

NAMES = ('one', 'two', 'three', 'four')
CAPS: dict[Knob, Value] = {
    Knob.CPU_CORES: 0.2, Knob.CPU_SET: '1',
    Knob.IO_BYTES_PER_S: 5_000_000, Knob.IO_OPS_PER_S: 200,
    Knob.PAUSED: 1}
DISK = (Knob.IO_BYTES_PER_S, Knob.IO_OPS_PER_S)


class RestoreCase(virtual_host.VirtualHostTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.addCleanup(virsh.SESSIONS.close)
        self.host = self.hypervisor()
        self.guests = [virtual_host.tiny(
            name, machine='pc', paused=False, vcpus=2,
            disks=tuple(domain_guest.Disk.make(
                self.host.disks / f'{name}-{disk}', 2**20) for disk in 'ab'))
            for name in NAMES]
        self.host.start_all(self.guests)
        self.before = self.every_limit()
        self.told: list[str] = []
        self.say = messages.Say(self.told.append)

    def every_limit(self) -> dict[str, list[str]]:
        return {name: self.limits(self.host, name) for name in NAMES}

    def cap(self, knobs: Sequence[Knob] = tuple(CAPS)) -> None:
        """Limit all guests, and copy the leases of the agent that did."""
        agent = self.agent(self.host)

        def held() -> bool:
            outcome = agent.tick({one.uuid: {knob: CAPS[knob]
                                             for knob in knobs}
                                  for one in self.guests})
            self.held = agent.leases.held()
            self.addDetail('held', content.text_content(
                '\n'.join([*map(str, self.held), *outcome.problems])))
            return len(self.held) == len(NAMES) * len(knobs)

        # On a busy machine one tick may not be enough.
        self.wait_for('all limits', held)
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        shutil.copytree(agent.leases.state_dir / 'leases',
                        directory / 'leases')
        self.state_dir = os.open(directory, os.O_RDONLY)
        self.addCleanup(os.close, self.state_dir)

    def restore(self) -> set[str]:
        """As scavenger-restore does; the domains that keep a limit."""
        began_s = time.monotonic()
        left = restoration.restore_all(self.state_dir, self.say, delete=True)
        self.took_s = time.monotonic() - began_s
        self.addDetail('told', content.text_content('\n'.join(self.told)))
        return {lease.workload for lease in left}

    def kept(self) -> int:
        with virsh.SESSIONS.use(self.host.uri) as session:
            session.ask('echo', within_s=10)
            return session.pid

    def stop(self, name: str) -> int:
        pid = self.host.qemu_pid(name)
        os.kill(pid, signal.SIGSTOP)
        self.addCleanup(os.kill, pid, signal.SIGCONT)
        return pid


class TestMany(RestoreCase):

    def test_by_one_virsh(self) -> None:
        self.cap()
        self.assertNotEqual(self.before, self.every_limit())
        pid = self.kept()
        self.assertEqual(set(), self.restore(), str(self.told))
        self.assertEqual(self.before, self.every_limit())
        self.assertEqual(pid, self.kept())
        self.assertEqual(len(self.held), len(self.told))
        for line in self.told:
            self.assertIn('restored to its original', line)


    @tiers.only_in_all('virsh is killed between two steps in the gate')
    def test_libvirtd_was_started_anew(self) -> None:
        self.cap()
        pid = self.kept()
        self.host.kill()
        self.host.start_again()
        self.assertEqual(set(), self.restore(), str(self.told))
        self.assertEqual(len(self.held), len(self.told))
        self.assertEqual(self.before, self.every_limit())
        self.assertNotEqual(pid, self.kept())


class TestLateCalls(RestoreCase):
    """A call of a dead agent lands when its record is dropped."""

    def late(self, knob: Knob, command: str, *, after: bool = False
             ) -> None:
        """Restore a knob of the first guest, with this right before its
        record goes, or right after that."""
        self.cap([knob])
        plain = virsh.Session.ask
        calls: list[str] = []

        def ask(session: virsh.Session, text: str, *, within_s: float) -> str:
            now = ('--remove' in text and self.guests[0].uuid in text
                   and not calls)
            said = plain(session, text, within_s=within_s) if after else ''
            if now:
                calls.append(self.host.virsh(command))
            return said if after else plain(session, text,
                                            within_s=within_s)

        self.useFixture(fixtures.MonkeyPatch(
            f'{virsh.__name__}.Session.ask', ask))
        self.assertEqual(set(), self.restore(), str(self.told))
        self.assertEqual(1, len(calls))
        self.assertEqual(self.before, self.every_limit())

    def test_a_quota(self) -> None:
        self.late(Knob.CPU_CORES, 'schedinfo one --live --set '
                                  'vcpu_quota=30000 vcpu_period=100000')

    @tiers.only_in_all('a late quota is removed by the same code')
    def test_a_disk(self) -> None:
        self.late(Knob.IO_BYTES_PER_S,
                  'blkdeviotune one vda --total-bytes-sec 7000000 --live')

    @tiers.only_in_all('a late quota is removed by the same code')
    def test_a_record(self) -> None:
        uri = metadata.uri(Knob.CPU_CORES)
        self.late(Knob.CPU_CORES, f'metadata one --live --uri {uri} --key s '
                                  '--set <lease/>', after=True)


class TestHangs(RestoreCase):

    def test_qemus_cost_their_own_steps(self) -> None:
        self.cap(DISK)
        hung = [self.stop(name) for name in NAMES[:2]]
        uuids = {one.uuid for one in self.guests[:2]}
        self.assertEqual(uuids, self.restore())
        # Each makes one wait, once.
        self.assertThat(self.took_s, matchers.LessThan(9.0))
        self.assertEqual(
            {name: self.before[name] for name in NAMES[2:]},
            {name: self.limits(self.host, name) for name in NAMES[2:]})
        lines = [line for line in self.told if 'NOT restored' in line]
        self.assertEqual(4, len(lines))
        for line in lines:
            self.assertIn('does not answer: see virsh domcontrol', line)
        took_s = 0.0
        for _ in range(10):
            self.assertEqual(uuids, self.restore())
            took_s += self.took_s
        # Each would wait a second for each QEMU.
        self.assertThat(took_s, matchers.LessThan(10.0))
        self.assertEqual(8, len(self.told))
        for pid in hung:
            os.kill(pid, signal.SIGCONT)
        self.wait_for('all is restored', lambda: not self.restore(), 30)
        self.assertEqual(self.before, self.every_limit())

    def test_cpu_sets_need_no_libvirtd(self) -> None:
        self.cap([Knob.CPU_SET])
        os.kill(self.host.pid, signal.SIGSTOP)
        self.addCleanup(os.kill, self.host.pid, signal.SIGCONT)
        self.assertEqual(set(), self.restore(), str(self.told))
        self.assertThat(self.took_s, matchers.LessThan(virsh.CONNECT_S / 2))
        os.kill(self.host.pid, signal.SIGCONT)
        self.assertEqual(self.before, self.every_limit())

    def test_a_libvirtd_that_hangs(self) -> None:
        """It makes one step wait, and one connection, not each step."""
        self.cap([knob for knob in CAPS if knob is not Knob.CPU_SET])
        self.kept()
        os.kill(self.host.pid, signal.SIGSTOP)
        self.addCleanup(os.kill, self.host.pid, signal.SIGCONT)
        self.assertEqual({one.uuid for one in self.guests}, self.restore())
        self.assertThat(self.took_s, matchers.LessThan(
            2 * virsh.CONNECT_S))
        self.assertEqual(len(self.held), len(self.told))
        self.restore()
        self.assertThat(self.took_s, matchers.LessThan(virsh.CONNECT_S / 2))
        os.kill(self.host.pid, signal.SIGCONT)
        self.wait_for('all is restored', lambda: not self.restore(), 40)
        self.assertEqual(self.before, self.every_limit())

    def test_what_needs_no_answer_of_qemu(self) -> None:
        self.cap([Knob.CPU_CORES, Knob.CPU_SET])
        self.stop('one')
        self.assertEqual(set(), self.restore(), str(self.told))
        self.assertEqual(self.before, self.every_limit())


class TestVirshIsKilled(RestoreCase):

    def test_between_two_steps(self) -> None:
        self.cap()
        pid = self.kept()
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        self.assertEqual(set(), self.restore(), str(self.told))
        self.assertEqual(len(self.held), len(self.told))
        self.assertEqual(self.before, self.every_limit())

    @tiers.only_in_all('virsh is killed between two steps in the gate')
    def test_while_libvirtd_keeps_it_waiting(self) -> None:
        self.cap()
        key = (self.guests[0].uuid, Knob.CPU_CORES)
        step, = self.held[key].original.actions
        pid = self.kept()
        os.kill(self.host.pid, signal.SIGSTOP)
        self.addCleanup(os.kill, self.host.pid, signal.SIGCONT)
        killer = threading.Timer(0.3, os.kill, (pid, signal.SIGKILL))
        killer.start()
        exc = self.assertRaises(grammar.RestoreError,
                                actions.run, step, [])
        self.assertIn('it was ended', str(exc))
        killer.join()
        os.kill(self.host.pid, signal.SIGCONT)
        self.assertEqual(set(), self.restore(), str(self.told))
        self.assertEqual(self.before, self.every_limit())

    @tiers.only_in_all('virsh is killed between two steps in the gate')
    def test_at_any_instant(self) -> None:
        """And all is restored by those that come after it."""
        self.cap()
        ended = threading.Event()
        killed = []
        random = Random(7)

        def kill() -> None:
            for pid in running():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)

        def kill_often() -> None:
            while not killed and not ended.wait(0.001):
                kill()
            # Time enough for one to start, mostly.
            while not ended.wait(random.uniform(0.05, 0.5)):
                kill()

        def restored() -> bool:
            return not self.restore()

        killer = threading.Thread(target=kill_often)
        killer.start()
        try:
            self.wait_for('all is restored', restored, 60)
        finally:
            ended.set()
            killer.join()
        self.addDetail('killed', content.text_content(str(len(killed))))
        self.assertThat(killed, matchers.Not(matchers.HasLength(0)))
        self.assertEqual(self.before, self.every_limit())


def running() -> list[int]:
    """Each virsh that this process has started."""
    found = []
    for path in pathlib.Path('/proc').glob('[0-9]*/stat'):
        with contextlib.suppress(OSError):
            name, _, fields = path.read_text().rpartition(')')
            if (name.endswith('(virsh')
                    and int(fields.split()[1]) == os.getpid()
                    and fields.split()[0] != 'Z'):
                found.append(int(path.parent.name))
    return found
