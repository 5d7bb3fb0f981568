# SPDX-License-Identifier: Apache-2.0

"""Instances that are evicted, or recommended to be, without an operator."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import testtools

from scavenger_openstack.conductor.nova import eviction_params
from scavenger_openstack.conductor.nova import shortage
from scavenger_openstack import errors
from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor.cloud import NOW
from scavenger_openstack.tests.unit.conductor import eviction_cases
from scavenger_openstack.tests.unit.conductor.eviction_cases import PARAMS


class AntagonistsOnSqlite(eviction_cases.Antagonists, cloud.Sqlite):
    pass


class ShortagesOnSqlite(eviction_cases.Shortages, cloud.Sqlite):
    pass


class Options(testtools.TestCase):

    def test_a_policy_that_does_not_exist(self) -> None:
        error = self.assertRaises(
            errors.ConfigError, eviction_params.check, dataclasses.replace(
                PARAMS, aggregate_policies={'batch': 'kill'}))
        self.assertIn('batch:kill', str(error))


@st.composite
def hosts(draw: st.DrawFn) -> list[shortage.Host]:
    """Hosts with all sorts of instances, each with a name of its own."""
    priorities = st.sampled_from(('background', 'background', 'foreground'))
    found = []
    for host in range(draw(st.integers(0, 4))):
        instances = [{
            'host_id': host, 'host': f'node-{host}', 'id': number,
            'name': f'{host}-{number}', 'instance': f'{host}-{number}',
            'project': 'p1', 'priority': draw(priorities),
            'flavor': draw(st.sampled_from(('', 'background', 'foreground'))),
            'vcpus': draw(st.sampled_from((0.0, 0.5, 1.0, 2.0, 8.0))),
            'since_s': draw(st.sampled_from((1.0, 2.0, 3.0))),
            'exempt': draw(st.booleans())}
            for number in range(draw(st.integers(0, 7)))]
        found.append(shortage.Host(
            host, draw(st.floats(0.0, 20.0)),
            draw(st.sampled_from(eviction_params.POLICIES)), instances))
    return found


EVICTIONS = st.lists(st.fixed_dictionaries({
    'instance': st.sampled_from(('0-0', '1-2', 'other')),
    'host': st.sampled_from(('node-0', 'node-1', 'node-9')),
    'created_s': st.floats(NOW - 86400.0, NOW)}), max_size=4)


class Decisions(testtools.TestCase):

    @given(hosts(), EVICTIONS, st.sets(st.sampled_from(('0-0', '0-1', '2-0'))),
           st.integers(0, 5), st.integers(1, 5))
    def test_any(self, hosts: list[shortage.Host],
                 recent: list[dict[str, Any]], known: set[str], most: int,
                 per_hour: int) -> None:
        params = dataclasses.replace(PARAMS, per_hour=per_hour)
        decision = shortage.decide(hosts, recent, known, most, params, NOW)
        asked = [one for how, one in decision.steps if how != 'none']
        recommended = [one for how, one in decision.steps if how == 'none']
        for _, one in decision.steps:
            self.assertEqual('background', one['priority'])
            self.assertNotEqual('foreground', one['flavor'])
            self.assertFalse(one['exempt'])
            self.assertNotIn(one['instance'],
                             [row['instance'] for row in recent])
        # The governor's budget.
        in_hour = sum(NOW - row['created_s'] < 3600.0 for row in recent)
        self.assertLessEqual(len(asked), max(0, per_hour - in_hour))
        self.assertLessEqual(len(recommended), most)
        self.assertFalse(known & {one['instance'] for one in recommended})
        # The cool-down.
        cooling = {row['host'] for row in recent
                   if NOW - row['created_s'] < params.cool_down_s}
        self.assertFalse(cooling & {one['host'] for one in asked})
        self.assertEqual(len(asked), len({one['host'] for one in asked}))
        for host in hosts:
            self.needed(host, [(how, one) for how, one in decision.steps
                               if one['host_id'] == host.id])
        # What had no place is left for the next look, and nothing else.
        if len(recommended) < most and in_hour + len(asked) < per_hour:
            self.assertLessEqual(
                decision.later, {host.id for host in hosts
                                 if f'node-{host.id}' in cooling})

    def needed(self, host: shortage.Host, steps: list[Any]) -> None:
        """Without any of them the host would still be short."""
        lacks = sum(one['vcpus'] for one in host.instances
                    if one['priority'] == 'background') - (
                        host.cores + shortage.SLACK_CORES)
        goes = sum(one['vcpus'] for _, one in steps)
        for how, one in steps:
            self.assertEqual(host.policy, how)
            self.assertLess(goes - one['vcpus'], lacks)

    @given(hosts())
    def test_enough(self, hosts: list[shortage.Host]) -> None:
        """If those that may go are enough, so are those that go; if not,
        they all go."""
        for host in hosts:
            found = shortage.newest(host, ())
            lacks = sum(one['vcpus'] for one in host.instances
                        if one['priority'] == 'background') - (
                            host.cores + shortage.SLACK_CORES)
            may = sum(one['vcpus'] for one in host.instances
                      if one['priority'] == 'background'
                      and one['flavor'] != 'foreground' and not one['exempt'])
            self.assertGreaterEqual(sum(one['vcpus'] for one in found) + 1e-9,
                                    min(lacks, may))

    def test_newest_first(self) -> None:
        one = {'host_id': 1, 'host': 'node-1', 'project': 'p1', 'flavor': '',
               'priority': 'background', 'exempt': False}
        instances = [{**one, 'id': number, 'name': name, 'instance': name,
                      'vcpus': vcpus, 'since_s': since_s}
                     for number, (name, vcpus, since_s) in enumerate((
                         ('oldest', 1.0, 1.0), ('b', 2.0, 5.0),
                         ('c', 2.0, 5.0), ('newest', 1.0, 9.0)))]
        for cores, expected in (
                (5.5, []), (5.4, ['newest']), (4.5, ['newest']),
                (4.0, ['c']),   # 'newest' alone is too little, 'c' is enough
                (3.0, ['newest', 'c']), (0.0, ['newest', 'c', 'b', 'oldest'])):
            found = shortage.newest(shortage.Host(1, cores, 'stop', instances),
                                    ())
            self.assertEqual(expected, [one['name'] for one in found],
                             str(cores))
