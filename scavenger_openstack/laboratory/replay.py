# SPDX-License-Identifier: Apache-2.0



"""Runs controllers over what was recorded or measured, touching nothing."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from typing import NamedTuple
from typing import Protocol

from scavenger_openstack.decision import changes
from scavenger_openstack.decision.changes import Changed
from scavenger_openstack.decision.changes import WouldKey
from scavenger_openstack.decision import settle
from scavenger_openstack.decision.settle import Decided
from scavenger_openstack.laboratory.replay_settings import Settings
from scavenger_openstack.recording import line_format
from scavenger_openstack.recording import rates_table
from scavenger_openstack.recording import replay
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import Rates

Moment = line_format.RecordedTick | Rates
"""One tick of a recording, or one time of a table."""


class Source(Protocol):
    """What can be replayed: each moment of each host, in order of time."""

    def moments(self) -> Iterator[tuple[str, Moment]]:
        """The host and the moment; can be asked for once.

        :raises DriverError: a line is wrong.
        """
        ...

    def interval_s(self, host: str) -> float:
        """The usual time between two moments, in seconds."""
        ...


class Recording:
    """A recording as a source."""

    def __init__(self, recording: replay.Recording) -> None:
        self._recording = recording

    def moments(self) -> Iterator[tuple[str, Moment]]:
        host = self._recording.header.host
        for turn in self._recording:
            yield host, turn

    def interval_s(self, host: str) -> float:
        return self._recording.header.interval_s


class Table:
    """A table as a source: one host after the other."""

    def __init__(self, table: rates_table.Table,
                 capacity: rates_table.Capacity) -> None:
        self._table = table
        self._capacity = capacity

    def moments(self) -> Iterator[tuple[str, Moment]]:
        for name, host in self._table.hosts.items():
            for rates in host.rates(self._capacity):
                yield name, rates

    def interval_s(self, host: str) -> float:
        return self._table.hosts[host].interval_s


class Step(NamedTuple):
    """One decision: what changed, and all that is wanted now.

    ``before`` is what was wanted, and would have been, before it.
    """

    time_s: float
    host: str
    changed: Changed
    decided: Decided | None
    wanted: Mapping[KnobKey, Cap]
    would: Mapping[WouldKey, Cap]
    before: tuple[Mapping[KnobKey, Cap], Mapping[WouldKey, Cap]]


class Player:
    """Turns one host's controllers as the agent's slow loop does.

    ``settings`` are those that hold now.

    :param interval_s: the usual time between two moments
    """

    def __init__(self, host: str, settings: Settings,
                 interval_s: float | None = None) -> None:
        self._host = host
        self._decider = settings.decider(host, interval_s)
        self.settings = settings
        self._asked: set[KnobKey] = set()
        self._fast = settle.NO_FAST_LOOP
        self._changes = changes.Changes()

    def step(self, moment: Moment) -> Step:
        """Decide on the next moment."""
        before = self._changes.wanted, self._changes.would
        decided: Decided | None = None
        changed = Changed()
        time_s = moment.time_s
        if isinstance(moment, line_format.RecordedTick):
            self._tune(moment)
        if isinstance(moment, Rates):
            decided = settle.settle(self._decider.propose_from(moment), {})
        elif moment.sample is not None:
            time_s = moment.sample.time_s
            decided = self._turn(moment)
        elif moment.stopped or moment.unwatched:
            changed = self._changes.of_none()
        if decided is not None:
            changed = self._changes.of(decided)
        if isinstance(moment, line_format.RecordedTick):
            for key, cap in moment.decided.wanted.items():
                (self._asked.discard if cap is None
                 else self._asked.add)(key)
        return Step(time_s, self._host, changed, decided,
                    self._changes.wanted, self._changes.would, before)

    def _tune(self, turn: line_format.RecordedTick) -> None:
        """Go on with the parameters that changed."""
        for name, values in turn.params.items():
            self.settings = self.settings.tuned(name, values)
            if name in self._decider.tunable:
                self._decider.tunable[name].tune(self.settings.params(name))

    def _turn(self, turn: line_format.RecordedTick) -> Decided:
        assert turn.sample is not None
        if turn.reset:
            self._decider.forget_sample()
        proposal = self._decider.propose(
            turn.sample, held_back=turn.stopped or turn.unwatched,
            orders=turn.orders, taken=self._fast.keys,
            unmet=self._unmet(turn), pending=turn.pending)
        self._fast = settle.FastLoopState(tuple(turn.fast_sets), turn.floors)
        return settle.settle(proposal, turn.originals, self._fast)

    def _unmet(self, turn: line_format.RecordedTick) -> Mapping[str, int]:
        """Return what was refused, without what this replay did not ask
        for."""
        if not self.settings.what_if:
            return turn.unmet
        gone = self._asked.difference(self._changes.wanted)
        return {workload: size for workload, size in turn.unmet.items()
                if (workload, Knob.MEMORY_BYTES) not in gone}


def run(source: Source, settings: Settings) -> Iterator[Step]:
    """Every decision over a source, under one setting.

    :raises DriverError: a line of the source is wrong.
    """
    for (step,) in side_by_side(source, settings):
        yield step


def side_by_side(source: Source, *settings: Settings
                 ) -> Iterator[tuple[Step, ...]]:
    """Every decision over a source, under several settings at once."""
    players: dict[str, list[Player]] = {}
    for host, moment in source.moments():
        if host not in players:
            players[host] = [
                Player(host, setting, source.interval_s(host))
                for setting in settings]
        yield tuple(player.step(moment) for player in players[host])


class Difference(NamedTuple):
    """A place where a replay decides otherwise than the agent did."""

    line: int
    time_s: float
    what: str


def verify(recording: replay.Recording, settings: Settings
           ) -> tuple[int, int, Difference | None]:
    """Compare a replay with what the recording says was decided.

    Returns the ticks and the changed decisions up to the first difference,
    or to the end.

    :raises DriverError: a line is wrong.
    """
    player = Player(recording.header.host, settings)
    ticks = decisions = 0
    for turn in recording:
        step = player.step(turn)
        what = difference(turn.decided, step.changed)
        if what:
            return ticks, decisions, Difference(turn.line, step.time_s, what)
        ticks += 1
        decisions += count(step.changed)
    return ticks, decisions, None


def count(changed: Changed) -> int:
    """Return how many limits and incidents a decision changes."""
    return (len(changed.wanted) + len(changed.would)
            + len(changed.incidents))


def difference(was: Changed, now: Changed) -> str:
    """The first difference of two decisions; empty if there is none."""
    for field, recorded_, replayed in (
            ('wanted', was.wanted, now.wanted),
            ('would', was.would, now.would)):
        for key in (*recorded_, *(key for key in replayed
                                  if key not in recorded_)):
            old, new = (_text(caps, key) for caps in (recorded_, replayed))
            if old != new:
                return (f'{field}: {" ".join(key[-2:])}: recorded {old}, '
                        f'replayed {new}')
    if was.incidents != now.incidents:
        return (f'incidents: recorded {list(was.incidents)}, replayed '
                f'{list(now.incidents)}')
    return ''


def _text(caps: Mapping[KnobKey, Cap | None] | Mapping[WouldKey, Cap | None],
          key: KnobKey | WouldKey) -> str:
    if key not in caps:
        return 'no change'
    cap = caps[key]     # type: ignore[index]
    return ('no limit' if cap is None else
            f'{cap.value!r} by {cap.owner} ({cap.reason})')
