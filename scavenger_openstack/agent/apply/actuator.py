# SPDX-License-Identifier: Apache-2.0

"""The one place that writes limits: leases first, then the diff.

Controllers return in each tick all the caps that they want.  The actuator
compares these with the limits in force, leases each knob before it is first
written, writes, reads back, and removes limits that are not wanted any more.
A write that failed shows again in the next diff, so nothing is retried here.

The value of a knob before us, and its value after our last write, are the
state of its lease.  The driver gets that state with each call, and uses it to
distinguish the write of another program from our own.
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
from scavenger_openstack.agent.apply import write_queue
from scavenger_openstack.agent.base import Leases
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

READ_TICKS = 4
"""Each knob with a limit is read back when it is written, and then in one of
this many ticks: the write of another program is noticed within them."""


class KnobReading(NamedTuple):
    """The values of some knobs in one tick.

    ``current`` has the value of each knob, ``originals`` the value that it
    would have without us.  A knob that could not be read is in neither:
    ``problems`` has the reasons, ``gone`` those of knobs whose limited object
    is gone.  ``changes`` are those that the driver reports.
    """

    originals: Mapping[KnobKey, Value | None] = {}
    current: Mapping[KnobKey, Value | None] = {}
    gone: Mapping[KnobKey, str] = {}
    problems: Sequence[str] = ()
    changes: base.Changes = base.Changes()


NO_READING = KnobReading()


@dataclasses.dataclass(slots=True)
class Outcome:
    """The result of one diff: counts, refusals in bytes, and problems."""

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

    :param deadline_s: how long one tick waits for writes that may take long
    :param executor: makes these, instead of threads with that deadline
    """

    def __init__(self, driver: base.Knobs, leases: Leases,
                 deadline_s: float,
                 executor: worker.WriteExecutor | None = None) -> None:
        self._driver = driver
        self._leases = leases
        self._worker: worker.WriteExecutor = executor or worker.Worker(
            deadline_s, driver.notify, driver.executor)
        self._logged = log_once.LogOnce()
        self._reset_reasons: dict[KnobKey, str] = {}
        self._refusals = refusals.Refusals()
        self._timed_out: list[tuple[Sequence[KnobKey], Outcome]] = []
        self._tick = 0
        self.in_force: dict[KnobKey, Cap] = {}
        self.gone: dict[KnobKey, str] = {}
        """Reasons why limited objects are gone, as of the last tick."""

    def read(self, wishes: Iterable[Cap]) -> KnobReading:
        """Return the values of the knobs that caps are wished for.

        Called once per tick.  Knobs that cannot be read are left out: no cap
        is set on them.  The value that another program wrote to a leased knob
        is its new original (and no cap is set this tick when that is not
        recorded).
        """
        current: dict[KnobKey, Value | None] = {}
        originals: dict[KnobKey, Value | None] = {}
        gone: dict[KnobKey, str] = {}
        problems: list[str] = []
        held = self._leases.held()
        changes = self._driver.refresh(held)
        changed = changes.changed
        self._tick += 1
        self._refusals.expire(self._tick, changed)
        for cap in wishes:
            key = cap.key
            if key in originals or key in self._worker.pending:
                continue
            state = held.get(key)
            ours = state.ours if state else None
            if (state and ours and cap.workload not in changed
                    and (int(READ_TICKS * phase(cap.workload))
                         + self._tick) % READ_TICKS):
                current[key] = ours.value
                originals[key] = state.original.value
                continue
            why = state is None and self._why_not(cap)
            if why:
                problems.append(why)
                continue
            try:
                value = (self._follow(key, state).value if state and ours
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
                problems.append(self._record_refusal(
                    cap, exc, f'{cap.workload} {cap.knob}: not limited: '
                              f'{exc}'))
                continue
            current[key] = value
            # Another thread may have begun or ended the lease since.
            state = self._leases.held().get(key, state)
            originals[key] = state.original.value if state else value
        return KnobReading(originals, current, gone, problems, changes)

    def reconcile(self, wanted: Mapping[KnobKey, Cap],
                  reading: KnobReading = NO_READING,
                  fast_keys: Collection[KnobKey] = ()) -> Outcome:
        """Set, change and remove limits until only the wanted are in force.

        Limits are tightened first, so that what one workload gains another
        has lost already.

        :param reading: the values that :meth:`read` returned in this tick;
            nothing is set on knobs that are not in it
        :param fast_keys: knobs that only the fast loop writes; left alone
        """
        outcome = self._late_outcome(reading.problems)
        self.gone = {**self._reset_reasons, **reading.gone}
        queues = write_queue.by_name()
        pending = self._worker.pending
        for key, cap in write_queue.inside(wanted, self.in_force).items():
            if key in pending or key not in reading.current:
                continue
            current = reading.current[key]
            if key not in reading.changes.rewrite and (
                    self._is_nearest_value(cap, current)
                    or not arbitrate.worth_writing(
                        cap.knob, current, cap.value,
                        dear=bool(self._queue_of(key, write_queue.LOOSEN)))):
                self.in_force[key] = cap
            elif why := self._why_not(cap):
                outcome.problems.append(why)
            elif write_queue.tightens(cap, current):
                queue = queues[self._queue_of(key, write_queue.TIGHTEN)]
                queue.tighten.append(cap)
            else:
                queue = queues[self._queue_of(key, write_queue.LOOSEN)]
                queue.loosen.append(cap)
        for key in list(self._leases.held()):
            if key in reading.gone or (
                    key not in wanted and key not in pending
                    and key not in fast_keys):
                queue = queues[self._queue_of(key, write_queue.REMOVE)]
                queue.remove.append(key)
        at_once = queues.pop('', write_queue.WriteQueue())
        # A workload that has become foreground runs again before all else.
        for workload, knob in at_once.remove:
            if knob is Knob.PAUSED:
                self.remove((workload, knob), outcome)
        self._write_all(at_once.tighten, outcome)
        self._do_queues(queues, outcome)
        for workload, knob in at_once.remove:
            if knob is not Knob.PAUSED:
                self.remove((workload, knob), outcome)
        self._write_all(at_once.loosen, outcome)
        outcome.unmet.update(
            (workload, size)
            for workload, size in reading.changes.unmet.items()
            if (workload, Knob.MEMORY_BYTES) in wanted)
        self._reset_reasons = {}
        return outcome

    def _is_nearest_value(self, cap: Cap, current: Value | None) -> bool:
        """Return whether this very cap was set, and ``current`` is what the
        kernel made of it: not every value is possible."""
        old = self.in_force.get(cap.key)
        state = self._leases.held().get(cap.key)
        return (old is not None and old.value == cap.value
                and current is not None and state is not None
                and state.ours is not None and current == state.ours.value)

    def _queue_of(self, key: KnobKey, change: str) -> str:
        """Return the queue in which a limit is tightened, loosened or
        removed."""
        return write_queue.at(self._driver.queue(*key), change)

    def _do_queues(self, queues: Mapping[str, write_queue.WriteQueue],
                   outcome: Outcome) -> None:
        """Make the writes that may take long, until the deadline."""
        if not queues:
            return
        jobs, parts = [], []
        for name, all_work in queues.items():
            # Each by itself: a knob without its limit may be limited again.
            for queue in (all_work.apart() if name == base.DRAIN
                          else (all_work,)):
                part = Outcome()
                jobs.append(worker.Job(name, queue.keys(), functools.partial(
                    self._do_queue, queue, part), part.problems.append))
                parts.append(part)
        for job, part, done in zip(jobs, parts, self._worker.run(jobs),
                                   strict=True):
            if done:
                outcome.add(part)
            else:
                self._timed_out.append((job.keys, part))

    def _do_queue(self, queue: write_queue.WriteQueue, outcome: Outcome
                  ) -> None:
        self._write_all(queue.tighten, outcome)
        self._leases.prepare(queue.prepare)
        for key in queue.remove:
            self.remove(key, outcome)
        self._write_all(queue.loosen, outcome)

    def _late_outcome(self, problems: Sequence[str]) -> Outcome:
        """Return the outcome of late writes of earlier ticks that have ended
        since, after these problems."""
        outcome = Outcome(problems=list(problems))
        timed_out, self._timed_out = self._timed_out, []
        for keys, part in timed_out:
            if self._worker.pending.isdisjoint(keys):
                outcome.add(part)
            else:
                self._timed_out.append((keys, part))
        return outcome

    def hold(self, workload: str, knob: Knob,
             theirs: Mapping[int, frozenset[int]] | None = None) -> None:
        """Lease a knob before it is first written, and groups born below.

        :param theirs: the CPU sets that another program has set over those
            of the fast loop, by inode: they will be restored
        :raises LeaseError: no durable record, or no watcher to restore it
        :raises DriverError: the knob cannot be read
        """
        key = (workload, knob)
        # From now on the fast loop writes, so the value that we wrote last
        # does not show the write of another program.
        self._leases.wrote(*key, None)
        state = self._lease(key)
        if theirs:
            actions = originals.within(state.original.actions, theirs)
            self._leases.replace(*key, actions, format_cpus(
                originals.cpus_of(actions)))
            LOG.warning('%s %s: another program set it to %s, which will be '
                        'restored', *key, ' and '.join(sorted({
                            amounts.of_knob(knob, format_cpus(cpus))
                            for cpus in theirs.values()})))

    def _lease(self, key: KnobKey) -> base.KnobState:
        """Return the state of a knob that may be written now."""
        state = self._leases.held().get(key)
        workload, knob = key
        if key in self._leases.lost():
            raise errors.LeaseError(f'{workload} {knob}: not restorable now')
        if state is not None:
            try:
                return self._follow(key, state._replace(ours=None)).state
            except errors.WorkloadGone:
                self._leases.remove(*key)   # made again: its cap died with it
        actions = self._driver.restore_actions(*key)
        related = [] if knob is not Knob.CPU_SET else [
            (group, held_knob) for group, held_knob in self._leases.held()
            if held_knob is knob and originals.are_nested(group, workload)]
        for related_key in related:     # else their cap is our original
            self._leases.remove(*related_key)
            self.forget(related_key)
        if related:
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
            # A limit that is half removed is no write of another program.
            self._leases.wrote(*key, None)
            workload, knob = key
            outcome.problems.append(self._log_problem(
                key, f'{workload} {knob}: not removed yet, the next tick '
                     f'tries again: {exc}'))
            return
        self.forget(key)
        self._driver.notify(base.Removed(*key, state))
        outcome.removed += 1

    def forget(self, key: KnobKey) -> None:
        """Drop the state of a knob that has no lease any more."""
        self.in_force.pop(key, None)
        self._logged.forget(key)
        self._refusals.end(key)

    def reset(self, why: str) -> None:
        """Drop the state of all knobs, for this reason."""
        for key in dict.fromkeys((*self.in_force, *self._leases.held())):
            self.forget(key)
            self._reset_reasons[key] = why

    @property
    def pending(self) -> frozenset[KnobKey]:
        """Return the knobs whose write the kernel has not finished yet."""
        return frozenset(self._worker.pending)

    def _write_all(self, caps: list[Cap], outcome: Outcome) -> None:
        for cap in caps:
            key = cap.key
            try:
                written = self._write(key, cap.value)
            except errors.Refused as exc:
                outcome.unmet[cap.workload] = exc.unmet_bytes
                self._log_problem(key, f'{cap.workload} {cap.knob}: {exc}')
            except errors.NotRestorable as exc:
                if str(exc) not in outcome.problems:    # of many knobs
                    outcome.problems.append(str(exc))
            except (errors.ScavengerError, OSError, ValueError) as exc:
                self._record_failure(cap, exc, outcome)
            else:
                self._logged.over(key)
                self._refusals.end(key)
                if not written:
                    continue
                outcome.written += 1
                LOG.debug('%s %s = %s written', *key, cap.value)
                self.in_force[key] = cap

    def _write(self, key: KnobKey, value: Value) -> bool:
        """Set a limit; return false where another program set the knob since
        it was read: the next tick starts from that value."""
        state = self._leases.held().get(key)
        if state is not None and state.ours is not None:
            followed = self._follow(key, state)
            if followed.theirs:
                return False
            state = followed.state
        # A lease that this agent has not written under may be of another
        # cgroup or run of a VM.
        _, knob = key
        if knob in OF_GROUPS or state is None or state.ours is None:
            state = self._lease(key)
        # A write that failed half-way is no write of another program.
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
        """Record in the lease what others did to its knob; return that.

        :raises LeaseError: the leases have run out, so the watcher may have
            written it
        """
        followed = originals.follow(self._driver, *key, state)
        if key not in self._leases.held():      # another thread has ended it
            return originals.Followed(followed.value, state)
        original, ours = followed.state
        if followed.theirs:
            # Once they have run out, the watcher may have written this.
            self._leases.check()
        if original != state.original:
            self._leases.replace(*key, original.actions, original.value)
        if ours is not state.ours:
            self.in_force.pop(key, None)
            self._leases.wrote(*key, ours)
        if followed.message:
            LOG.warning('%s', followed.message)
        return followed

    def _record_failure(self, cap: Cap, exc: Exception, outcome: Outcome
                        ) -> None:
        if isinstance(exc, errors.WorkloadGone):
            # The limit ended with it; if it is made again, the next tick
            # reads that.
            self.gone[cap.key] = str(exc)
            self.remove(cap.key)
            return
        limit = amounts.of_knob(cap.knob, cap.value)
        outcome.problems.append(self._record_refusal(cap, exc, (
            f'{cap.workload} {cap.knob} = {limit} not set, '
            f'{refusals.when(exc)}: {exc}')))

    def _record_refusal(self, cap: Cap, exc: Exception, message: str) -> str:
        if isinstance(exc, refusals.LASTING):
            self._refusals.begin(self._tick, cap, message)
        return self._log_problem(cap.key, message, exc.cause if isinstance(
            exc, errors.DriverError) else '')

    def _why_not(self, cap: Cap) -> str:
        """Return why a limit is not tried in this tick; '' if it is."""
        return self._refusals.why_not(self._tick, cap)

    def _log_problem(self, key: KnobKey, message: str, cause: str = '') -> str:
        """Log a problem when more than its numbers is new, and return it; of
        those with one cause only the first is logged."""
        kind = ''.join(c for c in message.partition(':')[2] if c > '9')
        if self._logged.due(key, kind, cause):
            reset = functools.partial(self._logged.over, key)
            if not self._driver.notify(base.Failed(*key, message, reset)):
                LOG.warning('%s', message)
        return message
