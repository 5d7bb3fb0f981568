# SPDX-License-Identifier: Apache-2.0


"""From rates to wanted caps, with what comes from outside as arguments."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping
import dataclasses
import json
from typing import Any

import testtools

from scavenger_openstack.algorithms.scavenger import scavenger
from scavenger_openstack.algorithms.signals import SIGNALS
from scavenger_openstack.decision import changes
from scavenger_openstack.decision.controller import DETECTOR
from scavenger_openstack.decision.controller import REGULATOR
from scavenger_openstack.decision.controller import UNUSABLE
from scavenger_openstack.decision import decider
from scavenger_openstack.decision import orders
from scavenger_openstack.decision import settle
from scavenger_openstack.tests.unit.decision.controllers import Fixed
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Cpu
from scavenger_openstack.types import Decision
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Incident
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import Mode
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Value
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates

INCIDENT = Incident('i', 1.0, 'h', 'v', 'cpi', 2.0, 1.5, 'cache',
                    antagonists=('/a',), action='limit /a')
HALF = Cap('/a', Knob.CPU_CORES, 0.5, 'one', 'because')


class Faulty(Fixed):
    """A detector that fails whenever it is told to."""

    kind = DETECTOR
    fails = False

    def compare(self, specs: object) -> None:
        """It has none."""

    def allow(self, budget: object) -> None:
        """It limits all the same."""

    def evidence(self, incident: object) -> tuple[()]:
        return ()

    def step(self, now: float, rates: Rates) -> Decision:
        if self.fails:
            raise ZeroDivisionError('a fault')
        return self.decision


def rates(*background: str, killable: bool = False, created_s: float = 0.0,
          floor: Mapping[Knob, float] | None = None) -> Rates:
    return Rates(1.0, 1.0, tuple(
        WorkloadRates(Workload(name, Priority.BACKGROUND, killable=killable,
                               created_s=created_s, floor=floor or {}), 1.0,
                      memory_bytes=500)
        for name in background))


class DeciderTestCase(testtools.TestCase):
    """Decides once, and keeps what was proposed."""

    def decide(self, one: decider.Decider, seen: Rates | None = None, *,
               held_back: bool = False, now: float = 1.0,
               originals: Mapping[KnobKey, Value | None] | None = None,
               fast: settle.FastLoopState = settle.NO_FAST_LOOP,
               unmet: Mapping[str, int] = {},
               pending: Collection[KnobKey] = ()) -> settle.Decided:
        self.proposal = one.propose_from(
            dataclasses.replace(seen or rates('/a'), time_s=now),
            held_back=held_back, unmet=unmet, pending=pending)
        return settle.settle(self.proposal, originals or {}, fast)


class DecideTest(DeciderTestCase):

    def test_each_mode(self) -> None:
        wish, other = HALF, HALF._replace(value=0.25, owner='two')
        one = decider.Decider([(Fixed('one', wish), Mode.ENFORCE),
                               (Fixed('two', other), Mode.OBSERVE),
                               (Fixed('three', other), Mode.OFF)])
        found = self.decide(one)
        self.assertEqual({('/a', Knob.CPU_CORES): wish}, found.wanted)
        self.assertEqual([other], found.would)
        self.assertEqual(['one', 'two'], list(found.decisions))
        self.assertEqual([wish], self.proposal.caps)

    @staticmethod
    def actions(found: settle.Decided) -> list[str]:
        """Of all incidents, what operators are told."""
        return [incident.action for incident
                in changes.reported_incidents(found).values()]

    def test_an_action_says_whether_anything_is_limited(self) -> None:
        """The controllers do not know, and recordings say what they said."""
        for mode, knob, held_back, action in (
                (Mode.ENFORCE, Knob.CPU_CORES, False, 'limit /a'),
                (Mode.OBSERVE, Knob.CPU_CORES, False, 'would limit /a'),
                (Mode.ENFORCE, Knob.MEMORY_BYTES, False, 'would limit /a'),
                (Mode.ENFORCE, Knob.CPU_CORES, True, 'would limit /a')):
            fixed = Fixed('one')
            fixed.decision = Decision(incidents=(INCIDENT,))
            found = self.decide(decider.Decider([(fixed, mode)], [knob]),
                                held_back=held_back)
            self.assertEqual([action], self.actions(found))
            self.assertEqual((INCIDENT,), found.decisions['one'].incidents)

    def test_nor_is_what_is_exempt(self) -> None:
        fixed = Fixed('one')
        fixed.decision = Decision(incidents=(INCIDENT,))
        found = self.decide(decider.Decider([(fixed, Mode.ENFORCE)]))
        for exempt, action in (({'/a'}, 'would limit /a'),
                               ({'/b'}, 'limit /a')):
            self.assertEqual([action], self.actions(
                found._replace(exempt=exempt)))

    def test_nor_is_what_an_override_frees(self) -> None:
        """Of those that an action names, the others are limited."""
        fixed = Fixed('one')
        fixed.decision = Decision(incidents=(dataclasses.replace(
            INCIDENT, action='limit /a, /b', antagonists=('/a', '/b', '/c')),))
        found = self.decide(decider.Decider([(fixed, Mode.ENFORCE)]))
        knob = SIGNALS[INCIDENT.signal].knob
        more: dict[str, Any]
        for freed, action in (
                (['/a'], 'limit /b'), (['/c'], 'limit /a, /b'),
                (['/a', '/b'], 'would limit /a, /b')):
            for more in ({'exempt': freed},
                         {'unlimited': [(name, knob) for name in freed]}):
                self.assertEqual([action], self.actions(
                    found._replace(**more)))

    def test_what_limits_nothing_is_told_as_it_is(self) -> None:
        for action in ('', 'nothing now'):
            fixed = Fixed('one')
            fixed.decision = Decision(incidents=(dataclasses.replace(
                INCIDENT, action=action),))
            self.assertEqual([action], self.actions(self.decide(
                decider.Decider([(fixed, Mode.OBSERVE)]))))

    def test_what_is_not_protected_is_only_shown(self) -> None:
        memory = HALF._replace(knob=Knob.MEMORY_BYTES, value=1000)
        one = decider.Decider(
            [(Fixed('one', HALF, memory), Mode.ENFORCE)],
            [Knob.MEMORY_BYTES])
        found = self.decide(one)
        self.assertEqual({memory[:2]: memory}, found.wanted)
        self.assertEqual([HALF], found.would)

    def test_a_detector_limits_no_foreground(self) -> None:
        """It may name one as an antagonist."""
        seen = rates('/a')
        seen = dataclasses.replace(seen, workloads=(
            *seen.workloads, WorkloadRates(Workload(
                '/web', Priority.FOREGROUND), 1.0)))
        for mode in (Mode.ENFORCE, Mode.OBSERVE):
            detector = Faulty('one', HALF._replace(workload='/web'), HALF)
            found = self.decide(decider.Decider([(detector, mode)]), seen)
            self.assertEqual([HALF], [*found.wanted.values(), *found.would])

    def test_a_detector_that_fails_rests_and_the_others_go_on(self) -> None:
        faulty = Faulty('two', HALF._replace(knob=Knob.PAUSED, value=1))
        one = decider.Decider([(faulty, Mode.ENFORCE),
                               (Fixed('one', HALF), Mode.ENFORCE)])
        self.assertEqual(2, len(self.decide(one).wanted))
        faulty.fails = True
        found = self.decide(one, now=2.0)
        self.assertEqual([HALF], list(found.wanted.values()))
        self.assertEqual(['two'], list(self.proposal.faults))
        faulty.fails = False
        found = self.decide(one, now=2.0 + decider.FAULT_REST_S / 2)
        self.assertEqual(([HALF], {}, {'fault': 'ZeroDivisionError: a fault'}),
                         ([*found.wanted.values()], self.proposal.faults,
                          found.decisions['two'].facts))
        self.assertEqual(2, len(self.decide(
            one, now=2.0 + decider.FAULT_REST_S).wanted))

    def test_a_regulator_that_fails_ends_all(self) -> None:
        faulty = Faulty('two')
        faulty.fails, faulty.kind = True, REGULATOR
        self.assertRaises(ZeroDivisionError, self.decide, decider.Decider(
            [(faulty, Mode.ENFORCE)]))

    def test_held_back_wants_nothing_and_says_what_it_would(self) -> None:
        limit = Cap('/a', Knob.MEMORY_BYTES, 400, scavenger.NAME, 'because')
        one = decider.Decider([(Fixed('one', limit), Mode.ENFORCE)])
        self.decide(one, unmet={'/a': 100})
        self.assertIn(('/a', Knob.PAUSED),
                      [cap[:2] for cap in self.proposal.wishes])
        decided = self.decide(one, held_back=True, unmet={'/a': 100})
        self.assertEqual(({}, [limit], []), (
            decided.wanted, decided.would, self.proposal.caps))
        self.decide(one)
        self.assertEqual([limit], self.proposal.wishes)

    def test_originals_and_floors_bound_a_wish(self) -> None:
        one = decider.Decider([(Fixed('one', HALF), Mode.ENFORCE)])
        key = ('/a', Knob.CPU_CORES)
        self.assertEqual({}, self.decide(one, originals={key: 0.4}).wanted)
        found = self.decide(one, rates('/a', floor={Knob.CPU_CORES: 0.7}))
        self.assertEqual(0.7, found.wanted[key].value)

    def test_an_own_set_without_a_cpu_online_bounds_nothing(self) -> None:
        cpus = Cap('/a', Knob.CPU_SET, '2-5', 'one', '')
        vm = cpus._replace(workload='a-uuid')
        one = decider.Decider([(Fixed('one', cpus, vm), Mode.ENFORCE)])
        for topology, original, wanted in (
                (range(6), '6-7', '2-5'), (range(7), '6-7', None),
                (range(6), '5-7', '5'), (range(0), '6-7', None),
                (range(6), 'x', '2-5')):
            found = self.decide(one, dataclasses.replace(
                rates('/a'), topology={cpu: Cpu(cpu, 0, 0)
                                       for cpu in topology}),
                originals={cpus[:2]: original, vm[:2]: '6-7'})
            self.assertEqual({cpus[:2]: wanted} if wanted else {}, {
                key: cap.value for key, cap in found.wanted.items()})
            self.assertEqual(original, found.originals[cpus[:2]])

    def test_what_the_fast_loop_leaves_over(self) -> None:
        cpus = Cap('/g', Knob.CPU_SET, '0', 'one', '')
        floor = HALF._replace(value=0.1, owner='perfiso')
        one = decider.Decider([(Fixed('one', cpus, HALF), Mode.ENFORCE)])

        found = self.decide(one, fast=settle.FastLoopState(('/g',), (floor,)))
        self.assertEqual([cpus, HALF], self.proposal.wishes)
        self.assertEqual({('/a', Knob.CPU_CORES): floor}, found.wanted)

    def test_what_was_proposed_may_be_settled_again(self) -> None:
        """It is a value."""
        one = decider.Decider([(Fixed('one', HALF), Mode.ENFORCE)])
        key = ('/a', Knob.CPU_CORES)
        first = self.decide(one)
        proposal = self.proposal
        self.decide(one, held_back=True)
        self.assertEqual(first, settle.settle(proposal, {}))
        self.assertEqual({}, settle.settle(proposal, {key: 0.4}).wanted)

    def test_state_goes_to_its_controller(self) -> None:
        controllers = [Fixed('one'), Fixed('two'), Fixed('three')]
        one = decider.Decider(zip(controllers, (
            Mode.ENFORCE, Mode.OBSERVE, Mode.OFF), strict=True))
        state = one.state()
        self.assertEqual({'one': {'of': 'one', 'enforced': True},
                          'two': {'of': 'two', 'enforced': False}}, state)
        one.load({'two': state['two'], 'nobody': 1}, 7.0)
        self.assertEqual([None, ('two', 7.0), None],
                         [each.loaded for each in controllers])
        error = self.assertRaises(TypeError, one.load, {
            'one': 1, 'two': state['two']}, 8.0)
        self.assertIsInstance(error, UNUSABLE)
        # One that is damaged takes nothing from the others.
        self.assertEqual(('two', 8.0), controllers[1].loaded)

    def test_what_was_learnt_beside_what_was_not_limited(self) -> None:
        """The background had all it wanted, whatever would have been set:
        what the foreground did beside that is not undisturbed."""
        seen = Rates(1.0, 1.0, (
            *rates('/a').workloads, WorkloadRates(
                Workload('web', Priority.FOREGROUND), 1.0, cpu_cores=1.0,
                cpi=0.5)), {0: Cpu(0, 0, 0)}, 2**30, 2**29)
        for before, after, rule in (
                (Mode.ENFORCE, Mode.ENFORCE, 'holding'),
                (Mode.OBSERVE, Mode.OBSERVE, 'holding'),
                (Mode.ENFORCE, Mode.OBSERVE, 'holding'),
                (Mode.OBSERVE, Mode.ENFORCE, 'learning')):
            params = scavenger.Params(memory_window_s=9.0)
            one = decider.Decider([(scavenger.Controller(params), before)])
            for now in range(1, 30):
                self.decide(one, seen, now=float(now))
            state = json.loads(json.dumps(one.state()))
            one = decider.Decider([(scavenger.Controller(params), after)])
            one.load(state, 30.0)
            facts = self.decide(one, seen, now=31.0).decisions[
                'scavenger'].facts
            self.assertEqual((rule, 'holding'), (
                facts['ipc']['rule'], facts['memory']['rule']))

    def test_rates_are_since_the_sample_before(self) -> None:
        one = decider.Decider([])
        first, second = (HostSample('h', 'b', time_s, 0.0, ())
                         for time_s in (3.0, 5.0))
        found = one.propose(first)
        self.assertEqual((False, True), (found.rates.complete, found.reset))
        found = one.propose(second)
        self.assertEqual((2.0, False), (found.rates.interval_s, found.reset))
        one.forget_sample()
        self.assertTrue(one.propose(second).reset)


class RefusedMemoryTest(DeciderTestCase):
    """Memory that could not be reclaimed in the last tick."""

    def setUp(self) -> None:
        super().setUp()
        limits = [Cap(name, Knob.MEMORY_BYTES, 400, scavenger.NAME, 'because')
                  for name in ('/a', '/b')]
        self.controller = Fixed(scavenger.NAME, *limits, shortage_bytes=400.0)
        self.one = decider.Decider([(self.controller, Mode.ENFORCE)])

    def paused(self, seen: Rates | None = None, **last_tick: Any
               ) -> list[str]:
        self.decided = self.decide(self.one, seen or rates('/a', '/b'),
                                   **last_tick)
        return [cap.workload for cap in self.proposal.wishes
                if cap.knob is Knob.PAUSED]

    def test_a_refused_workload_is_paused_until_it_is_not(self) -> None:
        self.assertEqual(['/a'], self.paused(unmet={'/a': 100}))
        pause = self.decided.wanted['/a', Knob.PAUSED]
        self.assertEqual(1, pause.value)
        self.assertIn('100 bytes', pause.reason)
        self.assertIn(pause, self.proposal.caps)
        self.assertEqual([], self.proposal.kills)
        self.assertEqual([], self.paused())

    def test_it_stays_paused_until_the_kernel_has_answered(self) -> None:
        self.paused(unmet={'/a': 100})
        pending = {('/a', Knob.MEMORY_BYTES)}
        self.assertEqual(['/a'], self.paused(pending=pending))
        self.assertEqual(['/a', '/b'], self.paused(
            unmet={'/b': 1}, pending=pending))

    def test_without_a_limit_it_is_not_paused(self) -> None:
        """Though the limit may still be being removed."""
        self.paused(unmet={'/a': 100})
        self.controller.decision = Decision(shortage_bytes=400.0)
        self.assertEqual([], self.paused(
            unmet={'/a': 100}, pending={('/a', Knob.MEMORY_BYTES)}))

    def test_one_that_is_made_again_is_not_paused(self) -> None:
        """As by a hard reboot: its new run was refused nothing."""
        pending = {('/a', Knob.MEMORY_BYTES)}
        for now in (rates('/a', created_s=8.0), rates('/b')):
            self.assertEqual(['/a'], self.paused(
                rates('/a', created_s=7.0), unmet={'/a': 100}))
            self.assertEqual([], self.paused(now, pending=pending))

    def test_an_override_that_is_refused_pauses_nothing(self) -> None:
        override = orders.Override('1', '/a', '', Knob.MEMORY_BYTES, 300,
                                   'because', 9.0)
        self.proposal = self.one.propose_from(
            rates('/a', killable=True), unmet={'/a': 100},
            orders=orders.Orders(overrides=orders.Overrides((override,))))
        self.assertEqual([], self.proposal.kills)
        self.assertNotIn(Knob.PAUSED, {
            cap.knob for cap in self.proposal.wishes})

    def test_killable_workloads_are_killed_for_a_shortage_only(self) -> None:
        seen = rates('/a', '/b', killable=True)
        self.assertEqual([], self.paused(seen, unmet={'/a': 100}))
        [kill] = self.proposal.kills
        self.assertEqual(('/a', 'kill', 'scavenger'), kill[:3])
        self.controller.decision = self.controller.decision._replace(
            shortage_bytes=0.0)
        self.assertEqual(['/a'], self.paused(seen, unmet={'/a': 100}))
        self.assertEqual([], self.proposal.kills)
