# SPDX-License-Identifier: Apache-2.0

"""What the servers of the tests do, said on their consoles.

They boot the image of :mod:`...domain_image`, and obey what is in
:mod:`...domain_console`; Nova gives them a pseudo terminal instead of a
socket.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
import json
import os
import select
import time
from types import TracebackType
from typing import Any

from scavenger_openstack.tests.functional import hypervisor

OBEY_S = 60.0
ASK_AGAIN_S = 1.0
TRIAL_S = 4.0
PER_S = 40
"""Lookups that are due in a second, of each guest."""
CORES = 0.3
"""What they take of a CPU."""
TAIL = 8192


def tell(host: hypervisor.Hypervisor, domain: str, order: str) -> None:
    """Have a guest do something, once it has booted.

    :param domain: its name on the hypervisor
    :raises TimeoutError: it does not obey.
    """
    with Console(host, domain) as console:
        console.tell(order)


def serve(consoles: Sequence[Console]) -> None:
    """Have guests that have booted answer lookups under open load.

    :raises TimeoutError: a guest does not obey.
    """
    consoles[0].tell('cpu 1')
    rate = max(consoles[0].rates(TRIAL_S), default=0.0)
    for console in consoles:
        console.tell(f'lookup per_s={PER_S} rounds='
                     f'{max(1, round(CORES * rate / PER_S))}')


class Console:
    """What a guest says, from now on; a context."""

    def __init__(self, host: hypervisor.Hypervisor, domain: str) -> None:
        self._domain = domain
        self._fd = os.open(host.virsh('ttyconsole', domain).strip(),
                           os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
        self._pending = b''
        self._said = b''

    def __enter__(self) -> Console:
        return self

    def __exit__(self, kind: type[BaseException] | None,
                 exc: BaseException | None, trace: TracebackType | None
                 ) -> None:
        os.close(self._fd)

    def tell(self, order: str) -> None:
        """Have it do something, once it has booted.

        :raises TimeoutError: it does not obey.
        """
        deadline = time.monotonic() + OBEY_S
        while time.monotonic() < deadline:
            # Lost while it boots.
            os.write(self._fd, order.encode() + b'\n')
            for line in self._lines(time.monotonic() + ASK_AGAIN_S):
                if line.get('obeyed') == order:
                    return
        raise TimeoutError(f'{self._domain} does not obey: '
                           f'{self._said[-500:]!r}')

    def rates(self, timeout_s: float) -> Iterator[float]:
        """What its workload does per second by its own measure, report by
        report, those that it has made already left out."""
        for _ in self._lines(time.monotonic()):
            pass
        for line in self.reports(timeout_s):
            yield line['done'] / line['took_s']

    def reports(self, timeout_s: float) -> Iterator[dict[str, Any]]:
        """What it says of its workload, second by second; for the keys see
        :class:`...domain_console.Work`."""
        for line in self._lines(time.monotonic() + timeout_s):
            if line.get('took_s'):
                yield line

    def _lines(self, until_s: float) -> Iterator[dict[str, Any]]:
        """Those that are JSON objects, up to then."""
        while True:
            while b'\n' in self._pending:
                line, self._pending = self._pending.split(b'\n', 1)
                try:
                    found = json.loads(line)
                except ValueError:
                    continue
                if isinstance(found, dict):
                    yield found
            left_s = max(0.0, until_s - time.monotonic())
            if not select.select([self._fd], [], [], left_s)[0]:
                return
            read = os.read(self._fd, 4096)
            if not read:
                raise TimeoutError(f'{self._domain}: its QEMU has ended')
            self._said = (self._said + read)[-TAIL:]
            self._pending += read
