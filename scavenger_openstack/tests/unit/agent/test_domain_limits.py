# SPDX-License-Identifier: Apache-2.0


"""What the agent sets on a VM, while others do something to it."""

from __future__ import annotations

import logging
import threading
import time

import fixtures

from scavenger_openstack.agent.apply import actuator
from scavenger_openstack.drivers import base
from scavenger_openstack.drivers.libvirt import balloon
from scavenger_openstack.drivers.libvirt import metadata
from scavenger_openstack import errors
from scavenger_openstack.restore import cgroup
from scavenger_openstack.tests import memories
from scavenger_openstack.tests.unit.agent.limits import CORES
from scavenger_openstack.tests.unit.agent.limits import gone
from scavenger_openstack.tests.unit.agent.limits import LimitsTestCase
from scavenger_openstack.tests.unit.agent.limits import MEMORY
from scavenger_openstack.tests.unit.agent.limits import OPS
from scavenger_openstack.tests.unit import libvirtd
from scavenger_openstack.tests.unit.libvirtd import UUID
from scavenger_openstack.types import Knob


class Denied(LimitsTestCase):

    def tries(self, code: str) -> list[int]:
        """In which of 20 ticks libvirt was asked, which refuses."""
        self.start()
        found: list[int] = []

        class Error(libvirtd.libvirtError):

            def get_error_code(error) -> int:
                return int(getattr(self.libvirtd.library, code))

        def fail() -> None:
            self.machine.before['quota'] = fail
            found.append(self.turn)
            raise Error('no')

        self.machine.before['quota'] = fail
        for self.turn in range(1, 21):
            self.tick((CORES, 0.2))
        return found

    def test_what_lasts_is_tried_ever_later(self) -> None:
        self.assertEqual([1, 2, 4, 8, 16],
                         self.tries('VIR_ERR_OPERATION_DENIED'))

    def test_what_may_pass_is_tried_in_each_tick(self) -> None:
        self.assertEqual([*range(1, 21)],
                         self.tries('VIR_ERR_OPERATION_FAILED'))


class Words(LimitsTestCase):

    def test_a_failure_that_lasts_longer_than_its_cause(self) -> None:
        """What seemed to be the cause was none: it is said then, once."""
        self.start()

        def fail() -> None:
            self.machine.before['record'] = fail
            raise libvirtd.libvirtError('no')

        self.logs = self.useFixture(fixtures.FakeLogger(
            level=logging.WARNING))
        self.machine.before['record'] = fail
        health = self.libvirtd.driver._health
        health.lost('gone')
        for _ in range(2):
            problem, = self.tick((CORES, 0.1)).problems
        self.assertNotIn(problem, self.logs.output)
        health.back()
        end_s = time.monotonic() + libvirtd.DEADLINE_S
        while problem not in self.logs.output and time.monotonic() < end_s:
            self.tick((CORES, 0.1))
            time.sleep(0.01)
        for _ in range(20):
            self.tick((CORES, 0.1))
            time.sleep(0.01)
        self.assertEqual(1, self.logs.output.count(problem))


class Rounding(LimitsTestCase):

    def test_what_stands_is_not_written_again(self) -> None:
        for vcpus, cores in ((1, 0.1), (6, 0.1), (7, 0.1), (1, 2 / 3),
                             (3, 1.0), (3, 0.3), (256, 0.1)):
            self.start(vcpus)
            self.assertEqual(1, self.tick((CORES, cores)).written)
            for _ in range(2 * actuator.READ_TICKS):
                self.assertEqual(0, self.tick((CORES, cores)).written,
                                 f'{cores} of {vcpus}')

    def test_a_little_tighter_is_not_worth_a_call(self) -> None:
        self.start()
        self.tick((CORES, 0.5))
        self.assertEqual(0, self.tick((CORES, 0.495)).written)
        self.assertEqual(0, self.tick((CORES, 0.491)).written)
        self.assertEqual(1, self.tick((CORES, 0.485)).written)


class Others(LimitsTestCase):

    def test_a_limit_of_another_program_is_restored(self) -> None:
        """Whenever it sets it, while ours gets tighter in each tick."""
        for ticks in range(actuator.READ_TICKS):
            self.start()
            cores = 0.9
            for _ in range(actuator.READ_TICKS + ticks):
                cores -= 0.03
                self.tick((CORES, cores))
            self.machine.quota = 5000
            self.libvirtd.tell(until=lambda: self.libvirtd.driver.read(
                *CORES) == 0.05)
            for _ in range(actuator.READ_TICKS + 1):
                cores -= 0.03
                self.tick((CORES, cores))
            held = self.leases.held()[CORES]
            self.assertEqual(0.05, held.original.value, str(ticks))
            self.assertEqual('5000', held.original.actions[0]['values'][
                'vcpu_quota'])
            self.assertIn('to 0.05 cores, which will be restored',
                          self.logs.output)
            self.assertEqual(5000, self.machine.quota)

    def test_one_that_is_set_right_before_our_call(self) -> None:
        """The agent knows of it by its last look at the domain only."""
        self.start()
        self.tick((CORES, 0.5))

        def set_it() -> None:
            self.machine.quota = 5000
        self.machine.before['XMLDesc'] = set_it
        quotas = []
        for cores in (0.3, 0.2, 0.2, 0.2, 0.2):
            self.tick((CORES, cores))
            quotas.append(self.machine.quota)
        self.assertEqual([5000] * 5, quotas)
        self.assertIn('to 0.05 cores, which will be restored',
                      self.logs.output)
        values = self.leases.held()[CORES].original.actions[0]['values']
        self.assertEqual((0.05, '5000'), (
            self.leases.held()[CORES].original.value, values['vcpu_quota']))

    def test_one_disk_of_several(self) -> None:
        """The limit of the loosest disk tells nothing of that."""
        self.start()
        driver, disks = self.libvirtd.driver, self.machine.disks
        disks['vdb'] = {}
        self.libvirtd.tell(until=lambda: 'vdb.total_iops_sec' in (
            driver.restore_actions(*OPS)[0]['values']))
        self.tick((OPS, 100.0))
        disks['vdb'] = {'total_iops_sec': 30}
        self.libvirtd.tell(until=lambda: driver.restore_actions(*OPS)[0][
            'values']['vdb.total_iops_sec'] == '30')
        for _ in range(actuator.READ_TICKS):
            self.tick((OPS, 100.0))
        values = self.leases.held()[OPS].original.actions[0]['values']
        self.assertEqual(('0', '30'), (values['vda.total_iops_sec'],
                                       values['vdb.total_iops_sec']))


class StartedAnew(LimitsTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.start()

    def test_right_before_our_call(self) -> None:
        """The cap falls on the new run, which knows nothing of it."""
        self.machine.before['quota'] = self.machine.start
        self.tick((CORES, 0.1))
        self.assertEqual({}, dict(self.leases.held()))
        end_s = time.monotonic() + libvirtd.DEADLINE_S
        while (CORES not in self.leases.held()
               and time.monotonic() < end_s):
            self.tick((CORES, 0.05))
        self.assertEqual('-1', self.leases.held()[CORES].original.actions[0][
            'values']['vcpu_quota'])
        self.assertIsNone(self.leases.held()[CORES].original.value)
        self.assertEqual(1, self.logs.output.count('was started again while '
                                                   'its limit on cpu_cores'))
        self.assertNotIn('came with a limit', self.logs.output)

    def test_the_tick_does_not_ask_libvirt(self) -> None:
        """Of a run that has ended it has to know without."""
        driver = self.libvirtd.driver
        self.tick((CORES, 0.5))
        self.machine.start()
        self.libvirtd.tell(until=lambda: gone(driver))
        name = f'in {threading.current_thread().name}'
        for _ in range(actuator.READ_TICKS + 1):
            self.tick((CORES, 0.5))
        self.assertEqual(0, self.machine.calls[name])
        self.assertEqual(50_000, self.machine.quota)
        self.assertIsNone(self.leases.held()[CORES].original.value)


    def test_between_two_looks(self) -> None:
        """The lease of the run that has ended goes; the new one has its."""
        self.tick((CORES, 0.5))
        self.machine.start()
        self.libvirtd.tell(until=lambda: gone(self.libvirtd.driver))
        for _ in range(actuator.READ_TICKS + 1):
            self.tick((CORES, 0.5))
        self.assertEqual(
            int((self.machine.run_dir / 'one.pid').read_text()),
            self.leases.held()[CORES].original.actions[0]['pid'])
        self.assertEqual(50_000, self.machine.quota)


class RecordTaken(LimitsTestCase):
    """A call of a dead agent, given up long ago, takes our record away."""

    def test_it_is_written_again(self) -> None:
        self.start()
        driver, records = self.libvirtd.driver, self.machine.records
        for cores in (0.5, 0.499):      # also one not worth a call
            self.tick((CORES, 0.5))
            before = dict(records)
            original = self.leases.held()[CORES].original
            records.clear()
            self.libvirtd.tell(until=lambda: bool(
                driver.refresh(self.leases.held()).rewrite))
            self.tick((CORES, cores))
            self.assertEqual(before, records)
            self.assertEqual(original, self.leases.held()[CORES].original)
            self.assertEqual(0, self.tick((CORES, cores)).written)
        self.assertNotIn('another program', self.logs.output)


class Plugged(LimitsTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.start()

    def test_a_vcpu(self) -> None:
        """It has the quota of the others, so all together have more."""
        self.tick((CORES, 0.5))
        self.machine.vcpus = 2
        self.libvirtd.tell(until=lambda: self.libvirtd.driver.read(
            *CORES) == 1.0)
        self.libvirtd.driver.sample()
        self.assertEqual(1, self.tick((CORES, 0.5)).written)
        self.assertEqual(25_000, self.machine.quota)
        self.assertIsNone(self.leases.held()[CORES].original.value)
        self.assertNotIn('another program', self.logs.output)

    def test_64_vcpus_of_which_few_are_left(self) -> None:
        """All together have the limit, whatever period it takes."""
        for cores, quota, period in ((8.0, 12_500, 100_000),
                                     (0.1, 1000, 640_000)):
            self.start(64)
            self.tick((CORES, cores))
            self.assertEqual((quota, period),
                             (self.machine.quota, self.machine.period))
            for vcpus in (63, 16, 4, 1):
                self.machine.vcpus = vcpus
                self.libvirtd.tell(until=lambda vcpus=vcpus: (  # type: ignore[misc]
                    self.libvirtd.snapshot.domain.vcpus == vcpus))
                self.libvirtd.driver.sample()
                for _ in range(actuator.READ_TICKS):
                    self.assertEqual([], self.tick((CORES, cores)).problems)
                self.assertAlmostEqual(     # a little is not worth a call
                    min(cores, vcpus), vcpus * min(
                        1.0, self.machine.quota / self.machine.period),
                    delta=0.02 * cores)
            held = self.leases.held()[CORES]
            self.assertIsNone(held.original.value)
            self.assertEqual('-1', held.original.actions[0]['values'][
                'vcpu_quota'])
            self.assertNotIn('another program', self.logs.output)
            self.machine.stop()

    def test_a_disk_right_before_our_call(self) -> None:
        """The lease knows nothing of it, so it is not limited."""
        self.tick((OPS, 100))
        self.machine.before['XMLDesc'] = lambda: self.machine.disks.update(
            vdb={})
        self.tick((OPS, 50))
        self.assertEqual({}, self.machine.disks['vdb'])


    def test_removal_is_tried_again(self) -> None:
        """A disk comes, and what we held without it cannot be restored yet."""
        self.tick((OPS, 100))
        self.machine.before['XMLDesc'] = lambda: self.machine.disks.update(
            vdb={})
        self.tick((OPS, 50))
        for _ in range(3):      # there is no libvirtd that virsh could ask
            self.assertIn('not removed yet',
                          str(self.tick((OPS, 50)).problems))
        deadline = time.monotonic() + 30
        while ('not removed yet' not in self.logs.output
               and time.monotonic() < deadline):
            time.sleep(0.01)
        self.assertIn('not removed yet', self.logs.output)
        self.assertNotIn('without a lease', self.logs.output)


class Balloon(LimitsTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.start()

    def told(self, kib: int) -> None:
        self.machine.balloon_kib = kib
        self.libvirtd.tell(until=lambda: kib * 1024 == (
            self.libvirtd.snapshot.domain.balloon_bytes))

    def test_one_that_was_called_back(self) -> None:
        """As by the restorer, when the agent stood still."""
        self.tick((MEMORY, 2**29))
        self.assertEqual(2**19, self.machine.balloon_kib)
        self.machine.records.clear()
        self.told(2**20)
        for _ in range(actuator.READ_TICKS + 1):
            self.tick((MEMORY, 2**29))
        self.assertEqual(2**19, self.machine.balloon_kib)

    def test_one_that_tells_tales(self) -> None:
        """What a guest says of its balloon is no limit."""
        self.tick((MEMORY, 2**29))
        for kib in (2**18, 2**19 - 4, 7):
            self.told(kib)
            for _ in range(actuator.READ_TICKS + 1):
                self.assertEqual([], self.tick((MEMORY, 2**29)).problems)
        self.assertNotIn('another program', self.logs.output)
        self.assertEqual(2**30, self.leases.held()[MEMORY].original.value)

    def test_one_that_hides_what_it_has(self) -> None:
        """It is not paused, and nothing is given to others for it."""
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.drivers.libvirt.balloon.STILL_S', 0.0))
        driver = self.libvirtd.driver
        self.tick((MEMORY, 2**29))
        self.told(2**19 - 4)
        driver.sample()
        domain, = driver.tracked.values()
        domain.memory_bytes = 3 * 2**30
        changes = driver.tracked.changes
        for _ in range(2):
            self.assertEqual({}, driver.refresh(self.leases.held()).unmet)
            self.assertEqual(changes + 1, driver.tracked.changes)
        vm, = driver.sample()
        self.assertIn(balloon.HIDES, vm.workload.memory_kept)
        # By now it uses what its process does.
        driver.refresh(self.leases.held())
        vm, = driver.sample()
        self.assertEqual('', vm.workload.memory_kept)

    def test_one_above_the_ram_is_none(self) -> None:
        """It was written in each tick, and shown, and held nothing."""
        for size in (2**30, 22221314416):
            for _ in range(2 * actuator.READ_TICKS):
                done = self.tick((MEMORY, size))
                self.assertEqual((0, 0), (done.written, done.removed))
            self.assertEqual({}, dict(self.leases.held()))
            self.assertEqual({}, self.actuator.in_force)
            self.assertEqual({}, self.machine.records)
        self.assertEqual(1, self.tick((MEMORY, 2**29)).written)
        self.assertEqual(0, self.tick((MEMORY, 2**29)).written)

    def test_memory_that_cannot_be_given_back(self) -> None:
        """Nor is a limit kept from before a device was plugged in."""
        device = '<hostdev mode="subsystem" type="pci"/>'

        def plug() -> None:
            self.machine.devices = device
            self.libvirtd.tell(until=lambda: self.libvirtd.snapshot.domain
                               .fixed_memory is not None)

        plug()
        end_s = time.monotonic() + libvirtd.DEADLINE_S
        while ('no memory back' not in self.logs.output
               and time.monotonic() < end_s):
            problem, = self.tick((MEMORY, 2**29)).problems
            self.assertIn('it can give no memory back', problem)
        for _ in range(2 * actuator.READ_TICKS):
            self.tick((MEMORY, 2**29))
        self.assertEqual({}, dict(self.leases.held()))
        self.assertEqual(1, self.logs.output.count('no memory back'))
        self.machine.devices = ''
        self.libvirtd.tell(until=lambda: self.libvirtd.snapshot.domain
                           .fixed_memory is None)
        self.libvirtd.driver.sample()   # as in each tick of an agent
        done = self.tick((MEMORY, 2**29))
        self.assertEqual((1, []), (done.written, done.problems))
        plug()
        # virsh finds no libvirtd, and tries again.
        self.libvirtd.driver.sample()   # tells that the domain has changed
        for _ in range(2 * actuator.READ_TICKS):
            self.assertIn('not removed yet',
                          str(self.tick((MEMORY, 2**29)).problems))

    def test_half_way_up(self) -> None:
        """After a limit of which this agent knows nothing."""
        self.machine.persistent = True
        self.told(2**18)
        self.tick((MEMORY, 2**27))
        self.assertEqual({'balloon_kib': str(2**20)},
                         self.leases.held()[MEMORY].original.actions[0]['values'])

    def test_one_that_says_it_has_little(self) -> None:
        """It has no limit of its own by that, and gets ours."""
        self.machine.persistent = True
        self.told(7)
        self.assertEqual(1, self.tick((MEMORY, 2**29)).written)
        self.assertEqual(2**19, self.machine.balloon_kib)


class Ended(LimitsTestCase):
    """A VM that has ended leaves nothing behind that could add up: other
    memories are bounded."""

    def remembered(self) -> set[str]:
        return memories.places(self.libvirtd.driver, UUID, (
            'Ends', 'LogOnce', 'DomainCache._read_s'))

    def end(self) -> None:
        self.machine.is_defined = False
        self.machine.stop()
        self.libvirtd.tell(until=lambda: UUID
                           not in self.libvirtd.driver._cache.snapshots)
        self.libvirtd.driver.sample()
        self.tick()
        self.assertEqual({}, self.leases.held())
        self.libvirtd.wait(until=lambda: not (
            self.libvirtd.driver.sample() or self.remembered()))

    def test_with_its_limits(self) -> None:
        self.start()
        self.libvirtd.driver.sample()
        self.assertEqual(3, self.tick((MEMORY, 2**29), (CORES, 0.1),
                                      (OPS, 10.0)).written)
        self.assertNotEqual(set(), self.remembered())
        self.end()

    def test_before_it_is_followed(self) -> None:
        self.start()
        self.libvirtd.tell(until=lambda: UUID
                           in self.libvirtd.driver._cache.snapshots)
        self.machine.stop()
        self.libvirtd.driver.sample()
        self.end()

    def test_while_a_limit_is_set(self) -> None:
        self.start()
        self.libvirtd.driver.sample()

        def fail() -> None:
            raise libvirtd.libvirtError('no')

        self.machine.before['quota'] = fail
        self.assertNotEqual([], self.tick((CORES, 0.1)).problems)
        self.end()

    def test_while_the_connection_is_lost(self) -> None:
        """After its process, so that it was read twice more."""
        self.start()
        self.machine.stop()
        self.libvirtd.tell(until=lambda: 'process' in self.logs.output)
        self.machine.is_defined = False
        self.libvirtd.driver._cache._lost(False)
        self.libvirtd.wait(until=lambda: not self.remembered())


class Foreign(LimitsTestCase):
    """The VM came with a limit on CPU, from another host."""

    def record(self) -> str:
        return metadata.build(Knob.CPU_CORES, {
            'vcpu_quota': '-1', 'vcpu_period': '100000'})

    def setUp(self) -> None:
        super().setUp()
        self.start()
        self.machine.quota = 10_000
        self.machine.records[metadata.uri(Knob.CPU_CORES)] = (
            self.record())
        self.driver = self.libvirtd.driver
        self.libvirtd.tell(until=self.refused)

    def refused(self) -> bool:
        try:
            self.driver.read(*CORES)
            return False
        except errors.DriverError:
            return True

    def until_removed(self, *wishes: tuple[tuple[str, Knob], float]) -> None:
        end_s = time.monotonic() + libvirtd.DEADLINE_S
        while self.refused() and time.monotonic() < end_s:
            self.tick(*wishes)

    def wait_for_calls(self) -> None:
        end_s = time.monotonic() + libvirtd.DEADLINE_S
        while UUID in self.driver.executor.busy:
            self.assertLess(time.monotonic(), end_s)
            time.sleep(0.001)

    def test_ours_stays(self) -> None:
        busy = [libvirtd.libvirtError('busy') for _ in range(3)]

        def refuse() -> None:
            if busy:
                self.machine.before['quota'] = refuse
                raise busy.pop()

        self.machine.before['quota'] = refuse
        self.until_removed((OPS, 100.0))
        self.assertEqual([], busy)
        self.assertEqual(-1, self.machine.quota)
        self.assertEqual(100, self.machine.disks['vda']['total_iops_sec'])
        self.assertEqual([metadata.uri(Knob.IO_OPS_PER_S)],
                         list(self.machine.records))

    def test_a_lease_that_was_left_does_not_keep_it(self) -> None:
        """An earlier agent set it, and it could not be restored at the start:
        it goes, though a limit is wanted all the time."""
        self.leases.hold(*CORES, [{
            'do': 'write', 'inode': 7, 'file': 'cpuset.cpus', 'text': '0',
            'dir': f'{cgroup.mounts()[0][0]}/scv-no-such-group'}], None)
        self.until_removed((CORES, 0.5))
        self.tick((CORES, 0.5))
        self.assertEqual(50_000, self.machine.quota)

    def test_ours_after_a_call_hung(self) -> None:
        """What hung would remove it: so it waits."""
        def again() -> None:
            self.machine.start()
            self.libvirtd.tell(until=lambda: not self.refused())
            thread.start()
            thread.join(0.1)
            self.assertTrue(thread.is_alive())
            self.assertNotIn(CORES, self.leases.held())

        thread = threading.Thread(target=self.tick, args=((CORES, 0.5),))
        self.machine.before['quota'] = again
        self.tick()
        self.wait_for_calls()
        thread.join(libvirtd.DEADLINE_S)
        self.assertEqual(50_000, self.machine.quota)
        self.assertIn(CORES, self.leases.held())
        self.assertEqual([metadata.uri(Knob.CPU_CORES)],
                         list(self.machine.records))

    def test_a_record_that_just_went_is_not_foreign(self) -> None:
        self.until_removed()
        self.tick((CORES, 0.5))
        self.wait_for_calls()
        removers = self.machine.calls[f'in call {UUID}']
        self.machine.start()
        self.machine.before['XMLDesc'] = lambda: self.driver.refresh({})
        self.driver.notify(base.Removed(*CORES))
        time.sleep(0.05)
        self.assertEqual(removers, self.machine.calls[f'in call {UUID}'])


class Unreadable(Foreign):
    """And with a record that this version does not understand."""

    def record(self) -> str:
        return super().record().replace('vcpu_period', 'vcpu_time')

    def test_no_limit_is_left(self) -> None:
        self.until_removed()
        self.assertEqual((-1, {}), (self.machine.quota, self.machine.records))
        self.assertIn('it has no limit now', self.logs.output)
        self.assertIn(f'domain {UUID}: the record of cpu_cores says',
                      self.logs.output)

    def test_not_before_libvirt_takes_it(self) -> None:
        def refuse() -> None:
            self.assertEqual(1, len(self.machine.records))
            refused.append(True)
            raise libvirtd.libvirtError('no')

        refused: list[bool] = []
        self.machine.before['quota'] = refuse
        self.until_removed()
        self.assertEqual(([True], -1), (refused, self.machine.quota))
