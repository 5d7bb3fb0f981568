# SPDX-License-Identifier: Apache-2.0


"""One value per knob out of all that is wanted.

Source: DESIGN, sections 6 and 7.5.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import math

from scavenger_openstack.knobs import SWITCHES
from scavenger_openstack import types

SLACK = 0.02
"""Loosening by less than this share is not worth a write.  Ours: demand
changes a little all the time, and each loosening invites the next one."""


def tightest(knob: types.Knob, values: Sequence[types.Value]) -> types.Value:
    """The value that satisfies every claim on a knob.

    Numbers: the least.  ``cpu_idle`` and ``paused``: the greatest.
    ``cpu_set``: what all sets share; if they share nothing, the smallest of
    them (the first of these in the order of the text).

    :raises ValueError: no values, a number that is not a number, or a text
        that is not a CPU list.
    """
    if knob is types.Knob.CPU_SET:
        sets = [types.parse_cpus(str(value)) for value in values]
        if not sets:
            raise ValueError('no values')
        common = frozenset.intersection(*sets)
        return types.format_cpus(common) or min(
            (len(cpus), types.format_cpus(cpus)) for cpus in sets)[1]
    numbers = [float(value) for value in values]
    if any(math.isnan(number) for number in numbers):
        raise ValueError('not a number')
    return max(numbers) if knob in SWITCHES else min(numbers)


def worth_writing(knob: types.Knob, current: types.Value | None,
                  wanted: types.Value, slack: float = SLACK, *,
                  dear: bool = False) -> bool:
    """Whether ``wanted`` should replace ``current`` on a knob.

    Tightening always, unless each write is ``dear``; then, as loosening, a
    number only by more than ``slack`` of what is in force; any change of a
    switch or of a CPU set.  ``current`` is ``None`` when nothing is in
    force.
    """
    if current is None:
        return True
    if isinstance(current, str) or isinstance(wanted, str):
        return types.parse_cpus(str(current)) != types.parse_cpus(str(wanted))
    if knob in SWITCHES:
        return current != wanted
    return (wanted < (current * (1 - slack) if dear else current)
            or wanted > current * (1 + slack))


def arbitrate(wishes: Iterable[types.Cap],
              originals: Mapping[types.KnobKey, types.Value | None],
              floors: Mapping[str, Mapping[types.Knob, float]], *,
              overrides: Mapping[types.KnobKey, types.Cap | None] | None
              = None,
              exempt: Collection[str] = frozenset(),
              stopped: bool = False) -> dict[types.KnobKey, types.Cap]:
    """The caps that should be in force, one per workload and knob.

    Kill switch (``stopped``) > the operator's override > exemption > the
    tightest wish; then never below the floor, never looser than the
    original.  A cap that is not tighter than the original is left out:
    nothing is written for it.

    * ``originals``: the workload's own limits; missing or ``None``: none.
    * ``floors``: knob -> value per workload, as ``Workload.floor``.
    * ``overrides``: the cap of an operator, ``None`` for no cap at all.
    * ``exempt``: ids of workloads, and of groups that hold one, which only
      an override may touch.  Projects are resolved by the caller.

    Wishes that say nothing (NaN, infinite, below 0, unreadable CPU lists,
    empty sets) are no wishes.  Source: DESIGN 7.5.
    """
    if stopped:
        return {}
    chosen: dict[types.KnobKey, types.Cap] = {}
    sets: dict[types.KnobKey, list[types.Cap]] = {}
    for wish in wishes:
        workload, knob, value, _, _ = wish
        if workload in exempt:
            continue
        key = (workload, knob)
        other = chosen.get(key)
        if other is not None:
            if knob is types.Knob.CPU_SET:
                # Taken in pairs, their order would decide.
                if _sound(knob, value):
                    sets.setdefault(key, [other]).append(wish)
                continue
            wish = _tighter(other, wish)
        elif not _sound(knob, value):
            continue
        chosen[key] = wish
    for key, claims in sets.items():
        chosen[key] = _meet(claims)
    if overrides:
        for key, cap in overrides.items():
            if cap is None:
                chosen.pop(key, None)
            elif _sound(key[1], cap.value):
                chosen[key] = cap
    result: dict[types.KnobKey, types.Cap] = {}
    for key, cap in chosen.items():
        workload, knob = key
        value = cap[2]
        original = originals.get(key)
        if knob is types.Knob.CPU_SET:
            if original is not None:
                within = _within(str(value), str(original))
                if within is None:
                    continue
                if within != value:
                    cap = cap._replace(value=within)
        elif knob in SWITCHES:
            if not value or original:
                continue
        else:
            if workload in floors:
                floor = floors[workload].get(knob)
                if floor is not None and value < floor:  # type: ignore[operator]
                    cap = cap._replace(value=floor, reason=(
                        f'{cap.reason}; raised to the floor, {floor:.15g}'))
                    value = floor
            if original is not None and not value < original:  # type: ignore[operator]
                continue
        result[key] = cap
    return result


def in_effect(originals: Mapping[types.KnobKey, types.Value | None],
              online: Collection[int]
              ) -> Mapping[types.KnobKey, types.Value | None]:
    """``originals`` without the sets of cgroups that have no CPU online.

    Such a set limits nothing: the kernel lets the group run on the CPUs of
    its parent.  What the group goes back to is not changed by that.
    """
    gone = [key for key, value in originals.items()
            if key[1] is types.Knob.CPU_SET and key[0].startswith('/')
            and _all_offline(str(value or ''), online)]
    return {**originals, **dict.fromkeys(gone)} if gone else originals


def _sound(knob: types.Knob, value: types.Value) -> bool:
    if knob is not types.Knob.CPU_SET:
        return not isinstance(value, str) and 0 <= value < math.inf
    try:
        return bool(types.parse_cpus(str(value)))
    except ValueError:
        return False


def _tighter(cap: types.Cap, other: types.Cap) -> types.Cap:
    if not _sound(other.knob, other.value):
        return cap
    return (cap if tightest(cap.knob, (cap.value, other.value)) == cap.value
            else other)


def _meet(claims: Sequence[types.Cap]) -> types.Cap:
    """One CPU set out of several: the claim that satisfies all, if one
    does, else what they share."""
    value = tightest(types.Knob.CPU_SET, [claim.value for claim in claims])
    for claim in claims:
        if claim.value == value:
            return claim
    return claims[0]._replace(
        value=value,
        owner='+'.join(dict.fromkeys(claim.owner for claim in claims)),
        reason='; '.join(dict.fromkeys(claim.reason for claim in claims)))


def _all_offline(text: str, online: Collection[int]) -> bool:
    try:
        own = types.parse_cpus(text)
    except ValueError:
        return False
    return bool(own and online) and own.isdisjoint(online)


def _within(wanted: str, original: str) -> str | None:
    """``wanted`` inside ``original``; ``None`` if nothing is to be written.

    A workload whose own set shares no CPU with ours keeps its own.  An
    empty or unreadable original is no limit.
    """
    try:
        own = types.parse_cpus(original)
    except ValueError:
        return wanted
    if not own:
        return wanted
    both = types.parse_cpus(wanted) & own
    return None if not both or both == own else types.format_cpus(both)
