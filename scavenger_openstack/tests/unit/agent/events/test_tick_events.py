# SPDX-License-Identifier: Apache-2.0

"""What the events of a tick say, and what of it the log has."""

from __future__ import annotations

from typing import Any

import fixtures
import testtools

from scavenger_openstack.agent.events import tick_events
from scavenger_openstack.agent.isolation import blind_isolation
from scavenger_openstack.agent import loop
from scavenger_openstack.algorithms.perfiso import perfiso
from scavenger_openstack.decision import decider
from scavenger_openstack.decision import orders
from scavenger_openstack.decision import removal
from scavenger_openstack.decision import settle
from scavenger_openstack.drivers.base import MADE_AGAIN
from scavenger_openstack.drivers.libvirt import domain_cache
from scavenger_openstack import events
from scavenger_openstack.events import Event
from scavenger_openstack.grounds import Ground
from scavenger_openstack.grounds import GroundKind
from scavenger_openstack.tests.unit.agent import limits
from scavenger_openstack.tests.unit.agent.limits import CORES
from scavenger_openstack.tests.unit.agent.limits import OPS
from scavenger_openstack.tests.unit.decision.controllers import Fixed
from scavenger_openstack.tests.unit.libvirtd import UUID
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Decision
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Incident
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Mode
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadSample
from scavenger_openstack.wire import report

ID = 'a' * 32
WISHES = ((CORES, 0.5), (OPS, 100.0))
REMOVED = (f'2 limits removed: {UUID} cpu_cores has no limit, io_ops_per_s '
           'has no limit: {} (owner); see scavenger-agent history for each')


class TickEventsTest(limits.LimitsTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.start()
        self.driver = self.libvirtd.driver
        self.now = 0.0
        self.begin()
        self.tick(*WISHES)
        [line] = self.told()
        self.assertIn('2 limits set', line)

    def begin(self) -> None:
        """A recorder that has told nothing yet."""
        self.events: list[Event] = []
        nothing: Any = None
        self.tick_events = tick_events.TickEvents(
            self.leases, self.actuator,
            blind_isolation.BlindIsolation(
                nothing, self.leases, perfiso.Params(), Mode.OFF),
            self.driver.ends.why, self.events.extend)

    def told(self, *, here: bool = True, state: str = tick_events.RUNNING,
             **more: Any) -> list[str]:
        """What the last tick adds to the log."""
        self.now += 1
        log = self.useFixture(fixtures.FakeLogger())
        sample = HostSample('h', 'b', self.now, self.now, (WorkloadSample(
            Workload(UUID, Priority.BACKGROUND)),) if here else ())
        self.tick_events.tick(loop.Tick(self.now, sample, **more), state, {},
                           ())
        return log.output.splitlines()

    def ends(self, how: str) -> None:
        library = self.libvirtd.library
        self.libvirtd.happens(
            'LIFECYCLE', None, library.VIR_DOMAIN_EVENT_STOPPED,
            getattr(library, f'VIR_DOMAIN_EVENT_STOPPED_{how}'))

    def test_each_cpu_set_of_the_fast_loop(self) -> None:
        """One that it has not written yet, or does not move, is no limit."""
        keys = [(name, Knob.CPU_SET) for name in (UUID, '/batch', '/left')]
        limits = tick_events.limits_in({}, keys, 'perfiso',
                                       {UUID: '2', '/batch': '2-7'})
        self.assertEqual({keys[0]: '2', keys[1]: '2-7'},
                         {key: cap.value for key, cap in limits.items()})

    def test_it_ended(self) -> None:
        self.ends('MIGRATED')
        self.machine.stop()
        self.tick()
        self.assertEqual([REMOVED.format('the VM migrated to another host')],
                         self.told(here=False))

    def test_libvirt_says_why_a_little_later(self) -> None:
        self.machine.stop()
        self.tick()
        self.assertEqual([], self.told(here=False))
        self.ends('CRASHED')
        self.assertEqual([REMOVED.format('its QEMU crashed or was killed')],
                         self.told(here=False))

    def test_it_ended_and_libvirt_does_not_say_why(self) -> None:
        self.machine.stop()
        self.tick()
        for _ in range(int(tick_events.WAIT_S)):
            self.assertEqual([], self.told(here=False))
        self.assertEqual([REMOVED.format(tick_events.NOT_THERE)],
                         self.told(here=False))

    def test_it_was_started_again(self) -> None:
        self.ends('SHUTDOWN')
        self.machine.start()
        self.libvirtd.tell(until=lambda: (
            limits.gone(self.driver)
            and bool(self.driver.sample())))    # the new run is seen, too
        self.tick(*WISHES)
        self.assertEqual(
            [REMOVED.format('the VM shut down, and was started again')],
            self.told())
        self.tick(*WISHES)
        [line] = self.told()
        self.assertIn('2 limits set', line)

    def test_it_was_started_again_and_its_files_say_so_first(self) -> None:
        self.ends('SHUTDOWN')
        self.machine.start()
        self.libvirtd.tell(until=lambda: (
            limits.gone(self.driver)
            and bool(self.driver.sample())))
        self.tick(*WISHES)
        self.actuator.gone[CORES] = MADE_AGAIN
        self.assertEqual(
            [REMOVED.format('the VM shut down, and was started again')],
            self.told())

    def test_no_controller_asks(self) -> None:
        """Also when an earlier run of the VM ended."""
        self.ends('SAVED')
        self.driver.ends.begins(UUID)
        self.machine.stop()     # or virsh would be asked
        self.tick()
        self.assertEqual([REMOVED.format(removal.NOT_NEEDED.format('owner'))],
                         self.told())

    def test_an_operator_asks_for_none(self) -> None:
        keys = [(UUID, knob) for knob in Knob]
        self.assertEqual(removal.UNLIMITED, self.orders(
            unlimited=keys, exempt={UUID}))

    def test_it_is_exempt(self) -> None:
        self.assertEqual(removal.EXEMPT, self.orders(exempt={UUID}))

    def orders(self, **found: Any) -> str:
        """Why it has no limit while these orders hold."""
        nothing: Any = None
        self.machine.stop()     # or virsh would be asked
        self.tick()
        [line] = self.told(decided=settle.Decided(
            nothing, {}, (), (), (), nothing, {}, {}, **found))
        return line.partition('has no limit: ')[2].partition(' (')[0]

    def test_an_override_that_ended(self) -> None:
        for _ in range(9):
            self.tick(*WISHES, owner=orders.OWNER)
            self.told()
        self.machine.stop()     # or virsh would be asked
        self.tick()
        nothing: Any = None
        [line] = self.told(decided=settle.Decided(
            nothing, {}, (), (), (), nothing, {}, {}))
        self.assertIn(removal.OVERRIDE_ENDED, line)

    def test_the_watcher_cannot_restore_it(self) -> None:
        self.tick(*WISHES)
        self.assertEqual([], self.told(lost=[CORES, OPS]))
        self.machine.stop()     # or virsh would be asked
        self.tick()
        self.assertEqual([REMOVED.format(tick_events.LOST)], self.told())

    def test_the_agent_may_set_none(self) -> None:
        self.machine.stop()
        self.tick()
        self.assertEqual([REMOVED.format('holding back: no watcher')],
                         self.told(state='holding back: no watcher'))

    def test_an_incident_of_a_controller_that_observes(self) -> None:
        for mode, action in ((Mode.OBSERVE, 'would limit /a'),
                             (Mode.ENFORCE, 'limit /a')):
            fixed = Fixed('one')
            fixed.decision = Decision(incidents=(Incident(
                'i', 1.0, 'h', 'v', 'cpi', 2.0, 1.5, 'cache',
                antagonists=('/a',), action='limit /a'),))
            proposal = decider.Decider([(fixed, mode)]).propose_from(
                Rates(1.0, 1.0, ()))
            [line] = self.told(decided=settle.settle(proposal, {}))
            self.assertIn(f'action: {action};', line)

    def test_incidents_end_with_the_agent(self) -> None:
        self.decided('cpi')
        [line] = self.ended_lines()
        self.assertIn('outcome: ended', line)

    def decided(self, signal: str, **incident: Any) -> list[str]:
        """What is told of an incident of a controller that enforces."""
        fixed = Fixed('owner')
        fixed.decision = Decision(incidents=(Incident(
            ID, 1.0, 'h', 'v', signal, 2.0, 1.5, 'cache', **incident),))
        return self.told(decided=settle.settle(decider.Decider(
            [(fixed, Mode.ENFORCE)]).propose_from(Rates(1.0, 1.0, ())), {}))

    def ended_lines(self) -> list[str]:
        log = self.useFixture(fixtures.FakeLogger())
        self.tick_events.end(self.now + 1, 0)
        return [line for line in log.output.splitlines()
                if line.startswith('incident')]

    def test_a_limit_says_which_incidents_it_answers(self) -> None:
        """Only that of its knob, and of the controller that set it."""
        for signal, answered in (('cpi', [ID]), ('io_wait', [])):
            self.begin()
            self.decided(signal, antagonists=(UUID,))
            events = self.events[-3:]
            self.assertEqual(['began', 'set', 'set'],
                             [event.what for event in events
                              if isinstance(event,
                                            report.Limit | report.Incident)])
            self.assertEqual({Knob.CPU_CORES: answered,
                              Knob.IO_OPS_PER_S: []}, {
                event.knob: event.incidents for event in events
                if isinstance(event, report.Limit)})

    def test_the_agent_ends(self) -> None:
        self.machine.stop()
        self.leases.remove_all()
        log = self.useFixture(fixtures.FakeLogger())
        self.tick_events.end(self.now + 1, 0)
        self.assertEqual([REMOVED.format('the agent ends')],
                         log.output.splitlines())


class LogTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        nothing: Any = None
        self.log = self.useFixture(fixtures.FakeLogger())
        self.events: list[Event] = []
        self.tick_events = tick_events.TickEvents(
            nothing, nothing, nothing, nothing, self.events.extend)

    def limit(self, time_s: float, workload: str = '/a',
              knob: Knob = Knob.CPU_CORES, value: float = 0.5,
              what: str = 'set', why: str = '') -> Event:
        return events.limit_event(
            time_s, what, Cap(workload, knob, value, 'o', 'r'),
            lowest=value, highest=value, why=why)

    def test_it_is_bounded_and_the_history_has_all(self) -> None:
        for _ in range(tick_events.LOG_LINES + 50):
            self.tick_events.add([self.limit(0.0)])
        self.assertEqual(tick_events.LOG_LINES,
                         self.log.output.count('limit set'))
        self.assertEqual(tick_events.LOG_LINES + 50, len(self.events))
        self.tick_events.add([self.limit(61.0)])
        self.assertIn('within 60 s: 50; ', self.log.output)

    def test_the_limits_of_a_workload_have_one_line(self) -> None:
        """As after a reboot of a VM; the history has a line for each."""
        knobs = {Knob.CPU_CORES: 0.5, Knob.MEMORY_BYTES: 64.0 * 2 ** 20,
                 Knob.IO_BYTES_PER_S: 1e7}
        for time_s, what, why in ((1.0, 'removed', 'it ended'),
                                  (2.0, 'set', '')):
            self.tick_events.add([
                self.limit(time_s, workload, knob, value, what, why)
                for knob, value in knobs.items()
                for workload in ('vm1', 'vm2')])
        self.assertEqual([line for workload in ('vm1', 'vm2') for line in (
            f'3 limits removed: {workload} cpu_cores has no limit, '
            'memory_bytes has no limit, io_bytes_per_s has no limit: it '
            'ended (o); see scavenger-agent history for each',
            f'3 limits set: {workload} cpu_cores = 0.5 cores, memory_bytes = '
            '64 MiB, io_bytes_per_s = 10 MB/s (o); see scavenger-agent '
            'history for each')], sorted(
                self.log.output.splitlines(), key=lambda line: (
                    'vm2' in line, 'set' in line.split(':')[0])))
        self.assertEqual(12, len(self.events))


class AnsweredTest(testtools.TestCase):

    def incident(self, name: str, signal: str = 'cpi', **more: Any
                 ) -> Incident:
        return Incident(name, 1.0, 'h', f'victim of {name}', signal, 2.0,
                        1.0, 'cache', **more)

    def answered(self, *incidents: Incident, owner: str = 'c'
                 ) -> tuple[str, ...]:
        return tick_events.answered_by(
            Cap('/a', Knob.CPU_CORES, 0.5, owner, 'r'),
            {('c', one.id): one for one in incidents})

    def test_each_incident_that_names_the_workload(self) -> None:
        both = [self.incident(name, antagonists=('/b', '/a'))
                for name in ('i', 'j')]
        others = [self.incident('k', antagonists=('/b',)),
                  self.incident('l', 'io_wait', antagonists=('/a',))]
        self.assertEqual(('i', 'j'), self.answered(*both, *others))
        self.assertEqual((), self.answered(*others))
        self.assertEqual((), self.answered(*both, owner='other'))

    def test_an_experiment_is_of_one_incident(self) -> None:
        grounds = (Ground('/a', GroundKind.TIMING, 0.9),)
        suspected = [self.incident(name, grounds=grounds)
                     for name in ('i', 'j')]
        self.assertEqual(('i',), self.answered(*suspected))
        self.assertEqual(('k',), self.answered(
            *suspected, self.incident('k', antagonists=('/a',))))


class EndsTest(testtools.TestCase):

    def test_why_is_that_of_the_last_run(self) -> None:
        ends = domain_cache.Ends()
        again = 'a, and was started again'
        ends.begins(UUID)
        self.assertEqual(domain_cache.AGAIN, ends.again(UUID))
        ends.over(UUID)
        self.assertIsNone(ends.why(UUID))
        ends.record(UUID, 'a')
        self.assertEqual(('a', again), (ends.why(UUID), ends.again(UUID)))
        ends.begins(UUID)
        self.assertEqual((again, again), (ends.why(UUID), ends.again(UUID)))
        ends.over(UUID)
        self.assertIsNone(ends.why(UUID))
        ends.begins(UUID)
        self.assertEqual(domain_cache.AGAIN, ends.why(UUID))

    def test_so_many_are_remembered(self) -> None:
        ends = domain_cache.Ends()
        for number in range(2 * domain_cache.MOST_ENDS):
            ends.record(str(number), 'a')
            ends.begins(str(number))
        self.assertEqual(domain_cache.AGAIN, ends.again('0'))
