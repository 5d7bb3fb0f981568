# SPDX-License-Identifier: Apache-2.0


"""Kill what limits a VM, and what removes the limit, before each call."""

from __future__ import annotations

from collections.abc import Iterator
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import fixtures

from scavenger_openstack.restore import records
from scavenger_openstack.tests.functional import base
from scavenger_openstack.tests.functional import kills
from scavenger_openstack.tests.functional import taps
from scavenger_openstack.tests.functional.taps import RATE
from scavenger_openstack.tests.functional.taps import VM
from scavenger_openstack.tests import tiers
from scavenger_openstack.types import Knob

LIMIT = '''
from scavenger_openstack.drivers.network import limits as network, tap
from scavenger_openstack.types import Knob
def main():
    rate, knob, first, *also = sys.argv[1:]
    network.Network({}, {'vm': tap.Tap(first, tuple(also))}).write(
        'vm', Knob(knob), float(rate))
'''
RESTORE = 'from scavenger_openstack.restore.program import main'
PACKAGE = pathlib.Path(base.__file__).parents[3]


class KillsTestCase(taps.TapTestCase):

    def setUp(self) -> None:
        super().setUp()
        if not shutil.which('strace'):
            self.skipTest('needs strace: apt-get install strace')
        self.state = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path, 'state')
        (self.state / 'leases').mkdir(parents=True)
        self.state.chmod(0o700)
        found = self.step()
        self.lease = records.dump(records.Lease(
            VM, str(self.knob), records.boot_id(), [found]))
        self.ifb = f'scv{found["ifindex"]}'

    def limit_command(self, rate: str) -> tuple[str, ...]:
        return (LIMIT, rate, self.knob, self.tap.device, *self.tap.also)

    def traced(self, inject: str, output: str, code: str, *words: str
               ) -> subprocess.Popen[str]:
        process, _ = kills.traced(
            code, words, [inject], output=output,
            env={**os.environ, 'PYTHONPATH': str(PACKAGE)},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(process.wait, 10)
        self.addCleanup(process.kill)
        return process

    def run_killed(self, calls: str, *command: str) -> Iterator[int]:
        """Run code until its N-th call, for each N; last, to its end.

        The call itself is not made any more.  Yields the return code.
        """
        for number in range(1, 100):
            code = self.traced(f'{calls}:signal=KILL:when={number}',
                               os.devnull, *command).wait(60)
            yield code
            if code == 0:
                return
        self.fail('no end')

    def restore_command(self) -> tuple[str, ...]:
        """Put a lease down; what restores by it."""
        lease = self.state / 'leases' / ('0' * 32 + '.json')
        lease.write_bytes(self.lease)
        lease.chmod(0o600)
        return (RESTORE, '--all', '--state-dir', str(self.state))

    def restore(self) -> None:
        """All is back."""
        subprocess.run(
            [sys.executable, '-m', 'scavenger_openstack.restore.program',
             *self.restore_command()[1:]], check=True,
            timeout=60, stdin=subprocess.DEVNULL, capture_output=True,
            env={**os.environ, 'PYTHONPATH': str(PACKAGE)})
        self.same()


class Kills(KillsTestCase):

    def stage(self) -> tuple[int, ...]:
        """Which parts of a limit are in place, in the order of making.

        Of those that each tap has, how many.
        """
        found = taps.listing(self.vm.host)
        ifb = re.search(rf'(?m)^.*: {self.ifb}:.*$', found)
        line = ifb[0] if ifb else ''
        return (bool(ifb), 'addrgenmode none' in line, ' alias ' in line,
                ',UP' in line, f'tbf 5ca0: dev {self.ifb}' in found,
                'rate 10Gbit' not in found, found.count('qdisc ingress'),
                found.count('Egress Redirect'))

    def test_while_it_is_set(self) -> None:
        stages: list[tuple[int, ...]] = []
        for _ in self.run_killed('sendto', *self.limit_command('2.5e6')):
            self.assertTrue(self.arrive(20), str(stages))
            stages.append(self.stage())
            self.restore()
        self.assertEqual(
            [(0, 0, 0, 0, 0, 1, 0, 0), (1, 0, 0, 0, 0, 1, 0, 0),
             (1, 1, 0, 0, 0, 1, 0, 0), (1, 1, 1, 0, 0, 1, 0, 0),
             (1, 1, 1, 1, 0, 1, 0, 0), (1, 1, 1, 1, 1, 1, 0, 0),
             *((1, 1, 1, 1, 1, 1, *ends) for card in range(self.cards)
               for ends in ((card + 1, card), (card + 1, card + 1)))],
            list(dict.fromkeys(stages)))
        self.restore()      # once more changes nothing

    def test_while_it_is_changed(self) -> None:
        seen = set()
        self.driver.write(VM, RATE, 2.5e6)
        for _ in self.run_killed('sendto', *self.limit_command('5e6')):
            self.assertTrue(self.arrive(20))
            seen.add(self.driver.read(VM, RATE))
            self.driver.write(VM, RATE, 2.5e6)
        self.assertEqual({2.5e6, 5e6}, seen)
        self.restore()

    def test_while_it_is_removed(self) -> None:
        stages: list[tuple[int, ...]] = []
        self.driver.write(VM, RATE, 2.5e6)
        calls = 'fork,vfork,clone,clone3'
        for _ in self.run_killed(calls, *self.restore_command()):
            self.assertTrue(self.arrive(20), str(stages))
            stages.append(self.stage())
            self.restore()
            self.restore_command()
            self.driver.write(VM, RATE, 2.5e6)
        self.assertEqual(
            [(1, 1, 1, 1, 1, 1, self.cards, self.cards),
             *((1, 1, 1, 1, 1, 0, card, card)
               for card in range(self.cards, -1, -1)),
             (0, 0, 0, 0, 0, 1, 0, 0)],
            list(dict.fromkeys(stages)))
        self.restore()

    def test_both_at_once(self) -> None:
        """The agent stood still, its lease ran out, and it went on."""
        trace = self.state.parent / 'trace'
        for number in tiers.instants('both at once', sampled=6):
            trace.write_text('')
            agent = self.traced(f'sendto:signal=STOP:when={number}',
                                str(trace), *self.limit_command('2.5e6'))
            self.wait_for('it stops or ends', lambda agent=agent: (
                re.search(r'sendto.*\n.*stopped by SIGSTOP',
                          trace.read_text(), re.DOTALL)
                or agent.poll() is not None), timeout_s=60)
            if agent.poll() is not None:
                self.assertEqual(0, agent.returncode)
                break
            self.assertLess(number, 100)
            self.restore()
            agent.send_signal(signal.SIGCONT)
            agent.wait(60)
            self.assertTrue(self.arrive(20), f'{number} calls')
            self.restore()
        self.restore()      # once more changes nothing


class KillsOfReceiving(KillsTestCase):
    """The bucket at the root of a tap of libvirt."""

    knob = Knob.INGRESS_BYTES_PER_S

    def setUp(self) -> None:
        super().setUp()
        self.default = self.root()
        self.vm.tc('qdisc', 'add', 'dev', taps.TAP, 'root', 'handle', '0:',
                   'noqueue')
        self.lease = records.dump(records.Lease(
            VM, str(self.knob), records.boot_id(), [self.step()]))

    def same(self) -> None:
        self.assertEqual('noqueue', self.root())
        self.assertTrue(self.arrive(20))

    def root(self) -> str:
        """Kind of the qdisc at the root."""
        return self.vm.tc('qdisc', 'show', 'dev', taps.TAP, 'root').split()[1]

    def test_while_it_is_set(self) -> None:
        stages = []
        for _ in self.run_killed('sendto', *self.limit_command('2.5e6')):
            self.assertTrue(self.arrive(20))
            stages.append(self.root())
            self.restore()
        self.assertEqual(['noqueue', self.default, 'tbf'],
                         list(dict.fromkeys(stages)))

    def test_while_it_is_removed(self) -> None:
        stages = []
        self.driver.write(VM, self.knob, 2.5e6)
        for _ in self.run_killed('fork,vfork,clone,clone3',
                                 *self.restore_command()):
            self.assertTrue(self.arrive(20))
            stages.append(self.root())
            self.restore()
            self.restore_command()
            self.driver.write(VM, self.knob, 2.5e6)
        self.assertEqual(['tbf', self.default, 'noqueue'],
                         list(dict.fromkeys(stages)))
        self.restore()


@tiers.only_in_all('one tap is limited and removed by the same code')
class KillsOfTwo(Kills):
    """The same with a limit over two taps."""

    cards = 2
