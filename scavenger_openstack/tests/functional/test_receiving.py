# SPDX-License-Identifier: Apache-2.0

"""What a workload receives, held at a real tap or a real device."""

from __future__ import annotations

import contextlib
import re
import socket
import threading

import fixtures

from scavenger_openstack.agent.apply import actuator
from scavenger_openstack.drivers.kernel import token_bucket
from scavenger_openstack.drivers.network import limits
from scavenger_openstack import errors
from scavenger_openstack.restore import actions
from scavenger_openstack.tests.functional import base
from scavenger_openstack.tests.functional import namespaces
from scavenger_openstack.tests.functional import taps
from scavenger_openstack.tests.functional.taps import VM
from scavenger_openstack.tests.leased import leased
from scavenger_openstack import types
from scavenger_openstack.types import Knob

RATE = Knob.INGRESS_BYTES_PER_S
SENDS = Knob.EGRESS_BYTES_PER_S
JOB = '/batch/job'
LINK = 5e6
"""Bytes per second of the link that is made full."""


class ReceivingTestCase(taps.TapTestCase):

    knob = RATE

    def root(self, device: str = taps.TAP) -> str:
        return re.sub(r'_stat \d+', '', self.vm.tc(
            'qdisc', 'show', 'dev', device, 'root'))

    def noqueue(self, *devices: str) -> None:
        """What libvirt puts at the root of its taps."""
        for device in devices or (taps.TAP,):
            self.vm.tc('qdisc', 'add', 'dev', device, 'root', 'handle', '0:',
                       'noqueue')


class Tap(ReceivingTestCase):
    """The root of a tap, by which what its VM receives leaves."""

    def near(self, rate: float, *, back: bool) -> bool:
        """Whether TCP brings about so much, of three times."""
        return any(abs(self.vm.goodput(1.0, back=back) / rate - 1) < 0.2
                   for _ in range(3))

    def test_set_changed_and_restored(self) -> None:
        action = self.step()
        self.assertIsNone(self.driver.read(VM, RATE))
        for rate in (1.25e6, 5e6):
            self.assertEqual(rate, self.driver.write(VM, RATE, rate))
            self.assertTrue(self.near(rate, back=True))
        self.assertGreater(self.vm.goodput(1.0), 2 * 5e6)   # not what it sends
        self.assertTrue(self.restore_by(action))
        self.assertIsNone(self.driver.read(VM, RATE))
        self.same()

    def test_beside_a_limit_of_what_it_sends(self) -> None:
        """Each with its lease, in any order."""
        self.driver.write(VM, SENDS, 2.5e6)
        self.driver.write(VM, RATE, 1.25e6)
        self.assertEqual((2.5e6, 1.25e6), (self.driver.read(VM, SENDS),
                                           self.driver.read(VM, RATE)))
        self.assertTrue(self.near(1.25e6, back=True))
        self.assertTrue(self.near(2.5e6, back=False))
        sends, = self.driver.restore_actions(VM, SENDS)
        self.assertTrue(self.restore_by(self.step()))
        self.assertEqual(2.5e6, self.driver.read(VM, SENDS))
        self.assertTrue(self.restore_by(dict(sends)))
        self.same()

    def test_noqueue_is_put_back(self) -> None:
        self.noqueue()
        before = self.root()
        self.assertIn('noqueue', before)
        state = leased(self.driver, VM, RATE)
        self.assertIsNone(state.original.value)
        self.assertEqual(1.25e6, self.driver.write(VM, RATE, 1.25e6, state))
        self.assertIn('tbf 5ca0:', self.root())
        # While it is limited the original is that of the lease.
        self.assertEqual(list(state.original.actions),
                         self.driver.restore_actions(VM, RATE, state))
        self.assertTrue(self.restore_by(dict(state.original.actions[0])))
        self.assertRegex(self.root(), 'noqueue 8[0-9a-f]{3}: root')
        self.assertTrue(self.vm.arrives(20))

    def test_noqueue_that_is_not_leased(self) -> None:
        """It stays until there is a lease that puts it back."""
        state = leased(self.driver, VM, RATE)
        self.noqueue()
        self.assertRaises(errors.WorkloadGone, self.driver.write, VM, RATE,
                          1.25e6, state)
        self.assertIn('noqueue', self.root())
        self.assertFalse(self.restore_by(dict(state.original.actions[0])))
        state = leased(self.driver, VM, RATE)
        self.driver.write(VM, RATE, 1.25e6, state)
        self.assertTrue(self.restore_by(dict(state.original.actions[0])))
        self.assertIn('noqueue', self.root())

    def test_another_program_puts_noqueue_over_a_limit(self) -> None:
        """It has to be leased before the limit is set again."""
        agent, caps = self.new_agent(), {
            (VM, RATE): types.Cap(VM, RATE, 1.25e6, 'test', 'to see it')}
        agent.reconcile(caps, agent.read(caps.values()))
        self.assertIn('tbf', self.root())
        self.vm.tc('qdisc', 'replace', 'dev', taps.TAP, 'root', 'noqueue')
        for _ in range(2 * actuator.READ_TICKS):
            agent.reconcile(caps, agent.read(caps.values()))
        self.assertIn('tbf', self.root())
        agent.remove((VM, RATE))
        self.assertIn('noqueue', self.root())

    def test_by_an_agent(self) -> None:
        """It sets it, reads it back, changes it, and removes it."""
        self.noqueue()
        agent = self.new_agent()
        for rate in (1.25e6, 2.5e6, None, 1.25e6):
            caps = [] if rate is None else [
                types.Cap(VM, RATE, rate, 'test', 'to see it')]
            for _ in range(2 * actuator.READ_TICKS):
                self.assertEqual([], agent.reconcile(
                    {cap.key: cap for cap in caps}, agent.read(caps)).problems)
                self.wait_for('nothing is being removed any more',
                              lambda: not agent.pending)
            self.assertEqual(rate, self.driver.read(VM, RATE))
            self.assertIn('noqueue' if rate is None else 'tbf', self.root())
        agent.remove((VM, RATE))
        self.assertIn('noqueue', self.root())

    def test_another_programs_qdisc_stays(self) -> None:
        """As libvirt's for quota:vif_inbound_average, before and after us."""
        htb = ('qdisc', 'add', 'dev', taps.TAP, 'root', 'handle', '1:', 'htb',
               'default', '1')
        state = leased(self.driver, VM, RATE)
        self.driver.write(VM, RATE, 1.25e6, state)
        self.vm.tc('qdisc', 'del', 'dev', taps.TAP, 'root')
        self.vm.tc(*htb)
        before = self.root()
        for of_lease in None, state:
            for call in (
                    lambda of=of_lease: self.driver.read(VM, RATE, of),
                    lambda of=of_lease: self.driver.restore_actions(
                        VM, RATE, of),
                    lambda of=of_lease: self.driver.write(VM, RATE, 1e6, of)):
                exc = self.assertRaises(errors.Unsupported, call)
                self.assertIn('the qdisc htb 1: of another program', str(exc))
                self.assertIn(f'what {VM} receives', str(exc))
        self.assertFalse(self.restore_by(dict(state.original.actions[0])))
        self.assertEqual(before, self.root())

    def test_a_qdisc_that_comes_between_look_and_write(self) -> None:
        limited = self.driver._read(VM, RATE, None)
        self.vm.tc('qdisc', 'add', 'dev', taps.TAP, 'root', 'handle', '1:',
                   'pfifo')
        before = self.root()
        bucket = token_bucket.bucket(1_000_000, 1500)
        self.assertRaises(OSError, limited.set_rate, bucket)
        self.vm.tc('qdisc', 'del', 'dev', taps.TAP, 'root')
        self.noqueue()
        limited = self.driver._read(VM, RATE, None)
        self.vm.tc('qdisc', 'replace', 'dev', taps.TAP, 'root', 'handle',
                   '1:', 'pfifo')
        self.assertRaises(OSError, limited.set_rate, bucket)
        self.assertEqual(before, self.root())

    def test_the_device_goes_under_a_limit(self) -> None:
        state = leased(self.driver, VM, RATE)
        self.driver.write(VM, RATE, 1.25e6, state)
        self.vm.stop()
        self.assertRaises(errors.WorkloadGone, self.driver.read, VM, RATE,
                          state)
        self.assertRaises(actions.Gone, self.restore_by,
                          dict(state.original.actions[0]))
        self.vm.start()
        self.assertRaises(errors.WorkloadGone, self.driver.write, VM, RATE,
                          1.25e6, state)
        self.assertNotIn('tbf', self.root())
        self.assertEqual(1.25e6, self.driver.write(
            VM, RATE, 1.25e6, leased(self.driver, VM, RATE)))

    def test_the_device_goes_down_under_a_limit(self) -> None:
        self.noqueue()
        state = leased(self.driver, VM, RATE)
        self.driver.write(VM, RATE, 1.25e6, state)
        self.vm.ip('link', 'set', taps.TAP, 'down')
        self.assertEqual(1.25e6, self.driver.read(VM, RATE, state))
        self.assertEqual(2.5e6, self.driver.write(VM, RATE, 2.5e6, state))
        self.assertTrue(self.restore_by(dict(state.original.actions[0])))
        self.vm.ip('link', 'set', taps.TAP, 'up')
        self.assertIn('noqueue', self.root())

    def test_the_foreground_keeps_a_full_link(self) -> None:
        """The host serves on the link over which a VM downloads."""
        namespaces.run('tc', '-n', self.vm.far, 'qdisc', 'add', 'dev', 'up1',
                       'root', 'tbf', 'rate', f'{LINK * 8:.0f}', 'burst',
                       '80kb', 'limit', '100kb')
        disturbed, _ = self.together()
        self.driver.write(VM, RATE, 0.2 * LINK)
        kept, background = self.together()
        self.assertLess(disturbed, 0.65 * LINK)
        self.assertGreater(kept, max(0.65 * LINK, 1.2 * disturbed))
        self.assertLess(background, 0.25 * LINK)

    def together(self) -> tuple[float, float]:
        """Goodput of the host, and of the VM with four connections."""
        rates: list[float] = []
        threads = [threading.Thread(target=lambda: rates.append(
            self.vm.goodput(4.0, back=True))) for _ in range(4)]
        for thread in threads:
            thread.start()
        foreground = self.to_host(4.0)
        for thread in threads:
            thread.join(60)
        self.assertEqual(4, len(rates))
        return foreground, sum(rates)

    def to_host(self, seconds: float) -> float:
        with contextlib.ExitStack() as opened:
            listener, sender = (opened.enter_context(namespaces.socket_in(
                name)) for name in (self.vm.host, self.vm.far))
            listener.bind((taps.HOST, 0))
            listener.listen()
            sender.settimeout(30)
            sender.connect(listener.getsockname())
            receiver = opened.enter_context(listener.accept()[0])
            stop = threading.Event()
            thread = threading.Thread(target=taps.send, args=(sender, stop))
            thread.start()
            taps.receive(receiver, 1.0)
            rate = taps.receive(receiver, seconds)
            stop.set()
            receiver.shutdown(socket.SHUT_RDWR)
            receiver.close()
            thread.join(30)
            return rate


class TwoTaps(ReceivingTestCase):
    """Of several cards each has the rate; one that has a qdisc of another
    program is left out."""

    cards = 2

    def test_each_has_the_rate(self) -> None:
        self.noqueue('vm1')
        state = leased(self.driver, VM, RATE)
        self.assertEqual(1.25e6, self.driver.write(VM, RATE, 1.25e6, state))
        for device in 'vm0', 'vm1':
            self.assertIn('rate 10Mbit', self.root(device))
        self.vm.tc('qdisc', 'del', 'dev', 'vm1', 'root')
        self.assertIsNone(self.driver.read(VM, RATE, state))
        self.assertEqual(1.25e6, self.driver.write(VM, RATE, 1.25e6, state))
        self.assertTrue(self.restore_by(dict(state.original.actions[0])))
        self.assertNotIn('tbf', self.root() + self.root('vm1'))
        self.assertIn('noqueue', self.root('vm1'))

    def test_one_is_left_out(self) -> None:
        self.vm.tc('qdisc', 'add', 'dev', 'vm0', 'root', 'handle', '1:',
                   'pfifo')
        self.assertEqual(1.25e6, self.driver.write(VM, RATE, 1.25e6))
        self.assertIn('pfifo', self.root('vm0'))
        self.assertIn('tbf 5ca0:', self.root('vm1'))
        self.assertEqual(1, self.log.output.count(
            'the qdisc pfifo 1: of another program'))
        self.assertTrue(self.restore_by(self.step()))
        self.assertNotIn('tbf', self.root('vm1'))


class Device(base.FunctionalTestCase):
    """What arrives at the device of a container."""

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        self.wire = self.useFixture(namespaces.Wire())
        self.device = f'{self.wire.far}:scv1'
        self.driver = limits.Network({self.device: 25e6}, {JOB: self.device})
        self.addCleanup(self.driver.close)
        self.wait_for('the wire is there', lambda: 'state UP' in taps.listing(
            self.wire.far))
        self.before = taps.listing(self.wire.far)

    def test_set_and_restored(self) -> None:
        state = leased(self.driver, JOB, RATE)
        self.assertEqual(2.5e6, self.driver.write(JOB, RATE, 2.5e6, state))
        self.assertEqual(2.5e6, self.driver.read(JOB, RATE, state))
        self.assertTrue(any(
            abs(self.wire.goodput(1.5) / 2.5e6 - 1) < 0.2 for _ in range(3)))
        # Beside what it sends, at the root of the same device.
        self.driver.write(JOB, SENDS, 1e6)
        self.assertEqual((1e6, 2.5e6), (self.driver.read(JOB, SENDS),
                                        self.driver.read(JOB, RATE)))
        sends, = self.driver.restore_actions(JOB, SENDS)
        for action in sends, state.original.actions[0]:
            actions.validate(action, [])
            self.assertTrue(actions.run(action, []))
        self.assertEqual(self.before, taps.listing(self.wire.far))

    def test_noqueue_of_hardware(self) -> None:
        """It stays: the watcher does not put it there."""
        device = f'{self.wire.far}:lo'
        namespaces.run('tc', '-n', self.wire.far, 'qdisc', 'add', 'dev', 'lo',
                       'root', 'noqueue')
        driver = limits.Network({}, {JOB: device})
        self.addCleanup(driver.close)
        exc = self.assertRaises(errors.Unsupported, driver.read, JOB, SENDS)
        self.assertIn('the qdisc noqueue', str(exc))

    def test_both_ways_are_counted(self) -> None:
        before = self.driver.received_sent(self.device)
        self.wire.goodput(0.2)
        after = self.driver.received_sent(self.device)
        received, sent = (
            totals[self.device] for totals in self.driver.link_totals())
        assert before and after
        self.assertGreater(after[0] - before[0], 10 * (after[1] - before[1]))
        self.assertGreaterEqual(received, after[0])
        self.assertGreaterEqual(sent, after[1])

    def test_the_device_goes_under_a_limit(self) -> None:
        state = leased(self.driver, JOB, RATE)
        self.driver.write(JOB, RATE, 2.5e6, state)
        namespaces.run('ip', '-n', self.wire.far, 'link', 'del', 'scv1')
        self.assertRaises(errors.WorkloadGone, self.driver.read, JOB, RATE)
        self.assertRaises(actions.Gone, actions.run,
                          state.original.actions[0], [])
        self.assertNotIn(': scv', namespaces.run(
            'ip', '-n', self.wire.far, 'link'))     # nor what was behind it
