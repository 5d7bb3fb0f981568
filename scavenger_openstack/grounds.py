# SPDX-License-Identifier: Apache-2.0

"""Why a workload is named, by kinds of evidence."""

from __future__ import annotations

from collections.abc import Iterable
import enum
from typing import NamedTuple

CAUSES = ('core', 'cache', 'memory_bandwidth', 'disk', 'link', 'memory',
          'own_limit', 'overcommitted', 'unknown')
"""Of incidents of the controllers."""

EVICTION = 'eviction'
"""The cause of an incident of the policy of evictions."""

MOST = 16
"""So many grounds of an incident are reported and shown at most."""

CHANGE = 0.1
"""A share that moves by less is the same: each window has another."""

THE_HOST = ''
"""Holder of a resource that is no workload: the host's own threads."""


class GroundKind(enum.StrEnum):
    """Kinds of evidence, the strongest first."""

    DIRECT = 'direct'
    SHARE = 'share'
    TIMING = 'timing'
    EXPERIMENT = 'experiment'


def strongest(kinds: Iterable[str]) -> str:
    """Return the strongest of some kinds of evidence, '' of none."""
    there = set(kinds)
    return next((str(kind) for kind in GroundKind if kind in there), '')


class Ground(NamedTuple):
    """Why a workload (:data:`THE_HOST`: the host itself) is named.

    ``direct``: it held the resource for ``share`` of the ``waited_s`` that
    the victim waited for it, out of ``window_s``; ``threads`` are those of
    the host.  ``share``: the same, taken from the shares of use.  ``timing``:
    the victim's signal and its use correlate by ``share``, an innocent as
    much with a probability of ``chance``.  ``experiment``: the signal was
    ``before`` without a limit and ``after`` with one, ``None`` as long as the
    experiment goes on.
    """

    workload: str
    kind: GroundKind
    share: float | None = None
    waited_s: float | None = None
    window_s: float | None = None
    threads: tuple[str, ...] = ()
    chance: float | None = None
    before: float | None = None
    after: float | None = None


def differ(before: Iterable[Ground], after: Iterable[Ground]) -> bool:
    """Whether another workload or another kind of evidence is among the
    grounds, or a share has moved by :data:`CHANGE`."""
    if before is after:
        return False
    old, new = ({(ground.workload, ground.kind): ground.share
                 for ground in grounds} for grounds in (before, after))
    return old.keys() != new.keys() or any(
        _moved(old[key], share) for key, share in new.items())


def _moved(before: float | None, after: float | None) -> bool:
    if before is None or after is None:
        return before is not after
    return abs(after - before) >= CHANGE
