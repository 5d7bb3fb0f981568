# SPDX-License-Identifier: Apache-2.0

"""Schedules in which clocks are set, the database refuses and fails over, and
hosts lose their power and their instances, on any database.

Agents report with all of their side of the control plane to two conductors.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import functools
import itertools
import pathlib
import random
import types
from typing import Any
import uuid

import fixtures
from sqlalchemy import event

from scavenger_openstack.agent.control_plane import sync
from scavenger_openstack.agent.events import store
from scavenger_openstack.agent.events import tick_events
from scavenger_openstack.conductor.nova import elsewhere
from scavenger_openstack.conductor import service
from scavenger_openstack.db import connect
from scavenger_openstack.db import flavor_tags
from scavenger_openstack.db import tables
from scavenger_openstack import errors
from scavenger_openstack import events
from scavenger_openstack.events import Event
from scavenger_openstack.outcomes import Outcome
from scavenger_openstack.tests import tiers
from scavenger_openstack.tests.unit.conductor.cloud import NOW
from scavenger_openstack.tests.unit.db import totals_cases
from scavenger_openstack.types import Cap
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Incident
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Mode
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadSample
from scavenger_openstack.wire import report

TURNS = 80
HOSTS = 3
CONDUCTORS = 2
DAY_S = 86400.0
STEPS_S = (60.0, 90.0, 3600.0, 32 * DAY_S)
"""By so much a clock is set, in either direction."""
KEEP_DAYS = 30
DRAIN = 100
"""Turns in which each queue has to be empty when there is no fault any more.
"""

NUMBERS = (1047, 1203, 1226, 1040, 1129, 1205, 1213, 1317, 1021, 1969, 4242)
"""Of MariaDB and Galera: later; the last one is none that we know."""
CODES = ('40001', '40P01', '53100', '53300', '55P03', '57014', 'XX999')
"""Of PostgreSQL."""
LOST = (2006, 2013, '57P01', '08006')
"""The connection is lost."""
READ_ONLY = (1290, 1792, 1836, '25006')
WRITES = ('INSERT', 'UPDATE', 'DELETE', 'BEGIN IMMEDIATE')

DOCUMENT = {'state': 'running', 'cpu_share': 0.0, 'grade': {'letter': 'B'},
            'isolation': {'mode': Mode.OBSERVE}, 'controllers': {}}
BATCH = ('/batch/a', '/batch/b')


class Refusals:
    """Makes the driver of an engine refuse statements and commits, as the
    servers do that go by these numbers and codes."""

    def __init__(self, engine: connect.Engine, chance: random.Random) -> None:
        self._chance = chance
        self._error: int | str = 0
        self._left = 0
        self._node = 0
        self.count = 0
        """Statements and commits that were refused."""
        dialect: Any = engine.dialect
        self._commit = dialect.do_commit
        dialect.do_commit = self._do_commit
        self._base = engine.dialect.loaded_dbapi.OperationalError
        # Whatever its number, an error of psycopg2 has a code.
        self._only_codes = engine.dialect.name == 'postgresql'
        event.listen(engine, 'connect', self._connected)
        event.listen(engine, 'do_execute', self._before)
        event.listen(engine, 'do_executemany', self._before)
        event.listen(engine, 'handle_error', self._failed)

    def refuse(self) -> None:
        """The next few statements or commits, for one reason."""
        self._error = self._one_of((*NUMBERS, *CODES, *LOST))
        self._left = self._chance.choice((1, 1, 2, 30))

    def fail_over(self) -> None:
        """What is connected stays so, with a server that is read-only."""
        self._node += 1

    def end(self) -> None:
        self._left = 0

    def _connected(self, connection: Any, record: Any) -> None:
        record.info['node'] = self._node

    def _before(self, cursor: Any, statement: str, parameters: Any,
                context: Any) -> None:
        if self._left and self._chance.random() < 0.3:
            self._left -= 1
            raise self._made(self._error)
        if (statement.lstrip().startswith(WRITES)
                and context.root_connection.info['node'] != self._node):
            raise self._made(self._one_of(READ_ONLY))

    def _do_commit(self, connection: Any) -> None:
        """The server may have done it, where the connection is lost."""
        if not self._left or self._chance.random() < 0.7:
            self._commit(connection)
            return
        self._left -= 1
        if self._error in LOST and self._chance.random() < 0.5:
            self._commit(connection)
        else:
            connection.rollback()
        raise self._made(self._error)

    def _one_of(self, errors: tuple[int | str, ...]) -> int | str:
        return self._chance.choice([
            error for error in errors
            if isinstance(error, str) or not self._only_codes])

    def _made(self, error: int | str) -> Exception:
        self.count += 1
        made: Exception = type('Refused', (self._base,), {
            'pgcode': error} if isinstance(error, str) else {})(
                error, f'as told: {error}')
        return made

    def _failed(self, context: Any) -> None:
        """As the dialects of these servers do."""
        if context.original_exception.args[:1] and (
                context.original_exception.args[0] in LOST):
            context.is_disconnect = True


class Host:
    """An agent, what happened on its host, and what it says of that."""

    def __init__(self, name: str, seed: int, directory: pathlib.Path,
                 call: Callable[[bytes], bytes]) -> None:
        self.name = name
        self.chance = random.Random(f'{name} {seed}')
        self.ahead_s = 0.0
        self.instances: set[str] = set()
        self.lost: set[str] = set()
        """Instances that Nova has placed elsewhere meanwhile."""
        self.incidents: dict[str, tuple[str, bool]] = {}
        """Victim, and whether it has ended."""
        self.limits: dict[str, float] = {}
        self.kills = self.runs = 0
        self._boot = 0
        self._directory = directory / name
        self._call = call
        self._happened: list[tuple[Event, Callable[[], None]]] = []
        self._number = 0

    def start(self, now: float) -> None:
        """A new run of the agent, and now and then a boot; what it did not
        store before has never happened."""
        self._boot += self.chance.random() < 0.5
        self._happened = []
        self.sync = sync.make(
            self._call, self._directory, store.Store(
                self._directory / 'history', 2 ** 24, 2 ** 24),
            host=self.name, boot_id=f'boot-{self._boot}', version='1',
            sync_s=10.0)
        self.tell(tick_events.agent_event(now + self.ahead_s, 'started'),
                  self._begun)

    def end(self) -> None:
        self.sync.store.close()

    def tell(self, what: Event, then: Callable[[], None]) -> None:
        """
        :param then: notes that it has happened, once it is stored
        """
        self._happened.append((what, then))

    def store(self) -> None:
        self.sync.take()
        for what, then in self._happened:
            self.sync.store.add([what])
            then()
        self._happened = []

    def _begun(self) -> None:
        self.runs += 1
        self.incidents = {uuid_: (victim, True) for uuid_, (victim, _)
                          in self.incidents.items()}
        self.limits = {}

    def happens(self, now: float) -> None:
        """Something more."""
        wall_s = now + self.ahead_s
        what = self.chance.choice(('begin', 'end', 'limit', 'kill'))
        victims = sorted({'web', *self.instances})
        if what == 'begin':
            self._incident('began', uuid.UUID(int=self.chance.getrandbits(
                128)).hex, self.chance.choice(victims), wall_s)
        elif what == 'end':
            opened = sorted(key for key, (_, ended) in self.incidents.items()
                            if not ended)
            if opened and not self._happened:
                chosen = self.chance.choice(opened)
                self._incident('ended', chosen, self.incidents[chosen][0],
                               wall_s)
        elif what == 'limit' and not self._happened:
            name = self.chance.choice((*BATCH, *sorted(self.instances)))
            since_s = self.limits.get(name)
            event_ = events.limit_event(
                wall_s, 'set' if since_s is None else 'removed',
                Cap(name, Knob.CPU_CORES, 0.5, 'attribution', 'a test'),
                original=2.0, since_s=wall_s if since_s is None else since_s)
            self.tell(event_, lambda: self._limited(name, wall_s))
        elif what == 'kill':
            self.tell(report.Kill(
                sequence=1, time_s=wall_s, workload='/batch/a', processes=1,
                owner='scavenger', reason='a test'), self._killed)

    def _limited(self, name: str, since_s: float) -> None:
        """It is no more where it was, or else from then on."""
        if self.limits.pop(name, None) is None:
            self.limits[name] = since_s

    def _killed(self) -> None:
        self.kills += 1

    def _incident(self, what: str, key: str, victim: str, wall_s: float
                  ) -> None:
        ended = what == 'ended'
        self.tell(events.incident_event(
            wall_s, what, 'attribution', Incident(
                key, wall_s, self.name, victim, 'run_delay', 0.5, 0.2, 'core',
                antagonists=('/batch/a',), outcome=Outcome.CONFIRMED
                if ended else Outcome.OPEN), wall_s),
            lambda: self.incidents.update({key: (victim, ended)}))

    def see(self, now: float) -> None:
        """The workloads that are there."""
        self.sync.update(HostSample(
            self.name, 'b', now, now + self.ahead_s, tuple(itertools.chain(
                (WorkloadSample(Workload(name, Priority.BACKGROUND, 'parent',
                                         group='/batch')) for name in BATCH),
                (WorkloadSample(Workload(name, Priority.FOREGROUND, 'flavor',
                                         'p', '', 2.0, name, instance=name))
                 for name in sorted(self.instances)))), cpu_model='cpu'),
            DOCUMENT, [], {})

    @property
    def waiting(self) -> bool:
        return bool(self.sync.store.batch(1, 1)[1])


class Failing(totals_cases.Summed):
    """Afterwards each incident, limit and kill is there once, and no queue
    stands still."""

    url: str
    seeds = tiers.seeds(10, 2)

    def setUp(self) -> None:
        super().setUp()
        self.useFixture(fixtures.FakeLogger())
        self.counts = collections.Counter[str]()
        self.slept_s = 0.0
        self.useFixture(fixtures.MonkeyPatch(
            f'{connect.__name__}.time', types.SimpleNamespace(
                monotonic=lambda: self.slept_s, sleep=self.sleep)))
        self.useFixture(fixtures.MonkeyPatch(
            f'{sync.__name__}.now_s', lambda: self.now))
        self.useFixture(fixtures.MonkeyPatch(
            f'{sync.__name__}.time', types.SimpleNamespace(
                time=lambda: self.now + self.host.ahead_s,
                monotonic=lambda: self.now)))

    def sleep(self, seconds: float) -> None:
        """Between two tries of a transaction; so many fit in each time."""
        self.slept_s += 0.5

    def test_random_schedules(self) -> None:
        for seed in self.seeds:
            self.play(seed)
            for table in reversed(tables.METADATA.sorted_tables):
                self.delete(table)

    def engines(self) -> list[connect.Engine]:
        """One of each conductor."""
        return [connect.engine(self.url) for _ in range(CONDUCTORS)]

    def play(self, seed: int) -> None:
        """
        :raises AssertionError: what is stored is not what happened.
        """
        self.now = NOW
        self.chance = chance = random.Random(seed)
        self.ahead_s = [0.0] * CONDUCTORS
        engines = self.engines()
        self.refusals = [Refusals(engine, chance) for engine in engines]
        self.conductors = [service.Conductor(
            engine, functools.partial(self.conductors_time_s, at),
            keep_days=KEEP_DAYS, keep_audit_days=KEEP_DAYS,
            elapsed=lambda: self.now) for at, engine in enumerate(engines)]
        self.late: list[bytes] = []
        self.faults = False
        with contextlib.ExitStack() as stack:
            for engine in engines:
                stack.callback(engine.dispose)
            directory = stack.enter_context(fixtures.TempDir()).path
            self.hosts = [Host(f'node-{number}', seed, pathlib.Path(
                directory), self.call) for number in range(HOSTS)]
            for host in self.each():
                stack.callback(host.end)
                host.instances = {str(uuid.UUID(int=chance.getrandbits(
                    128))) for _ in range(2)}
                host.start(self.now)
                self.turn()
            self.work()
            self.nova()
            self.faults = True
            for _ in range(TURNS):
                self.step()
            self.counts['refusals of the database'] += sum(
                refusals.count for refusals in self.refusals)
            self.drain()
            self.check(f'seed {seed}')

    def conductors_time_s(self, at: int) -> float:
        return self.now + self.ahead_s[at]

    def each(self) -> Iterator[Host]:
        """The hosts, each as the one whose clocks are read."""
        for host in self.hosts:
            self.host = host
            yield host

    def step(self) -> None:
        """What happens in a turn."""
        chance = self.chance
        self.now += chance.choice((0.5, 10.0, 10.0, 900.0, 30000.0))
        self.host = host = chance.choice(self.hosts)
        if chance.random() < 0.15:
            self.set_clock()
        if chance.random() < 0.3:
            chance.choice(self.refusals).refuse()
        if chance.random() < 0.1:
            self.counts['failovers'] += 1
            chance.choice(self.refusals).fail_over()
        if chance.random() < 0.2:
            self.work()
        if chance.random() < 0.2:
            self.nova()
        for _ in range(chance.randrange(4)):
            host.happens(self.now)
            if chance.random() < 0.7:
                host.store()
        if chance.random() < 0.1:
            self.power_failure()
        else:
            self.turn()

    def set_clock(self) -> None:
        """Of the host, or of one conductor while those of the hosts are
        right: nothing can tell which of two is wrong in the same way."""
        chance = self.chance
        self.counts['clocks set'] += 1
        ahead_s = chance.choice((0.0, *STEPS_S, *(-one for one in STEPS_S)))
        self.ahead_s = [0.0] * CONDUCTORS
        if chance.random() < 0.6:
            self.host.ahead_s = ahead_s
            return
        self.ahead_s[chance.randrange(CONDUCTORS)] = ahead_s
        for host in self.hosts:
            host.ahead_s = 0.0

    def turn(self) -> None:
        self.host.see(self.now)
        self.host.store()
        self.host.sync.turn()

    def power_failure(self) -> None:
        """Perhaps for so long that Nova has an instance elsewhere by then."""
        host, chance = self.host, self.chance
        self.counts['power failures'] += 1
        host.end()
        if chance.random() < 0.7:
            for instance in sorted(host.instances):
                if chance.random() < 0.5:
                    host.instances.discard(instance)
                    host.lost.add(instance)
                    other = chance.choice([
                        one for one in self.hosts if one is not host])
                    other.instances.add(instance)
                    other.lost.discard(instance)
                    self.counts['instances evacuated'] += 1
            self.nova()
            self.now += 2 * elsewhere.GRACE_S
            self.nova()
        host.start(self.now)

    def nova(self) -> None:
        """A conductor reads from Nova where instances are."""
        at = self.chance.randrange(CONDUCTORS)
        now = self.conductors_time_s(at)
        with connect.writing(self.engine) as connection:
            for host in self.hosts:
                rows = flavor_tags.of_instances(connection,
                                                sorted(host.instances))
                for instance in host.instances:
                    row = {'instance': instance, 'host': host.name,
                           'project': 'p', 'priority': 'foreground',
                           'source': 'flavor', 'application': '',
                           'protect': True, 'floor': {}}
                    if rows.get(instance) != row:
                        flavor_tags.put(connection, row, now)
            elsewhere.end(connection, now, now)

    def work(self) -> None:
        """A conductor does what is due."""
        for _, work in self.chance.choice(self.conductors).works:
            with contextlib.suppress(errors.DatabaseError):
                work()

    def call(self, data: bytes) -> bytes:
        """A report is lost, late, doubled, and so is its answer."""
        chance = self.chance
        fate = chance.random() if self.faults else 1.0
        self.late.append(data)
        self.counts['reports'] += 1
        if fate < 0.1:
            raise errors.Unreachable('the report is lost')
        if fate < 0.3:
            with contextlib.suppress(errors.ScavengerError):
                self.deliver(chance.choice(self.late[-20:]))
        answer = self.deliver(data)
        if fate > 0.9 and self.faults:
            raise errors.Unreachable('the answer is lost')
        return answer

    def deliver(self, data: bytes) -> bytes:
        self.now += 0.125       # no two things happen at one time
        return self.chance.choice(self.conductors).answer(data)

    def drain(self) -> None:
        """All is well again, but for the clocks of hosts."""
        self.faults = False
        self.ahead_s = [0.0] * CONDUCTORS
        for refusals in self.refusals:
            refusals.end()
        self.now += 7200.0
        for host in self.each():
            for _ in range(DRAIN):
                self.turn()
                self.now += 10.0
                if not host.waiting:
                    break
        self.work()

    def check(self, where: str) -> None:
        for host in self.each():
            facts = host.sync.facts()
            self.assertFalse(host.waiting, f'{where}: {host.name} {facts}')
            self.assertEqual((0, 0, ''), (
                facts['set_aside'], facts['dropped'], facts['fault']), where)
        ids = dict(self.rows(tables.hosts, 'name', 'id'))
        stored = {row[0]: row[1:] for row in self.rows(
            tables.incidents, 'uuid', 'host_id', 'victim', 'begun_s',
            'changed_s', 'ended_s')}
        self.assertEqual(len(stored), len(self.rows(tables.incidents, 'id')))
        happened = {key: (ids[host.name], *one) for host in self.hosts
                    for key, one in host.incidents.items()}
        self.assertEqual(set(), stored.keys() - happened.keys(), where)
        lost = {instance for host in self.hosts for instance in host.lost}
        lost |= {instance for host in self.hosts
                 for instance in host.instances}
        self.assertEqual({}, {
            key: one for key, one in happened.items()
            if key not in stored and one[1] not in lost},
            f'{where}: incidents are not stored')
        self.assertEqual({}, {
            key: (one, stored[key]) for key, one in happened.items()
            if key in stored and one[1] not in lost
            and one[2] != (stored[key][-1] is not None)},
            f'{where}: incidents are open that are not, or ended')
        for _, _, begun_s, changed_s, ended_s in stored.values():
            self.assertLessEqual(begun_s, changed_s, where)
            self.assertLessEqual(begun_s, ended_s or changed_s, where)
        self.assertEqual(
            {(ids[host.name], name) for host in self.hosts
             for name in host.limits if name in BATCH},
            {(host_id, name) for host_id, name, removed_s in self.rows(
                tables.caps, 'host_id', 'workload', 'removed_s')
             if removed_s is None and name in BATCH},
            f'{where}: limits in force')
        audit = collections.Counter(
            (action, actor) for action, actor in self.rows(
                tables.audit, 'action', 'actor')
            if action in ('kill', 'agent.started'))
        self.assertEqual({
            (action, f'agent {host.name}'): number for host in self.hosts
            for action, number in (('kill', host.kills),
                                   ('agent.started', host.runs)) if number},
            dict(audit), where)
        self.check_totals(where)
