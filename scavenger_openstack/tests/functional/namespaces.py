# SPDX-License-Identifier: Apache-2.0

"""Two network namespaces with a wire between them, and traffic over it."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import threading
import time
import uuid

import fixtures

_CLONE_NEWNET = 0x40000000
SO_SNDBUFFORCE = 32


def run(*command: str) -> str:
    """Run a command; what it printed."""
    return subprocess.run(command, check=True, timeout=60, text=True,
                          stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT).stdout


class Wire(fixtures.Fixture):
    """``near:scv0`` sends to ``far:scv1``; both go away with the fixture.

    ``device`` is the near end as the network driver names it.
    """

    def _setUp(self) -> None:
        tag = uuid.uuid4().hex[:8]
        self.near, self.far = f'scv-{tag}-a', f'scv-{tag}-b'
        self.device = f'{self.near}:scv0'
        for name in (self.near, self.far):
            run('ip', 'netns', 'add', name)
            self.addCleanup(self.remove, name)
        self.connect()

    def connect(self) -> None:
        """Make the pair of devices, with addresses, up."""
        run('ip', '-n', self.near, 'link', 'add', 'scv0', 'type', 'veth',
            'peer', 'name', 'scv1', 'netns', self.far)
        for name, device, last in ((self.near, 'scv0', 1),
                                   (self.far, 'scv1', 2)):
            run('ip', '-n', name, 'address', 'add', f'10.99.0.{last}/24',
                'dev', device)
            run('ip', '-n', name, 'link', 'set', device, 'up')

    def remove(self, name: str) -> None:
        if os.path.exists(f'/run/netns/{name}'):
            run('ip', 'netns', 'delete', name)

    def goodput(self, seconds: float, warm_up_s: float = 0.5) -> float:
        """TCP payload in bytes per second that the far end receives."""
        with socket_in(self.far) as listener, \
                socket_in(self.near) as sender:
            listener.bind(('10.99.0.2', 0))
            listener.listen()
            sender.settimeout(30)
            sender.connect(listener.getsockname())
            listener.settimeout(30)
            receiver = listener.accept()[0]
            stop = threading.Event()
            thread = threading.Thread(target=_send, args=(sender, stop))
            thread.start()
            try:
                _receive(receiver, warm_up_s)
                return _receive(receiver, seconds)
            finally:
                stop.set()
                receiver.close()
                thread.join(10)


class Wires(fixtures.Fixture):
    """``near`` has devices ``w0``, ``w1`` ..., each of them the end of a
    wire to ``far``: what is sent there arrives as from so many VMs."""

    MTU = 18_000

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    def _setUp(self) -> None:
        tag = uuid.uuid4().hex[:8]
        self.near, self.far = f'scv-{tag}-a', f'scv-{tag}-b'
        for name in (self.near, self.far):
            run('ip', 'netns', 'add', name)
            self.addCleanup(run, 'ip', 'netns', 'delete', name)
        for line in range(self.count):
            run('ip', '-n', self.near, 'link', 'add', f'w{line}', 'up', 'mtu',
                str(self.MTU), 'type', 'veth', 'peer', 'name', f'p{line}',
                'mtu', str(self.MTU), 'netns', self.far)
            run('ip', '-n', self.far, 'link', 'set', f'p{line}', 'up')

    def device(self, line: int) -> str:
        """As the network driver names it."""
        return f'{self.near}:w{line}'

    def send(self, frames: int) -> None:
        """So many over each: as long as they may be, for nobody."""
        frame = b'\xff' * 6 + bytes(6) + b'\x88\xb5' + bytes(self.MTU)
        with socket_in(self.far, socket.SOCK_RAW,
                       socket.AF_PACKET) as sender:
            # What waits counts: it would wait for room to send more.
            sender.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 1 << 30)
            for line in range(self.count):
                for _ in range(frames):
                    sender.sendto(frame, (f'p{line}', 0))


def socket_in(name: str, kind: int = socket.SOCK_STREAM,
              family: int = socket.AF_INET) -> socket.socket:
    """A socket made by a thread that enters the namespace."""
    made: list[socket.socket] = []

    def make() -> None:
        with open(f'/run/netns/{name}') as file:
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(),
                                                       _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), 'setns')
        made.append(socket.socket(family, kind))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    return made[0]


def _send(sender: socket.socket, stop: threading.Event) -> None:
    payload = bytes(1 << 18)
    try:
        while not stop.is_set():
            sender.send(payload)
    except OSError:
        pass


def _receive(receiver: socket.socket, seconds: float) -> float:
    receiver.settimeout(30)
    buffer = bytearray(1 << 20)
    total = 0
    start = now = time.monotonic()
    while now - start < seconds:
        total += receiver.recv_into(buffer)
        now = time.monotonic()
    return total / (now - start)
