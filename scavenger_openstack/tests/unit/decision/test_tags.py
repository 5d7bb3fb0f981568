# SPDX-License-Identifier: Apache-2.0

import dataclasses
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import testtools

from scavenger_openstack.decision.orders import NO_ORDERS
from scavenger_openstack.decision.orders import Orders
from scavenger_openstack.decision import tags
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadSample

FOREGROUND, BACKGROUND = Priority


def vm(name: str, priority: Priority = FOREGROUND, source: str = 'default',
       **values: Any) -> Workload:
    return Workload(name, priority, source, instance=name, group=name,
                    **{'project': 'p', **values})


UNTAGGED = vm('untagged')
GUARDED = vm('guarded', source='flavor')
BATCH = vm('batch', BACKGROUND, 'flavor')
MADE = vm('made', BACKGROUND, 'override')       # by the driver
NOBODYS = vm('nobodys', project=None)
POD = Workload('/batch/a', BACKGROUND, 'parent', group='/batch')
ALL = (UNTAGGED, GUARDED, BATCH, MADE, NOBODYS, POD)


def sample(*workloads: Workload) -> HostSample:
    return HostSample('h', 'b', 1.0, 1.0, tuple(
        map(WorkloadSample, workloads or ALL)))


class TagsTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.tags = tags.Tags()

    def changes(self, orders: Orders, *workloads: Workload
                ) -> dict[str, tuple[object, ...]]:
        before = sample(*workloads)
        after = self.tags.apply(before, orders)
        return {one[0].id: (one[0].priority, one[0].source,
                            one[0].application)
                for one, old in zip(after.workloads, before.workloads,
                                    strict=True) if one != old}

    def test_nothing_is_asked_for(self) -> None:
        found = sample(UNTAGGED, GUARDED, BATCH, POD)
        self.assertIs(found, self.tags.apply(found, NO_ORDERS))
        self.assertIs(found, self.tags.apply(found, Orders(
            foreground=frozenset({'gone'}))))

    def test_foreground_always_counts(self) -> None:
        names = {'untagged', 'batch', 'made', 'guarded'}
        self.assertEqual(
            dict.fromkeys(names, (FOREGROUND, 'override', None)),
            self.changes(Orders(foreground=frozenset(names))))
        self.assertEqual({}, self.tags.refused)

    def test_what_a_flavor_goes_before(self) -> None:
        """Priorities of projects and aggregates."""
        names = frozenset({'untagged', 'batch', 'made', 'guarded'})
        self.assertEqual(
            dict.fromkeys(names - {'batch', 'guarded'},
                          (FOREGROUND, 'override', None)),
            self.changes(Orders(foreground=names, unless_flavor=names)))

    def test_background_is_made_by_the_driver(self) -> None:
        """What it did not make so stays foreground, and that is told."""
        asked = Orders(background={one.id: {} for one in ALL})
        self.assertEqual({}, self.changes(asked))
        self.assertEqual({'priority untagged': tags.NO_VM,
                          'priority nobodys': tags.NO_VM,
                          'priority guarded': tags.FLAVOR},
                         self.tags.refused)

    def test_background_that_the_host_does_not_allow(self) -> None:
        """What its flavor makes background is no refusal."""
        self.assertEqual({'made': (FOREGROUND, 'default', None)},
                         self.changes(Orders(denied=frozenset(
                             one.instance for one in ALL))))
        self.assertEqual({
            **{f'priority {name}': tags.NOT_ALLOWED
               for name in ('untagged', 'nobodys', 'made')},
            'priority guarded': tags.FLAVOR}, self.tags.refused)

    def test_background_until_it_is_withdrawn(self) -> None:
        self.changes(Orders(background={'made': {}}))
        self.assertEqual({'made': (FOREGROUND, 'default', None)},
                         self.changes(NO_ORDERS))
        self.assertEqual({}, self.changes(
            Orders(background={'made': {}})))

    def test_applications(self) -> None:
        """Each is of the project of its VM, whatever it is called."""
        self.assertEqual(
            {'untagged': (FOREGROUND, 'default', 'p/web'),
             'made': (FOREGROUND, 'default', None),
             'batch': (BACKGROUND, 'flavor', 'p/q/web'),
             'guarded': (FOREGROUND, 'flavor', 'p/db')},
            self.changes(Orders(applications={
                'untagged': 'web', 'batch': 'q/web', 'guarded': 'p/db',
                'nobodys': 'web'})))
        self.assertEqual({'application nobodys': tags.NO_PROJECT},
                         self.tags.refused)

    def test_protection(self) -> None:
        """It is taken away, and never given."""
        asked = Orders(unprotected=frozenset({'guarded', 'gone'}))
        before = sample(GUARDED, BATCH, vm('open', protected=False))
        for orders, wanted in ((asked, [False, True, False]),
                               (NO_ORDERS, [True, True, False])):
            self.assertEqual(wanted, [
                one[0].protected
                for one in self.tags.apply(before, orders).workloads])

    def test_a_workload_that_changes(self) -> None:
        """What was made of it before does not count any more."""
        asked = Orders(applications={'batch': 'web'})
        first = self.tags.apply(sample(BATCH), asked).workloads[0][0]
        self.assertIs(first, self.tags.apply(
            sample(BATCH), asked).workloads[0][0])
        grown = dataclasses.replace(BATCH, vcpus=8.0)
        self.assertEqual(8.0, self.tags.apply(
            sample(grown), asked).workloads[0][0].vcpus)

    def test_many_directives_leave_nothing(self) -> None:
        """As of a conductor that is hostile, or of VMs that come and go."""
        for number in range(5_000):
            name = f'vm-{number % 1000}'
            orders = (Orders(background={name: {}},
                             applications={name: 'x'})
                      if number % 1000 < 500 else self.tags._orders)
            self.tags.apply(sample(vm(name), MADE), orders)
        self.assertGreater(10, len(self.tags._tagged))
        self.assertGreater(10, len(self.tags._done))
        self.assertGreater(10, len(self.tags.refused))

    def test_what_no_operator_made_background(self) -> None:
        """Whatever the driver says."""
        self.assertEqual({'made': (FOREGROUND, 'default', None)},
                         self.changes(NO_ORDERS))

    @given(st.lists(st.tuples(*(st.frozensets(st.sampled_from(
        [one.id for one in ALL])) for _ in range(3))), max_size=4))
    def test_no_foreground_becomes_background(
            self, asked: list[tuple[frozenset[str], ...]]) -> None:
        found = tags.Tags()
        for foreground, background, named in asked:
            after = found.apply(sample(), Orders(
                foreground=foreground,
                background={name: {} for name in background},
                applications=dict.fromkeys(named, 'x')))
            for one, before in zip(after.workloads, ALL, strict=True):
                if before.priority is FOREGROUND:
                    self.assertIs(FOREGROUND, one[0].priority)
                self.assertEqual(
                    before, dataclasses.replace(
                        one[0], priority=before.priority,
                        source=before.source, application=None))
