# SPDX-License-Identifier: Apache-2.0

"""The one place that writes limits: leases first, then the diff.

Controllers say every tick all the caps they want.  The actuator compares
that with what is in force, leases what it is about to touch for the first
time, writes, reads back, and removes limits that are not wanted any more.
A write that failed shows again in the next diff, so nothing is retried here.

What a knob held before us, and what it held after our last write, is the state
of its lease; the driver is handed that with each call, and tells by it the
write of another program from our own.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
from typing import NamedTuple

from oslo_log import log

from scavenger_openstack.agent.apply import refusals
from scavenger_openstack.agent.apply import worker
from scavenger_openstack.agent.apply import write_queue as queues_
from scavenger_openstack.agent import base as base_
from scavenger_openstack import amounts
from scavenger_openstack.decision import arbitrate
from scavenger_openstack.drivers import base
from scavenger_openstack.drivers import originals
from scavenger_openstack import errors
from scavenger_openstack.knobs import OF_GROUPS
from scavenger_openstack import log_once
from scavenger_openstack.types import Cap
from scavenger_openstack.types import format_cpus
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import phase
from scavenger_openstack.types import Value

LOG = log.getLogger(__name__)

LOOK_TICKS = 4
"""Every knob of ours is read back when written, and then in one of so many
ticks: what another program writes is noticed within them."""


class SeenKnobs(NamedTuple):
    """What some knobs hold.

    ``originals`` is what each would hold without us, ``current`` what it
    holds.  A knob that could not be read is in neither: ``problems`` says
    why, and ``gone`` of one that is no longer what was limited.
    ``changes`` is what the driver says is new.
    """

    originals: Mapping[KnobKey, Value | None] = {}
    current: Mapping[KnobKey, Value | None] = {}
    gone: Mapping[KnobKey, str] = {}
    problems: Sequence[str] = ()
    changes: base.Changes = base.Changes()


NOTHING_SEEN = SeenKnobs()


@dataclasses.dataclass(slots=True)
class Outcome:
    """What one diff did: counts, refusals in bytes, and problems."""

    written: int = 0
    removed: int = 0
    unmet: dict[str, int] = dataclasses.field(default_factory=dict)
    problems: list[str] = dataclasses.field(default_factory=list)

    def add(self, other: Outcome) -> None:
        self.written += other.written
        self.removed += other.removed
        self.unmet.update(other.unmet)
        self.problems += other.problems


class Actuator:
    """Puts caps in force on one host through ``driver``.

    :param deadline_s: how long one tick waits for what may take long
    :param executor: does that, instead of threads with that deadline
    """

    def __init__(self, driver: base.Knobs, leases: base_.Leases,
                 deadline_s: float,
                 executor: worker.WriteExecutor | None = None) -> None:
        self._driver = driver
        self._leases = leases
        self._worker: worker.WriteExecutor = executor or worker.Worker(
            deadline_s, driver.notify, driver.executor)
        self._logged = log_once.LogOnce()
        self._forgot: dict[KnobKey, str] = {}
        self._refusals = refusals.Refusals()
        self._timed_out: list[tuple[Sequence[KnobKey], Outcome]] = []
        self._tick = 0
        self.in_force: dict[KnobKey, Cap] = {}
        self.gone: dict[KnobKey, str] = {}
        """Why knobs are no longer what was limited, as the last tick saw."""

    def look(self, wishes: Iterable[Cap]) -> SeenKnobs:
        """What the wished knobs hold, and would hold without us.

        Once per tick.  Knobs that cannot be read are left out: no cap is
        set on them.  What another program wrote to a leased knob is its new
        original (and no cap is set this tick when that is not recorded).
        """
        current: dict[KnobKey, Value | None] = {}
        before: dict[KnobKey, Value | None] = {}
        gone: dict[KnobKey, str] = {}
        problems: list[str] = []
        held = self._leases.held()
        changes = self._driver.refresh(held)
        changed = changes.changed
        self._tick += 1
        self._refusals.keep(self._tick, changed)
        for cap in wishes:
            key = (cap.workload, cap.knob)
            if key in before or key in self._worker.pending:
                continue
            state = held.get(key)
            ours = state.ours if state else None
            if (state and ours and key[0] not in changed
                    and (int(LOOK_TICKS * phase(key[0]))
                         + self._tick) % LOOK_TICKS):
                current[key] = ours.value
                before[key] = state.original.value
                continue
            why = state is None and self._why_not(cap)
            if why:
                problems.append(why)
                continue
            try:
                now = (self._follow(key, state).value if state and ours
                       else self._driver.read(*key, state))
            except errors.WorkloadGone as exc:
                gone[key] = str(exc)
                self._leases.wrote(*key, None)  # until it is removed, read it
                continue
            except errors.ScavengerError as exc:
                if state and (isinstance(exc, errors.Unsupported)
                              or not ours):
                    # A device came, or an earlier agent left it: remove it.
                    gone[key] = str(exc)
                    self._leases.wrote(*key, None)
                problems.append(self._refused(
                    cap, exc, f'{key[0]} {key[1]}: not limited: {exc}'))
                continue
            current[key] = now
            # Another thread may have begun or ended it since.
            state = self._leases.held().get(key, state)
            before[key] = state.original.value if state else now
        return SeenKnobs(before, current, gone, problems, changes)

    def reconcile(self, wanted: Mapping[KnobKey, Cap],
                  knobs: SeenKnobs = NOTHING_SEEN,
                  taken: Collection[KnobKey] = ()) -> Outcome:
        """Bring what is in force to what is wanted.

        Tightens first, so that what one workload gains another has given
        up already.

        :param knobs: what :meth:`look` read in this tick; nothing is set on
            knobs that are not in it
        :param taken: knobs that another thread looks after; left alone
        """
        outcome = self._finished(knobs.problems)
        self.gone = {**self._forgot, **knobs.gone}
        queues = queues_.by_name()
        pending = self._worker.pending
        again = knobs.changes.rewrite
        for key, cap in queues_.inside(wanted, self.in_force).items():
            if key in pending or key not in knobs.current:
                continue
            current = knobs.current[key]
            if key not in again and (self._nearest(key, cap, current)
                    or not arbitrate.worth_writing(
                        cap.knob, current, cap.value,
                        dear=bool(self._queue_of(key, queues_.LOOSEN)))):
                self.in_force[key] = cap
            elif why := self._why_not(cap):
                outcome.problems.append(why)
            elif queues_.tightens(cap, current):
                queue = queues[self._queue_of(key, queues_.TIGHTEN)]
                queue.tighten.append(cap)
            else:
                queues[self._queue_of(key, queues_.LOOSEN)].loosen.append(cap)
        for key in list(self._leases.held()):
            if key in knobs.gone or (key not in wanted and key not in pending
                                     and key not in taken):
                queue = queues[self._queue_of(key, queues_.REMOVE)]
                queue.remove.append(key)
        at_once = queues.pop('', queues_.WriteQueue())
        # A workload that has become foreground runs again before all else.
        for key in at_once.remove:
            if key[1] is Knob.PAUSED:
                self.remove(key, outcome)
        self._write_all(at_once.tighten, outcome)
        self._in_queues(queues, outcome)
        for key in at_once.remove:
            if key[1] is not Knob.PAUSED:
                self.remove(key, outcome)
        self._write_all(at_once.loosen, outcome)
        outcome.unmet.update(
            (workload, size) for workload, size in knobs.changes.unmet.items()
            if (workload, Knob.MEMORY_BYTES) in wanted)
        self._forgot = {}
        return outcome

    def _nearest(self, key: KnobKey, cap: Cap, current: Value | None) -> bool:
        """Whether this very cap was set, and what is in force came of it:
        not every value can be had."""
        old, state = self.in_force.get(key), self._leases.held().get(key)
        return (old is not None and old.value == cap.value
                and current is not None and state is not None
                and state.ours is not None and current == state.ours.value)

    def _queue_of(self, key: KnobKey, what: str) -> str:
        """Where a limit is tightened, loosened or removed."""
        return queues_.at(self._driver.queue(*key), what)

    def _in_queues(self, queues: Mapping[str, queues_.WriteQueue],
                   outcome: Outcome) -> None:
        """Do what may take long, as far as the deadline allows."""
        if not queues:
            return
        jobs, parts = [], []
        for name, every in queues.items():
            # One by one: a knob without its limit may be limited again.
            for queue in every.apart() if name == base.DRAIN else (every,):
                part = Outcome()
                jobs.append(worker.Job(name, queue.keys(), functools.partial(
                    self._in_queue, queue, part), part.problems.append))
                parts.append(part)
        for job, part, done in zip(jobs, parts, self._worker.run(jobs),
                                   strict=True):
            if done:
                outcome.add(part)
            else:
                self._timed_out.append((job.keys, part))

    def _in_queue(self, queue: queues_.WriteQueue, outcome: Outcome) -> None:
        self._write_all(queue.tighten, outcome)
        self._leases.prepare(queue.prepare)
        for key in queue.remove:
            self.remove(key, outcome)
        self._write_all(queue.loosen, outcome)

    def _finished(self, problems: Sequence[str]) -> Outcome:
        """Return what came of earlier ticks only now, after these problems."""
        outcome = Outcome(problems=list(problems))
        timed_out, self._timed_out = self._timed_out, []
        for keys, part in timed_out:
            if self._worker.pending.isdisjoint(keys):
                outcome.add(part)
            else:
                self._timed_out.append((keys, part))
        return outcome

    def hold(self, workload: str, knob: Knob,
             theirs: frozenset[int] | None = None) -> None:
        """Lease a knob before it is first written, and groups born below.

        :param theirs: the CPU set that another program has set over that of
            the fast loop: what will be restored
        :raises LeaseError: no durable record, or no watcher to restore it
        :raises DriverError: the knob cannot be read
        """
        key = (workload, knob)
        # From now on what we wrote does not tell whose write is there.
        self._leases.wrote(*key, None)
        state = self._lease(key)
        if theirs:
            text = format_cpus(theirs)
            self._leases.replace(*key, originals.within(
                state.original.actions, text), text)
            LOG.warning('%s %s: another program set it to %s, which will be '
                        'restored', *key, amounts.of_knob(knob, text))

    def _lease(self, key: KnobKey) -> base.KnobState:
        """The state of a knob that may be written now."""
        state = self._leases.held().get(key)
        if key in self._leases.lost():
            raise errors.LeaseError(f'{key[0]} {key[1]}: not restorable now')
        if state is not None:
            try:
                return self._follow(key, state._replace(ours=None)).state
            except errors.WorkloadGone:
                self._leases.remove(*key)   # made again: its cap died with it
        actions = self._driver.restore_actions(*key)
        kin = [] if key[1] is not Knob.CPU_SET else [
            other for other in self._leases.held() if other[1] is key[1]
            and originals.kin(other[0], key[0])]
        for other in kin:               # else their cap is our original
            self._leases.remove(*other)
            self.forget(other)
        if kin:
            actions = self._driver.restore_actions(*key)
        self._leases.hold(*key, actions, self._driver.read(*key))
        return self._leases.held()[key]

    def remove(self, key: KnobKey, outcome: Outcome | None = None) -> None:
        """Remove one limit: restore its original, end its lease."""
        outcome = outcome if outcome is not None else Outcome()
        state = self._leases.held().get(key)
        try:
            self._leases.remove(*key)
        except errors.ScavengerError as exc:
            # Nor is half of it another program's.
            self._leases.wrote(*key, None)
            outcome.problems.append(self._complain(
                key, f'{key[0]} {key[1]}: not removed yet, the next tick '
                     f'tries again: {exc}'))
            return
        self.forget(key)
        self._driver.notify(base.Removed(*key, state))
        outcome.removed += 1

    def forget(self, key: KnobKey) -> None:
        """Drop what is remembered of a knob that we no longer hold."""
        self.in_force.pop(key, None)
        self._logged.forget(key)
        self._refusals.end(key)

    def forget_all(self, why: str) -> None:
        for key in dict.fromkeys((*self.in_force, *self._leases.held())):
            self.forget(key)
            self._forgot[key] = why

    @property
    def pending(self) -> frozenset[KnobKey]:
        """Knobs whose write the kernel has not finished yet."""
        return frozenset(self._worker.pending)

    def _write_all(self, caps: list[Cap], outcome: Outcome) -> None:
        for cap in caps:
            key = (cap.workload, cap.knob)
            try:
                written = self._write(key, cap.value)
            except errors.Refused as exc:
                outcome.unmet[cap.workload] = exc.unmet_bytes
                self._complain(key, f'{cap.workload} {cap.knob}: {exc}')
            except errors.NotRestorable as exc:
                if str(exc) not in outcome.problems:    # of many knobs
                    outcome.problems.append(str(exc))
            except (errors.ScavengerError, OSError, ValueError) as exc:
                self._failed(cap, exc, outcome)
            else:
                self._logged.over(key)
                self._refusals.end(key)
                if not written:
                    continue
                outcome.written += 1
                LOG.debug('%s %s = %s written', *key, cap.value)
                self.in_force[key] = cap

    def _write(self, key: KnobKey, value: Value) -> bool:
        """Set it; false: another program set the knob, and the next tick
        goes by that."""
        state = self._leases.held().get(key)
        if state is not None and state.ours is not None:
            followed = self._follow(key, state)
            if followed.theirs:
                return False
            state = followed.state
        # A lease that this agent has not written under may be of another
        # cgroup or run of a VM.
        if key[1] in OF_GROUPS or state is None or state.ours is None:
            state = self._lease(key)
        # Half a write is not another program's.
        self._leases.wrote(*key, None)
        try:
            with self._leases.writing(*key):
                written = self._driver.write(*key, value, state)
        except errors.Overtaken:
            self._leases.wrote(*key, state.ours)
            self._follow(key, state)
            return False
        ours = base.Setting(written, ())
        self._leases.wrote(*key, ours._replace(
            actions=self._driver.restore_actions(
                *key, state._replace(ours=ours))))
        return True

    def _follow(self, key: KnobKey, state: base.KnobState
                ) -> originals.Followed:
        """Take over what others did to a knob with a lease.

        :raises LeaseError: the leases have run out, so the watcher may have
            written it
        """
        followed = originals.follow(self._driver, *key, state)
        if key not in self._leases.held():      # another thread has ended it
            return originals.Followed(followed.value, state)
        original, ours = followed.state
        if followed.theirs:
            # Once they have run out, what is there may be the watcher's.
            self._leases.check()
        if original != state.original:
            self._leases.replace(*key, original.actions, original.value)
        if ours is not state.ours:
            self.in_force.pop(key, None)
            self._leases.wrote(*key, ours)
        if followed.message:
            LOG.warning('%s', followed.message)
        return followed

    def _failed(self, cap: Cap, exc: Exception, outcome: Outcome) -> None:
        if isinstance(exc, errors.WorkloadGone):
            # Its cap died with it; one made again is met at the next tick.
            self.gone[cap.workload, cap.knob] = str(exc)
            self.remove((cap.workload, cap.knob))
            return
        outcome.problems.append(self._refused(cap, exc, (
            f'{cap.workload} {cap.knob} = {amounts.of_knob(*cap[1:3])} not '
            f'set, {refusals.when(exc)}: {exc}')))

    def _refused(self, cap: Cap, exc: Exception, message: str) -> str:
        key = (cap.workload, cap.knob)
        if isinstance(exc, refusals.LASTING):
            self._refusals.begin(self._tick, key, cap.value, message)
        return self._complain(key, message, exc.cause if isinstance(
            exc, errors.DriverError) else '')

    def _why_not(self, cap: Cap) -> str:
        """Return why a limit is not tried in this tick; '' if it is."""
        return self._refusals.why_not(
            self._tick, (cap.workload, cap.knob), cap.value)

    def _complain(self, key: KnobKey, message: str, cause: str = '') -> str:
        """Log a problem when it is new, and not just of other numbers; one
        with a cause in common with others once for all of them."""
        kind = ''.join(c for c in message.partition(':')[2] if c > '9')
        if self._logged.due(key, kind, cause):
            reset = functools.partial(self._logged.over, key)
            if not self._driver.notify(base.Failed(*key, message, reset)):
                LOG.warning('%s', message)
        return message
