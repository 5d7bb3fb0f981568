# SPDX-License-Identifier: Apache-2.0


"""A bridge for the taps of guests, and what listens at its other end."""

from __future__ import annotations

import selectors
import socket
import threading
import time
import uuid

import fixtures

from scavenger_openstack.tests.functional import domain_guest
from scavenger_openstack.tests.functional import hypervisor
from scavenger_openstack.tests.functional import namespaces

ADDRESS = '10.99.0.1'
PORT = 5001


class Bridge(fixtures.Fixture):
    """A bridge with a wire to a namespace that receives at ``ADDRESS``.

    It is in the network namespace of the hypervisor.  What arrives at
    ``PORT`` by UDP or TCP is counted in ``received_bytes`` (payload).

    * ``name``: of the bridge
    * ``far``: of the network namespace at the other end
    """

    def __init__(self, host: hypervisor.Hypervisor) -> None:
        super().__init__()
        self._host = host
        self.received_bytes = 0

    def _setUp(self) -> None:
        self.tag = uuid.uuid4().hex[:6]
        self.name, self.far = f'scvb{self.tag}', f'scv-{self.tag}-far'
        self._ip = ('ip', '-n', self._host.netns) if self._host.netns \
            else ('ip',)
        wire = f'scvw{self.tag}'
        self._made('ip', 'netns', 'delete', self.far)
        namespaces.run('ip', 'netns', 'add', self.far)
        self._made(*self._ip, 'link', 'delete', self.name)
        for words in (
                ('link', 'add', self.name, 'type', 'bridge'),
                ('link', 'add', wire, 'type', 'veth', 'peer', 'name', 'far',
                 'netns', self.far),
                ('link', 'set', wire, 'master', self.name, 'up'),
                ('link', 'set', self.name, 'up')):
            namespaces.run(*self._ip, *words)
        for words in (('address', 'add', f'{ADDRESS}/24', 'dev', 'far'),
                      ('link', 'set', 'far', 'up')):
            namespaces.run('ip', '-n', self.far, *words)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._receive, daemon=True)
        self._listeners = [
            namespaces.socket_in(self.far, socket.SOCK_DGRAM),
            namespaces.socket_in(self.far)]
        for listener in self._listeners:
            self.addCleanup(listener.close)
            listener.bind((ADDRESS, PORT))
            listener.setblocking(False)
        self._listeners[1].listen()
        self._thread.start()
        self.addCleanup(self._thread.join, 10)
        self.addCleanup(self._ended.set)

    def _made(self, *command: str) -> None:
        """Run this in the end: now, or when the tests are killed."""
        self._host.at_end(*command)
        self.addCleanup(namespaces.run, *command)

    def interface(self, number: int = 0) -> domain_guest.Interface:
        """The NIC of a guest on this bridge, below 250; its tap is named
        as Nova names taps."""
        return domain_guest.Interface(
            tap=f'tap{self.tag}-{number:02x}', bridge=self.name,
            mac=f'52:54:00:99:{self.tag[:2]}:{number:02x}')

    def address(self, number: int = 0) -> str:
        """What the console's command ``address`` gives that guest."""
        return f'10.99.0.{number + 2}/24'

    def bytes_per_s(self, seconds: float) -> float:
        """Payload that arrives during the next seconds."""
        began, before = time.monotonic(), self.received_bytes
        time.sleep(seconds)
        return (self.received_bytes - before) / (time.monotonic() - began)

    def _receive(self) -> None:
        buffer = bytearray(1 << 18)
        datagrams, listener = self._listeners
        with selectors.DefaultSelector() as selector:
            for one in self._listeners:
                selector.register(one, selectors.EVENT_READ)
            streams = []
            while not self._ended.is_set():
                for key, _ in selector.select(0.1):
                    if key.fileobj is listener:
                        streams.append(listener.accept()[0])
                        selector.register(streams[-1], selectors.EVENT_READ)
                        continue
                    assert isinstance(key.fileobj, socket.socket)
                    try:
                        got = key.fileobj.recv_into(buffer)
                    except OSError:
                        got = 0
                    self.received_bytes += got
                    if not got and key.fileobj is not datagrams:
                        selector.unregister(key.fileobj)
            for one in streams:
                one.close()
