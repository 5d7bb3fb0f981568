# SPDX-License-Identifier: Apache-2.0

"""What is counted from tick to tick."""

from __future__ import annotations

import json
from typing import Any

import testtools

from scavenger_openstack.agent.events import tick_events
from scavenger_openstack.agent import loop
from scavenger_openstack.agent.metrics import totals
from scavenger_openstack.decision import rates
from scavenger_openstack.decision import settle
from scavenger_openstack import events
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Decision
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Incident
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadSample
from scavenger_openstack.wire import codec

LIMIT = Cap('b', Knob.CPU_CORES, 0.5, 'scavenger', 'a test')
KEY = 'b', Knob.CPU_CORES


def sample(time_s: float, *workloads: WorkloadSample) -> HostSample:
    return HostSample('h', 'boot', time_s, 1e9 + time_s, workloads,
                      cpu_busy_s={0: time_s / 2, 1: 0.0},
                      memory_total_bytes=2 ** 30)


def vm(number: int, **values: Any) -> WorkloadSample:
    uuid = f'{number:08}-0000-4000-8000-000000000000'
    return WorkloadSample(Workload(
        uuid, Priority.BACKGROUND, project='p', instance=uuid, group='/vms'),
        **values)


def incident(cause: str, outcome: str = 'open', signal: str = 'run_delay'
             ) -> Incident:
    return Incident(f'{cause} {signal}', 0.0, 'h', 'v', signal, 1.0, 0.5,
                    cause, outcome=outcome)


def tick(time_s: float, after: HostSample | None = None,
         before: HostSample | None = None, *incidents: Incident
         ) -> loop.Tick:
    if after is None:
        return loop.Tick(time_s)
    found = loop.Tick(time_s, after, rates.rates(before or after, after))
    if incidents:
        assert found.rates is not None
        found.decided = settle.Decided(found.rates, {
            'attribution': Decision(incidents=incidents)}, (), (), (),
            settle.NO_FAST_LOOP, {}, {})
    return found


class Totals(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.totals = totals.Totals(['scavenger', 'attribution'])

    def rows(self) -> dict[str, Any]:
        """The rows as they are read out of a status."""
        rows = json.loads(json.dumps(self.totals.rows({})))
        assert isinstance(rows, dict)
        return rows

    def test_limited_time_is_of_the_tick_before(self) -> None:
        for time_s, limits in ((10.0, {}), (11.0, {KEY: LIMIT}),
                               (13.0, {KEY: LIMIT}), (13.5, {}), (20.0, {})):
            self.totals.tick(tick(time_s), limits)
        rows = self.rows()
        self.assertEqual([['cpu_cores', 'scavenger', 2.5]],
                         rows['limited_seconds_total'])
        self.assertEqual([], rows['limits'])

    def test_standing_still_counts_a_little(self) -> None:
        self.totals.tick(tick(0.0), {KEY: LIMIT})
        self.totals.tick(tick(3600.0), {})
        [[*_, seconds]] = self.rows()['limited_seconds_total']
        self.assertEqual(totals.MOST_S, seconds)

    def test_owners_are_bounded(self) -> None:
        limits = {(str(number), Knob.CPU_CORES): LIMIT._replace(
            owner=f'x{number}') for number in range(100)}
        limits['b', Knob.CPU_CORES] = LIMIT._replace(owner='leftover')
        limits['c', Knob.CPU_SET] = LIMIT._replace(knob=Knob.CPU_SET,
                                                   owner='operator')
        self.totals.tick(tick(0.0), limits)
        self.assertEqual([['cpu_cores', 'other', 100],
                          ['cpu_cores', 'scavenger', 1],
                          ['cpu_set', 'operator', 1]], self.rows()['limits'])

    def test_disturbed_once_whatever_signals_show_it(self) -> None:
        here = sample(0.0)
        self.totals.tick(tick(0.0, here, here, incident('disk'),
                              incident('disk', signal='io_wait'),
                              incident('x' * 300)), {})
        self.totals.tick(tick(1.0), {})     # not known is not over
        self.totals.tick(tick(3.0, sample(3.0)), {})
        self.totals.tick(tick(9.0, sample(9.0)), {})
        found = dict(self.rows()['interference_seconds_total'])
        self.assertEqual(3.0, found['disk'])
        self.assertEqual(3.0, found['other'])
        self.assertEqual(0, found['core'])

    def test_events(self) -> None:
        limit = events.limit_event(0.0, 'set', LIMIT)
        self.totals.happened([
            limit, limit, codec.replace(limit, what='removed'),
            *(events.incident_event(0.0, what, 'attribution',
                                    incident('disk', outcome), 0.0)
              for what, outcome in (('began', 'open'), ('ended', 'ended'),
                                    ('ended', 'confirmed'))),
            tick_events.agent_event(0.0, 'started')])
        rows = self.rows()
        self.assertEqual([['cpu_cores', 'scavenger', 'removed', 1],
                          ['cpu_cores', 'scavenger', 'set', 2]],
                         rows['limit_changes_total'])
        self.assertEqual([['disk', 'confirmed', 1], ['disk', 'ended', 1]],
                         rows['incidents_total'])

    def test_background_use_adds_up(self) -> None:
        """Over workloads that end, and without what is not known."""
        one, two, foreground = (
            Workload('a', Priority.BACKGROUND),
            Workload('b', Priority.BACKGROUND),
            Workload('c', Priority.FOREGROUND))
        first = sample(0.0, WorkloadSample(one, cpu_s=0.0, memory_bytes=5),
                       WorkloadSample(two, cpu_s=0.0, memory_bytes=6),
                       WorkloadSample(foreground, cpu_s=0.0, io_ops=0))
        second = sample(2.0, WorkloadSample(one, cpu_s=1.0, memory_bytes=5),
                        WorkloadSample(two, cpu_s=2.0, memory_bytes=6),
                        WorkloadSample(foreground, cpu_s=9.0, io_ops=9))
        third = sample(3.0, WorkloadSample(two, cpu_s=2.5, memory_bytes=7))
        before = None
        for now in (first, second, third):
            self.totals.tick(tick(now.time_s, now, before), {})
            before = now
        rows = self.rows()
        self.assertEqual([[3.5]], rows['background_cpu_seconds_total'])
        self.assertEqual([[7.0]], rows['background_memory_bytes'])
        self.assertNotIn('background_io_operations_total', rows)

    def test_capacity_and_headroom(self) -> None:
        one = WorkloadSample(Workload('a', Priority.BACKGROUND), cpu_s=0.0,
                             memory_bytes=5)
        for now in (sample(10.0, one), sample(12.0, one)):
            self.totals.tick(tick(now.time_s, now), {})
            rows = self.totals.rows({'scavenger': {'facts': {
                'memory': {'budget': 25.0}}}})
        self.assertEqual([[2.0]], rows['capacity_cpu_cores'])
        self.assertEqual([[2.0 ** 30]], rows['capacity_memory_bytes'])
        self.assertNotIn('headroom_network_bytes_per_second', rows)

    def test_idle_cores_since_the_page_before(self) -> None:
        first, second = sample(10.0), sample(14.0)
        self.totals.tick(tick(10.0, first), {})
        self.assertNotIn('headroom_cpu_cores', self.rows())
        self.totals.tick(tick(14.0, second, first), {})
        self.assertEqual([[1.5]], self.rows()['headroom_cpu_cores'])


class Instances(testtools.TestCase):

    def test_none_unless_asked_for(self) -> None:
        found = totals.Totals([])
        found.tick(tick(0.0, sample(0.0, vm(1, run_delay_s=1.0))), {})
        self.assertFalse([name for name in found.rows({})
                          if name.startswith('instance')])

    def test_bounded(self) -> None:
        """Those with the lowest UUIDs, in whatever order they are there."""
        found = totals.Totals([], 3)
        here = sample(0.0, *(vm(number, run_delay_s=float(number))
                             for number in reversed(range(10))),
                      WorkloadSample(Workload('/batch/a',
                                              Priority.BACKGROUND)))
        found.tick(tick(0.0, here), {})
        rows = found.rows({})
        self.assertEqual([[7]], rows['instances_left_out'])
        self.assertEqual([0.0, 1.0, 2.0], [
            row[-1] for row in rows['instance_run_delay_seconds_total']])
        self.assertEqual([None] * 3, [
            row[-1] for row in rows['instance_io_wait_seconds_total']])

    def test_limited_by_itself_or_its_group(self) -> None:
        found = totals.Totals([], 2)
        one, other = vm(1), vm(2)
        group = {('/vms', Knob.CPU_SET): LIMIT}
        every = {('background', Knob.LLC_WAYS): LIMIT}
        own = {(one.workload.id, Knob.CPU_CORES): LIMIT}
        for time_s, limits in ((0.0, {}), (1.0, own), (3.0, group),
                               (7.0, every), (7.5, {})):
            found.tick(tick(time_s, sample(time_s, one, other)), limits)
        self.assertEqual([6.5, 4.5], [
            row[-1] for row in found.rows({})[
                'instance_limited_seconds_total']])
