# SPDX-License-Identifier: Apache-2.0

"""Many hosts in a Placement that is played: slow, faulty, with others that
write."""

from __future__ import annotations

from collections.abc import Callable
import json
import logging
import pathlib
import threading
from typing import Any
from urllib import parse

import fixtures
from keystoneauth1 import exceptions as auth_exceptions
import testtools

from scavenger_openstack.conductor import leader
from scavenger_openstack.conductor import placement
from scavenger_openstack.conductor.placement import VCPU
from scavenger_openstack.conductor import placement_api
from scavenger_openstack.conductor import placement_writer
from scavenger_openstack.conductor import sync
from scavenger_openstack.db import connect
from scavenger_openstack.db import schema
from scavenger_openstack import errors
from scavenger_openstack.wire import report as wire

NOW = 1_750_000_000.0
MIB = 2 ** 20
LONG_S = 30.0
PARAMS = placement.Params(smooth_s=300.0, step=0.1, interval_s=60.0,
                          silent_s=120.0)


class Stop(Exception):
    """Another conductor has the claim."""


class Answer:
    """As keystoneauth has it."""

    def __init__(self, status_code: int, body: Any = None) -> None:
        self.status_code = status_code
        self.text = '' if body is None else json.dumps(body)
        self.content = self.text.encode()

    def json(self) -> Any:
        return json.loads(self.text)


class Played:
    """A Placement; ``before`` is called with each request's method and host
    ('' for none), and may return another answer, wait, or raise."""

    def __init__(self, *hosts: str) -> None:
        self.asked: list[tuple[str, str]] = []
        self.written: list[str] = []
        self.before: Callable[[str, str], Answer | None] = (
            lambda method, host: None)
        self._lock = threading.Lock()
        self._uuids: dict[str, str] = {}
        self.inventories: dict[str, Any] = {}
        self.generations: dict[str, int] = {}
        for host in hosts:
            self.add(host)

    def add(self, name: str) -> None:
        self._uuids[name] = f'uuid-of-{name}'
        self.generations[name] = 0

    def offered(self, host: str) -> int | None:
        """The vCPUs."""
        vcpus = self.inventories.get(host + placement.SUFFIX, {}).get(VCPU)
        return vcpus and vcpus['total'] - vcpus['reserved']

    def request(self, url: str, method: str, json: Any = None, **more: Any
                ) -> Answer:
        path, _, query = url.partition('?')
        words = path.strip('/').split('/')
        name = (words[1].removeprefix('uuid-of-')
                if words[0] == 'resource_providers' and len(words) > 1
                else dict(parse.parse_qsl(query)).get('name', '')
                or (json or {}).get('name', ''))
        host = name.removesuffix(placement.SUFFIX)
        with self._lock:
            self.asked.append((method, url))
        other = self.before(method, host)
        if other is not None:
            return other
        with self._lock:
            return self._answer(method, words, name, 'name=' in query, json)

    def _answer(self, method: str, words: list[str], name: str,
                by_name: bool, body: Any) -> Answer:
        if words[0] != 'resource_providers':
            return Answer(204)
        if method == 'POST':
            if name in self._uuids:
                return Answer(409, {'errors': [{'code': 'other'}]})
            self.add(name)
            return Answer(200, self._provider(name))
        if len(words) == 1:
            return Answer(200, {'resource_providers': [
                self._provider(each) for each in self._uuids
                if not by_name or each == name]})
        if name not in self._uuids:
            return Answer(404, {})
        if method == 'PUT':
            if body['resource_provider_generation'] != self.generations[name]:
                return Answer(409, {'errors': [{
                    'code': placement_api.CONFLICT}]})
            self.generations[name] += 1
            if words[2] == 'inventories':
                self.inventories[name] = body['inventories']
                self.written.append(name.removesuffix(placement.SUFFIX))
        return Answer(200, {
            'generation': self.generations[name], 'usages': {}, 'traits': [],
            'resource_provider_generation': self.generations[name],
            'inventories': self.inventories.get(name, {})})

    def _provider(self, name: str) -> dict[str, Any]:
        root = name.removesuffix(placement.SUFFIX)
        return {'name': name, 'uuid': self._uuids[name],
                'root_provider_uuid': self._uuids[root],
                'parent_provider_uuid': (
                    None if root == name else self._uuids[root])}


class Writing(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger(
            'scavenger_openstack', level=logging.WARNING))
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.engine = connect.engine(f'sqlite:///{directory}/a.sqlite')
        self.addCleanup(self.engine.dispose)
        schema.upgrade(self.engine)
        self.now = NOW
        self.begin()

    def begin(self, *hosts: str) -> None:
        """A Placement with these hosts, which offer 4 vCPUs."""
        self.played = Played(*hosts)
        for host in hosts:
            self.report(host, 4.0)
        self.writer = self.another()

    def another(self) -> placement_writer.Writer:
        return placement_writer.Writer(
            self.engine, placement_api.Placement(
                self.played),   # type: ignore[arg-type]
            PARAMS, lambda: self.now, lambda: self.now)

    def report(self, host: str, cores: float) -> None:
        with connect.writing(self.engine) as connection:
            sync.sync(connection, wire.Report(
                host=host, boot_id='b', run_id='r', sent_s=self.now,
                workloads=None, workloads_digest='', entries=[],
                directives_digest='', facts=wire.Facts(
                    enforcing=True, grade='B',
                    headroom={'cpu': cores, 'memory': 2048.0 * MIB},
                    used={'cpu': 0.0, 'memory': 0.0})), self.now)

    def turn(self, still: Callable[[], None] = lambda: None) -> int:
        return self.writer.turn(still)

    def later(self, seconds: float, **cores: float) -> int:
        """One turn after that; all hosts report, those named so many
        cores."""
        self.now += seconds
        for host in self.hosts:
            self.report(host, cores.get(host, 4.0))
        del self.played.asked[:], self.played.written[:]
        return self.turn()

    @property
    def hosts(self) -> list[str]:
        return [host for host in self.played.generations
                if not host.endswith(placement.SUFFIX)]

    def fail(self, *hosts: str, status: int = 500) -> None:  # type: ignore[override]
        self.played.before = lambda method, host: (
            Answer(status, {}) if host in hosts else None)

    # --- how many calls, and in which order

    def test_several_at_once(self) -> None:
        """Eight of them wait for each other."""
        together = threading.Barrier(8)

        def meet(method: str, host: str) -> None:
            if host:
                together.wait(LONG_S)

        self.begin(*(f'h{number}' for number in range(8)))
        self.played.before = meet
        self.assertEqual(8, self.turn())

    def test_one_call_for_a_write(self) -> None:
        self.begin('a', 'b')
        self.turn()
        for cores in 3.0, 2.0, 1.0:
            self.assertEqual(1, self.later(60, a=cores))
            [(method, url)] = self.played.asked
            self.assertEqual(('PUT', True), (
                method, url.endswith('/inventories')))
        # Another program, or an instance that was placed there.
        self.played.generations['a' + placement.SUFFIX] += 1
        self.assertEqual(1, self.later(60, a=0.0))
        self.assertEqual(['PUT', 'GET', 'PUT'], [
            method for method, _ in self.played.asked])
        self.assertEqual((0, 4), (self.played.offered('a'),
                                  self.played.offered('b')))

    def test_nothing_is_asked_when_nothing_changes(self) -> None:
        self.begin('a', 'b')
        self.turn()
        for _ in range(9):
            self.later(60)
            self.assertEqual([], self.played.asked)

    def test_a_new_host_is_found_by_its_name(self) -> None:
        """It is there a minute later; the others are not listed again."""
        self.begin('a')
        self.turn()
        self.report('b', 2.0)
        self.now += 10
        self.turn()
        self.played.add('b')
        self.assertEqual(1, self.later(placement_writer.FIND_S, b=2.0))
        self.assertEqual(2, self.played.offered('b'))
        self.assertEqual([('GET', '/resource_providers?name=b'),
                          ('POST', '/resource_providers')],
                         self.played.asked[:2])
        self.assertNotIn('no provider', self.log.output)

    def test_many_without_a_provider(self) -> None:
        """They are looked for by their names a few at a time."""
        self.begin('a')
        for number in range(placement_writer.MOST_NAMES + 20):
            self.report(f'x{number}', 1.0)
        self.turn()
        for count in placement_writer.MOST_NAMES, 20:
            self.later(10 if count == 20 else placement_writer.FIND_S)
            self.assertEqual(count, len(self.played.asked))
        self.later(placement_writer.LIST_S)
        self.later(60)
        [line] = [line for line in self.log.output.splitlines()
                  if 'no provider of that name' in line]
        self.assertIn('and 115 more', line)

    def test_less_first_then_new_ones(self) -> None:
        with fixtures.MonkeyPatch(f'{placement_writer.__name__}.WORKERS', 1):
            names = [f'h{number}' for number in range(9)]
            self.begin(*names)
            for name in names:
                self.report(name, 2.0)
            self.turn()
            for _ in range(9):
                self.later(30, **dict.fromkeys(names, 2.0))
            self.played.add('new')
            self.later(PARAMS.interval_s, h7=0.5, h8=1.0, **dict.fromkeys(
                names[:7], 40.0))
        self.assertEqual(['h7', 'h8', 'new'], self.played.written[:3])
        self.assertEqual({*names, 'new'}, set(self.played.written))

    def test_first_what_was_written_longest_ago(self) -> None:
        """However much it offers: else a slow Placement never gets there."""
        def still() -> None:
            if len(self.played.written) == 2:
                raise Stop

        with fixtures.MonkeyPatch(f'{placement_writer.__name__}.WORKERS', 1):
            self.begin('a', 'b', 'c', 'd')
            self.turn()
            for pair in (['a', 'b'], ['c', 'd'], ['a', 'b']):
                self.now += PARAMS.interval_s
                for host, cores in zip(self.hosts, (40.0, 50.0, 60.0, 70.0),
                                       strict=True):
                    self.report(host, cores)
                del self.played.written[:]
                self.assertRaises(Stop, self.turn, still)
                self.assertEqual(pair, self.played.written)

    def test_less_while_another_host_hangs(self) -> None:
        """What is reported meanwhile is written meanwhile."""
        self.begin('a', 'b')
        go = threading.Event()
        self.addCleanup(go.set)
        stages: list[str] = []

        def hang(method: str, host: str) -> None:
            if host == 'a':
                go.wait(LONG_S)

        self.played.before = hang

        def still() -> None:
            if not stages and self.played.offered('b') == 4:
                self.now += 60
                self.report('a', 4.0)
                self.report('b', 1.0)
                stages.append('less')
            elif len(stages) == 1 and self.played.offered('b') == 1:
                stages.append(f'a has {self.played.offered("a")}')
                go.set()

        self.assertEqual(3, self.turn(still))
        self.assertEqual(['less', 'a has None'], stages)
        self.assertEqual(4, self.played.offered('a'))

    # --- faults

    def test_hosts_that_always_fail(self) -> None:
        """More than are written at once; the others are, each time."""
        names = [f'h{number:02}' for number in range(40)]
        bad = names[:12]
        for status in 500, 409:
            self.begin(*names)
            self.fail(*bad, status=status)
            self.assertEqual(28, self.turn())
            for cores in 3.0, 2.0, 1.0, 0.0:
                self.assertEqual(28, self.later(60, **dict.fromkeys(
                    names, cores)))
                self.assertLess(len(self.played.asked), 28 + 3 * len(bad))
            [line] = [line for line in self.log.output.splitlines()
                      if 'what Placement has of it stays' in line]
            self.assertIn('and 7 more', line)
            self.log = self.useFixture(fixtures.FakeLogger(
                'scavenger_openstack', level=logging.WARNING))

    def test_hosts_that_are_late(self) -> None:
        """They are one's own faults, too."""
        self.begin('a', 'b', 'c')

        def late(method: str, host: str) -> None:
            if host == 'a':
                raise auth_exceptions.ConnectTimeout('timed out')

        self.played.before = late
        self.assertEqual(2, self.turn())
        self.assertEqual(2, self.later(60, b=1.0, c=1.0))

    def test_few_of_those_that_fail_at_once(self) -> None:
        """Else those that hang would keep the others waiting."""
        names = [f'h{number:02}' for number in range(12)]
        self.begin(*names)
        self.fail(*names)
        self.turn()
        at_once, most = 0, [0]
        lock = threading.Lock()
        both = threading.Barrier(2)

        def count(method: str, host: str) -> None:
            nonlocal at_once
            with lock:
                at_once += 1
                most.append(at_once)
            both.wait(LONG_S)
            with lock:
                at_once -= 1

        self.played.before = lambda method, host: (
            count(method, host) if method == 'POST' else None)
        self.assertEqual(12, self.later(60))
        self.assertEqual(2, max(most))

    def test_all_of_placement_fails(self) -> None:
        """After some faults the turn ends; all are written when it is over."""
        names = [f'h{number:02}' for number in range(60)]
        self.begin(*names)
        self.fail(*names)
        for _ in range(3):
            self.now += 30
            del self.played.asked[:]
            self.assertRaises(errors.Unreachable, self.turn)
            self.assertLess(len(self.played.asked), 40)
        self.fail()
        self.assertEqual(60, self.later(30))

    def test_keystone_fails(self) -> None:
        """That concerns no host alone: the turn ends."""
        self.begin(*(f'h{number:02}' for number in range(60)))

        def refuse(method: str, host: str) -> None:
            if host:
                raise auth_exceptions.Unauthorized()

        self.played.before = refuse
        self.assertRaises(errors.Unreachable, self.turn)
        self.assertLess(len(self.played.asked), 40)

    # --- the claim

    def test_it_stops_between_hosts(self) -> None:
        self.begin(*(f'h{number:02}' for number in range(60)))

        def still() -> None:
            if self.played.written:
                raise Stop

        self.assertRaises(Stop, self.turn, still)
        count = len(self.played.written)
        self.assertLess(count, 30)
        self.assertEqual(60 - count, self.turn())

    def test_a_thread_for_each_and_none_left(self) -> None:
        before = threading.active_count()
        self.begin(*(f'h{number:02}' for number in range(60)))
        self.turn()
        for thread in threading.enumerate():
            if thread.name.startswith('placement '):
                thread.join(LONG_S)
        self.assertEqual(before, threading.active_count())

    def test_another_conductor_wrote_meanwhile(self) -> None:
        """What this one knew of Placement does not count any more."""
        self.begin('a')
        leaders = []
        for name in 'one', 'two':
            writer = self.another()
            leaders.append(leader.Leader(
                self.engine, placement_writer.CLAIM, name, lambda: self.now,
                writer.turn, every_s=1.0, what='', elapsed=lambda: self.now,
                taken=writer.distrust))
        one, two = leaders
        for who, cores in (one, 4.0), (two, 1.0), (one, 4.0):
            if self.played.asked:       # it finds the claim of the other
                self.assertEqual([False, False], [who.step(), who.step()])
            self.now += leader.HOLD_S + 1
            self.report('a', cores)
            self.assertTrue(who.step())
        self.assertEqual(1, self.played.offered('a'))
        for _ in range(20):
            self.now += 30
            self.report('a', 4.0)
            self.assertTrue(one.step())
        self.assertEqual(3, self.played.offered('a'))
