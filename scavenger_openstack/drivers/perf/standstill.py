# SPDX-License-Identifier: Apache-2.0


"""Whether the hardware counters of all workloads stand still, and why.

Then nothing is measured, however much the workloads run.
"""

from __future__ import annotations

TAKEN_TICKS = 3
"""Counters that did not run for so many ticks are another program's."""

LITTLE_NS = 100_000_000
"""In a tick with less CPU time of all workloads it is no wonder that nothing
is counted: QEMU runs a little for a guest that is paused."""


class Standstill:
    """Judges one tick after the other.

    :param share: of the time in which workloads ran, for which at least
        their counters have to
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._ticks = 0
        self.why = ''
        """Why they stand still, '' while they count."""

    def judge(self, enabled_ns: int, running_ns: int, instructions: int
              ) -> bool:
        """Take what all workloads' counters grew by in a tick.

        :returns: whether the counters stand still as of now, or count again
        """
        if not enabled_ns:
            return False    # nothing ran
        if running_ns < self._share * enabled_ns:
            why = (f'counters ran for {100 * running_ns / enabled_ns:.0f} % '
                   'of the time: others have them (a perf session, guests, '
                   'the NMI watchdog); end those, or lower [perf] '
                   'max_counters')
        elif not instructions:
            if enabled_ns < LITTLE_NS:
                return False
            why = 'the PMU counts nothing: it is a virtual one that is not ' \
                  'emulated, or all VMs are emulated and not known by libvirt'
        else:
            again, self.why = bool(self.why), ''
            self._ticks = 0
            return again
        self._ticks += 1
        if self._ticks != TAKEN_TICKS:
            return False
        self.why = why
        return True
