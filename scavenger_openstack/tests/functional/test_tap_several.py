# SPDX-License-Identifier: Apache-2.0

"""One limit over all taps of a VM, while they come and go."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from typing import Any

from scavenger_openstack.agent.apply import actuator
from scavenger_openstack.drivers.network import tap
from scavenger_openstack import errors
from scavenger_openstack.restore import actions
from scavenger_openstack.tests.functional import namespaces
from scavenger_openstack.tests.functional import taps
from scavenger_openstack.tests.functional.taps import RATE
from scavenger_openstack.tests.functional.taps import VM
from scavenger_openstack.tests.leased import leased
from scavenger_openstack import types

LIMIT = 1e6
WARM_UP_S = 0.5
SO_RCVBUFFORCE = 33


class Several(taps.TapTestCase):

    cards = 2

    def flood(self, seconds: float, *cards: int) -> dict[int, float]:
        """Bytes per second of each card that reach the far end.

        Not at first, when what waited before goes.
        """
        got = dict.fromkeys(cards, 0)
        stop = threading.Event()

        def receive(card: int, far: socket.socket) -> None:
            while not stop.is_set():
                with contextlib.suppress(TimeoutError):
                    size = 42 + len(far.recv(2000))
                    if time.monotonic() > began + WARM_UP_S:
                        got[card] += size

        with contextlib.ExitStack() as stack:
            near = stack.enter_context(namespaces.socket_in(
                self.vm.guest, socket.SOCK_DGRAM))
            near.settimeout(1)
            threads, to = [], []
            for card in cards:
                far = stack.enter_context(namespaces.socket_in(
                    self.vm.far, socket.SOCK_DGRAM))
                far.bind((taps.FARS[card], 0))
                far.settimeout(0.2)
                to.append(far.getsockname())
                threads.append(threading.Thread(target=receive,
                                                args=(card, far)))
            dice = random.Random(1)
            began = time.monotonic()
            for thread in threads:
                thread.start()
            while time.monotonic() < began + WARM_UP_S + seconds:
                # In one order, always the same one finds the queue full.
                for address in dice.sample(to, len(to)):
                    near.sendto(bytes(1400), address)
                time.sleep(0.0002)
            stop.set()
            for thread in threads:
                thread.join(10)
        return {card: total / seconds for card, total in got.items()}

    def test_one_limit_for_all(self) -> None:
        """Not so much for each, and all of it for one alone."""
        step = self.step()
        self.assertEqual([self.vm.index_of(1)], step['also'])
        self.assertTrue(any(sum(self.flood(1, 0, 1).values()) > 1.5 * LIMIT
                            for _ in range(8)), 'it can send more')
        self.assertEqual(LIMIT, self.driver.write(VM, RATE, LIMIT))
        seen = []

        def shared(*cards: int) -> bool:
            began, sent = time.monotonic(), self.sent()
            rates = self.flood(2, *cards)
            told = (self.sent() - sent) / (time.monotonic() - began)
            seen.append((rates, told))
            return (abs(sum(rates.values()) / LIMIT - 1) < 0.15
                    and abs(told / LIMIT - 1) < 0.15
                    and min(rates.values()) > 0.2 * LIMIT)

        for cards in ((0, 1), (0,), (1,)):
            # On a busy machine this test itself may be late.
            self.assertTrue(any(shared(*cards) for _ in range(8)), str(seen))
        self.assertTrue(self.restore_by(step))
        self.same()

    def test_nothing_is_lost(self) -> None:
        """A packet each millisecond by each card, while limits come and go.
        """
        step, stop, sent = self.step(), threading.Event(), 0
        with contextlib.ExitStack() as stack:
            near, *fars = (stack.enter_context(namespaces.socket_in(
                netns, socket.SOCK_DGRAM)) for netns in (
                    self.vm.guest, self.vm.far, self.vm.far))
            for far, address in zip(fars, taps.FARS, strict=True):
                far.bind((address, 0))
                far.settimeout(30)
                far.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)

            def limit() -> None:
                for _ in range(5):
                    for rate in (500e3, 5e6, 500e3):
                        self.driver.write(VM, RATE, rate)
                        time.sleep(0.02)
                    self.restore_by(step)
                stop.set()

            limiter = threading.Thread(target=limit)
            limiter.start()
            while not stop.is_set():
                for far in fars:
                    near.sendto(b'%d' % sent, far.getsockname())
                sent += 1
                time.sleep(0.001)
            limiter.join(60)
            self.assertGreater(sent, 100)
            for far in fars:
                self.assertEqual(set(range(sent)), {
                    int(far.recv(99)) for _ in range(sent)})
        self.same()

    def test_removed_when_a_tap_has_gone(self) -> None:
        for gone in (0, 1):
            step = self.step()
            self.driver.write(VM, RATE, LIMIT)
            self.vm.unplug(gone)
            # No IFB goes that a tap still needs, even if no driver knows it.
            self.driver.attach('other', self.tap_of(1 - gone))
            self.assertTrue(self.vm.arrives(20, card=1 - gone))
            self.assertTrue(self.restore_by(step))
            self.assertNotIn(': scv', self.vm.ip('link'))
            self.assertNotIn('ingress', self.vm.tc('qdisc', 'show'))
            self.assertTrue(self.vm.arrives(20, card=1 - gone))
            self.vm.plug(gone)
            self.driver.close()
            self.driver = self.new_driver({VM: self.tap})
        step = self.step()
        self.driver.write(VM, RATE, LIMIT)
        self.vm.stop()
        for _ in range(2):
            self.assertRaises(actions.Gone, self.restore_by, step)
            self.assertNotIn(': scv', self.vm.ip('link'))

    def test_sweeping_leaves_an_ifb_in_use(self) -> None:
        self.vm.ip('link', 'add', 'x0', 'type', 'veth', 'peer', 'name', 'x1')
        step = self.step()
        self.driver.write(VM, RATE, LIMIT)
        self.vm.unplug(0)
        other = self.new_driver({'x': tap.Tap(f'{self.vm.host}:x0')})
        other.write('x', RATE, LIMIT)       # sweeps
        self.assertTrue(self.vm.arrives(20, card=1))
        self.assertIn(f': scv{step["ifindex"]}:', self.vm.ip('link'))
        self.assertTrue(self.restore_by(step))
        self.assertNotIn(f': scv{step["ifindex"]}:', self.vm.ip('link'))

    def test_a_part_is_made_whole(self) -> None:
        """Another program has deleted what redirects one of them."""
        step = self.step()
        for card in range(self.cards):
            self.driver.write(VM, RATE, LIMIT)
            self.vm.tc('qdisc', 'del', 'dev', f'vm{card}', 'ingress')
            self.assertIsNone(self.driver.read(VM, RATE))
            self.assertEqual(LIMIT, self.driver.write(VM, RATE, LIMIT))
            self.assertTrue(self.arrive(20))
        self.assertTrue(self.restore_by(step))
        self.same()

    def test_one_is_taken_over(self) -> None:
        """Then the limit of all has to go, and is not just left."""
        state = leased(self.driver, VM, RATE)
        self.driver.write(VM, RATE, LIMIT, state)
        self.vm.tc('qdisc', 'del', 'dev', 'vm1', 'ingress')
        self.vm.tc('qdisc', 'add', 'dev', 'vm1', 'clsact')
        exc = self.assertRaises(errors.WorkloadGone, self.driver.read,
                                VM, RATE, state)
        self.assertIn('vm1', str(exc))

    def test_those_that_cannot_be_limited(self) -> None:
        """The others are, and each that is left out is named once."""
        for card in range(self.cards):
            self.vm.tc('qdisc', 'add', 'dev', f'vm{card}', 'clsact')
            step = self.step()
            self.assertEqual(self.vm.index_of(1 - card), step['ifindex'])
            self.assertNotIn('also', step)
            for rate in (LIMIT, 2 * LIMIT):
                self.assertEqual(rate, self.driver.write(VM, RATE, rate))
            self.assertEqual(rate, self.driver.read(VM, RATE))
            self.assertTrue(self.arrive(20))
            self.assertEqual(0, self.driver.withheld(self.link_bytes())[VM])
            self.assertEqual(1, self.log.output.count(f'tap vm{card}: '))
            self.assertTrue(self.restore_by(step))
            self.assertNotIn(': scv', self.vm.ip('link'))
            self.assertIn('clsact', self.vm.tc('qdisc', 'show'))
            self.vm.tc('qdisc', 'del', 'dev', f'vm{card}', 'clsact')
        self.assertEqual([self.vm.index_of(1)], self.step()['also'])
        for card in range(self.cards):
            self.vm.tc('qdisc', 'add', 'dev', f'vm{card}', 'clsact')
        self.driver.close()
        self.driver = self.new_driver({VM: self.tap})
        exc = self.assertRaises(errors.Unsupported, self.driver.write,
                                VM, RATE, LIMIT)
        self.assertIn('vm0', str(exc))
        self.assertNotIn(': scv', self.vm.ip('link'))
        self.assertNotIn('ingress', self.vm.tc('qdisc', 'show'))

    def test_one_that_is_replaced_by_another(self) -> None:
        """What its limit withheld is known until the new one has one."""
        self.vm.unplug(1)
        for detached in False, True:
            self.driver = self.new_driver({VM: self.tap_of(0)})
            step = self.step()
            self.driver.write(VM, RATE, LIMIT)
            withheld = self.driver.withheld(self.link_bytes())
            self.vm.unplug(0)
            self.vm.plug(1)
            if detached:
                self.driver.detach(VM)
            self.driver.attach(VM, self.tap_of(1))
            self.assertEqual(withheld,
                             self.driver.withheld(self.link_bytes()))
            self.assertRaises(actions.Gone, self.restore_by, step)
            self.step()
            self.driver.write(VM, RATE, LIMIT)
            self.assertEqual([VM], list(self.driver.withheld(
                self.link_bytes())))
            self.restore_by(self.step())
            self.vm.unplug(1)
            self.vm.plug(0)

    def test_one_that_is_not_here(self) -> None:
        self.vm.unplug(1)
        state = leased(self.driver, VM, RATE)
        step = self.step()
        self.assertNotIn('also', step)
        self.assertEqual(LIMIT, self.driver.write(VM, RATE, LIMIT, state))
        self.assertEqual(1, self.log.output.count('there is no vm1'))
        self.vm.plug(1)
        self.assertRaises(errors.WorkloadGone, self.driver.read, VM, RATE,
                          state)
        self.assertTrue(self.restore_by(step))
        self.assertIn('also', self.step())


class Leased(taps.TapTestCase):
    """As the agent does it."""

    def setUp(self) -> None:
        super().setUp()
        self.agent = self.new_agent()

    def tick(self, rate: float | None) -> actuator.Outcome:
        cap = types.Cap(VM, RATE, rate or 0.0, 'test', 'to see it')
        wanted = {(VM, RATE): cap} if rate else {}
        return self.agent.reconcile(wanted, self.agent.read(wanted.values()))

    def settled(self) -> None:
        self.wait_for('limits are removed', lambda: not self.agent.pending)

    def test_no_tick_waits_for_packets(self) -> None:
        """What waits behind a limit goes on its way beside the loop."""
        for _ in range(5):      # on a busy machine they may arrive too late
            self.assertEqual(1, self.tick(50.0).written)
            with namespaces.socket_in(self.vm.guest,
                                      socket.SOCK_DGRAM) as near:
                for _ in range(150):
                    near.sendto(bytes(1400), (taps.FAR, 9))
            if not self.tick(None).removed:
                break
        self.assertEqual({(VM, RATE)}, self.agent.pending)
        self.assertGreater(self.sent(), 0)
        self.assertEqual(0, self.tick(50.0).written)
        self.settled()
        self.assertEqual(1, self.tick(None).removed)
        self.assertEqual({}, self.leases.held())
        self.same()
        self.assertNotIn('not in force', self.log.output)

    def test_the_lease_follows_the_cards(self) -> None:
        """They come and go while a limit is in force."""

        def settle(*cards: int) -> dict[str, Any]:
            for _ in range(2 * actuator.READ_TICKS):
                self.assertEqual([], self.tick(LIMIT).problems)
                self.settled()
            self.assertEqual(LIMIT, self.driver.read(VM, RATE))
            for card in cards:
                self.assertTrue(self.vm.arrives(20, card=card))
            (key, held), = self.leases.held().items()
            self.assertEqual((VM, RATE), key)
            self.assertIsNone(held.original.value)
            step, = held.original.actions
            first, *also = map(self.vm.index_of, cards)
            self.assertEqual((first, also),
                             (step['ifindex'], step.get('also', [])))
            shown = self.vm.ip('link')
            self.assertEqual(1, shown.count(': scv'))
            self.assertIn(f': scv{first}:', shown)
            return dict(step)

        settle(0)
        self.vm.plug(1)
        self.driver.attach(VM, self.tap_of(0, 1))
        settle(0, 1)
        # Another program takes one of them, and lets it go again.
        self.vm.tc('qdisc', 'del', 'dev', 'vm0', 'ingress')
        self.vm.tc('qdisc', 'add', 'dev', 'vm0', 'clsact')
        settle(1)
        self.vm.tc('qdisc', 'del', 'dev', 'vm0', 'clsact')
        settle(0, 1)
        self.vm.unplug(0)
        self.driver.attach(VM, self.tap_of(1))
        settle(1)
        self.vm.plug(0)
        self.driver.attach(VM, self.tap_of(1, 0))
        settle(1, 0)
        self.vm.unplug(0)
        self.driver.attach(VM, self.tap_of(1))
        settle(1)
        self.agent.remove((VM, RATE))
        self.assertNotIn(': scv', self.vm.ip('link'))
        self.assertNotIn('another program changed', self.log.output)
