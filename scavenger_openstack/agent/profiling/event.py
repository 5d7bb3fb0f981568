# SPDX-License-Identifier: Apache-2.0

"""Results of a request to measure a profile."""

from __future__ import annotations

from typing import NamedTuple


class ProfilingEvent(NamedTuple):
    """A profile that was asked for ``began`` to be measured, is ``measured``,
    or ``ended`` without one, and why.

    ``profile``: in JSON, '' for none.
    """

    wall_time_s: float
    what: str
    id: str
    workload: str
    seconds: float = 0.0
    detail: str = ''
    profile: str = ''

    @property
    def words(self) -> str:
        """The event as a line of the log."""
        return (f'profiling {self.what}: {self.workload}'
                + (f' after {self.seconds:.1f} s'
                   if self.what != 'began' else '')
                + (f': {self.detail}' if self.detail else ''))
