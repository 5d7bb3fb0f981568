# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""What the network devices of a VM have counted on this host."""

from __future__ import annotations

from collections.abc import Sequence
import os

from scavenger_openstack.drivers.domain_process import READ_ONLY


class _Tap:
    """What the guest sends arrives at its tap, but a macvtap sees it the way
    the guest does."""

    __slots__ = ('fds', 'received', 'seen', 'sent')

    def __init__(self) -> None:
        self.fds: tuple[int, int] | None = None
        self.seen = False
        self.sent = self.received = 0

    def open(self, path: str) -> None:
        """Leaves it closed when this host has no such device (yet)."""
        names = ('rx_bytes', 'tx_bytes')
        if os.path.isdir(f'{path}/macvtap'):
            names = ('tx_bytes', 'rx_bytes')
        fds: list[int] = []
        try:
            for name in names:
                fds.append(os.open(f'{path}/statistics/{name}', READ_ONLY))
            self.sent, self.received = (int(os.pread(fd, 32, 0))
                                        for fd in fds)
        except (OSError, ValueError):
            for fd in fds:
                os.close(fd)
            return
        self.fds = fds[0], fds[1]
        self.seen = True

    def close(self) -> None:
        for fd in self.fds or ():
            os.close(fd)
        self.fds = None


class Taps:
    """The devices of one VM, in the agent's network namespace.

    The totals count from when each was first seen, and never go back when
    one is taken out.
    """

    def __init__(self, names: Sequence[str], root_dir: str = '/') -> None:
        self._net = f'{root_dir.rstrip("/")}/sys/class/net'
        self._taps: dict[str, _Tap] = {}
        self._sent = self._received = 0
        self.set(names)

    def set(self, names: Sequence[str]) -> None:
        """The devices that there are from now on."""
        for name in self._taps.keys() - set(names):
            self._taps.pop(name).close()
        for name in names:
            self._taps.setdefault(name, _Tap())
        self.look()

    def look(self) -> None:
        """Open those that came."""
        for name, tap in self._taps.items():
            if tap.fds is None:
                tap.open(f'{self._net}/{name}')

    def read(self) -> tuple[int | None, int | None]:
        """Bytes that the guest has sent and received; unknown while one of
        its devices has never been seen, or without any."""
        known = bool(self._taps)
        for tap in self._taps.values():
            if tap.fds is not None:
                try:
                    sent = int(os.pread(tap.fds[0], 32, 0))
                    received = int(os.pread(tap.fds[1], 32, 0))
                except (OSError, ValueError):
                    tap.close()     # taken out; another may get its name
                    continue
                self._sent += sent - tap.sent
                self._received += received - tap.received
                tap.sent, tap.received = sent, received
            elif not tap.seen:
                known = False
        return (self._sent, self._received) if known else (None, None)

    def close(self) -> None:
        """Give the descriptors back."""
        for tap in self._taps.values():
            tap.close()
