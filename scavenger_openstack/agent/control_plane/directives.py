# SPDX-License-Identifier: Apache-2.0

"""The directives of the control plane for this host, on disk and as orders.

The last directives hold while the control plane is away, also over a restart.
If they end the agent several times, it starts with the last ones with which it
has run, which are stored beside them.
Whatever is in them, the loop does no more than :mod:`.orders` allows.
"""

from __future__ import annotations

from collections.abc import Callable
import math
import pathlib
from typing import NamedTuple

from oslo_log import log

from scavenger_openstack.agent.control_plane import tries
from scavenger_openstack.agent import status
from scavenger_openstack.algorithms import allowance
from scavenger_openstack.algorithms.cpi2 import specs
from scavenger_openstack.algorithms import signals
from scavenger_openstack.decision import orders as operator_orders
from scavenger_openstack import errors
from scavenger_openstack import knobs

from scavenger_openstack.types import Knob
from scavenger_openstack.types import Mode
from scavenger_openstack.types import printable
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import fit
from scavenger_openstack.wire import report

LOG = log.getLogger(__name__)

FILE = 'directives.json'
GOOD = 'directives.good.json'
"""The last directives with which the agent has run for some ticks."""
NOT_UNDERSTOOD = '-'
"""The digest of directives of which only the kill switch is followed: the
conductor, which has another, sends them again."""
LOST = 'what it said last is not readable here, and it has not answered yet'
ALL = 'directives'
"""The key in ``refused`` for all directives together."""
ENDED = 'the agent ended each time that it followed them'
FAILED = 'this agent fails at them, its log has more'
TOO_MANY = 'the control plane has more for this host than an answer holds'
TICKS = 5
"""Number of ticks after which directives have proved not to end the agent."""
REASON = 200
"""Most characters of a reason for the kill switch in a log line."""


class _Try(NamedTuple):
    """A try of new directives, since the tick number ``tick``; ``data`` is
    stored when it has succeeded, empty if it is stored already."""

    digest: str
    data: bytes
    tick: int


class Directives:
    """The directives that hold; one thread changes them.

    :param directory: that of their files; made if it is missing
    :param allow_background: follow a priority of background
    """

    def __init__(self, directory: pathlib.Path, *,
                 allow_background: bool = False,
                 warn: Callable[[str], None] = LOG.warning) -> None:
        self._path, self._good = directory / FILE, directory / GOOD
        self._warn = warn
        self._allow_background = allow_background
        self._loaded_s = -math.inf
        self._tries = tries.Tries(directory, warn)
        self._ticks = 0
        self._trying: _Try | None = None
        self.digest = ''
        self.issued_s = 0.0
        """The UNIX time at which they were issued; 0: there are none."""
        self.orders = operator_orders.NO_ORDERS
        self.notice = ''
        """A sentence of the control plane for the operator of this host."""
        self.refused: dict[str, str] = {}
        """Reasons why parts are not followed, by part."""

    def load(self, now: float, wall_s: float) -> None:
        """Follow the stored directives; CLOCK_BOOTTIME and UNIX time in s."""
        self._loaded_s = now
        self._tries.load()
        self._load(now, wall_s)

    def _load(self, now: float, wall_s: float) -> None:
        ended = b''
        for path in (self._path, self._good):
            data = b''
            try:
                data = status.read_file(path, report.MAX_ANSWER_BYTES + 1)
                stored = codec.decode(data, report.Directives,
                                      report.MAX_ANSWER_BYTES)
            except FileNotFoundError:
                if path == self._path:      # an operator may have deleted it
                    return
                continue
            except (OSError, errors.ScavengerError) as exc:
                self._unusable(path, exc, data, LOST, now)
                return
            if not self._tries.spent(stored.digest, 0.0):
                self._try(stored, data if path == self._path else b'')
                self._start(path, stored, now, wall_s)
                return
            ended = data
            if not stored.protection:     # and before it may have been on
                break
        if ended:
            self._unusable(path, ENDED, ended, ENDED, now)

    def _start(self, path: pathlib.Path, stored: report.Directives, now: float,
               wall_s: float) -> None:
        """Follow the directives of a file."""
        try:
            # Not before they were issued: our clock may have been set back.
            self._apply(codec.replace(stored, profiling=None), now,
                        max(wall_s, stored.issued_s))
        except Exception as exc:
            LOG.exception('%s is not followed', path)
            self._unusable(path, type(exc).__name__, codec.encode(stored),
                           FAILED, now)

    def _unusable(self, path: pathlib.Path, why: object, data: bytes,
                  reason: str, now: float) -> None:
        """Set no limit, instead of following the directives of a file."""
        self._warn(f'{path}: not usable: {why}; no limit is set until the '
                   'control plane answers')
        self._apply(_stop(data, report.KillSwitch) or _stopped(reason), now,
                    0.0)

    def follow_answer(self, answer: report.Answer, data: bytes, now: float
                      ) -> None:
        """Follow an answer to a request at ``now``; see :meth:`follow`.

        :param data: the answer as it came
        :raises WireError: its directives are of another version.
        """
        budget, current = None, self.orders.budget
        if answer.budget is not None:
            budget = allowance.lease(
                answer.budget.limits, answer.budget.until_s, answer.time_s,
                now, self._loaded_s)
        if budget is None or current is None or budget.lease != current.lease:
            self.orders = self.orders._replace(budget=budget)
        if answer.directives is not None:
            try:
                self.follow(answer.directives, now)
            except errors.WireError:
                self.follow_kill_switch(data, now)
                raise

    def follow(self, directives: report.Directives, now: float) -> None:
        """Store and follow directives of a request at ``now``; see
        :meth:`load`.

        Their times count from the time of issue: both are by the
        conductor's clock, ours may differ.  They were issued after ``now``,
        so that none of them ends late.

        :raises WireError: they are of another version.
        """
        if directives.schema != report.SCHEMA:
            raise errors.WireError(
                f'directives of schema {directives.schema}, this agent '
                f'follows {report.SCHEMA}: use an agent and a conductor of '
                'one release')
        if (directives.protection != (not self.orders.stopped)
                or not self.digest):
            LOG.info('the control plane %s', 'lets this host be protected'
                     if directives.protection else 'stops protection: '
                     + _reason(directives))
        stop = None if directives.protection else _stopped(
            directives.protection_reason)
        if self._tries.spent(directives.digest, now - self._loaded_s):
            self._refuse(ENDED, stop, now)
            return
        data = codec.encode(directives)
        self._try(directives, data)
        notice = self.notice
        try:
            self._apply(directives, now, directives.issued_s)
        except Exception:
            if self.refused.get(ALL) != FAILED:
                LOG.exception('directives %s are not followed',
                              printable(directives.digest))
            self._end_try()
            self._refuse(FAILED, stop, now)
        else:
            if self.notice and self.notice != notice:
                LOG.warning('the control plane: %s', self.notice)
            self._save(self._path, data)

    def _refuse(self, why: str, stop: report.Directives | None, now: float
                ) -> None:
        """Refuse directives, but follow their kill switch."""
        if stop is not None:
            self._apply(stop, now, 0.0)
            self._save(self._path, codec.encode(stop))
        if self.refused.get(ALL) != why:
            self._warn('directives of the control plane are not followed: '
                       f'{why}; those before them hold')
        self.refused = {**self.refused, ALL: why}

    def ticked(self) -> None:
        """Count a tick; may be called by another thread."""
        self._ticks += 1

    def keep(self) -> None:
        """Store the directives as good ones, if the agent has run with them
        for :data:`TICKS`."""
        if (self._trying is not None
                and self._ticks - self._trying.tick >= TICKS):
            if self._trying.data:
                self._save(self._good, self._trying.data)
            self._end_try()

    def end(self) -> None:
        """Note that the agent ends because it was stopped."""
        self.keep()
        self._end_try()

    def _try(self, directives: report.Directives, data: bytes) -> None:
        """Begin a try; ``data``: see :class:`_Try`."""
        self._end_try()
        if directives.digest == NOT_UNDERSTOOD:      # only a kill switch
            return
        self._trying = _Try(directives.digest, data, self._ticks)
        self._tries.begin(directives.digest)

    def _end_try(self) -> None:
        if self._trying is not None:
            self._tries.end(self._trying.digest)
        self._trying = None

    def _save(self, path: pathlib.Path, data: bytes) -> None:
        try:
            tries.replace(path, data)
        except OSError as exc:
            self._warn(f'{path}: not written: {exc.strerror}; after a '
                       'restart the directives before these hold until the '
                       'control plane answers')

    def follow_kill_switch(self, answer: bytes, now: float) -> None:
        """Follow the kill switch of an answer that is not understood: no limit
        is set until one is."""
        directives = _stop(answer, report.KillSwitchAnswer)
        if directives is not None:
            self.follow(directives, now)

    def _apply(self, directives: report.Directives, now: float, since_s: float
               ) -> None:
        """Make orders of directives.

        :param since_s: the UNIX time of ``now`` by the clock of their times
        """
        refused = {
            name if not getattr(directives, name, ()) else f'more {name}':
            TOO_MANY for name in directives.left_out}
        modes = {}
        for name, mode in directives.modes.items():
            if mode not in set(Mode):
                refused[f'mode {name}'] = (f'{mode!r} is none of this agent; '
                                           'it observes')
                mode = Mode.OBSERVE
            modes[name] = Mode(mode)
        overrides = []
        for override in directives.overrides:
            why = _unsound(override)
            if why:
                refused[f'override {override.id}'] = why
                continue
            overrides.append(operator_orders.Override(
                override.id, fit.name(override.workload), override.instance,
                Knob(override.knob), override.value,
                fit.sentence(override.reason),
                now + override.expires_s - since_s))
        background: dict[str, dict[Knob, float]] = {}
        denied = set()
        for tag in directives.tags:
            if tag.priority == 'foreground':
                continue
            if not self._allow_background:
                denied.add(tag.instance)
                continue
            floor, why = _floor(tag)
            background[tag.instance] = floor
            if why:
                refused[f'floor {tag.instance}'] = why
        # Where the source is 'default', only other fields count.
        tagged = {tag.instance: tag.source for tag in directives.tags
                  if tag.priority == 'foreground' and tag.source != 'default'}
        foreground = frozenset(tagged)
        for instance in foreground & background.keys():
            del background[instance]
        budget = self.orders.budget
        if budget is None and directives.governed:
            # The use of the run before and the budgets of other hosts are
            # not known: none before the first answer, or the time for it.
            budget = allowance.Budget(0, now, 0.0)
        self.orders = operator_orders.Orders(
            '' if directives.protection else 'the control plane: '
            + _reason(directives),
            modes, directives.parameters,
            foreground, background, frozenset(denied),
            frozenset([name for name, source in tagged.items()
                       if source in ('flavor', 'project', 'aggregate')]),
            {tag.instance: tag.application for tag in directives.tags
             if tag.application},
            frozenset([tag.instance for tag in directives.tags
                       if not tag.protect]),
            frozenset(map(fit.project, directives.exempt)),
            operator_orders.Overrides(overrides), budget, {
                specs.key(spec.project, spec.application, spec.cpu_model,
                          spec.signal):
                specs.Spec(spec.mean, spec.stddev, spec.n, 0, 'directive',
                           spec.cpu_cores)
                for spec in directives.specs if _possible(spec)},
            _profiling(directives.profiling, now - since_s))
        self.refused = refused
        self.notice = fit.sentence(directives.notice)[:REASON]
        self.digest, self.issued_s = directives.digest, directives.issued_s


def _stop(data: bytes, kind: type[report.KillSwitch | report.KillSwitchAnswer]
          ) -> report.Directives | None:
    """Return directives that stop protection, ``None`` if ``data`` does not.
    """
    try:
        directives = codec.decode_part(data, kind, report.MAX_ANSWER_BYTES)
    except errors.WireError:
        return None
    if isinstance(directives, report.KillSwitchAnswer):
        directives = directives.directives or report.KillSwitch()
    if directives.protection:
        return None
    reason = directives.protection_reason
    return _stopped(reason if isinstance(reason, str) else '',
                    '(the rest of its directives is not understood here) ')


def _stopped(reason: str, note: str = '') -> report.Directives:
    return report.Directives(
        schema=report.SCHEMA, issued_s=0.0, digest=NOT_UNDERSTOOD,
        protection=False, protection_reason=fit.sentence(note + reason))


def _possible(spec: report.Spec) -> bool:
    """Return whether a spec is plausible, so that nothing overflows."""
    most = knobs.MOST
    return (spec.signal in signals.SIGNALS and 0 < spec.mean <= most
            and spec.stddev <= most and (spec.cpu_cores or 0.0) <= most)


def _floor(tag: report.Tag) -> tuple[dict[Knob, float], str]:
    """Return the valid part of a flavor's floor, and the errors of the rest,
    '' for none."""
    floor, wrong = {}, []
    for name, value in tag.floor.items():
        if name not in knobs.DEFAULT_FLOORS:
            wrong.append(f'{name} has no floor')
        elif value > knobs.MOST:
            wrong.append(f'{name}: not a number from 0 to {knobs.MOST:g}')
        else:
            floor[Knob(name)] = value
    return floor, fit.sentence('; '.join(wrong))


def _reason(directives: report.Directives) -> str:
    return (fit.sentence(directives.protection_reason)[:REASON]
            or 'no reason given')


def _unsound(override: report.Override) -> str:
    """Return the error of an override by itself, '' for none."""
    if override.knob not in set(Knob):
        return f'{override.knob!r} is no knob of this agent'
    knob, value = Knob(override.knob), override.value
    if knob not in knobs.OVERRIDABLE:
        return f'{knob} has no floor, so no override sets it'
    mistake = '' if value is None else knobs.mistake(knob, value)
    return f'the value is not {mistake}' if mistake else ''


def _profiling(order: report.ProfilingOrder | None, behind_s: float
               ) -> operator_orders.ProfilingOrder | None:
    """Return an order of the wire; ``behind_s`` is added to its times."""
    return None if order is None else operator_orders.ProfilingOrder(
        order.id, fit.name(order.workload), order.instance, order.form,
        order.seconds, order.until_s + behind_s)
