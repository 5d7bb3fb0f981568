# SPDX-License-Identifier: Apache-2.0

"""A guest without a guest: a real tap with a network stack behind it.

Three network namespaces: ``host`` has a bridge with the tap ``vm0`` and a
wire to ``far``; ``guest`` has a network card.  A process plays QEMU: what
the card sends it writes to the tap, and the other way round, whole GSO
packets with their virtio headers.  Further cards, with taps ``vm1`` and so
on, have addresses in further networks over the same bridge.
"""

from __future__ import annotations

from collections.abc import Callable
import ctypes
import fcntl
import os
import pathlib
import re
import socket
import struct
import subprocess
import sys
import threading
import time
from typing import Any
from typing import TypeVar
import uuid

import fixtures

from scavenger_openstack.agent.apply import actuator
from scavenger_openstack.agent.lease import leases as leases_
from scavenger_openstack.drivers.kernel import rtnetlink
from scavenger_openstack.drivers.network.devices import Interface
from scavenger_openstack.drivers.network import limits
from scavenger_openstack.drivers.network import tap
from scavenger_openstack.restore import actions
from scavenger_openstack.tests.functional import base
from scavenger_openstack.tests.functional import namespaces
from scavenger_openstack.tests.functional.namespaces import run
from scavenger_openstack.types import Knob

RATE = Knob.EGRESS_BYTES_PER_S
VM = 'vm'
HOST, GUEST, FAR = '10.99.1.3', '10.99.1.1', '10.99.1.2'
FARS = (FAR, '10.99.2.2')
"""The address of the far end that the guest reaches by each of its cards."""
TAP = 'vm0'
VIRTIO_HEADERS, MULTI_QUEUE = 0x4000, 0x100

_T = TypeVar('_T')
_CLONE_NEWNET = 0x40000000
_TUNSETIFF, _TUNSETOFFLOAD = 0x400454ca, 0x400454d0
_TAP, _NO_PI = 0x2, 0x1000
_CHECKSUM_AND_TSO = 0x1 | 0x2 | 0x4
_QEMU = '''
import os, sys, threading
def carry(source, sink):
    while True:
        frame = os.read(source, 1 << 17)
        try:
            os.write(sink, frame)
        except OSError:
            pass    # the sink is down
fds = [int(word) for word in sys.argv[1:]]
for source, sink in (fds[:2], fds[1::-1]):
    threading.Thread(target=carry, args=(source, sink)).start()
'''


def inside(netns: str, call: Callable[[], _T]) -> _T:
    """What ``call`` returns in a thread that has entered a namespace."""
    made: list[_T] = []

    def enter() -> None:
        with open(f'/run/netns/{netns}') as file:
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(),
                                                       _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), 'setns')
        made.append(call())

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    return made[0]


def open_tap(name: str, flags: int = VIRTIO_HEADERS) -> int:
    """Make a tap, or open one more queue of it; it ends with the last."""
    fd = os.open('/dev/net/tun', os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.ioctl(fd, _TUNSETIFF, struct.pack(
            '16sH22x', name.encode(), _TAP | _NO_PI | flags))
        if flags & VIRTIO_HEADERS:
            fcntl.ioctl(fd, _TUNSETOFFLOAD, _CHECKSUM_AND_TSO)
    except BaseException:
        os.close(fd)
        raise
    return fd


def listing(netns: str) -> str:
    """All devices, qdiscs and filters of a namespace, without counters."""
    links = run('ip', '-n', netns, '-details', '-oneline', 'link')
    shown = [links, run('tc', '-n', netns, 'qdisc', 'show')]
    for device in re.findall(r'^\d+: ([^:@]+)', links, re.MULTILINE):
        if f'dev {device} parent ffff:fff1' in shown[1]:
            shown.append(run('tc', '-n', netns, 'filter', 'show', 'dev',
                             device, 'ingress'))
    # The last: while the namespace of another program is being deleted.
    return re.sub(r'refcnt \d+|index \d+ ref|\S+_timer +\S+|'
                  r'Error: Peer netns reference is invalid\.\n', '',
                  ''.join(shown))


class VirtualMachine(fixtures.Fixture):
    """``guest`` sends to ``far`` through the tap ``device`` of ``host``."""

    def _setUp(self) -> None:
        tag = uuid.uuid4().hex[:6]
        self.host, self.guest, self.far = (f'scv-tap-{tag}-{role}' for role in
                                           ('host', 'guest', 'far'))
        self.device = f'{self.host}:{TAP}'
        self._cards: dict[int, tuple[list[int],
                                     subprocess.Popen[bytes]]] = {}
        for name in (self.host, self.guest, self.far):
            run('ip', 'netns', 'add', name)
            self.addCleanup(self.remove, name)
        self.addCleanup(self.stop)
        self.ip('link', 'add', 'br0', 'type', 'bridge')
        self.ip('address', 'add', f'{HOST}/24', 'dev', 'br0')
        self.ip('link', 'add', 'up0', 'master', 'br0', 'type', 'veth',
                'peer', 'name', 'up1', 'netns', self.far)
        for address in FARS:
            self.ip('address', 'add', f'{address}/24', 'dev', 'up1',
                    netns=self.far)
        self.ip('link', 'set', 'up1', 'up', netns=self.far)
        for name in ('up0', 'br0'):
            self.ip('link', 'set', name, 'up')
        self.start()

    def ip(self, *words: str, netns: str = '') -> str:
        return run('ip', '-n', netns or self.host, *words)

    def tc(self, *words: str) -> str:
        return run('tc', '-n', self.host, *words)

    @property
    def ifindex(self) -> int:
        return self.index_of(0)

    def index_of(self, card: int) -> int:
        return int(self.ip('-oneline', 'link', 'show', 'dev', f'vm{card}')
                   .partition(':')[0])

    def start(self) -> None:
        self.plug(0)

    def plug(self, card: int) -> None:
        """Make a tap and a card, and what carries between them."""
        tap_, name = f'vm{card}', f'card{card}'
        fds = [inside(self.host, lambda: open_tap(tap_)),
               inside(self.guest, lambda: open_tap(name))]
        self._cards[card] = fds, subprocess.Popen(
            [sys.executable, '-c', _QEMU, *map(str, fds)],
            stdin=subprocess.DEVNULL, pass_fds=fds)
        self.ip('link', 'set', tap_, 'master', 'br0', 'up')
        self.ip('address', 'add', f'10.99.{1 + card}.1/24', 'dev', name,
                netns=self.guest)
        self.ip('link', 'set', name, 'up', netns=self.guest)
        deadline = time.monotonic() + 10
        # The bridge learns and listens.
        while not self.arrives(1, 0.2, card=card):
            if time.monotonic() > deadline:
                raise TimeoutError('the guest does not reach the far end')

    def unplug(self, card: int) -> None:
        """End what carries; the tap goes with it."""
        fds, qemu = self._cards.pop(card)
        qemu.kill()
        qemu.wait(10)
        for fd in fds:
            os.close(fd)

    def stop(self) -> None:
        """End the machine, and all its taps."""
        for card in list(self._cards):
            self.unplug(card)

    def remove(self, name: str) -> None:
        if os.path.exists(f'/run/netns/{name}'):
            run('ip', 'netns', 'delete', name)

    def arrives(self, datagrams: int, timeout_s: float = 5.0, *,
                card: int = 0) -> bool:
        """Whether so many datagrams of the guest all reach the far end."""
        with namespaces.socket_in(self.far, socket.SOCK_DGRAM) as far, \
                namespaces.socket_in(self.guest, socket.SOCK_DGRAM) as near:
            far.bind((FARS[card], 0))
            far.settimeout(timeout_s)
            for number in range(datagrams):
                near.sendto(b'%d' % number, far.getsockname())
            try:
                return [int(far.recv(99)) for _ in range(datagrams)] == list(
                    range(datagrams))
            except TimeoutError:
                return False

    def goodput(self, seconds: float, *, back: bool = False,
                warm_up_s: float = 1.0) -> float:
        """TCP payload in bytes per second from the guest, or back to it."""
        ends = ((self.far, FAR), (self.guest, GUEST))
        (source, _), (target, address) = ends if back else ends[::-1]
        with namespaces.socket_in(target) as listener, \
                namespaces.socket_in(source) as sender:
            listener.bind((address, 0))
            listener.listen()
            listener.settimeout(30)
            sender.settimeout(30)
            sender.connect(listener.getsockname())
            receiver = listener.accept()[0]
            stop = threading.Event()
            thread = threading.Thread(target=send, args=(sender, stop))
            thread.start()
            try:
                receive(receiver, warm_up_s)
                return receive(receiver, seconds)
            finally:
                stop.set()
                receiver.close()
                thread.join(10)


def send(sender: socket.socket, stop: threading.Event) -> None:
    """Send until told to stop, or nothing listens any more."""
    payload = bytes(1 << 18)
    try:
        while not stop.is_set():
            sender.send(payload)
    except OSError:
        pass


def receive(receiver: socket.socket, seconds: float) -> float:
    """Bytes per second that arrive."""
    receiver.settimeout(30)
    buffer = bytearray(1 << 20)
    total = 0
    start = now = time.monotonic()
    while now - start < seconds:
        total += receiver.recv_into(buffer)
        now = time.monotonic()
    return total / (now - start)


def hook_nftables(netns: str, device: str, *, family: int = 5,
                  hook: int = 0, prefix: bool = False) -> None:
    """Hang a chain of nf_tables at a device, at its ingress for instance.

    That is ``nft add chain netdev scv filter { type filter hook ingress
    device DEVICE priority 0; }``, without the program.

    :param family: 5 for netdev, 1 for inet
    :param hook: 0 for ingress, of inet 5; 1 for egress
    :param prefix: all devices whose names begin so
    """
    name = _attribute(1, b'scv\0')
    devices = _attribute(3, device.encode() + b'\0')
    if prefix:
        devices = _attribute(4 | 0x8000,
                             _attribute(2, device.encode() + b'\0'))
    chain = (name + _attribute(3, b'filter\0') + _attribute(4 | 0x8000, (
        _attribute(1, struct.pack('>I', hook)) + _attribute(2, bytes(4))
        + devices)) + _attribute(7, b'filter\0'))
    _batch(netns, ((10 << 8, family, name), (10 << 8 | 3, family, chain)))


def unhook_nftables(netns: str) -> None:
    """Take all of that away."""
    _batch(netns, ((10 << 8 | 2, 0, b''),))


def _attribute(kind: int, payload: bytes) -> bytes:
    return (struct.pack('=HH', 4 + len(payload), kind) + payload
            + bytes(-len(payload) % 4))


def _batch(netns: str, requests: tuple[tuple[int, int, bytes], ...]) -> None:
    """Send requests of nf_tables: kind, family, body."""
    def message(kind: int, family: int, body: bytes = b'', *, ack: int = 0,
                resource: int = 0) -> bytes:
        return struct.pack('=IHHIIBBH', 20 + len(body), kind,
                           0x1 | 0x400 | ack, 1, 0, family, 0,
                           socket.htons(resource)) + body

    with inside(netns, lambda: socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW, 12)) as nft:
        nft.settimeout(30)
        nft.send(message(0x10, 0, resource=10) + b''.join(
            message(*request, ack=0x4) for request in requests)
            + message(0x11, 0, resource=10))
        for _ in requests:
            error = struct.unpack_from('=16xi', nft.recv(4096))[0]
            if error:
                raise OSError(-error, os.strerror(-error))


class TapTestCase(base.FunctionalTestCase):

    cards = 1
    knob = RATE

    def setUp(self) -> None:
        super().setUp()
        if not os.path.exists('/dev/net/tun'):
            self.skipTest('needs /dev/net/tun: modprobe tun')
        self.log = self.useFixture(fixtures.FakeLogger())
        self.vm = self.useFixture(VirtualMachine())
        for card in range(1, self.cards):
            self.vm.plug(card)
        self.tap = self.tap_of(*range(self.cards))
        self.driver = self.new_driver({VM: self.tap})
        self.before = listing(self.vm.host)

    def tap_of(self, *cards: int) -> tap.Tap:
        first, *also = (f'{self.vm.host}:vm{card}' for card in cards)
        return tap.Tap(first, tuple(also))

    def arrive(self, datagrams: int) -> bool:
        """Whether what the guest sends by any card reaches the far end."""
        return all(self.vm.arrives(datagrams, card=card)
                   for card in range(self.cards))

    def new_driver(self, interfaces: dict[str, Interface]
                   ) -> limits.Network:
        driver = limits.Network({}, interfaces)
        self.addCleanup(driver.close)
        return driver

    def new_agent(self) -> actuator.Actuator:
        """Return what sets limits under ``leases``, which it makes."""
        self.leases = leases_.Leases(pathlib.Path(
            self.useFixture(fixtures.TempDir()).path, 'state'))
        self.leases.open()
        self.addCleanup(self.leases.close)
        return actuator.Actuator(self.driver, self.leases, deadline_s=5)

    def link_bytes(self) -> rtnetlink.LinkBytes:
        """What each device has counted where the taps are."""
        host = rtnetlink.Rtnetlink(self.vm.host)
        try:
            return host.link_bytes()
        finally:
            host.close()

    def sent(self) -> int:
        """Bytes that count as sent by the guest, since its taps are there.
        """
        link_bytes = self.link_bytes()
        host = rtnetlink.Rtnetlink(self.vm.host)
        try:
            taps = [host.link(name.partition(':')[2]).ifindex
                    for name in (self.tap.device, *self.tap.also)]
        finally:
            host.close()
        arrived = sum(link_bytes[ifindex][0] for ifindex in taps)
        withheld = self.driver.withheld(link_bytes).get(VM, 0)
        assert withheld is not None, self.log.output
        return arrived - withheld

    def step(self) -> dict[str, Any]:
        found, = self.driver.restore_actions(VM, self.knob)
        actions.validate(found, [])
        return dict(found)

    def restore_by(self, step: dict[str, Any]) -> bool:
        return actions.run(step, [])

    def same(self) -> None:
        """All is as it was before us, and packets get through."""
        self.assertEqual(self.before, listing(self.vm.host))
        self.assertTrue(self.arrive(20))
