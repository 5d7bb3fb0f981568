# SPDX-License-Identifier: Apache-2.0

"""Advances the totals of antagonists: what has left their spans goes."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Generator
import functools
import time

from scavenger_openstack.conductor import periodic
from scavenger_openstack.db import connect
from scavenger_openstack.db import reports
from scavenger_openstack.db import totals

CLAIM = 'totals'


def make_periodic(engine: connect.Engine, holder: str,
                  clock: Callable[[], float], stopped: Callable[[], bool],
                  elapsed: Callable[[], float] = time.monotonic
                  ) -> periodic.Periodic:
    """What advances all that are not of this hour, in one of all conductors,
    and looks for them at each turn."""
    return periodic.Periodic(engine, CLAIM, holder, clock, stopped,
                             functools.partial(_advance, engine),
                             lambda now: now, elapsed=elapsed)


def _advance(engine: connect.Engine, now: float
             ) -> Generator[int, None, None]:
    while hosts := connect.retried(engine, functools.partial(
            totals.advance, hour_s=reports.hour(now))):
        yield hosts
