# SPDX-License-Identifier: Apache-2.0

"""The bytes that the network devices of a VM have counted on this host."""

from __future__ import annotations

from collections.abc import Sequence
import os

from scavenger_openstack.drivers.kernel import proc
from scavenger_openstack.drivers.kernel.rtnetlink import LinkBytes


class _Tap:
    """One device.  A tap counts as received what the guest sends; a macvtap
    counts as the guest does.

    ``counted_index`` is the index of the device whose bytes were added last.
    """

    __slots__ = ('counted_index', 'index', 'path', 'received', 'sent',
                 'swapped')

    def __init__(self, path: str) -> None:
        self.path = path
        self.index = self.counted_index = 0
        self.sent = self.received = 0
        self.swapped = False

    def read_index(self) -> None:
        """Read its index, 0 if this host has no such device (yet)."""
        index = proc.read_text(f'{self.path}/ifindex')
        self.index = int(index) if index.isdecimal() else 0
        self.swapped = os.path.isdir(f'{self.path}/macvtap')


class Taps:
    """The devices of one VM, in the agent's network namespace.

    The totals count from the first reading of each device, and do not fall
    when one is taken out.
    """

    def __init__(self, names: Sequence[str], root_dir: str = '/') -> None:
        self._net = f'{root_dir.rstrip("/")}/sys/class/net'
        self._taps: dict[str, _Tap] = {}
        self._sent = self._received = 0
        self.set(names)

    def set(self, names: Sequence[str]) -> None:
        """Replace the devices by these."""
        for name in self._taps.keys() - set(names):
            del self._taps[name]
        for name in names:
            self._taps.setdefault(name, _Tap(f'{self._net}/{name}'))
        self.refresh()

    def refresh(self) -> None:
        """Find new devices."""
        for tap in self._taps.values():
            if not tap.index:
                tap.read_index()

    def read(self, link_bytes: LinkBytes) -> tuple[int | None, int | None]:
        """Return the bytes that the guest has sent and received; ``None``
        without devices, and until each of them was read once.

        :param link_bytes: of all devices of the host, empty when unknown
        """
        if not self._taps or not link_bytes:
            return None, None
        complete = True
        for tap in self._taps.values():
            counted = link_bytes.get(tap.index)
            if counted is None:
                if tap.index:   # taken out; another may get its name
                    tap.read_index()
                complete = complete and bool(tap.counted_index)
                continue
            sent, received = counted[::-1] if tap.swapped else counted
            if tap.counted_index == tap.index:
                self._sent += sent - tap.sent
                self._received += received - tap.received
            tap.counted_index = tap.index
            tap.sent, tap.received = sent, received
        return (self._sent, self._received) if complete else (None, None)
