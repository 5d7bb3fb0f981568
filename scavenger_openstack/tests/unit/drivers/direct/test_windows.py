# SPDX-License-Identifier: Apache-2.0

"""Windows of what is asked, where the kernel does not count for us."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
import itertools
import pathlib
import threading

import fixtures
import testtools

from scavenger_openstack.drivers import base
from scavenger_openstack.drivers.direct.cpu import CpuEvidence
from scavenger_openstack.drivers.direct.disk import DiskEvidence
from scavenger_openstack.drivers.direct import thread_windows
from scavenger_openstack.drivers.direct import windows
from scavenger_openstack.drivers.kernel.cgroup_mounts import Mount
from scavenger_openstack.drivers.kernel import watched_threads
from scavenger_openstack.drivers.qemu import cgroup_overlap
from scavenger_openstack.types import DirectEvidence
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Resource
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadSample

LONG_S = 20.0


class TestCpus(testtools.TestCase):

    kind: type[CpuEvidence | DiskEvidence] = CpuEvidence
    resource = Resource.CPU

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        # No hierarchy of cgroups tells whose a thread is.
        self.evidence = self.kind({}, cgroup_overlap.DomainCgroups({}))
        self.now = 100.0

    def tick(self, *victims: str, after_s: float = 1.0
             ) -> tuple[DirectEvidence, ...]:
        """One turn of the loop."""
        self.now += after_s
        answers = self.evidence.answers(self.now)
        self.evidence.follow(HostSample(
            'h', 'b', self.now, self.now, tuple(WorkloadSample(
                Workload(name, Priority.FOREGROUND), cpu_s=self.now,
                run_delay_s=self.now, io_wait_s=self.now)
                for name in ('v', 'w', *map(str, range(9))))))
        self.evidence.ask(victims, self.now)
        return answers

    def answered(self, *victims: str) -> dict[str, float]:
        """By victim, how long the window was."""
        answers = self.tick(*victims)
        for answer in answers:
            self.assertEqual((self.resource, True),
                             (answer.resource, answer.shared))
        return {answer.workload: answer.window_s for answer in answers}

    def test_one_window_after_another(self) -> None:
        for _ in range(2):
            self.assertEqual({}, self.answered('v'))
            self.assertEqual({}, self.answered('v'))
            self.assertEqual({}, self.answered())
            self.assertEqual({'v': 2.0}, self.answered())
            self.assertEqual({}, self.answered())

    def test_all_victims_of_a_window(self) -> None:
        self.tick('v', 'w')
        self.tick('w')
        self.tick()
        self.assertEqual({'v': 2.0, 'w': 2.0}, self.answered())

    def test_others_have_the_next_window(self) -> None:
        self.tick('v')
        self.tick('v', 'w')
        self.tick('w')
        self.assertEqual({'v': 2.0}, self.answered('w'))
        self.tick()
        self.assertEqual({'w': 2.0}, self.answered())

    def test_more_than_one_window_has_room_for(self) -> None:
        names = [str(number) for number in range(9)]
        self.tick(*names)
        self.tick('8', after_s=2.0)
        self.assertEqual(dict.fromkeys(names[:8], 2.0), self.answered('8'))
        self.tick()
        self.assertEqual({'8': 2.0}, self.answered())

    def test_a_window_ends_by_itself(self) -> None:
        self.tick('v')
        seen = [self.answered('v') for _ in range(30)]
        self.assertEqual([{'v': windows.LONGEST_S}], list(filter(None, seen)))
        # It is not asked any more, and then again.
        self.assertEqual({}, self.answered())
        self.tick('v')
        self.tick()
        self.assertEqual({'v': 1.0}, self.answered())

    def test_another_is_asked_about_after_that(self) -> None:
        self.tick('v')
        self.tick('v', after_s=60.0)
        self.assertEqual({'v': 60.0}, self.answered('v', 'w'))
        self.tick('v')
        self.assertEqual({'w': 1.0}, self.answered('v'))

    def test_an_answer_that_nothing_took_is_dropped(self) -> None:
        self.tick('v')
        self.tick()
        self.now += windows.TOO_OLD_S
        self.assertEqual({}, self.answered())

    def test_what_is_no_workload(self) -> None:
        self.tick('/gone', 'no-such-uuid')
        self.tick()
        self.assertEqual({}, self.answered())
        self.assertEqual(1, self.log.output.count('\n'))

    def test_closed_in_a_window(self) -> None:
        self.tick('v')
        self.evidence.close()
        self.tick()
        self.assertEqual({}, self.answered())

    def test_a_refusal_is_logged_once_and_tried_again_later(self) -> None:
        self.assertEqual((None, ''), tuple(self.evidence.facts().values()))
        for _ in range(3 * base.RESCAN_TICKS):
            self.tick('v')
            self.tick()
        self.assertEqual(1, self.log.output.count('no direct evidence'))
        self.assertIs(False, self.evidence.facts()['on'])
        self.assertIn('no cgroup controller', self.evidence.why)


class Counter:
    """Notes what is watched in each tick; not the kernel."""

    may_close = threading.Event()
    may_close.set()

    def __init__(self) -> None:
        self.watched: list[int] = []
        self.closed = threading.Event()

    def watch(self, victims: Mapping[str, Collection[int]]) -> None:
        self.watched += itertools.chain(*victims.values())

    def ended(self) -> watched_threads.Ended:
        return watched_threads.Ended(frozenset(), True)

    def close(self) -> None:
        self.may_close.wait(LONG_S)
        self.closed.set()


class Counted(thread_windows.ThreadWindows[Counter]):
    """Answers ``waited_s`` and ``held``, whatever was."""

    resource, names, purpose = Resource.CPU, 'CPUs', 'count'
    waited_s, held = 1.0, 0.75
    counter: Counter | None = None

    def _watch(self, tasks: Mapping[str, Collection[int]]) -> Counter:
        self.counter = Counter()
        self.counter.watch(tasks)
        return self.counter

    def _counted(self, window: windows.Window[Counter], counter: Counter,
                 window_s: float) -> tuple[DirectEvidence, ...]:
        return self.or_shares(window, tuple(
            DirectEvidence(victim, self.resource, window_s, self.waited_s,
                           {'hog': self.held}) for victim in self._listed))

    def _shares(self, first: HostSample, last: HostSample,
                asked: Collection[str]) -> Iterable[DirectEvidence]:
        for name in asked:
            yield DirectEvidence(name, self.resource, 1.0, last.time_s
                                 - first.time_s, {'hog': 0.9}, shared=True)


class TestCounted(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        mounts = {'unified': Mount(str(self.top), 2)}
        self.evidence = Counted(mounts, cgroup_overlap.DomainCgroups(mounts))
        self.now = 0.0

    def tasks(self, path: str, count: int, first: int = 1) -> None:
        (self.top / path).mkdir(parents=True, exist_ok=True)
        (self.top / path / 'cgroup.threads').write_text(
            ''.join(f'{first + number}\n' for number in range(count)))

    def tick(self, *victims: str) -> list[int]:
        """What is watched from now on."""
        self.now += 1.0
        self.evidence.follow(HostSample('h', 'b', self.now, self.now, ()))
        before = self.evidence.counter
        seen = len(before.watched) if before else 0
        self.evidence.ask(victims, self.now)
        counter = self.evidence.counter
        assert counter is not None
        return counter.watched[seen if counter is before else 0:]

    def test_each_window_is_closed(self) -> None:
        """Also after one that the kernel takes long to let go."""
        self.useFixture(fixtures.MonkeyPatch(
            f'{windows.__name__}.CLOSE_S', 0.0))
        mounts = {'unified': Mount(str(self.top), 2)}
        self.evidence = Counted(mounts, cgroup_overlap.DomainCgroups(mounts))
        may_close, counters = threading.Event(), []
        self.tasks('v', 1)
        with fixtures.MonkeyPatch(f'{__name__}.Counter.may_close', may_close):
            for _ in range(3):
                self.tick('/v')
                counters.append(self.evidence.counter)
                self.tick()
            may_close.set()
            for counter in counters:
                assert counter is not None
                self.assertTrue(counter.closed.wait(LONG_S))

    def test_many_threads_take_several_ticks(self) -> None:
        for number in range(5):
            self.tasks(f'v/{number}', 10, 10 * number + 1)
        self.tasks('v', 0)
        self.tasks('w', 3, 1000)
        with fixtures.MonkeyPatch(
                f'{thread_windows.__name__}.MOST_LISTED', 100):
            watched = [self.tick('/v', '/w') for _ in range(5)]
            self.assertEqual({1000, 1001, 1002}, set(watched[0]) - set(
                range(51)))
            for listed in watched:
                self.assertLessEqual(len(listed), 23)
            self.assertEqual(set(range(1, 51)), set(
                itertools.chain(*watched)) & set(range(51)))
            self.assertNotIn('incomplete', self.evidence.facts())
            self.tick()
            self.tick('/v')
            self.assertEqual(['/v'], self.evidence.facts()['incomplete'])
            self.tick()
            self.tick('/w')
            self.assertEqual({'on': True, 'why': ''}, self.evidence.facts())

    def test_what_begins_in_the_window(self) -> None:
        self.tasks('v', 1)
        self.assertEqual([1], self.tick('/v'))
        self.tasks('v', 2)
        self.assertEqual([1, 2], self.tick('/v'))

    def test_nothing_is_known_of_most(self) -> None:
        """Of what many processes that end soon have, their use tells."""
        self.tasks('v', 1)
        for waited_s, shared in ((1.0, False), (1.5, False), (1.6, True)):
            self.evidence.waited_s = waited_s
            self.tick('/v')
            self.tick()
            answer, = self.evidence.answers(self.now)
            self.assertEqual((shared, 'hog'), (
                answer.shared, *answer.holders))


class TestDisks(TestCpus):

    kind = DiskEvidence
    resource = Resource.DISK
