# SPDX-License-Identifier: Apache-2.0

"""Whose bytes a full link sends."""

from __future__ import annotations

import testtools

from scavenger_openstack.drivers.direct import link
from scavenger_openstack.drivers.direct import shares
from scavenger_openstack.drivers.kernel.cgroup_mounts import Mount
from scavenger_openstack.drivers.qemu.cgroup_overlap import DomainCgroups
from scavenger_openstack.types import DirectEvidence
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Resource
from scavenger_openstack.types import THE_HOST
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadSample

CAPACITY = 1000.0


def host(time_s: float, sent: int | None, *, device: str = 'eth0',
         capacity: float | None = CAPACITY, **tx: int | None) -> HostSample:
    """What each workload has sent by its own tap, and the link in all."""
    return HostSample(
        'h', 'b', time_s, time_s, tuple(WorkloadSample(
            Workload(name, Priority.FOREGROUND, created_s=1.0,
                     interfaces=(f'tap-{name}',)), net_tx_bytes=count)
            for name, count in tx.items()),
        links={} if capacity is None else {device: capacity},
        link_tx_bytes={} if sent is None else {device: sent},
        link_of={f'tap-{name}': device for name in tx})


class SharesTest(testtools.TestCase):

    def one(self, *samples: HostSample) -> DirectEvidence:
        answer, = shares.of_links(samples, ['v'])
        self.assertEqual((Resource.NETWORK, 'v'),
                         (answer.resource, answer.workload))
        return answer

    def held(self, *samples: HostSample) -> dict[str, float]:
        answer = self.one(*samples)
        return {name: round(seconds / answer.waited_s, 9)
                for name, seconds in answer.holders.items()}

    def test_only_while_it_was_full(self) -> None:
        answer = self.one(
            host(10, 0, v=0, hog=0, early=0),
            host(11, 700, v=100, hog=0, early=600),     # there was room
            host(12, 1700, v=200, hog=900, early=600),
            host(13, 2700, v=400, hog=1700, early=600))
        self.assertEqual((3.0, 2.0, False), (
            answer.window_s, answer.waited_s, answer.shared))
        self.assertEqual({'v': 0.3, 'hog': 1.7, 'early': 0.0}, {
            name: round(seconds, 9)
            for name, seconds in answer.holders.items()})

    def test_the_host_itself(self) -> None:
        self.assertEqual({'v': 0.1, THE_HOST: 0.9}, self.held(
            host(10, 0, v=0), host(11, 1000, v=100)))

    def test_what_is_not_known_is_not_the_hosts(self) -> None:
        """What one sends is not known, one came later, and the link of one is
        not known."""
        full = host(11, 1000, v=100, other=0)
        for first, last in (
                (host(10, 0, v=0, other=None), host(11, 1000, v=100,
                                                    other=None)),
                (host(10, 0, v=0), full)):
            self.assertEqual(0.1, self.held(first, last)['v'])
            self.assertNotIn(THE_HOST, self.held(first, last))
        unlinked = {'tap-v': 'eth0'}
        self.assertEqual({'v': 0.1}, self.held(*(
            HostSample(**{**{
                field: getattr(sample, field)
                for field in sample.__dataclass_fields__},
                'link_of': unlinked})
            for sample in (host(10, 0, v=0, other=0), full))))

    def test_where_the_link_does_not_count(self) -> None:
        answer = self.one(host(10, None, v=0, hog=0),
                          host(11, None, v=100, hog=800))
        self.assertTrue(answer.shared)
        self.assertEqual({'v': 1 / 9, 'hog': 8 / 9}, answer.holders)

    def test_workloads_that_send_to_one_another(self) -> None:
        """Not all of it leaves by the link."""
        answer = self.one(host(10, 0, v=0, hog=0),
                          host(11, 900, v=100, hog=1800))
        self.assertTrue(answer.shared)
        self.assertNotIn(THE_HOST, answer.holders)

    def test_nothing_is_told(self) -> None:
        full = host(11, 1000, v=100)
        for samples in (
                [host(10, 0, v=0), host(11, 500, v=100)],
                [host(10, 0, v=100), full],             # it sends nothing
                [host(10, 0, v=None), full],
                [host(10, 0), full], [host(10, 0, v=0), host(11, 1000)],
                [full, full], [full],
                [host(10, 0, v=0, capacity=None),
                 host(11, 1000, v=100, capacity=None)],
                [host(10, 5000, v=0), host(11, 1000, v=100, capacity=None)]):
            self.assertEqual([], list(shares.of_links(samples, ['v'])))


class WindowTest(testtools.TestCase):

    def test_samples_of_a_window(self) -> None:
        """Those of each tick, so that a link that was full for one is seen;
        nothing is logged."""
        evidence = link.LinkEvidence({'cpu': Mount('/none', 1)},
                                     DomainCgroups({}))
        sent = hog = 0
        for second, more in enumerate((0, 0, 990, 100, 100, 0)):
            sent, hog = sent + more + 10, hog + more
            answers = evidence.answers(second)
            evidence.follow(host(second, sent, v=10 * (second + 1), hog=hog))
            evidence.ask(['v'] if 0 < second < 4 else [], second)
            if answers:
                break
        answer, = answers
        self.assertEqual((5, 3.0, 1.0), (
            second, answer.window_s, answer.waited_s))
        self.assertEqual({'v': 0.01, 'hog': 0.99}, answer.holders)
        self.assertEqual({'on': True, 'why': ''}, evidence.facts())
        evidence.close()
