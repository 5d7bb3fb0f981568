# SPDX-License-Identifier: Apache-2.0


"""What a write knows of the knob as it was before us."""

from __future__ import annotations

from collections.abc import Sequence

import fixtures
import testtools

from scavenger_openstack.agent.apply.actuator import Actuator
from scavenger_openstack.agent.apply.actuator import KnobReading
from scavenger_openstack.agent.apply.actuator import Outcome
from scavenger_openstack.agent.apply.actuator import READ_TICKS
from scavenger_openstack.decision import arbitrate
from scavenger_openstack.drivers import base
from scavenger_openstack import errors
from scavenger_openstack.laboratory.agent_parts import InlineExecutor
from scavenger_openstack.laboratory.agent_parts import SimulatedLeases
from scavenger_openstack import log_once
from scavenger_openstack.simulator.driver import Simulator
from scavenger_openstack.simulator.machine import Machine
from scavenger_openstack.simulator.machine import Tenant
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import phase
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Value

KEY = ('batch', Knob.CPU_CORES)


class Host(Simulator):
    """Keeps what was read, and what each write was handed."""

    def __init__(self, *names: str) -> None:
        super().__init__(Machine(), [Tenant(
            id=name, priority=Priority.BACKGROUND) for name in names], seed=1)
        self.advance(1.0)
        self.handed: list[tuple[Value, Sequence[base.RestoreAction]]] = []
        self.reads: list[str] = []

    def read(self, workload: str, knob: Knob,
             state: base.KnobState | None = None) -> Value | None:
        self.reads.append(workload)
        return super().read(workload, knob, state)

    def write(self, workload: str, knob: Knob, value: Value,
              state: base.KnobState | None = None) -> Value | None:
        self.handed.append((value, state.original.actions if state else ()))
        return super().write(workload, knob, value, state)


class OriginalTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.start(KEY[0])

    def start(self, *names: str) -> None:
        self.host = Host(*names)
        self.leases = SimulatedLeases(self.host)
        self.actuator = Actuator(self.host, self.leases, 0.0,
                                 InlineExecutor())

    def tick(self, cores: float) -> Outcome:
        caps = [Cap(*KEY, cores, 'test', 'the test says so')]
        seen = self.actuator.read(caps)
        return self.actuator.reconcile(
            arbitrate.arbitrate(caps, seen.originals, {}), seen)

    def test_each_write_is_handed_that_of_its_lease(self) -> None:
        before = self.host.restore_actions(*KEY)
        for cores in (1.0, 0.5, 0.75):
            self.tick(cores)
        self.assertEqual([(1.0, before), (0.5, before), (0.75, before)],
                         self.host.handed)
        self.assertEqual(before, self.leases.held()[KEY].original.actions)

    def test_what_another_program_set_is_the_original_from_then_on(self
                                                                   ) -> None:
        self.tick(0.7)
        Simulator.write(self.host, *KEY, 0.8)
        theirs = self.host.restore_actions(*KEY)
        for _ in range(READ_TICKS):
            self.tick(0.7)
        self.assertEqual((0.8, theirs), (
            self.leases.held()[KEY].original.value,
            self.leases.held()[KEY].original.actions))
        self.tick(0.5)
        self.assertEqual((0.5, theirs), self.host.handed[-1])

    def test_what_is_restored_is_no_other_programs(self) -> None:
        """The agent stands still in the middle of a tick until its leases
        have run out, and the watcher restores its limits."""
        log = self.useFixture(fixtures.FakeLogger())
        before = self.host.restore_actions(*KEY)
        self.tick(0.7)

        def ran_out() -> None:
            raise errors.LeaseError('the leases ran out')
        self.host.remove(*KEY)
        self.leases.check = ran_out          # type: ignore[method-assign]
        for _ in range(READ_TICKS):
            self.tick(0.7)
        self.assertIsNone(self.host.read(*KEY))
        self.assertNotIn('another program', log.output)
        self.assertIn('the leases ran out', log.output)
        self.assertEqual(before, self.leases.held()[KEY].original.actions)

    def test_a_write_that_failed_half_way_is_no_other_programs(self) -> None:
        """It may have come into force: what is there is not the original."""
        before = self.host.restore_actions(*KEY)
        self.tick(1.0)
        whole = self.host.restore_actions

        def fail(workload: str, knob: Knob,
                 state: base.KnobState | None = None
                 ) -> Sequence[base.RestoreAction]:
            self.host.restore_actions = whole     # type: ignore[method-assign]
            raise errors.DriverError('not read back')
        self.host.restore_actions = fail          # type: ignore[method-assign]
        self.assertEqual(1, len(self.tick(0.5).problems))
        for _ in range(READ_TICKS):
            self.tick(0.25)
        self.assertEqual((0.25, before), self.host.handed[-1])
        self.assertEqual(before, self.leases.held()[KEY].original.actions)

    def test_a_limit_that_another_thread_sets_meanwhile(self) -> None:
        """What a thread of an earlier tick ends setting between two steps of
        this tick is no limit of the workload's own."""
        cap = Cap(*KEY, 0.5, 'test', 'a test')

        class Ending(InlineExecutor):
            """Ends what it does when it is first asked about it."""

            asked = False

            @property
            def pending(executor) -> set[KnobKey]:
                if not executor.asked:
                    executor.asked = True
                    self.actuator.reconcile({KEY: cap}, KnobReading(
                        {KEY: None}, {KEY: None}))
                return set()

            @pending.setter
            def pending(executor, keys: set[KnobKey]) -> None:
                pass

        self.actuator = Actuator(self.host, self.leases, 0.0,
                                 Ending())
        seen = self.actuator.read([Cap(*KEY, 0.75, 'test', 'a test')])
        self.assertEqual(0.5, self.host.read(*KEY))
        self.assertNotIn(0.5, seen.originals.values())

    def test_the_same_with_other_numbers(self) -> None:
        """Limits and use change in each tick: one line all the same."""
        log = self.useFixture(fixtures.FakeLogger())
        sizes = [2 ** 30]
        for kind in (errors.Refused, errors.DriverError):

            def refuse(workload: str, knob: Knob, value: Value,
                       state: base.KnobState | None = None,
                       kind: type[errors.DriverError] = kind) -> None:
                raise kind(f'{workload} uses {sizes[0] / 3:.1f} MiB, {kind}')
            self.host.write = refuse    # type: ignore[method-assign]
            for _ in range(20):
                sizes[0] = sizes[0] * 9 // 10
                caps = [Cap(KEY[0], Knob.MEMORY_BYTES, sizes[0], 'test', '')]
                self.actuator.reconcile(
                    {(KEY[0], Knob.MEMORY_BYTES): caps[0]},
                    self.actuator.read(caps))
        self.assertEqual(2, len(log.output.splitlines()), log.output)
        self.assertIn('memory_bytes = 112 MiB not set', log.output)

    def test_complaints_of_many_workloads(self) -> None:
        """Batch jobs come and go, and none of them can be limited."""
        def refuse(workload: str, knob: Knob,
                   state: base.KnobState | None = None) -> Value | None:
            raise errors.Unsupported('no such controller')
        self.host.read = refuse                 # type: ignore[method-assign]
        for number in range(2 * log_once.MOST):
            self.actuator.read([Cap(f'job-{number}', Knob.CPU_CORES, 1.0,
                                    'test', 'the test says so')])
        self.assertTrue(log_once.MOST >= max(
            len(one) for one in vars(self.actuator).values()
            if isinstance(one, dict)))


class ReadBackTest(testtools.TestCase):

    def test_each_in_the_ticks_of_its_phase(self) -> None:
        """Those are the same ticks in each process, and after a restart."""
        names = [f'/batch/job-{number}' for number in range(20)]
        host = Host(*names)
        actuator = Actuator(host, SimulatedLeases(host), 0.0,
                            InlineExecutor())
        caps = [Cap(name, Knob.CPU_CORES, 0.5, 'test', '') for name in names]
        wanted = {cap[:2]: cap for cap in caps}
        actuator.reconcile(wanted, actuator.read(caps))
        self.assertEqual(set(names), set(host.reads))
        parts = []
        for _ in range(READ_TICKS):
            host.reads.clear()
            actuator.reconcile(wanted, actuator.read(caps))
            [part] = {int(READ_TICKS * phase(name))
                      for name in host.reads}
            parts.append(part)
            self.assertEqual(sum(
                int(READ_TICKS * phase(name)) == part
                for name in names), len(host.reads))
        self.assertEqual(list(range(READ_TICKS)), sorted(parts))
