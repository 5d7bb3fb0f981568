# SPDX-License-Identifier: Apache-2.0



"""What is told of a decision: the difference from the one before."""

from __future__ import annotations

import dataclasses
from typing import Any

import testtools

from scavenger_openstack.decision.changes import Changed
from scavenger_openstack.decision.changes import Changes
from scavenger_openstack.decision.settle import Decided
from scavenger_openstack.decision.settle import NO_FAST_LOOP
from scavenger_openstack.grounds import Ground
from scavenger_openstack.grounds import GroundKind
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Decision
from scavenger_openstack.types import Incident
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Rates

ONE = Cap('/a', Knob.CPU_CORES, 0.5, 'one', 'because')
KEY = ('/a', Knob.CPU_CORES)
INCIDENT = Incident('i', 1.0, 'h', 'v', 'cpi', 2.0, 1.5, 'cause')


def decided(*wanted: Cap, would: tuple[Cap, ...] = (),
            **incidents: tuple[Incident, ...]) -> Decided:
    return Decided(
        rates=Rates(1.0, 1.0, ()),
        decisions={name: Decision(incidents=found)
                   for name, found in incidents.items()},
        would=would, observed=frozenset(), limited=tuple(Knob),
        fast=NO_FAST_LOOP, originals={},
        wanted={(cap.workload, cap.knob): cap for cap in wanted})


class ChangesTest(testtools.TestCase):

    def follow(self, *steps: Decided) -> list[Changed]:
        changes = Changes()
        return [changes.of(step) for step in steps]

    def test_caps_come_change_and_go(self) -> None:
        tighter = ONE._replace(value=0.25)
        found = self.follow(decided(ONE), decided(ONE), decided(tighter),
                            decided())
        self.assertEqual([{KEY: ONE}, {}, {KEY: tighter}, {KEY: None}],
                         [one.wanted for one in found])

    def test_an_owner_is_a_change_and_a_reason_is_none(self) -> None:
        other = ONE._replace(owner='two')
        found = self.follow(decided(ONE), decided(ONE._replace(reason='x')),
                            decided(other))
        self.assertEqual([{KEY: ONE}, {}, {KEY: other}],
                         [one.wanted for one in found])

    def test_what_would_be_is_told_by_controller(self) -> None:
        two = ONE._replace(owner='two')
        found = self.follow(decided(would=(ONE, two)), decided(would=(two,)))
        self.assertEqual([{('one', *KEY): ONE, ('two', *KEY): two},
                          {('one', *KEY): None}],
                         [one.would for one in found])

    def test_incidents_begin_change_and_end(self) -> None:
        def other(**words: Any) -> Incident:
            fields = {name: getattr(INCIDENT, name)
                      for name in INCIDENT.__dataclass_fields__}
            return Incident(**{**fields, **words})
        named = other(antagonists=('/a',))
        found = self.follow(
            decided(cpi2=(INCIDENT,)), decided(cpi2=(other(value=3.0),)),
            decided(cpi2=(named,)), decided(cpi2=()), decided())
        self.assertEqual(
            [[('cpi2', INCIDENT, False)], [], [('cpi2', named, False)],
             [('cpi2', named, True)], []],
            [list(one.incidents) for one in found])

    def test_grounds_change_materially(self) -> None:
        """By a tenth since the line before, however slowly."""
        def at(share: float) -> Decided:
            return decided(cpi2=(dataclasses.replace(
                INCIDENT, value=share, grounds=(Ground(
                    '/a', GroundKind.DIRECT, share),)),))
        found = self.follow(*(at(0.5 + step / 64) for step in range(25)),
                            decided())
        told = [(place, one.incidents[0].incident)
                for place, one in enumerate(found) if one.incidents]
        self.assertEqual([0, 7, 14, 21, 25], [place for place, _ in told])
        self.assertEqual(0.875, told[-1][1].value)

    def test_nothing_to_decide_from_and_nothing_allowed(self) -> None:
        changes = Changes()
        changes.of(decided(ONE, would=(ONE,), cpi2=(INCIDENT,)))
        self.assertEqual(Changed({KEY: None}), changes.of_none())
        self.assertEqual(Changed(), changes.of_none())
        self.assertEqual(
            Changed({KEY: ONE}),
            changes.of(decided(ONE, would=(ONE,), cpi2=(INCIDENT,))))
