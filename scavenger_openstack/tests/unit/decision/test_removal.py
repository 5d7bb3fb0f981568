# SPDX-License-Identifier: Apache-2.0

"""Why a limit is removed: the true cause, by facts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import testtools

from scavenger_openstack.decision import decider
from scavenger_openstack.decision import orders
from scavenger_openstack.decision import removal
from scavenger_openstack.decision import settle
from scavenger_openstack.tests.unit.decision.controllers import Fixed
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Decision
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Mode
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates

CORES = Cap('/a', Knob.CPU_CORES, 0.5, 'one', 'why')
SET = CORES._replace(knob=Knob.CPU_SET, value='0')


class RemovalTest(testtools.TestCase):

    def why(self, cap: Cap, *, decision: Decision | None = None,
            mode: Mode = Mode.ENFORCE, priority: Priority =
            Priority.BACKGROUND, fast: settle.FastLoopState =
            settle.NO_FAST_LOOP, isolation: str = 'off',
            original: float | None = None, name: str = 'one',
            **asked: Any) -> str:
        """Why a limit is gone, where its controller decides that."""
        one = Fixed(name)
        one.decision = decision or Decision()
        wished = orders.Orders(**asked)
        decided = settle.settle(decider.Decider(
            [(one, mode)]).propose_from(Rates(1.0, 1.0, (WorkloadRates(
                Workload('/a', priority, project='p', instance='u'), 1.0),)),
            orders=wished), {cap[:2]: original}, fast)
        self.assertNotIn(cap[:2], decided.wanted)
        return removal.why(cap, decided, wished, isolation)

    def test_each_cause(self) -> None:
        no_limit = orders.Overrides([orders.Override(
            'o', '/a', '', Knob.CPU_CORES, None, 'r', 9.0)])
        causes: list[tuple[str, Callable[[], str]]] = [
            (removal.NOT_NEEDED.format('one'), lambda: self.why(CORES)),
            (removal.NOT_NEEDED.format('scavenger'), lambda: self.why(
                CORES._replace(owner='leftover'))),
            (removal.MODE.format('one', Mode.OBSERVE), lambda: self.why(
                CORES, modes={'one': Mode.OBSERVE})),
            (removal.MODE.format('scavenger', Mode.OFF), lambda: self.why(
                CORES._replace(owner='leftover'), name='scavenger',
                modes={'scavenger': Mode.OFF})),
            (removal.OBSERVES.format('one'), lambda: self.why(
                CORES, mode=Mode.OBSERVE)),
            (removal.EXEMPT, lambda: self.why(
                CORES, exempt=frozenset({'p'}), decision=Decision((CORES,)))),
            (removal.UNLIMITED, lambda: self.why(
                CORES, overrides=no_limit, decision=Decision((CORES,)))),
            (removal.OVERRIDE_ENDED, lambda: self.why(
                CORES._replace(owner=orders.OWNER))),
            (removal.FOREGROUND, lambda: self.why(
                CORES, priority=Priority.FOREGROUND)),
            (removal.FAILED.format('one', 'ValueError: x'), lambda: self.why(
                CORES, decision=Decision(facts={'fault': 'ValueError: x'}))),
            ('the host is full', lambda: self.why(CORES, decision=Decision(
                removal_reasons={CORES[:2]: 'the host is full'}))),
            (removal.TIGHTER, lambda: self.why(
                CORES, decision=Decision((CORES,)), original=0.3)),
            (removal.FAST_LOOP, lambda: self.why(
                SET, fast=settle.FastLoopState(('/a',)))),
            (removal.RECLAIMED, lambda: self.why(
                CORES._replace(knob=Knob.PAUSED, value=1))),
            (removal.CPUS_AGAIN, lambda: self.why(
                CORES._replace(owner='perfiso'), isolation='running on 0-3')),
            (removal.ISOLATION.format('off: no BPF'), lambda: self.why(
                SET._replace(owner='perfiso'), isolation='off: no BPF'))]
        for cause, why in causes:
            self.assertEqual(cause, why())

    def test_what_an_operator_did_comes_first(self) -> None:
        self.assertEqual(removal.EXEMPT, self.why(
            CORES, exempt=frozenset({'p'}), modes={'one': Mode.OBSERVE}))
        self.assertEqual(removal.MODE.format('one', Mode.OBSERVE), self.why(
            CORES, modes={'one': Mode.OBSERVE},
            decision=Decision(removal_reasons={CORES[:2]: 'it rests'})))
