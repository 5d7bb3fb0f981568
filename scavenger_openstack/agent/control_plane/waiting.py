# SPDX-License-Identifier: Apache-2.0

"""Entries in memory, until the disk takes them or the conductor has them."""

from __future__ import annotations

import collections
from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Iterator
from typing import NamedTuple

from scavenger_openstack.wire import report

MOST = 10_000
MOST_BYTES = 8 << 20
"""Entries that wait, and their bytes: more is not kept."""
KEPT = 0.9
"""The share of that which is left when room has been made."""


class Waiting(NamedTuple):
    """An entry; ``about`` is the same in all about one incident or limit."""

    sequence: int
    statistics: bool
    about: Hashable
    data: bytes


class Queue:
    """Entries in the order of their sequence.

    :param most_bytes: of their JSON
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.most_bytes = min(most_bytes, MOST_BYTES)
        self.bytes = 0
        self._entries = collections.deque[Waiting]()

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def full(self) -> bool:
        """Whether more waits than is kept."""
        return len(self) > MOST or self.bytes > self.most_bytes

    def add(self, entry: report.AnyEntry, data: bytes) -> None:
        """
        :param data: the entry as JSON
        """
        self._entries.append(Waiting(
            entry.sequence, isinstance(entry, report.Statistics),
            _about(entry), data))
        self.bytes += len(data)

    def acknowledged(self, sequence: int) -> None:
        """Forget the entries up to that one."""
        while self._entries and self._entries[0].sequence <= sequence:
            self.bytes -= len(self._entries.popleft().data)

    def clear(self) -> None:
        self._entries.clear()
        self.bytes = 0

    def make_room(self) -> tuple[int, int]:
        """Leave out what there is no room for: first statistics, then what a
        later entry about the same incident or limit says again, then the
        oldest.

        :return: how many statistics are lost, and how many other things
        """
        last = {entry.about: entry.sequence for entry in self}
        statistics = self._leave_out(lambda entry: entry.statistics)
        self._leave_out(lambda entry: entry.sequence < last[entry.about])
        return statistics, self._leave_out(lambda entry: True)

    def _leave_out(self, may_go: Callable[[Waiting], bool]) -> int:
        """Leave out the oldest that may go; return how many that were."""
        more = len(self) - KEPT * MOST
        more_bytes = self.bytes - KEPT * self.most_bytes
        kept, gone = collections.deque[Waiting](), 0
        for entry in self:
            if (more > gone or more_bytes > 0) and may_go(entry):
                gone += 1
                more_bytes -= len(entry.data)
                self.bytes -= len(entry.data)
            else:
                kept.append(entry)
        self._entries = kept
        return gone


def _about(entry: report.AnyEntry) -> Hashable:
    if isinstance(entry, report.Incident):
        return entry.id
    if isinstance(entry, report.Limit):
        return entry.workload, entry.knob, entry.since_s
    return entry.sequence
