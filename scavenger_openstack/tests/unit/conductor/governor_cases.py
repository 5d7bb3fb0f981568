# SPDX-License-Identifier: Apache-2.0

"""No more new limits in a minute than the governor's number, whatever changes
meanwhile; on any database."""

from __future__ import annotations

import collections
import pathlib
import random

import fixtures

from scavenger_openstack.agent.control_plane import directives as agent
from scavenger_openstack.algorithms import allowance
from scavenger_openstack.conductor import directives
from scavenger_openstack.conductor import governor
from scavenger_openstack.db import tables
from scavenger_openstack.tests import tiers
from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor.cloud import NOW

STEPS = 250
LAST_STEPS = 100
"""Some minutes, in which the numbers stay."""
HOSTS = 7
LATEST_S = 20.0
"""A host reports again after so long."""
MANY = 1000
"""New limits that a host would set."""

CLOUD, RACK = ('cloud', ''), ('aggregate', 'rack')


class Host:
    """An agent that sets each limit that it may."""

    def __init__(self, name: str, directory: pathlib.Path, now: float
                 ) -> None:
        self.name = name
        self.told_s = 0.0
        self._directory = directory
        self._booted_s = now - 1000.0
        self.start(now)

    def start(self, now: float) -> None:
        """Also again: what it had in memory is gone."""
        self.directives = agent.Directives(self._directory)
        self.directives.load(now - self._booted_s, now)
        self._allowance = allowance.Allowance()

    def follow(self, answer: cloud.wire.Answer, asked_s: float) -> None:
        self.directives.follow_answer(answer, b'', asked_s - self._booted_s)

    def sets(self, now: float) -> int:
        """How many limits it sets, in some ticks."""
        for _ in range(agent.TICKS):
            self.directives.ticked()
        self.directives.keep()
        if self.directives.orders.stopped:
            return 0
        self._allowance.give(self.directives.orders.budget)
        for count in range(MANY):
            if not self._allowance.take(now - self._booted_s):
                return count
        return MANY


class Governor(cloud.Mixin):

    seeds = tiers.seeds(5, 2)

    def setUp(self) -> None:
        super().setUp()
        self.useFixture(fixtures.FakeLogger('scavenger_openstack'))
        self.add_services(*(f'node-{number}' for number in range(HOSTS)))
        self.top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)

    def test_no_more_than_the_number(self) -> None:
        for seed in self.seeds:
            for table in (tables.governor_minutes, tables.aggregate_hosts,
                          tables.switches, tables.hosts):
                self.delete(table)
            self.play(seed)

    def play(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.now = NOW + self.dice.uniform(0, 60)
        self.numbers = {CLOUD: 9, RACK: 5}
        for (scope, target), number in self.numbers.items():
            self.add(tables.switches, scope=scope, target=target,
                     protection=True, reason='', caps_per_minute=number,
                     changed_by='op', changed_s=NOW)
        self.rack: frozenset[str] = frozenset()
        self.hosts: list[Host] = []
        self.conductors = directives.Wishes(), directives.Wishes()
        # By minute: the numbers and the rack when it was divided.
        divided: dict[int, tuple[dict[tuple[str, str], int],
                                 frozenset[str]]] = {}
        done: dict[int, collections.Counter[tuple[str, str]]] = (
            collections.defaultdict(collections.Counter))
        steps = [self.join, self.restart, self.change, self.move]
        for step in range(STEPS):
            self.now += self.dice.uniform(0.1, 3.0)
            if step == STEPS - LAST_STEPS:
                self.divide_among_all()
                steps = steps[:2]
            if not self.hosts or self.dice.random() < 0.15:
                self.dice.choice(steps if self.hosts else steps[:1])()
            asks = min(self.hosts, key=lambda host: host.told_s)
            if self.now - asks.told_s < LATEST_S:
                asks = self.dice.choice(self.hosts)
            asked_s, self.now = self.now, self.now + self.dice.random()
            divided.setdefault(governor.minute_of(self.now),
                               (dict(self.numbers), self.rack))
            self.tell(asks, asked_s)
            host = self.dice.choice(self.hosts)
            minute = governor.minute_of(self.now)
            count = host.sets(self.now)
            done[minute][CLOUD] += count
            if host.name in divided[minute][1]:
                done[minute][RACK] += count
            for key, most in divided[minute][0].items():
                self.assertLessEqual(
                    done[minute][key], most,
                    f'seed {seed}, step {step}, {key}, {host.name}')
        self.assertGreater(sum(one[RACK] for one in done.values()), 0)

    def tell(self, host: Host, asked_s: float) -> None:
        """It reports to one of two conductors."""
        answer = self.sync(
            cloud.report(host=host.name, sent_s=asked_s,
                         holds=host.directives.digest), self.now,
            wishes=self.dice.choice(self.conductors))
        host.told_s = self.now
        host.follow(answer, asked_s)

    def join(self) -> None:
        if len(self.hosts) < HOSTS:
            name = f'node-{len(self.hosts)}'
            directory = pathlib.Path(self.top, f'{self.now} {name}')
            directory.mkdir()
            self.hosts.append(Host(name, directory, self.now))

    def restart(self) -> None:
        self.dice.choice(self.hosts).start(self.now)

    def divide_among_all(self) -> None:
        """Whatever was before, there is something to set in the aggregate."""
        self.rack = frozenset(host.name for host in self.hosts)
        self.fill_rack()
        for key in self.numbers:
            self.set_number(key, HOSTS)

    def change(self) -> None:
        """The number of a scope."""
        self.set_number(self.dice.choice((CLOUD, RACK)),
                        self.dice.randrange(12))

    def set_number(self, key: tuple[str, str], number: int) -> None:
        self.numbers[key] = number
        with self.engine.begin() as connection:
            connection.execute(tables.switches.update().where(
                tables.switches.c.scope == key[0]).values(
                    caps_per_minute=self.numbers[key]))
        self.changed()

    def move(self) -> None:
        """A host into the aggregate, or out of it."""
        self.rack ^= {self.dice.choice(self.hosts).name}
        self.fill_rack()
        if self.dice.random() < 0.5:
            self.changed()

    def fill_rack(self) -> None:
        self.delete(tables.aggregate_hosts)
        for one in self.rack:
            self.add(tables.aggregate_hosts, aggregate=RACK[1], host=one,
                     named=True, nova=False)
