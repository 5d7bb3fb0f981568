# SPDX-License-Identifier: Apache-2.0

"""One order of all that says a priority, from the conductor to a limit."""

from __future__ import annotations

from collections.abc import Iterator
import itertools
import pathlib
from typing import NamedTuple

import fixtures
import testtools

from scavenger_openstack.agent.control_plane import directives as agents
from scavenger_openstack.algorithms import classify
from scavenger_openstack.conductor import directives
from scavenger_openstack.db import directives as rows
from scavenger_openstack.db.flavor_tags import FlavorTag
from scavenger_openstack.decision import tags
from scavenger_openstack.drivers.libvirt import tracked
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadSample
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import report

SAID = (None, 'foreground', 'background')


class Case(NamedTuple):
    """Priorities of one instance: of rules, and of its flavor, which the
    conductor, the definition of the VM on the host, both or none has."""

    instance: str | None
    flavor: str | None
    project: str | None
    told: bool
    written: bool

    @property
    def name(self) -> str:
        return '-'.join(map(str, self))

    @property
    def here(self) -> str | None:
        """What the definition says."""
        return self.flavor if self.written else None


CASES = [Case(*case) for case in itertools.product(
    SAID, SAID, SAID, (False, True), (False, True))]


def rule(value: str) -> rows.Rule:
    return rows.Rule(value, '', 'a test')


def wanted(aggregate: str | None) -> rows.Wanted:
    """The rules of all cases."""
    rules = {('priority', 'instance', one.name): rule(one.instance)
             for one in CASES if one.instance}
    rules |= {('priority', 'project', str(one.project)): rule(one.project)
              for one in CASES if one.project}
    if aggregate:
        rules['priority', 'aggregate', 'b'] = rule(aggregate)
        rules['priority', 'aggregate', 'c'] = rule('foreground')
    return rows.Wanted(rules=rules)


class PriorityTest(testtools.TestCase):

    def followed(self, aggregate: str | None, allow: bool
                 ) -> Iterator[tuple[Case, Workload]]:
        """Each case, and what its VM is in a tick of its agent."""
        found = directives.tags(
            wanted(aggregate), ('a', 'b', 'c'),
            [(one.name, str(one.project), '') for one in CASES],
            [FlavorTag(one.name, one.flavor or 'foreground',
                       'flavor' if one.flavor else 'default', '')
             for one in CASES if one.told])
        agent = agents.Directives(
            pathlib.Path(self.useFixture(fixtures.TempDir()).path),
            allow_background=allow)
        agent.follow(codec.decode(codec.encode(report.Directives(
            issued_s=1.0, digest='d', tags=found)), report.Directives,
            report.MAX_ANSWER_BYTES), 1.0)
        allowed = tracked.Allowed()
        allowed.want(agent.orders.background)
        sample = tags.Tags().apply(HostSample('h', 'b', 1.0, 1.0, tuple(
            WorkloadSample(allowed.of(Workload(
                one.name, Priority(one.here or 'foreground'),
                'flavor' if one.here else 'default', instance=one.name),
                specs_known=one.written)) for one in CASES)), agent.orders)
        return zip(CASES, [one[0] for one in sample.workloads], strict=True)

    def test_a_tag_that_the_definition_contradicts(self) -> None:
        """As of before a resize: the definition is what runs."""
        agent = agents.Directives(
            pathlib.Path(self.useFixture(fixtures.TempDir()).path))
        agent.follow(report.Directives(issued_s=1.0, digest='d', tags=[
            report.Tag(instance='i', priority='foreground',
                       source='flavor')]), 1.0)
        [(found, *_)] = tags.Tags().apply(HostSample('h', 'b', 1.0, 1.0, (
            WorkloadSample(Workload('i', Priority.BACKGROUND, 'flavor',
                                    instance='i')),)),
            agent.orders).workloads
        self.assertIs(Priority.BACKGROUND, found.priority)

    def test_all_combinations(self) -> None:
        """That of the instance, the flavor, the project, the aggregate; and
        the control plane makes nothing background that the host does not let
        it, and nothing whose definition says foreground."""
        for aggregate, allow in itertools.product(SAID, (False, True)):
            for case, found in self.followed(aggregate, allow):
                flavor = case.flavor if case.told or case.written else None
                expected, source, _ = classify.classify(
                    instance=case.instance, flavor=flavor,
                    project=case.project, aggregate=aggregate)
                if case.here == 'foreground' or not (
                        allow or case.here == 'background'):
                    expected = Priority.FOREGROUND
                self.assertIs(expected, found.priority,
                              f'{case} {aggregate} {allow} {source}')
