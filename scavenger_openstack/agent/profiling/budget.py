# SPDX-License-Identifier: Apache-2.0

"""How long may be injected on a host in a day.

What was used is on disk, so that an agent that is started again, or that a
profile has ended, has no new day.  So is that a profile goes on: the next
agent removes what it has left.
"""

from __future__ import annotations

import contextlib
import json
import pathlib

from oslo_log import log

from scavenger_openstack.agent import status
from scavenger_openstack.amounts import DAY_S
from scavenger_openstack import errors

LOG = log.getLogger(__name__)

FILE = 'profilings.json'
MOST_BYTES = 1 << 16
MOST = 1000
"""Profiles of a day; of more the oldest count no longer."""


class Budget:
    """Times are CLOCK_BOOTTIME in seconds; what is in the file of a later time
    than now was used before the host was started, and does not count.

    :param seconds_per_day: of injection, 0 for none
    :param path: of the file; ``None``: nothing is kept
    """

    def __init__(self, seconds_per_day: float,
                 path: pathlib.Path | None = None) -> None:
        self._seconds_per_day = seconds_per_day
        self._path = path
        self._used: list[tuple[float, float]] = []
        self._goes_on = False

    def load(self, now: float) -> bool:
        """Read what an earlier agent has used; whether its last profile has
        not ended.  What cannot be read counts as a whole day."""
        if self._path is None:
            return False
        try:
            document = json.loads(status.read_file(self._path, MOST_BYTES))
            self._used = [(float(at_s), float(seconds))
                          for at_s, seconds in document['used'] if at_s <= now]
            self._goes_on = bool(document['goes_on'])
        except FileNotFoundError:
            pass
        except (OSError, ValueError, TypeError, LookupError, RecursionError,
                errors.ScavengerError) as exc:
            LOG.warning('%s: not usable, no profile is measured for a day: '
                        '%r', self._path, exc)
            self._used = [(now, self._seconds_per_day)]
            self._goes_on = True
        return self._goes_on

    def left_s(self, now: float) -> float:
        """Return the seconds that are left of the day."""
        self._used = [(at_s, seconds) for at_s, seconds in self._used[-MOST:]
                      if now - at_s < DAY_S]
        return max(0.0, self._seconds_per_day - sum(
            seconds for _, seconds in self._used))

    def begin(self, now: float, seconds: float) -> None:
        """A profile begins, which may take so long: all of it is used until
        it has ended.

        :raises OSError: that cannot be written; it does not count.
        """
        self._used.append((now, seconds))
        self._goes_on = True
        try:
            self._write()
        except OSError:
            self._used.pop()
            self._goes_on = False
            raise

    def end(self, now: float, seconds: float, *, clean: bool) -> None:
        """Take that a profile has ended, after so long.

        :param clean: it has left nothing
        """
        self._used[-1:] = [(now, seconds)]
        self._goes_on = not clean
        with contextlib.suppress(OSError):      # more is used then
            self._write()

    def cleaned(self) -> None:
        """Take that nothing is left of any profile."""
        self._goes_on = False
        with contextlib.suppress(OSError):      # it is removed once more
            self._write()

    def _write(self) -> None:
        if self._path is not None:
            status.write(self._path, {'used': self._used,
                                      'goes_on': self._goes_on})
