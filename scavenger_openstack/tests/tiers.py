# SPDX-License-Identifier: Apache-2.0

"""Which tests guard each change, and what only ``tools/test.sh all`` runs.

``tools/test.sh`` is the gate: every test that is not marked here, and of each
campaign a few instants, other ones each time.  With ``all`` the marked tests
run, too, and the campaigns at every instant.
"""

from __future__ import annotations

from collections.abc import Callable
import os
import random
from typing import TypeVar
import unittest

Marked = TypeVar('Marked', bound=Callable[..., object])

ALL = os.environ.get('SCAVENGER_TESTS') == 'all'
"""Whether everything runs; ``tools/test.sh`` sets it."""

SEED = int(os.environ.get('SCAVENGER_SEED') or 1)
"""What is random in a campaign begins with it; ``tools/test.sh`` chooses and
prints it."""

SAMPLED = 24
"""Of so many instants of a campaign the gate tries one."""


def only_in_all(reason: str) -> Callable[[Marked], Marked]:
    """Decorator of a test or class that the gate leaves out.

    :param reason: why a change is guarded without it
    """
    return unittest.skipUnless(ALL, f'runs in tools/test.sh all: {reason}')


def instants(name: str, first: int = 1, step: int = 1, *,
             sampled: int = SAMPLED, count: int = 10_000) -> range:
    """The numbers of the instants that a campaign tries.

    :param name: of the campaign: each has instants of its own
    :param first: the first instant when all are tried
    :param step: from one to the next when all are tried
    :param sampled: of so many of these the gate tries one, at any offset
    :param count: there are some more than these: the gate tries none beyond,
        which would only run to the end
    """
    if ALL:
        return range(first, 10_000, step)
    step *= sampled
    first += random.Random(f'{SEED} {name}').randrange(step)
    return range(first, count + 1, step)


def times(most: int, fewest: int = 1) -> int:
    """How often a campaign rolls its dice: ``fewest`` in the gate."""
    return most if ALL else fewest


def seeds(most: int, fewest: int = 1) -> range:
    """Those of the schedules that a campaign plays: ``fewest`` in the gate,
    other ones each time."""
    return range(most) if ALL else range(SEED, SEED + fewest)
