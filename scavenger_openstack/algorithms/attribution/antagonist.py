# SPDX-License-Identifier: Apache-2.0

"""An antagonist: its states, what moves it, and what its limit does then.

The disturbance of an incident is attributed to each of its antagonists, and
each is in one of these states.  The documentation draws :data:`TABLE`.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import enum

from scavenger_openstack.algorithms.attribution.cubic import Cubic
from scavenger_openstack.algorithms.attribution.disturbance import Disturbance
from scavenger_openstack.algorithms.attribution.disturbance import Pair
from scavenger_openstack.algorithms.attribution.trial import Trial
from scavenger_openstack.algorithms import back_off


class State(enum.StrEnum):
    """The state of one antagonist and one knob."""

    SUSPECTED = 'suspected'
    EXAMINED = 'examined'
    ON_TRIAL = 'on trial'
    CONFIRMED = 'confirmed'
    LOOSENING = 'loosening'
    REMEMBERED = 'remembered'


class Event(enum.StrEnum):
    """An event that moves an antagonist to another state."""

    EXAMINED = 'an experiment with it begins'
    CLEARED = 'the experiment is over, and does not name it'
    NAMED = 'named, at work, and a victim suffers'
    HELPED = 'the limit helped; no disturbance is on trial any more'
    DID_NOT_HELP = 'the limit did not help; nothing else is attributed to it'
    SUFFERS = 'a victim suffers while the limit is used'
    AT_EASE = 'all victims are at ease'
    IN_VAIN = (
        'at its floor for some samples, and a victim suffers as before, or '
        'next to nothing')
    HOLDS_LITTLE = (
        'direct evidence: it holds next to nothing of what the victim waits')
    RESTS = 'for some samples it uses less than half of its limit'
    AWAY = 'the instance is stopped'
    NOT_HELD = (
        'for some samples it uses more than its limit, or it is unknown')
    NOT_HELD_AGAIN = (
        'for some samples it uses more than its limit, or it is unknown, '
        'again after it returned')
    OVER = 'the disturbances are over, or their victims are gone'
    RETURNS = 'it uses more than its last good limit'
    RETURNS_ON_TRIAL = 'the same, before its trial was over'
    FORGOTTEN = 'remember_s has passed, or it is named for using less'


class Change(enum.StrEnum):
    """A change of an antagonist's limit."""

    NONE = 'stays'
    SET = 'set to a first guess'
    SET_GOOD = 'set to the last good one'
    CUT = 'cut'
    GROW = 'grows if it is used up'
    PROBE = 'grows until a victim suffers more'
    REMOVE = 'removed'


_ENDS = {
    Event.RESTS: (State.REMEMBERED, Change.REMOVE),
    Event.AWAY: (State.REMEMBERED, Change.REMOVE),
    Event.NOT_HELD: (State.SUSPECTED, Change.REMOVE),
    Event.NOT_HELD_AGAIN: (State.REMEMBERED, Change.REMOVE),
    Event.OVER: (State.SUSPECTED, Change.REMOVE),
}
_ADAPTED = {
    Event.SUFFERS: (State.CONFIRMED, Change.CUT),
    Event.AT_EASE: (State.LOOSENING, Change.GROW),
    Event.IN_VAIN: (State.LOOSENING, Change.PROBE),
    Event.HOLDS_LITTLE: (State.LOOSENING, Change.PROBE),
    **_ENDS,
}

TABLE: Mapping[State, Mapping[Event, tuple[State, Change]]] = {
    State.SUSPECTED: {
        Event.EXAMINED: (State.EXAMINED, Change.NONE),
        Event.NAMED: (State.ON_TRIAL, Change.SET),
    },
    State.EXAMINED: {
        Event.CLEARED: (State.SUSPECTED, Change.NONE),
        Event.NAMED: (State.ON_TRIAL, Change.SET),
    },
    State.ON_TRIAL: {
        Event.HELPED: (State.CONFIRMED, Change.NONE),
        Event.DID_NOT_HELP: (State.SUSPECTED, Change.REMOVE),
        **_ENDS,
    },
    State.CONFIRMED: _ADAPTED,
    State.LOOSENING: _ADAPTED,
    State.REMEMBERED: {
        Event.NAMED: (State.ON_TRIAL, Change.SET),
        Event.RETURNS: (State.CONFIRMED, Change.SET_GOOD),
        Event.RETURNS_ON_TRIAL: (State.ON_TRIAL, Change.SET_GOOD),
        Event.DID_NOT_HELP: (State.SUSPECTED, Change.NONE),
        Event.OVER: (State.SUSPECTED, Change.NONE),
        Event.FORGOTTEN: (State.SUSPECTED, Change.NONE),
    },
}
"""Where each event leads, and what it does to the limit.  Nothing else
moves an antagonist."""

UNLIMITED: Mapping[State, str] = {
    State.SUSPECTED: '',
    State.EXAMINED: 'is in an experiment',
    State.REMEMBERED: 'uses less than its last good limit'}
"""What is reported of one that is named and has no limit now."""

NOT_AGAIN = 'is not limited again yet: the last limit did not help'

LOOSE = 2.0
"""A limit is removed when it has been so many times the use for
:data:`LOOSE_SAMPLES`.  Source: DESIGN 7.10."""

LOOSE_SAMPLES = 3

MOST_LOOSE_SAMPLES = 60
"""Of one that came back it is twice as many each time, up to these: a limit
that is loose takes nothing away."""

FUTILE_SAMPLES = 6
"""Of suffering more than half as much as before, with an antagonist at its
floor; then the victim is like that without it, and its limit may grow until
it gets worse."""


@dataclasses.dataclass(slots=True)
class Limit:
    """The limit in force of an antagonist, and how its trial goes.

    ``again``: it began as the last good one, for an antagonist that returned.
    ``levels``: the effects on those that suffered when it was cut first,
    since it last grew; ``futile``: how often since then there was nothing to
    cut; ``floored``: for how many samples it was at the floor.
    """

    cap: Cubic
    again: bool = False
    loose: int = 0
    ignored: int = 0
    fresh: bool = True
    futile: int = 0
    floored: int = 0
    levels: dict[Disturbance, float] = dataclasses.field(default_factory=dict)

    def change(self, change: Change, use: float, cut: float, room: float
               ) -> None:
        """Do what the table says; the numbers are those of a cubic cap."""
        if change is Change.CUT:
            self.cap.contended(use, cut=cut)
        elif change is Change.GROW:
            self.cap.quiet(use, room)
        elif change is Change.PROBE:
            self.cap.probe()
        if change in (Change.CUT, Change.PROBE):
            self.loose, self.fresh = 0, True
        if change in (Change.GROW, Change.PROBE):
            self.futile, self.levels = 0, {}

    def count_loose(self, use: float, returns: int) -> bool:
        """Count one more sample; return whether there were enough in which it
        took nothing away."""
        self.loose = self.loose + 1 if self.cap.value >= LOOSE * use else 0
        return self.loose >= min(MOST_LOOSE_SAMPLES,
                                 LOOSE_SAMPLES << returns)

    def count_futile(self, suffering: Iterable[Disturbance]) -> bool:
        """Count one more sample; return whether there were enough in which
        these suffered as before with the antagonist at its floor."""
        self.futile += self.cap.at_floor
        levels = [(self.levels.setdefault(each, each.latest), each.latest)
                  for each in suffering if each.latest is not None]
        return self.futile >= FUTILE_SAMPLES and all(
            now > before / 2 for before, now in levels)


@dataclasses.dataclass(slots=True)
class Antagonist:
    """One workload and knob: its state, and all that goes with it.

    ``trials``: the disturbances that are attributed to it, each with the
    trial of what was limited for it at one instant, ``None`` when that is
    over or never was.  ``alone``: for which it is not limited until when
    since that did not help, and how long that is.  What one tenant's VMs
    feign must not protect it from the others.  ``removed``: what removed its
    last limit; ``returns``: how often it came back after it had rested.
    """

    state: State = State.SUSPECTED
    limit: Limit | None = None
    trials: dict[Disturbance, Trial | None] = dataclasses.field(
        default_factory=dict)
    reason: str = ''
    removed: Event | None = None
    returns: int = 0
    alone: dict[Pair, tuple[float, float]] = dataclasses.field(
        default_factory=dict)

    @property
    def pairs(self) -> list[Pair]:
        """The victims whose disturbances are attributed to it."""
        return [disturbance.pair for disturbance in self.trials]

    def move(self, event: Event, cap: Cubic | None = None, *,
             use: float = 0.0, cut: float = 0.0, room: float = 1.0
             ) -> None:
        """Go where the table says.

        :param cap: the limit to set, when it says so
        """
        self.state, change = TABLE[self.state][event]
        if cap is not None:
            self.limit = Limit(cap, again=change is Change.SET_GOOD)
            self.returns += self.limit.again
        elif change is Change.REMOVE:
            self.limit, self.removed = None, event
        elif self.limit is not None:
            self.limit.change(change, use, cut, room)
        if self.state is State.SUSPECTED:
            self.trials, self.returns = {}, 0

    def attribute(self, trials: dict[Disturbance, Trial | None],
                  last: Event) -> None:
        """Attribute these disturbances, and no others, to the antagonist from
        now on.

        :param last: what moves it when there are none
        """
        self.trials = trials
        if (self.state not in (State.SUSPECTED, State.EXAMINED)
                and not trials):
            self.move(last)
        elif self.state is State.ON_TRIAL and not any(trials.values()):
            self.move(Event.HELPED)

    def leave_alone(self, now: float, pair: Pair, first_s: float) -> None:
        """A limit did not help: for twice as long as the last time."""
        wait_s = back_off.longer(self.alone.get(pair, (0.0, 0.0))[1],
                                 first=first_s, most=back_off.LONGEST_S)
        self.alone[pair] = now + wait_s, wait_s

    def why_unlimited(self, now: float, pair: Pair) -> str:
        """Why it is not limited for these now, '' where that is not known."""
        return (NOT_AGAIN if now < self.alone.get(pair, (now, 0.0))[0]
                else UNLIMITED.get(self.state, ''))
