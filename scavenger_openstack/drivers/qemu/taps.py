# SPDX-License-Identifier: Apache-2.0

"""What the network devices of a VM have counted on this host."""

from __future__ import annotations

from collections.abc import Sequence
import os

from scavenger_openstack.drivers.kernel.rtnetlink import LinkBytes


class _Tap:
    """What the guest sends arrives at its tap, but a macvtap sees it the way
    the guest does."""

    __slots__ = ('index', 'path', 'received', 'seen', 'sent', 'swapped')

    def __init__(self, path: str) -> None:
        self.path = path
        self.index = self.seen = 0
        self.sent = self.received = 0
        self.swapped = False

    def look(self) -> None:
        """Read its index, 0 when this host has no such device (yet)."""
        try:
            with open(f'{self.path}/ifindex', 'rb') as file:
                self.index = int(file.read())
        except (OSError, ValueError):
            self.index = 0
            return
        self.swapped = os.path.isdir(f'{self.path}/macvtap')


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
        """Take over the devices that there are from now on."""
        for name in self._taps.keys() - set(names):
            del self._taps[name]
        for name in names:
            self._taps.setdefault(name, _Tap(f'{self._net}/{name}'))
        self.look()

    def look(self) -> None:
        """Find the taps that came."""
        for tap in self._taps.values():
            if not tap.index:
                tap.look()

    def read(self, link_bytes: LinkBytes) -> tuple[int | None, int | None]:
        """Bytes that the guest has sent and received; unknown while one of
        its devices has never been seen, or without any.

        :param link_bytes: by all devices of the host, empty when unknown
        """
        if not self._taps or not link_bytes:
            return None, None
        complete = True
        for tap in self._taps.values():
            now = link_bytes.get(tap.index)
            if now is None:
                if tap.index:
                    tap.look()      # taken out; another may get its name
                complete = complete and bool(tap.seen)
                continue
            sent, received = now[::-1] if tap.swapped else now
            if tap.seen == tap.index:
                self._sent += sent - tap.sent
                self._received += received - tap.received
            tap.seen, tap.sent, tap.received = tap.index, sent, received
        return (self._sent, self._received) if complete else (None, None)
