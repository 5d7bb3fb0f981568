# SPDX-License-Identifier: Apache-2.0

"""The last good limits of antagonists, remembered while these have none.

None of it is in a paper.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from typing import Any
from typing import NamedTuple

from scavenger_openstack.algorithms.attribution.cubic import Cubic
from scavenger_openstack.algorithms.attribution.disturbance import Pair
from scavenger_openstack.algorithms.attribution import use as usage
from scavenger_openstack.algorithms.window import quantity
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey


class GoodLimit(NamedTuple):
    """The last good limit of an antagonist for one pair of victims and signal,
    in the unit of its knob.

    ``proved``: no victim suffered while it was used up; ``until_s``: when it
    is forgotten; ``harmful``: the use at which a victim suffered last,
    ``None`` when none did so far.
    """

    value: float
    proved: bool
    until_s: float
    harmful: float | None = None

    def cap(self, use: float, floor: float, *, cut: float, plateau: float
            ) -> Cubic:
        """Return a cap that begins here, and grows as after a cut from the use
        that did harm."""
        if self.harmful is None or self.harmful <= self.value:
            return Cubic(use, self.value / (1 - cut), floor=floor, cut=cut,
                         plateau=plateau)
        return Cubic(self.harmful, self.harmful, floor=floor,
                     cut=1 - self.value / self.harmful, plateau=plateau,
                     met=True)


class GoodLimits:
    """The good limits of all antagonists, by workload, knob and pair.

    :ivar remember_s: for so long each new one is remembered
    """

    def __init__(self) -> None:
        self._limits: dict[KnobKey, dict[Pair, GoodLimit]] = {}
        self.remember_s = 0.0

    def __iter__(self) -> Iterator[KnobKey]:
        return iter(self._limits)

    def of(self, key: KnobKey, pairs: Collection[Pair]) -> GoodLimit | None:
        """Return the good limit for the first of these that has one."""
        return next((good for pair, good in self._limits.get(key, {}).items()
                     if pair in pairs), None)

    def find(self, now: float, key: KnobKey, pair: Pair) -> GoodLimit | None:
        """Return the good limit for these victims that is not too old."""
        good = self.of(key, (pair,))
        return good if good is not None and now < good.until_s else None

    def ages(self, now: float, limited: Collection[KnobKey]
             ) -> dict[str, float]:
        """Return the seconds since each limit was removed, by workload, the
        newest of several.

        :param limited: those that have a limit now: they are left out
        """
        ages: dict[str, float] = {}
        for key, limits in self._limits.items():
            until_s = max(good.until_s for good in limits.values())
            if now < until_s and key not in limited:
                age_s = max(0.0, now - until_s + self.remember_s)
                ages[key[0]] = min(age_s, ages.get(key[0], age_s))
        return ages

    def remember(self, now: float, key: KnobKey, pairs: Iterable[Pair],
                 value: float, cap: Cubic) -> None:
        """Remember a value of this cap as good for these victims."""
        self._limits.setdefault(key, {}).update(dict.fromkeys(pairs, GoodLimit(
            value, cap.proved, now + self.remember_s, cap.harmful)))

    def forget(self, key: KnobKey, pair: Pair) -> None:
        """Forget the good limit for these victims."""
        limits = self._limits[key]
        del limits[pair]
        if not limits:
            del self._limits[key]

    def forget_old(self, now: float) -> list[KnobKey]:
        """Forget what was remembered for long enough; return whose it was."""
        old = [(key, pair) for key, limits in self._limits.items()
               for pair, good in limits.items() if now >= good.until_s]
        for key, pair in old:
            self.forget(key, pair)
        return [key for key, _ in old]

    def keep(self, present: Collection[str]) -> None:
        """Forget the good limits of all other workloads."""
        self._limits = {key: limits for key, limits in self._limits.items()
                        if key[0] in present}

    def state(self) -> list[list[Any]]:
        """Return plain JSON values."""
        return [[*key, list(group), signal, *good]
                for key, limits in self._limits.items()
                for (group, signal), good in limits.items()]

    def load(self, state: Iterable[Any]) -> None:
        """Go on from :meth:`state`.

        :raises ValueError, TypeError: it is damaged.
        """
        limits: dict[KnobKey, dict[Pair, GoodLimit]] = {}
        for (name, knob, group, signal, value, proved, until_s,
             harmful) in state:
            limits.setdefault((str(name), Knob(knob)), {})[
                tuple(map(str, group)), str(signal)] = GoodLimit(
                    quantity(value), bool(proved), quantity(until_s),
                    None if harmful is None else quantity(harmful))
        if not {knob for _, knob in limits} <= usage.USES.keys():
            raise ValueError('a limit on a knob whose use is not measured')
        self._limits = limits
