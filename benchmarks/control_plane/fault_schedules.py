# SPDX-License-Identifier: Apache-2.0


"""Many seeded schedules of faults: is everything stored exactly once?

In a schedule on SQLite three agents, each a process with its history on disk,
report to two conductor processes on one database, which now and then advance
totals, make specs and delete what is old, and an operator sets and deletes
overrides.  kill -9 ends conductors in the middle of a transaction, or between
commit and answer, and agents in the middle of writing what happened; others
take their place.  Reports are lost, torn, doubled at the same moment, days
late, and from an earlier run or boot; answers are lost.  In one with a broker
the conductors, MariaDB and RabbitMQ are real processes that are killed, too,
and a host is cut off (tests/functional/test_conductor_faults.py).  In one with
clocks these are set by up to 32 days, on hosts and conductors, the database
refuses what servers refuse, and fails over to a node that is read-only, and
hosts lose their power and, by the time that they report again, their instances
(tests/unit/conductor/failing_cases.py).

Afterwards each incident, limit and row of the audit is there once, hourly sums
are those of all incidents, totals those of the hours, specs those of all
samples, and no override is lost or comes back.  A seed gives the
same schedule again, but for where a kill hits.

    python benchmarks/control_plane/fault_schedules.py \\
        [--sqlite 1000] [--clocks 500] [--broker 30] [--first SEED]

It prints how far it is, and at the end (or after Ctrl-C) one line; the exit
code is 0 if all went well.
"""

from __future__ import annotations

import argparse
import collections
from collections.abc import Mapping
import contextlib
import json
import logging
import pathlib
import random
import shutil
import sys
import tempfile
import time
import traceback
from typing import Any
import unittest

from scavenger_openstack.conductor import service
from scavenger_openstack.db import connect
from scavenger_openstack.db import schema
from scavenger_openstack.db import tables
from scavenger_openstack.tests.functional import fault_operator
from scavenger_openstack.tests.functional.fault_processes import Agent
from scavenger_openstack.tests.functional.fault_processes import conduct
from scavenger_openstack.tests.functional.fault_processes import KEEP_DAYS
from scavenger_openstack.tests.functional.fault_processes import Process
from scavenger_openstack.tests.functional import test_conductor_faults
from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor import schedules_cases
from scavenger_openstack.tests.unit.conductor import test_failing
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import report as wire

HOSTS = 3
CONDUCTORS = 2
TURNS = 60
PROGRESS_S = 10.0
HOUR_S, DAY_S = 3600, 86400


class Schedule(schedules_cases.Stored, unittest.TestCase):
    """One schedule on a database of its own; it is asked, not run.

    :param engine: of its SQLite file, with the tables and nothing else; it
        knows the statements already, which a conductor takes longer to
        compile than to live
    :param directory: for what agents store
    """

    def __init__(self, seed: int, engine: connect.Engine,
                 directory: pathlib.Path) -> None:
        super().__init__()
        self._seed = seed
        self._choose = random.Random(seed)
        self._directory = directory
        self._conductors: list[Process] = []
        self._agents: list[Agent] = []
        self.engine = engine
        self._operator = fault_operator.Operator(
            self.engine, [f'node-{number}' for number in range(HOSTS)], seed)
        self._specs: list[schedules_cases.Audit] = []
        self._perhaps: list[schedules_cases.Audit] = []
        self._counts = collections.Counter[str]()

    def runTest(self) -> None:
        """Never."""

    def counts(self) -> dict[str, int]:
        return {**self._counts, **self._operator.counts,
                'kills of agents': sum(one.kills for one in self._agents)}

    def play(self) -> None:
        """
        :raises AssertionError: what is stored is not what happened.
        """
        try:
            self._conductors = [Process(conduct, self.engine)
                                for _ in range(CONDUCTORS)]
            self._agents = [Agent(name, self._seed, self._directory)
                            for name in self._operator.held]
            self._play()
        finally:
            for one in (*self._conductors, *self._agents):
                one.end()
            self.engine.dispose()

    def _play(self) -> None:
        choose, now, agents = self._choose, cloud.NOW, self._agents
        for agent in agents:    # so that they can have overrides
            self._tell(agent.report(now), now)
        on_the_way: list[wire.Report] = []
        turns = 0
        while turns < TURNS or any(agent.waiting() for agent in agents):
            turns += 1
            now += choose.choice([0.5, 10.0, 900.0, 30000.0])
            agent = choose.choice(agents)
            if turns < TURNS and agent.waiting() < 40:
                agent.happens(now, kill=choose.random() < 0.15)
            if choose.random() < 0.1:
                self._override(now)
            if choose.random() < 0.2:
                self._work(now, 'middle' if choose.random() < 0.4 else '')
            report = agent.report(now)
            on_the_way.append(report)
            self._send(report, now)
            for _ in range(choose.randrange(3)):    # some of long ago
                self._send(choose.choice(
                    on_the_way[-8 if choose.random() < 0.8 else 0:]), now)
        # All claims have ended by then.
        now = (now + 2 * HOUR_S) // DAY_S * DAY_S + DAY_S
        self._work(now)
        for agent in agents:
            self.assertEqual(
                self._operator.held[agent.host.name],
                {(one.workload, one.knob): one.value
                 for one in self._directives(agent, now).overrides})
        self.check([agent.host for agent in agents], now,
                   f'seed {self._seed}', audit=[
                       *self._operator.audit, *self._specs],
                   perhaps=self._perhaps, since_s=now - KEEP_DAYS * DAY_S)
        self.assertEqual({now}, set(self.rows(tables.hosts, 'totals_hour_s')))

    def _work(self, now: float, kill: str = '') -> None:
        """A conductor does what is due from time to time."""
        found = self._call(b'', now, kill, work=True)
        changed = schedules_cases.specs_changed(now)
        if found is None:
            self.assertTrue(kill)
            self._perhaps.append(changed)
        else:
            _, specs, *_ = json.loads(found)
            self._specs += [changed] * bool(specs)

    def _override(self, now: float) -> None:
        self._operator.override(now)
        self.engine.dispose()   # no conductor is to have its connections

    def _send(self, report: wire.Report, now: float) -> None:
        """To a conductor, with a fault or without."""
        fate, data = self._choose.random(), codec.encode(report)
        if fate < 0.1:
            return                                  # it is lost
        if fate < 0.2:
            torn = data[:self._choose.randrange(len(data))]
            self.assertIn('refused', json.loads(self._call(torn, now) or b''))
        elif fate < 0.6:
            self._tell(report, now)
        elif fate < 0.7:
            self._call(data, now)                   # the answer is lost
        elif fate < 0.8:                            # at both, at once
            for one in self._conductors:
                one.send(data, now=now)
            self._counts['reports'] += len(self._conductors)
            for one in self._conductors:
                self._answered(report, one.answer(), now)
        else:
            self._call(data, now, self._choose.choice(['answer', 'middle']))

    def _tell(self, report: wire.Report, now: float) -> wire.Answer | None:
        return self._answered(report, self._call(codec.encode(report), now),
                              now)

    def _call(self, data: bytes, now: float, kill: str = '', **more: Any
              ) -> bytes | None:
        one = self._choose.choice(self._conductors)
        one.send(data, kill, now=now, **more)
        self._counts['reports'] += bool(data)
        found = one.answer()
        if kill:
            self._counts['kills of conductors ' + (
                'before the answer' if kill == 'answer' else 'in the middle'
                )] += 1
            one.end()
            self._conductors[self._conductors.index(one)] = Process(
                conduct, self.engine)
        return found

    def _answered(self, report: wire.Report, found: bytes | None, now: float
                  ) -> wire.Answer | None:
        if found is None or found.startswith(b'{"unreachable"'):
            return None
        self.assertFalse(found.startswith(b'{"refused"'), found)
        answer = codec.decode(found, wire.Answer, wire.MAX_ANSWER_BYTES)
        if report.entries and answer.acknowledged:
            agent = next(one for one in self._agents
                         if one.host.name == report.host)
            agent.answered(report.run_id, answer.acknowledged, now,
                           kill=self._choose.random() < 0.05)
        return answer

    def _directives(self, agent: Agent, now: float) -> wire.Directives:
        answer = self._tell(agent.report(now), now)
        self.assertIsNotNone(answer)
        self.assertIsNotNone(answer.directives)
        return answer.directives


class Progress:
    """The lines of progress, and the summary."""

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total = what, total
        self._began_s = time.monotonic()
        self.done = 0
        self.failed: list[int] = []
        self._took_s = 0.0
        self._counts = collections.Counter[str]()

    def begin(self) -> None:
        self._began_s = self._said_s = time.monotonic()

    def one(self, seed: int, why: str, counts: Mapping[str, int]) -> None:
        """A schedule has ended.

        :param why: what went wrong, '' if nothing did
        """
        self.done += 1
        self._counts.update(counts)
        self._took_s = time.monotonic() - self._began_s
        if why:
            self.failed.append(seed)
            print(f'seed {seed} FAILED: {why}', flush=True)
        if time.monotonic() - self._said_s >= PROGRESS_S:
            self._said_s = time.monotonic()
            left_s = self._took_s / self.done * (self._total - self.done)
            print(f'{self.done} of {self._total} {self._what}, '
                  f'{left_s / 60:.0f} minutes left', flush=True)

    def summary(self) -> str:
        failed = (f'{len(self.failed)} FAILED (seeds '
                  f'{", ".join(map(str, self.failed))})'
                  if self.failed else 'none failed')
        return ', '.join((
            f'{self.done} of {self._total} {self._what}: {failed}',
            *(f'{number} {name}'
              for name, number in sorted(self._counts.items())),
            f'{self._took_s:.0f} s'))


def sqlite(progress: Progress, seeds: range) -> None:
    with tempfile.TemporaryDirectory() as top:
        template, database, played = (pathlib.Path(top, name) for name in (
            'template', 'database', 'played'))
        engine = connect.engine(f'sqlite:///{database}')
        schema.upgrade(engine)
        engine.dispose()
        shutil.copyfile(database, template)
        prepare(engine)
        for seed in seeds:
            for path in database.parent.glob('database*'):
                path.unlink()
            shutil.copyfile(template, database)
            played.mkdir()
            schedule, why = Schedule(seed, engine, played), ''
            try:
                schedule.play()
            except Exception:
                why = traceback.format_exc().strip()
            progress.one(seed, why, schedule.counts())
            shutil.rmtree(played)


def prepare(engine: connect.Engine) -> None:
    """Have all statements of a conductor compiled."""
    host, now = schedules_cases.Host('node-0', 0), cloud.NOW
    conductor = service.Conductor(engine, lambda: now, keep_days=KEEP_DAYS,
                                  keep_audit_days=KEEP_DAYS)
    for _ in range(TURNS):
        host.happens(now)
        report = host.report(now)
        host.answered(report.run_id, codec.decode(
            conductor.answer(codec.encode(report)), wire.Answer,
            wire.MAX_ANSWER_BYTES))
        for _, work in conductor.works:
            work()
        now += HOUR_S
    engine.dispose()


class Faults(test_conductor_faults.Faults):
    """That schedule, which the gate leaves out."""

    __unittest_skip__ = False


def clocks(progress: Progress, seeds: range) -> None:
    for seed in seeds:
        test = test_failing.OnSqlite('test_random_schedules')
        test.seeds = range(seed, seed + 1)
        played(progress, seed, test)


def broker(progress: Progress, seeds: range) -> None:
    for seed in seeds:
        test = Faults('test_all_is_stored_once')
        test.seed = seed
        if not played(progress, seed, test):
            return


def played(progress: Progress, seed: int, test: Any) -> bool:
    """Play a schedule that is a test; whether that could be done."""
    result = unittest.TestResult()
    test.run(result)
    if result.skipped:
        print(f'not played: {result.skipped[0][1]}', flush=True)
        progress.one(seed, 'skipped', {})
        return False
    progress.one(seed, ''.join(
        text for _, text in result.errors + result.failures), test.counts)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--sqlite', type=int, default=1000, metavar='N',
                        help='schedules on SQLite (1000)')
    parser.add_argument('--clocks', type=int, default=500, metavar='N',
                        help='schedules with clocks that are set (500)')
    parser.add_argument('--broker', type=int, default=30, metavar='N',
                        help='schedules with RabbitMQ and MariaDB (30)')
    parser.add_argument('--first', type=int, default=1, metavar='SEED',
                        help='the seed of the first (1)')
    options = parser.parse_args()
    logging.getLogger().addHandler(logging.NullHandler())
    kinds = [
        (Progress('schedules on SQLite', options.sqlite), sqlite,
         options.sqlite),
        (Progress('schedules with clocks that are set', options.clocks),
         clocks, options.clocks),
        (Progress('schedules with RabbitMQ and MariaDB', options.broker),
         broker, options.broker)]
    with contextlib.suppress(KeyboardInterrupt):
        for progress, play, count in kinds:
            progress.begin()
            play(progress, range(options.first, options.first + count))
    print('; '.join(progress.summary() for progress, *_ in kinds))
    whole = all(progress.done == count for progress, _, count in kinds)
    return 0 if whole and not any(
        progress.failed for progress, *_ in kinds) else 1


if __name__ == '__main__':
    sys.exit(main())
