# SPDX-License-Identifier: Apache-2.0

"""The size of the next report, and whether its first entry blocks all others.

An entry that is refused alone, while a report without any is answered, is set
aside after :data:`TRIES` such tries in a row: with several conductors one of
them may refuse an entry that another one stores.  Without an answer the cause
may be the conductor or the broker, so an entry has many more tries.  Where the
conductor accepts nothing from this host for a while no entry is counted.
"""

from __future__ import annotations

from collections.abc import Sequence

from scavenger_openstack import errors
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import report

TRIES = 10
LATER_TRIES = 100
"""Tries of an entry that fail without a refusal; some two hours."""
PATIENCE = 5
"""Failures without a refusal in a row after which reports become smaller: a
small one may be stored in time."""


class Head:
    """The state of the first entry that waits, after each call."""

    def __init__(self) -> None:
        self.most = report.MAX_ENTRIES
        """Entries of the next report."""
        self._entry = ('', 0)
        self._tries = 0.0
        self._alone = False
        self._failures = 0

    def stored(self) -> None:
        """Note that the conductor has stored the first entry of a report."""
        self._entry, self._tries, self._failures = ('', 0), 0.0, 0
        self._alone = False
        self.most = min(report.MAX_ENTRIES, max(1, 2 * self.most))

    def answered(self) -> bool:
        """Note the answer to a report without entries; return whether that
        was a test of the conductor without the first entry."""
        if self.most:
            self._failures = 0
            return False
        self._alone, self.most = True, 1
        return True

    def ignored(self, run_id: str, entries: Sequence[report.AnyEntry]
                ) -> bool:
        """Count a report that was answered without its first entry being
        acknowledged; return whether that entry is to be set aside."""
        return self._tried(run_id, entries[0], 1 / TRIES)

    def failed(self, run_id: str, entries: Sequence[report.AnyEntry],
               fault: errors.ScavengerError) -> bool:
        """Count a report that was not answered; return whether its first
        entry is to be set aside."""
        later = not isinstance(fault, errors.WireError)
        if isinstance(fault, errors.Busy):
            # Without entries it may be answered, and directives come with it.
            self._alone, self.most = False, 0
            return False
        if later:
            self._failures += 1
            if self._failures < PATIENCE:
                return False
        if not entries:
            self._alone, self.most = False, 1
            return False
        if len(entries) > 1:
            self.most = len(entries) // 2
            return False
        alone, self._alone, self.most = self._alone, False, 0
        return alone and self._tried(
            run_id, entries[0], 1 / (LATER_TRIES if later else TRIES))

    def _tried(self, run_id: str, entry: report.AnyEntry, share: float
               ) -> bool:
        """Count a try of an entry; return whether it was the last one.

        :param share: of the tries that an entry has
        """
        if self._entry != (run_id, entry.sequence):
            self._entry, self._tries = (run_id, entry.sequence), 0.0
        self._tries += share
        if self._tries < 1 - 1e-9:
            return False
        self._entry, self._tries = ('', 0), 0.0
        return True


def acknowledged(answer: bytes) -> int:
    """Return the entry that an answer acknowledges of which the rest is not
    understood; 0 for none."""
    try:
        return codec.decode_part(answer, report.Acknowledgement,
                                 report.MAX_ANSWER_BYTES).acknowledged
    except errors.WireError:
        return 0
