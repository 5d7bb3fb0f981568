# SPDX-License-Identifier: Apache-2.0


"""The egress of a VM, held behind a real tap in throw-away namespaces."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import socket
import struct
import threading
import time
from typing import Any

from scavenger_openstack.drivers.kernel import rtnetlink
from scavenger_openstack.drivers.network import limits
from scavenger_openstack.drivers.network import tap
from scavenger_openstack import errors
from scavenger_openstack.restore import actions
from scavenger_openstack.tests import descriptors
from scavenger_openstack.tests.functional import base
from scavenger_openstack.tests.functional import namespaces
from scavenger_openstack.tests.functional import taps
from scavenger_openstack.tests.functional.taps import RATE
from scavenger_openstack.tests.functional.taps import VM
from scavenger_openstack.tests.leased import leased

HEADERS = 0.044
"""What TCP, IP and Ethernet take of a packet of 1500 bytes."""
LEAST, MOST = 0.93, 1.07 - 2 * HEADERS
"""Goodput over rate."""
SO_RCVBUFFORCE = 33


class Rates(taps.TapTestCase):

    def test_goodput_is_near_the_rate(self) -> None:
        """Whatever the rate was before, and only in this direction."""
        def near(got: float) -> bool:
            return LEAST < got < MOST

        free = self.vm.goodput(1, back=True, warm_up_s=0.2)
        self.driver.write(VM, RATE, 25e6)
        self.vm.goodput(0.3, warm_up_s=0.3)
        for rate, seconds in ((2.5e6, 2), (125e3, 4)):
            self.assertEqual(rate, self.driver.write(VM, RATE, rate))
            got: list[float] = []
            # Again, if the machine was too busy to send so much, or had not
            # looked at what it received before.
            while len(got) < 3 and not any(map(near, got)):
                got.append(self.vm.goodput(seconds) / rate)
            self.assertLess(min(got), MOST, f'{got} of {rate}')
            if base.pace() < base.EMULATED:     # else it cannot send so much
                self.assertTrue(any(map(near, got)), f'{got} of {rate}')
        self.driver.write(VM, RATE, 2.5e6)
        if base.pace() < base.EMULATED:
            # As much as before, or again: the machine may be busy now.
            self.wait_for('it receives as before', lambda: self.vm.goodput(
                1, back=True, warm_up_s=0.2) > free / 3)

    def test_nothing_is_lost_at_once_or_in_the_end(self) -> None:
        """A packet each millisecond, while limits come, change and go."""
        step, stop, sent = self.step(), threading.Event(), 0
        with namespaces.socket_in(self.vm.far, socket.SOCK_DGRAM) as far, \
                namespaces.socket_in(self.vm.guest,
                                     socket.SOCK_DGRAM) as near:
            far.bind((taps.FAR, 0))
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
                near.sendto(b'%d' % sent, far.getsockname())
                sent += 1
                time.sleep(0.001)
            limiter.join(60)
            got = {int(far.recv(99)) for _ in range(sent)}
        self.assertGreater(sent, 100)
        self.assertEqual(set(range(sent)), got)
        self.same()

    def test_what_waits_outlives_change_and_removal(self) -> None:
        step = self.step()
        self.driver.write(VM, RATE, 50000)
        with namespaces.socket_in(self.vm.far, socket.SOCK_DGRAM) as far, \
                namespaces.socket_in(self.vm.guest,
                                     socket.SOCK_DGRAM) as near:
            far.bind((taps.FAR, 0))
            far.settimeout(30)
            far.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)
            # Until the neighbour has answered, few packets may wait for it.
            near.sendto(b'known', far.getsockname())
            far.recv(99)
            for number in range(250):
                near.sendto(bytes([number]) * 1000, far.getsockname())
            self.wait_for('something waits', lambda: 'backlog 0b' not in
                          self.vm.tc('-s', 'qdisc', 'show', 'dev',
                                     f'scv{step["ifindex"]}'))
            self.driver.write(VM, RATE, 100000)
            self.assertTrue(self.restore_by(step))
            self.assertEqual(set(range(250)),
                             {far.recv(2000)[0] for _ in range(250)})

    def test_sent_is_what_got_through(self) -> None:
        """Not what the limit has dropped, before, during and after."""
        step = self.step()

        def flood(seconds: float) -> float:
            """Bytes per second that count as sent."""
            began, before = time.monotonic(), self.sent()
            with namespaces.socket_in(self.vm.guest,
                                      socket.SOCK_DGRAM) as near:
                while time.monotonic() < began + seconds:
                    near.sendto(bytes(1400), (taps.FAR, 9))
            return (self.sent() - before) / (time.monotonic() - began)

        self.assertGreater(flood(0.5), 2e6)
        self.driver.write(VM, RATE, 500e3)
        flood(0.5)
        self.assertLess(abs(flood(2) / 500e3 - 1), 0.1)
        self.restore_by(step)
        flood(0.2)
        self.assertGreater(flood(0.5), 2e6)

    def test_every_queue_of_a_tap(self) -> None:
        fds = [taps.inside(self.vm.host, lambda: taps.open_tap(
            'many', taps.MULTI_QUEUE)) for _ in range(4)]
        for fd in fds:
            self.addCleanup(os.close, fd)
        self.vm.ip('link', 'set', 'many', 'master', 'br0', 'up')
        self.driver.attach('other', tap.Tap(f'{self.vm.host}:many'))
        self.driver.write('other', RATE, 1e6)
        # The bridge does not know the address; an experimental protocol.
        frame = bytes.fromhex('0e00000000aa0e00000000bb88b5') + bytes(1400)
        far = rtnetlink.Rtnetlink(self.vm.far)
        self.addCleanup(far.close)
        up1 = far.link('up1').ifindex

        def flood(seconds: float) -> float:
            began, before = time.monotonic(), far.received_sent(up1)[0]
            while time.monotonic() < began + seconds:
                for fd in fds:
                    os.write(fd, frame)
            return ((far.received_sent(up1)[0] - before)
                    / (time.monotonic() - began))

        flood(0.5)
        self.assertLess(abs(flood(2) / 1e6 - 1), 0.07)
        self.driver.detach('other')
        self.assertRaises(errors.Unsupported, self.driver.read, 'other',
                          RATE)

    def test_frames_too_short_to_look_into(self) -> None:
        fd = taps.inside(self.vm.host, lambda: taps.open_tap('tiny', 0))
        self.addCleanup(os.close, fd)
        self.vm.ip('link', 'set', 'tiny', 'master', 'br0', 'up')
        self.driver.attach('other', tap.Tap(f'{self.vm.host}:tiny'))
        step, = self.driver.restore_actions('other', RATE)
        self.driver.write('other', RATE, 1e6)
        head = bytes.fromhex('0e00000000aa0e00000000bb88b5')

        def through() -> int:
            shown, = json.loads(self.vm.ip(
                '-s', '-json', 'link', 'show', 'dev',
                f'scv{step["ifindex"]}'))
            return int(shown['stats64']['tx']['packets'])

        for size in range(5):
            before = through()
            os.write(fd, head + bytes(size))
            self.assertEqual(1, through() - before, f'{size} bytes')


class Life(taps.TapTestCase):
    """What becomes of a limit, and of what is left of it."""

    def test_back_to_what_it_was(self) -> None:
        self.assertIsNone(self.driver.read(VM, RATE))
        step = self.step()
        self.assertEqual(
            {'do': 'tap', 'netns': self.vm.host, 'dev': taps.TAP,
             'ifindex': self.vm.ifindex}, step)
        self.same()
        self.assertEqual(125000, self.driver.write(VM, RATE, 125000))
        self.assertEqual(125000, self.driver.read(VM, RATE))
        self.assertEqual(step, self.step())
        self.assertTrue(self.restore_by(step))
        self.assertIsNone(self.driver.read(VM, RATE))
        self.same()
        self.assertFalse(self.restore_by(step))
        self.assertEqual(12.5e9, self.driver.write(VM, RATE, 12.5e9))
        self.assertTrue(self.vm.arrives(20))
        self.assertTrue(self.restore_by(step))
        self.same()

    def test_tap_deleted_and_made_again(self) -> None:
        state = leased(self.driver, VM, RATE)
        step = self.step()
        self.driver.write(VM, RATE, 1e6, state)
        self.vm.stop()
        self.assertIn(': scv', self.vm.ip('link'))
        for _ in range(2):
            self.assertRaises(actions.Gone, self.restore_by, step)
            self.assertNotIn(': scv', self.vm.ip('link'))
        self.assertRaises(errors.WorkloadGone, self.driver.read, VM, RATE)
        self.vm.start()
        self.assertRaises(errors.WorkloadGone, self.driver.write, VM, RATE,
                          1e6, state)
        self.assertNotIn(': scv', self.vm.ip('link'))
        again = self.step()
        self.assertNotEqual(step['ifindex'], again['ifindex'])
        self.assertEqual(1e6, self.driver.write(VM, RATE, 1e6))
        self.assertRaises(actions.Gone, self.restore_by, step)
        self.assertEqual(1e6, self.driver.read(VM, RATE))
        self.assertTrue(self.restore_by(again))

    def test_tap_renamed(self) -> None:
        step = self.step()
        self.driver.write(VM, RATE, 1e6)
        # Before Linux 6.2 what is up cannot be renamed.
        self.vm.ip('link', 'set', taps.TAP, 'down')
        self.vm.ip('link', 'set', taps.TAP, 'name', 'renamed')
        self.vm.ip('link', 'set', 'renamed', 'up')
        self.assertTrue(self.restore_by(step))
        self.vm.ip('link', 'set', 'renamed', 'down')
        self.vm.ip('link', 'set', 'renamed', 'name', taps.TAP)
        self.vm.ip('link', 'set', taps.TAP, 'up')
        self.same()

    def test_namespace_deleted(self) -> None:
        step = self.step()
        self.driver.write(VM, RATE, 1e6)
        self.vm.stop()
        self.vm.remove(self.vm.host)
        self.assertRaises(errors.WorkloadGone, self.driver.read, VM, RATE)
        self.assertRaises(actions.Gone, self.restore_by, step)
        # Nothing of ours keeps it, and its end of the wire, alive.
        self.wait_for('the far end goes with the namespace', lambda:
                      'up1' not in namespaces.run(
                          'ip', '-n', self.vm.far, 'link'))

    def counts(self) -> None:
        """What the guest sends gets through, and counts."""
        before = self.sent()
        self.assertTrue(self.vm.arrives(20))
        self.assertGreater(self.sent(), before)

    def test_made_whole_again(self) -> None:
        """What another program has deleted, part by part."""
        step = self.step()
        ifb = f'scv{step["ifindex"]}'
        for words in (('link', 'del', ifb),
                      ('link', 'del', ifb, 'other end first'),
                      ('qdisc', 'del', 'dev', ifb, 'root'),
                      ('qdisc', 'del', 'dev', taps.TAP, 'ingress'),
                      ('filter', 'del', 'dev', taps.TAP, 'ingress', 'pref',
                       '23712')):
            self.assertEqual(1e6, self.driver.write(VM, RATE, 1e6))
            self.counts()
            tool = self.vm.ip if words[0] == 'link' else self.vm.tc
            tool(*words[:5 if words[0] == 'qdisc' else
                        None if words[0] == 'filter' else 3])
            self.assertIsNone(self.driver.read(VM, RATE), ' '.join(words))
            if len(words) == 4:     # as the restore action finds it
                self.assertTrue(self.restore_by(step))
                self.same()
        self.assertEqual(1e6, self.driver.write(VM, RATE, 1e6))
        self.counts()
        self.assertTrue(self.restore_by(step))
        self.same()

    def test_orphans_are_swept(self) -> None:
        """Those of taps that are gone, and no others."""
        fds = {}
        for name in ('gone', 'alive'):
            fds[name] = taps.inside(
                self.vm.host, functools.partial(taps.open_tap, name))
            self.driver.attach(name, tap.Tap(f'{self.vm.host}:{name}'))
            self.driver.write(name, RATE, 1e6)
        self.addCleanup(os.close, fds['alive'])
        self.vm.ip('link', 'add', 'scv9999', 'type', 'ifb')
        self.vm.ip('link', 'add', 'scvother', 'group', '23712', 'type',
                   'ifb')
        os.close(fds['gone'])
        before = self.vm.ip('-oneline', 'link')
        self.step()     # looks, and touches nothing
        self.assertEqual(before, self.vm.ip('-oneline', 'link'))
        self.driver.write(VM, RATE, 1e6)
        left = json.loads(self.vm.ip('-json', 'link', 'show', 'type', 'ifb'))
        alive = json.loads(self.vm.ip('-json', 'link', 'show', 'alive'))
        self.assertEqual(
            {'scv9999', 'scvother', f'scv{self.vm.ifindex}',
             f'scv{alive[0]["ifindex"]}'},
            {link['ifname'] for link in left if link})
        self.assertEqual(1e6, self.driver.read('alive', RATE))

    def test_nothing_stays_open(self) -> None:
        with descriptors.given_back() as opened:
            driver = limits.Network({}, {VM: self.tap})
            driver.write(VM, RATE, 1e6)
            self.assertNotEqual(set(), opened())
            driver.close()
        self.assertEqual('', self.log.output)


class Lowered(base.FunctionalTestCase):
    """A packet that waits fits into a bucket that was made smaller."""

    def test_while_it_is_full(self) -> None:
        wire = self.useFixture(namespaces.Wire())
        for interface in (wire.device, tap.Tap(f'{wire.far}:scv1')):
            driver = limits.Network({}, {VM: interface})
            self.addCleanup(driver.close)
            step, = driver.restore_actions(VM, RATE)
            for before, after in ((125e6, 5e6), (5e6, 1e6)):
                driver.write(VM, RATE, before)
                with self.flow(wire) as receiver:
                    taps.receive(receiver, 0.5)
                    driver.write(VM, RATE, after)
                    taps.receive(receiver, 0.5)
                    got = taps.receive(receiver, 1)
                # Of a second in which other programs run, too.
                self.assertLess(abs(got / after - 1), 0.3, f'{interface}')
            self.assertTrue(actions.run(step, []))

    @contextlib.contextmanager
    def flow(self, wire: namespaces.Wire) -> Any:
        stop = threading.Event()
        with namespaces.socket_in(wire.far) as listener, \
                namespaces.socket_in(wire.near) as sender:
            listener.bind(('10.99.0.2', 0))
            listener.listen()
            listener.settimeout(30)
            sender.settimeout(30)
            sender.connect(listener.getsockname())
            receiver = listener.accept()[0]
            receiver.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                struct.pack('ii', 1, 0))
            thread = threading.Thread(target=taps.send, args=(sender, stop))
            thread.start()
            try:
                yield receiver
            finally:
                stop.set()
                receiver.close()
                thread.join(10)
