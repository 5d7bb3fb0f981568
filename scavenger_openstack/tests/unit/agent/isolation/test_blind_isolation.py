# SPDX-License-Identifier: Apache-2.0

"""Blind isolation between the loops, on groups and CPUs of a test."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import pathlib
import threading
import time
from typing import Any

import fixtures
import testtools

from scavenger_openstack.agent.isolation import blind_isolation
from scavenger_openstack.agent.lease import leases
from scavenger_openstack.algorithms.perfiso import perfiso
from scavenger_openstack.decision import settle
from scavenger_openstack.drivers import base
from scavenger_openstack import errors
from scavenger_openstack.knobs import DEFAULT_FLOORS
from scavenger_openstack.restore import cgroup
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Cpu
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import Mode
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates

GROUP = '/batch'
VM = '11111111-2222-3333-4444-555555555555'


class Cpus:
    """What BPF would say: so many of the CPUs that are asked for are idle.
    """

    made = 0
    idle: frozenset[int] = frozenset()

    def __init__(self) -> None:
        type(self).made += 1

    def idle_count(self, cpus: frozenset[int]) -> int:
        return len(self.idle & cpus)

    def refresh(self) -> None:
        pass

    def observe(self) -> None:
        pass

    def close(self) -> None:
        pass


class Group:
    """A CPU set that takes anything."""

    def __init__(self) -> None:
        self.written: list[frozenset[int]] = []
        self.refreshed = 0
        self.is_grown = self.is_due = self.is_set = False

    def has(self, cpus: frozenset[int]) -> bool:
        return self.is_set

    def set(self, cpus: frozenset[int]) -> None:
        self.written.append(cpus)

    def unleased(self) -> dict[int, frozenset[int]] | None:
        return {} if self.is_grown else None

    def refresh(self, leased: Sequence[base.RestoreAction]) -> bool:
        self.refreshed += 1
        return self.is_due


class Host:
    """Driver, leases and actuator at once: what isolation asks of them.

    :ivar originals: the set of each group before us
    :ivar refused: what the driver says of groups
    """

    def __init__(self) -> None:
        self.group = Group()
        self.groups = {GROUP: self.group}
        self.originals: dict[str, str] = {}
        self.refused: dict[str, errors.ScavengerError] = {}
        self.holds = 0
        self.held_groups: set[str] = set()
        self.lost_keys: set[KnobKey] = set()
        self.leased: dict[KnobKey, base.KnobState] = {}
        self.without_lease: set[str] = set()

    def fast_cpu_set(self, group: str) -> Group:
        return self.groups.setdefault(group, Group())

    def check(self) -> None:
        pass

    @contextlib.contextmanager
    def writing(self, workload: str, knob: Knob) -> Iterator[None]:
        if workload in self.without_lease:
            raise errors.LeaseError('it has no lease')
        yield

    def held(self) -> dict[KnobKey, base.KnobState]:
        for number, (group, text) in enumerate(self.originals.items()):
            key = (group, Knob.CPU_SET)
            if key not in self.leased or self.leased[key].original[0] != text:
                self.leased[key] = base.KnobState(base.Setting(text, [{
                    'do': 'write', 'dir': group, 'inode': number,
                    'file': 'cpuset.cpus', 'text': text}]))
        return self.leased

    def lost(self) -> set[KnobKey]:
        return self.lost_keys

    def hold(self, workload: str, knob: Knob,
             theirs: Mapping[int, frozenset[int]] | None) -> None:
        self.holds += 1
        if workload in self.refused:
            raise self.refused[workload]
        self.held_groups.add(workload)


def vm(name: str = VM, pins: Iterable[int] | None = None) -> WorkloadRates:
    """A background VM."""
    return WorkloadRates(Workload(
        name, Priority.BACKGROUND, group=name, instance=name,
        allowed_cpus=None if pins is None else frozenset(pins)), 1.0)


def foreground(name: str, cpus: Iterable[int] | None = None,
               **more: Any) -> WorkloadRates:
    return WorkloadRates(Workload(
        name, Priority.FOREGROUND, group=name,
        allowed_cpus=None if cpus is None else frozenset(cpus), **more), 1.0)


class IsolationTestCase(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.logs = self.useFixture(fixtures.FakeLogger())
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.drivers.kernel.sched_switch.SchedSwitch',
            Cpus))
        Cpus.made, Cpus.idle = 0, frozenset(range(64))
        self.host = Host()

    def start(self, mode: Mode = Mode.ENFORCE, **params: Any) -> None:
        host: Any = self.host
        self.isolation = blind_isolation.BlindIsolation(
            host, host, perfiso.Params(grow_interval_ms=0.1, **params), mode)
        self.addCleanup(lambda: self.isolation.stop())

    def follow(self, cpus: Iterable[int], *more: WorkloadRates,
               claim: str = '', now: float = 1.0,
               busy_s: Mapping[int, float] = {},
               isolated: Iterable[int] = (), held_back: bool = False,
               floor: Mapping[Knob, float] = {}) -> settle.FastLoopState:
        host: Any = self.host
        batch = WorkloadRates(Workload('/batch/a', Priority.BACKGROUND,
                                       group=GROUP, floor=floor), 1.0)
        wishes = [Cap(GROUP, Knob.CPU_SET, claim, 'scavenger', '')] * bool(
            claim)
        return self.isolation.follow(
            wishes, Rates(now, 1.0, (batch, *more), topology={
                cpu: Cpu(cpu, 0, 0, cpu in isolated or None)
                for cpu in cpus}, cpu_busy_s=busy_s),
            held_back, host)

    def state(self) -> str:
        return str(self.isolation.facts()['state'])

    def settled(self) -> frozenset[int]:
        """What the group has after the loop had some polls more."""
        end = self.isolation.facts()['polls'] + 200
        deadline = time.monotonic() + 30
        while self.isolation.facts()['polls'] < end:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.001)
        return self.host.group.written[-1]


class TestVms(IsolationTestCase):

    def last(self, *names: str) -> list[frozenset[int]]:
        """What each has after the loop had some polls more."""
        self.settled()
        return [self.host.groups[name].written[-1] for name in names]

    def facts(self, name: str) -> Any:
        return self.isolation.facts()[name]

    def test_they_move_with_the_containers(self) -> None:
        self.start()
        Cpus.idle = frozenset()
        self.assertEqual(settle.FastLoopState((GROUP, VM)),
                         self.follow(range(16), vm()))
        self.assertTrue(self.isolation.owns((VM, Knob.CPU_SET)))
        self.assertEqual([{15}, {15}], self.last(GROUP, VM))
        Cpus.idle = frozenset(range(64))
        self.assertEqual([set(range(16))] * 2, self.last(GROUP, VM))
        self.assertEqual({GROUP: '0-15', VM: '0-15'}, self.facts('groups'))

    def test_nothing_but_vms(self) -> None:
        self.start()
        host: Any = self.host
        topology = {cpu: Cpu(cpu, 0, 0) for cpu in range(16)}
        self.assertEqual(settle.FastLoopState((VM,)), self.isolation.follow(
            [], Rates(1.0, 1.0, (vm(),), topology=topology), False, host))
        self.assertEqual(settle.NO_FAST_LOOP, self.isolation.follow(
            [], Rates(2.0, 1.0, (), topology=topology), False, host))
        self.assertEqual('off', self.state())

    def test_one_comes_and_one_goes(self) -> None:
        """The loop goes on, and who comes has the others' CPUs at once."""
        self.start()
        Cpus.idle = frozenset()
        self.follow(range(16))
        self.settled()
        Cpus.idle = frozenset(range(3))         # just the buffer
        self.follow(range(16), vm())
        self.assertEqual([{15}, {15}], self.last(GROUP, VM))
        self.assertEqual({frozenset((15,))},
                         set(self.host.groups[VM].written))
        self.follow(range(16))
        self.assertFalse(self.isolation.owns((VM, Knob.CPU_SET)))
        count = len(self.host.groups[VM].written)
        Cpus.idle = frozenset(range(64))
        self.assertEqual([set(range(16))], self.last(GROUP))
        self.assertEqual(count, len(self.host.groups[VM].written))
        self.assertEqual(1, Cpus.made)

    def test_one_that_is_gone(self) -> None:
        self.start()
        self.follow(range(16), vm())
        self.host.refused[VM] = errors.WorkloadGone('gone')
        self.assertEqual(settle.FastLoopState((GROUP,)),
                         self.follow(range(16), vm()))
        self.assertEqual({}, self.facts('left_out'))
        self.assertEqual(1, Cpus.made)
        # It runs again: in another cgroup.
        del self.host.refused[VM], self.host.groups[VM]
        self.follow(range(16), vm())
        self.assertEqual([set(range(16))], self.last(VM))

    def test_one_that_ends_while_it_is_written(self) -> None:
        self.start()
        self.follow(range(16), vm())
        self.settled()

        def gone(cpus: frozenset[int]) -> None:
            raise errors.WorkloadGone('gone')
        self.host.groups[VM].set = gone     # type: ignore[method-assign]
        Cpus.idle = frozenset()
        self.assertEqual({15}, self.settled())
        self.assertEqual('', self.facts('problem'))

    def test_one_without_a_cpu_set(self) -> None:
        """It is named, in the log once, and the others keep the buffer."""
        self.start()
        self.host.refused[VM] = errors.Unsupported('CPUs of its own')
        for now in range(3):
            self.assertEqual(settle.FastLoopState((GROUP,)),
                             self.follow(range(16), vm(), now=now))
        self.settled()
        self.assertEqual({VM: 'CPUs of its own'}, self.facts('left_out'))
        self.assertEqual([GROUP], list(self.facts('groups')))
        self.assertEqual(1, self.logs.output.count('CPUs of its own'))
        del self.host.refused[VM]
        self.follow(range(16), vm())
        self.assertEqual({}, self.facts('left_out'))

    def test_one_that_is_refused(self) -> None:
        """The others move; it is named, and tried again."""
        self.start()
        self.follow(range(16), vm())
        self.settled()
        taken = self.host.groups[VM].set

        def refused(cpus: frozenset[int]) -> None:
            raise errors.DriverError('not this set')
        self.host.groups[VM].set = refused      # type: ignore[method-assign]
        Cpus.idle = frozenset()
        self.assertEqual({15}, self.settled())
        self.assertEqual('', self.facts('problem'))
        self.follow(range(16), vm())
        self.assertEqual({VM: 'not this set'}, self.facts('left_out'))
        self.assertEqual(1, self.logs.output.count('not this set'))
        self.host.groups[VM].set = taken        # type: ignore[method-assign]
        Cpus.idle = frozenset(range(64))
        self.assertEqual([set(range(16))] * 2, self.last(VM, GROUP))
        self.follow(range(16), vm())
        self.assertEqual({}, self.facts('left_out'))

    def test_all_without_a_cpu_set(self) -> None:
        self.start()
        self.host.refused.update(dict.fromkeys(
            (VM, GROUP), errors.Unsupported('no such controller')))
        self.assertEqual(settle.NO_FAST_LOOP, self.follow(range(16), vm()))
        self.assertEqual('off: no such controller', self.state())

    def test_one_that_cannot_be_recorded(self) -> None:
        """Such as one with a line break in the name of a cgroup."""
        self.start()
        fault = errors.LeaseError('no lease')
        self.host.refused[VM] = fault
        self.assertEqual(settle.FastLoopState((GROUP,)),
                         self.follow(range(16), vm()))
        self.assertEqual({VM: 'no lease'}, self.facts('left_out'))
        self.host.refused[GROUP] = fault
        self.assertEqual(settle.NO_FAST_LOOP, self.follow(range(16), vm()))
        self.assertEqual('off: no lease', self.state())

    def test_one_whose_lease_is_being_replaced(self) -> None:
        """The others move at once, and all is well."""
        self.start()
        self.follow(range(16), vm())
        self.settled()
        count = len(self.host.groups[VM].written)
        self.host.without_lease = {VM}
        Cpus.idle = frozenset()
        self.assertEqual({15}, self.settled())
        self.assertEqual('', self.facts('problem'))
        self.assertEqual(count, len(self.host.groups[VM].written))
        # The next tick has one for it.
        self.host.without_lease = set()
        self.host.groups[VM].is_due = True
        self.follow(range(16), vm())
        self.assertEqual([{15}, {15}], self.last(GROUP, VM))

    def test_no_lease(self) -> None:
        """That is no fault of one group."""
        self.start()
        fault: Any = errors.NotRestorable('no watcher')
        self.host.refused[VM] = fault
        self.assertEqual(settle.NO_FAST_LOOP, self.follow(range(16), vm()))
        self.assertEqual('off: no watcher', self.state())

    def test_what_is_leased_once(self) -> None:
        """Again only if its lease may lack something, or restores nothing."""
        self.start()
        self.host.originals = {VM: '0-15', GROUP: '0-15'}
        for grown, holds in ((False, 2), (False, 2), (True, 3), (False, 3)):
            self.host.groups.setdefault(VM, Group()).is_grown = grown
            self.follow(range(16), vm())
            self.assertEqual(holds, self.host.holds)
        self.host.lost_keys = {(VM, Knob.CPU_SET)}
        fault: Any = errors.NotRestorable('no watcher')
        self.host.refused[VM] = fault
        self.assertEqual(settle.NO_FAST_LOOP, self.follow(range(16), vm()))
        self.assertEqual('off: no watcher', self.state())

    def test_a_lease_that_stays(self) -> None:
        """Its set is not refreshed, unless something is lacking."""
        self.start()
        self.host.originals = {VM: '0-15', GROUP: '0-15'}
        group = self.host.fast_cpu_set(VM)
        self.follow(range(16), vm())    # from now on the original is parsed
        for grown, text, refreshed in ((False, '0-15', 1), (True, '0-15', 2),
                                       (False, '0-15', 2), (False, '0-7', 3)):
            group.is_grown = grown
            self.host.originals[VM] = text
            self.follow(range(16), vm())
            self.assertEqual(refreshed, group.refreshed)

    def test_nothing_to_write(self) -> None:
        self.start()
        self.follow(range(16), vm())
        self.last(VM)
        group = self.host.groups[VM]
        group.is_set, count = True, len(group.written)
        Cpus.idle = frozenset()
        self.last(GROUP)
        self.assertEqual(count, len(group.written))
        self.assertEqual('', self.facts('problem'))

    def test_pins(self) -> None:
        """Each has what is chosen of its own CPUs, or one of these."""
        self.start()
        pinned = {'a': range(4), 'b': range(8, 16), 'c': None}
        vms = [vm(name, pins) for name, pins in pinned.items()]
        self.follow(range(16), *vms)
        self.assertEqual([set(range(4)), set(range(8, 16)), set(range(16))],
                         self.last(*pinned))
        Cpus.idle = frozenset()
        self.assertEqual([{3}, {15}, {15}], self.last(*pinned))
        self.assertEqual({'a': '3', 'b': '15', 'c': '15', GROUP: '15'},
                         self.facts('groups'))

    def test_pins_that_change(self) -> None:
        self.start()
        for pins in (range(4), range(2, 8), None):
            self.follow(range(16), vm(VM, pins))
            self.assertEqual([set(pins or range(16))], self.last(VM))

    def test_sets_of_its_own(self) -> None:
        """As another program set them; the lease has them."""
        self.start()
        self.host.originals = {VM: '0-3', GROUP: '0-15'}
        self.follow(range(16), vm())
        self.assertEqual([set(range(4)), set(range(16))],
                         self.last(VM, GROUP))
        self.host.originals[VM] = '4-7'
        self.follow(range(16), vm())
        self.assertEqual([set(range(4, 8))], self.last(VM))

    def test_pinned_to_cpus_of_others(self) -> None:
        """It is named, and has no lease."""
        self.start()
        guest = foreground('pinned', {0, 1}, dedicated_cpus=frozenset({0, 1}))
        self.assertEqual(
            settle.FastLoopState((GROUP,)),
            self.follow(range(16), vm(VM, {0, 1}), guest, foreground('free')))
        self.assertIn('pinned to CPUs 0-1', self.facts('left_out')[VM])
        self.assertEqual({GROUP}, self.host.held_groups)
        self.follow(range(16), vm(VM, {0, 1, 2}), guest, foreground('free'))
        self.assertEqual([{2}], self.last(VM))

    def test_exempt(self) -> None:
        self.start()
        self.follow(range(16), vm())
        self.isolation.exempt = frozenset((VM,))
        self.assertEqual(settle.FastLoopState((GROUP,)),
                         self.follow(range(16), vm()))
        self.assertEqual({}, self.facts('left_out'))


class TestCpusComeAndGo(IsolationTestCase):

    def test_an_offline_cpu_is_neither_chosen_nor_idle(self) -> None:
        self.start()
        self.follow(range(16))
        self.assertEqual(set(range(16)), self.settled())
        # SMT off; the CPUs that are gone look idle for ever.
        Cpus.idle = frozenset(range(8, 16)) | {0}
        self.follow(range(8))
        # One is idle, and not nine of them: down to one CPU.
        self.assertEqual(1, len(self.settled()))
        Cpus.idle = frozenset(range(16))
        self.assertEqual(set(range(8)), self.settled())
        Cpus.idle = frozenset({0, 1})       # the buffer of eight, not of 16
        self.assertEqual(set(range(8)), self.settled())
        Cpus.idle = frozenset(range(16))
        self.follow(range(16))
        self.assertEqual(set(range(16)), self.settled())

    def test_it_goes_on_with_what_the_background_has(self) -> None:
        self.start()
        Cpus.idle = frozenset()
        self.follow(range(16))
        self.assertEqual(1, len(self.settled()))
        Cpus.idle = frozenset({0, 1})       # just the buffer of eight
        self.follow(range(8))
        self.assertEqual(1, len(self.settled()))

    def test_too_few_are_left_for_a_buffer(self) -> None:
        self.start()
        self.follow(range(8))
        self.assertIn('running', self.state())
        self.assertEqual(settle.NO_FAST_LOOP,
                         self.follow(range(4), claim='0-3'))
        self.assertIn('buffer_cores is 0 on 4 CPUs', self.state())
        polls = len(self.host.group.written)
        self.assertFalse(self.isolation.owns((GROUP, Knob.CPU_SET)))
        time.sleep(0.02)
        self.assertEqual(polls, len(self.host.group.written))
        self.follow(range(8))
        self.assertIn('running', self.state())

    def test_an_original_with_offline_cpus_only(self) -> None:
        self.start()
        self.host.originals[GROUP] = '8-15'
        self.follow(range(16))
        self.assertEqual(set(range(8, 16)), self.settled())
        self.follow(range(8))
        self.assertIn('running on CPUs 0-7', self.state())
        self.assertLessEqual(self.settled(), set(range(8)))


class TestHeldBack(IsolationTestCase):
    """As by the stop file, or where no watcher runs."""

    def test_it_ends(self) -> None:
        self.start()
        self.follow(range(16))
        self.settled()
        self.assertEqual(settle.NO_FAST_LOOP,
                         self.follow(range(16), held_back=True))
        self.assertFalse(self.isolation.owns((GROUP, Knob.CPU_SET)))
        self.assertIn('observing', self.state())
        self.follow(range(16))
        self.assertIn('running', self.state())


class TestRefused(IsolationTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.tries: list[float] = []
        self.now = 0.0

        def refused() -> None:
            self.tries.append(self.now)
            raise errors.Unsupported('no BPF')
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.drivers.kernel.sched_switch.SchedSwitch',
            refused))
        self.start()

    def turn(self, until: int) -> None:
        while self.now < until:
            self.now += 1
            self.follow(range(8), now=self.now)

    def test_it_is_tried_twice_as_late_each_time(self) -> None:
        self.turn(100)
        self.assertEqual([1, 11, 31, 71], self.tries)
        self.assertIn('off: no BPF; tried again after 10 s', self.state())
        self.turn(40_000)
        late = [two - one for one, two in zip(
            self.tries, self.tries[1:], strict=False)]
        self.assertEqual([3600.0] * 5, late[-5:])
        self.assertEqual(1, len(self.logs.output.splitlines()))
        self.assertEqual(len(self.tries), self.host.holds)

    def test_until_it_is_allowed(self) -> None:
        self.turn(5)
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.drivers.kernel.sched_switch.SchedSwitch',
            Cpus))
        self.turn(10)
        self.assertIn('off', self.state())
        self.turn(11)
        self.assertIn('running', self.state())


class TestNotTaken(IsolationTestCase):
    """The kernel takes no CPU set."""

    def setUp(self) -> None:
        super().setUp()
        self.starts: list[int] = []
        self.now = 0

    def lines(self) -> list[str]:
        return str(self.logs.output).splitlines()

    def test_bpf_is_loaded_ever_later(self) -> None:
        def refused(cpus: frozenset[int]) -> None:
            raise errors.DriverError('not this set')
        taken = self.host.group.set
        self.host.group.set = refused   # type: ignore[method-assign]
        self.start()
        self.turn(60)
        self.assertEqual([1, 3, 5, 8, 13, 22, 39], self.starts)
        # It is said once, and once that it is over.
        self.assertEqual(3, len(self.lines()), self.logs.output)
        for text in ('running on', 'moved, tried', 'off: not this set'):
            self.assertIn(text, self.logs.output)
        # Once it was taken, it begins again.
        self.host.group.set = taken     # type: ignore[method-assign]
        self.turn(74)
        self.assertEqual(4, len(self.lines()), self.logs.output)
        self.assertIn('running on', self.lines()[-1])
        self.host.group.set = refused   # type: ignore[method-assign]
        self.isolation.stop()
        self.host.group.written.clear()
        self.starts.clear()
        self.turn(80)
        self.assertEqual([75, 77, 79], self.starts)

    def turn(self, until: int) -> None:
        while self.now < until:
            self.now += 1
            made = Cpus.made
            self.follow(range(16), now=self.now)
            if Cpus.made > made:
                self.starts.append(self.now)
                deadline = time.monotonic() + 30
                while not (self.isolation.facts()['problem']
                           or self.host.group.written):
                    self.assertLess(time.monotonic(), deadline)
                    time.sleep(0.001)


class TestHangs(IsolationTestCase):
    """A write of a CPU set does not come back from the kernel."""

    def setUp(self) -> None:
        super().setUp()
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.agent.isolation.fast_loop.STOP_TIMEOUT_S',
            0.05))
        self.hangs, self.goes_on = threading.Event(), threading.Event()
        self.addCleanup(self.goes_on.set)
        self.host.group.set = self.hang     # type: ignore[method-assign]

    def hang(self, cpus: frozenset[int]) -> None:
        self.hangs.set()
        self.goes_on.wait(60)

    def test_its_record_stays_when_the_agent_ends(self) -> None:
        """The write may come into force after the last look."""
        mounts = cgroup.mounts()
        if not mounts:
            self.skipTest('no cgroup is mounted')
        directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path, 'state')
        held = leases.Leases(directory)
        held.open()
        held.hold(GROUP, Knob.CPU_SET, [{
            'do': 'write', 'inode': 7, 'file': 'cpuset.cpus', 'text': '0',
            'dir': f'{mounts[0][0]}/scv-no-such-group'}], '0')
        host: Any = self.host
        self.isolation = blind_isolation.BlindIsolation(
            host, held, perfiso.Params(), Mode.ENFORCE)
        self.follow(range(16))
        self.assertTrue(self.hangs.wait(30))
        self.isolation.stop()
        held.close()
        self.assertEqual(1, len(list((directory / 'leases').iterdir())))
        self.goes_on.set()
        self.isolation.stop()

    def test_it_stays_the_only_writer(self) -> None:
        self.start()
        self.follow(range(16))
        self.assertTrue(self.hangs.wait(30))
        self.isolation.mode = Mode.OFF
        self.assertEqual(settle.FastLoopState((GROUP,)),
                         self.follow(range(16), claim='0-3'))
        self.assertIn('off: blind isolation: the write', self.state())
        self.goes_on.set()
        self.assertEqual(settle.NO_FAST_LOOP,
                         self.follow(range(16), claim='0-3'))


class TestObserve(IsolationTestCase):

    def test_no_thread_and_no_bpf(self) -> None:
        self.start(Mode.OBSERVE)
        busy = dict.fromkeys(range(16), 0.0)
        others = set(threading.enumerate())
        for now in range(1, 4):
            self.assertEqual(settle.NO_FAST_LOOP, self.follow(
                range(16), claim='0-15', now=now, busy_s=busy))
        self.assertEqual(0, Cpus.made)
        self.assertNotIn('fast-loop', [
            thread.name for thread in {*threading.enumerate()} - others])
        self.assertEqual([], self.host.group.written)
        self.assertIn('observing on CPUs 0-15', self.state())

    def would_be(self) -> int | None:
        found: int | None = self.isolation.facts()['would_be_cpus']
        return found

    def test_what_the_background_would_have(self) -> None:
        self.start(Mode.OBSERVE)
        busy = dict.fromkeys(range(16), 0.0)
        self.follow(range(16), now=1, busy_s=busy)
        self.assertIsNone(self.would_be())
        # 14 of 16 are busy: one less than the buffer of 3 is idle.
        busy = {cpu: 1.0 if cpu < 14 else 0.0 for cpu in range(16)}
        self.follow(range(16), now=2, busy_s=busy)
        self.assertEqual(15, self.would_be())
        # 12 CPUs busy half of the time: 10 idle in the mean.
        busy = {cpu: used + (0.5 if cpu < 12 else 0.0)
                for cpu, used in busy.items()}
        self.follow(range(16), now=3, busy_s=busy)
        self.assertEqual(16, self.would_be())
        # What is not known, or went backwards, changes nothing or is busy.
        self.follow(range(16), now=4)
        self.assertEqual(16, self.would_be())
        self.follow(range(16), now=5, busy_s={0: 0.0, 1: 5.0})
        self.assertEqual(16, self.would_be())
        self.follow(range(16), now=6, busy_s={0: 1.0, 1: 4.0})
        self.assertEqual(14, self.would_be())

    def test_nothing_is_shown_once_it_is_off(self) -> None:
        self.start(Mode.OBSERVE)
        self.follow(range(16))
        self.follow(range(4))
        self.assertNotIn('would_be_cpus', self.isolation.facts())


class TestPins(IsolationTestCase):

    def test_a_foreground_that_fills_its_half_of_the_host(self) -> None:
        self.start()
        half = frozenset(range(32))
        guests = [foreground(name, half, dedicated_cpus=frozenset())
                  for name in 'ab']
        self.follow(range(64), *guests)
        self.assertTrue(half < self.settled())
        Cpus.idle = frozenset(range(64)) - half
        found = self.settled()
        self.assertEqual(set(), found & half)
        # Foreground that is not known may run there, and keeps its part of
        # the buffer: 6 of 11 CPUs are for the other half.
        self.assertEqual(32 - 5, len(found))
        self.assertEqual(settle.FastLoopState((GROUP,)),
                         self.follow(range(64), *guests))
        Cpus.idle = frozenset(range(64))
        self.assertEqual(64 - 5, len(self.settled()))
        # One comes that may run anywhere.
        Cpus.idle = frozenset(range(11))
        self.follow(range(64), *guests, foreground('c'))
        Cpus.idle = frozenset()
        self.assertEqual(1, len(self.settled()))

    def test_pins_hold_whatever_mode_scavenger_is_in(self) -> None:
        self.start()
        self.follow(range(16), foreground(
            'mixed', range(6), dedicated_cpus=frozenset({4, 5})), foreground(
            'container', range(12, 14)), foreground('c'))
        self.assertEqual(set(range(16)) - {4, 5, 12, 13}, self.settled())
        self.follow(range(16), foreground('container', range(12, 14)))
        self.assertEqual(set(range(16)) - {12, 13}, self.settled())

    def test_isolated_cpus(self) -> None:
        """The background gets none, and idle ones are no buffer."""
        self.start()
        guest = foreground('pinned', {14}, dedicated_cpus=frozenset({14}))
        self.follow(range(16), guest, isolated=range(10, 16))
        self.assertEqual(set(range(10)), self.settled())
        Cpus.idle = frozenset(range(10, 16))
        self.assertEqual(1, len(self.settled()))
        self.follow(range(16), guest, isolated=range(9, 16), claim='0-8')
        self.assertTrue(self.settled() <= set(range(9)))

    def test_no_cpu_is_left(self) -> None:
        self.start()
        guests = [foreground(name, cpus) for name, cpus in (
            ('a', range(8)), ('b', range(8, 16)))]
        self.follow(range(16), *guests)
        self.assertEqual({15}, self.settled())
        Cpus.idle = frozenset()
        self.follow(range(16), *guests)
        for floor, cores in (({}, DEFAULT_FLOORS[Knob.CPU_CORES]),
                             ({Knob.CPU_CORES: 0.7}, 0.7),
                             ({Knob.CPU_CORES: 0.01}, 0.01)):
            self.settled()
            self.assertEqual(
                [('/batch/a', Knob.CPU_CORES, cores)],
                [cap[:3] for cap in self.follow(
                    range(16), *guests, floor=floor).floors])
