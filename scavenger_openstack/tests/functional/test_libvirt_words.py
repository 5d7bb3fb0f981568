# SPDX-License-Identifier: Apache-2.0


"""What the log says of a fault: one line when it begins, one when it ends."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
import os
import re
import signal
import threading
import time

import fixtures

from scavenger_openstack.drivers import calls
from scavenger_openstack.drivers.libvirt import client
from scavenger_openstack.tests.functional import domain_guest
from scavenger_openstack.tests.functional import domain_life
from scavenger_openstack.tests.functional import hypervisor
from scavenger_openstack.tests.functional import virtual_host
from scavenger_openstack.tests import tiers
from scavenger_openstack.types import Knob

TICK_S = 0.5
QUIET_S = 3.0
"""So long nothing more is said when a fault is over."""

CAME = 'came with a limit on'
RACED = 'was started again while its limit'


class WordsCase(domain_life.LifeCase):
    """Two VMs, whose limits change in each tick."""

    names: tuple[str, ...] = ('one', 'two')
    capped = names

    def begin(self, *, own_network: bool = False) -> hypervisor.Hypervisor:
        host = self.hypervisor(own_network=own_network)
        guests = [virtual_host.tiny(
            name, machine='pc', paused=False, disks=(
                domain_guest.Disk.make(host.disks / name, 2**20),))
            for name in self.names]
        self.uuids = {guest.name: guest.uuid for guest in guests}
        host.start_all(guests)
        self.agents = [self.quick(host)]
        self.ticks_until('limits', self.all_held)
        self.ticks(1.0)
        return host

    def quick(self, host: hypervisor.Hypervisor) -> virtual_host.Agent:
        return self.agent(host, deadline_s=0.5, timeout_s=1.0, stats_ticks=2)

    def held(self) -> list[object]:
        return [key for agent in self.agents for key in agent.leases.held()]

    def all_held(self) -> bool:
        return len(self.held()) == 2 * len(self.capped)

    def ticks_until(self, what: str, done: Callable[[], object],
                    names: Collection[str] | None = None) -> None:
        """Tick until it is so; on a busy machine that may take a while."""
        def ticked() -> object:
            self.ticks(TICK_S / 2, names)
            return done()

        self.wait_for(what, ticked, timeout_s=60)

    def ticks(self, seconds: float, names: Collection[str] | None = None
              ) -> None:
        """Tick so long; the numbers of all keep coming."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for agent in self.agents:
                share = 0.1 + 0.1 * (int(time.monotonic() / TICK_S) % 3)
                here = agent.sample()
                agent.tick({uuid: {Knob.CPU_CORES: share,
                                   Knob.IO_BYTES_PER_S: int(4e7 * share)}
                            for name, uuid in self.uuids.items()
                            if uuid in here and name in (
                                self.capped if names is None else names)})
            time.sleep(TICK_S)

    def stop(self, pid: int) -> None:
        os.kill(pid, signal.SIGSTOP)
        self.addCleanup(os.kill, pid, signal.SIGCONT)

    def over(self, *warned: str, told: str | None = 'answers again after'
             ) -> None:
        """It was, and is over, in these words and no others.

        :param told: in the line about its end; ``None``: there is none
        """
        ends = [told] if told else []
        self.ticks_until('its end', lambda: self.all_held() and all(
            map(self.said, (*ends, *warned))))
        self.ticks(QUIET_S)
        self.assertTrue(self.all_held())
        for agent in self.agents:
            self.nothing_held(agent)
        self.warned_of(*warned)
        found = [line for line in self.log.output.splitlines()
                 if any(text in line for text in ('answers again', *ends))]
        self.assertEqual(len(ends), len(found), self.log.output)
        for text, line in zip(ends, found, strict=True):
            self.assertIn(text, line)


class TestLibvirtd(WordsCase):

    def late(self) -> int:
        found, = re.findall('limits that were late: ([0-9]+)', self.log.output)
        return int(found)

    @tiers.only_in_all('other events show how a fault is logged, too')
    def test_is_killed(self) -> None:
        host = self.begin()
        host.kill()
        self.ticks_until('word', lambda: self.said('cannot be reached'))
        self.ticks(2.0)
        self.ticks(1.0, ['one'])
        host.start_again()
        self.over('libvirt cannot be reached')
        self.assertEqual(4, self.late())

    @tiers.only_in_all('other events show how a fault is logged, too')
    def test_is_restarted(self) -> None:
        host = self.begin()
        host.kill(signal.SIGTERM)
        host.start_again()
        self.over('libvirt cannot be reached')

    def test_hangs(self) -> None:
        """Until its connections break, and beyond."""
        for name, value in (('KEEPALIVE_S', 2), ('KEEPALIVE_COUNT', 2)):
            self.useFixture(fixtures.MonkeyPatch(
                f'{client.__name__}.{name}', value))
        host = self.begin()
        driver = self.agents[0].driver
        self.assertEqual('answers', driver.libvirt_facts()['state'])
        self.stop(host.pid)
        self.ticks_until('word', lambda: (
            self.said('libvirt does not answer')
            and len(driver.libvirt_facts()['waits']) == 4))
        self.warned_of('libvirt does not answer')
        facts = driver.libvirt_facts()
        self.assertEqual('does not answer', facts['state'])
        self.ticks(8.0, ['one'])
        os.kill(host.pid, signal.SIGCONT)
        self.over('libvirt does not answer')
        self.assertEqual(4, self.late())
        self.wait_for('no more waits',
                      lambda: not driver.libvirt_facts()['waits'])

    @tiers.only_in_all('other events show how a fault is logged, too')
    def test_hangs_for_a_moment(self) -> None:
        host = self.begin()
        self.stop(host.pid)
        self.ticks_until('word', lambda: self.said('does not answer'))
        os.kill(host.pid, signal.SIGCONT)
        self.over('libvirt does not answer')


@tiers.only_in_all('other events show how a fault is logged, too')
class TestQemu(WordsCase):

    def test_is_frozen(self) -> None:
        """While limits are written, and while one is to be removed."""
        host = self.begin()
        pid = host.qemu_pid('one')
        self.stop(pid)
        driver, uuid = self.agents[0].driver, self.uuids['one']
        self.ticks_until('word', lambda: self.said('its QEMU does not'))
        self.ticks(2.0)
        self.ticks_until('what waits', lambda: f'{uuid} io_bytes_per_s'
                         in driver.libvirt_facts()['waits'], ['two'])
        self.ticks(2.0, ['two'])
        facts = driver.libvirt_facts()
        self.assertEqual(('answers', [uuid]), (
            facts['state'], list(facts['domains'])))
        self.assertIn(f'{uuid} io_bytes_per_s', facts['waits'])
        os.kill(pid, signal.SIGCONT)
        self.over(f'domain {uuid}: its QEMU does not answer',
                  told=f'domain {uuid}: its QEMU answers again')


class TestManyQemus(WordsCase):

    names = capped = tuple(map('vm{}'.format, range(6)))

    def test_are_frozen(self) -> None:
        """Few calls hang; when they come back, all have their limits."""
        host = self.begin()
        agent, = self.agents
        pids = [host.qemu_pid(name) for name in self.names[:5]]
        for pid in pids:
            self.stop(pid)
        most = 0

        def full() -> bool:
            nonlocal most
            most = max(most, sum(thread.name.startswith('call ')
                                 for thread in threading.enumerate()))
            return self.said('calls to libvirt hang') > 0

        self.ticks_until('word', full)
        for _ in range(4):
            self.ticks_until('a tick', lambda: full() or True)
        self.assertLessEqual(most, calls.MOST)
        self.assertEqual('is slow', agent.driver.libvirt_facts()['state'])
        self.assertEqual(calls.MOST - 1, len(agent.driver.executor.hanging))
        # What is not called is not pending either: it is tried again.
        self.assertLess(len(agent.driver.libvirt_facts()['waits']),
                        2 * calls.MOST)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        self.ticks_until('its end', lambda: self.all_held() and self.said(
            'libvirt answers in time again'))
        self.assertEqual({}, dict(agent.driver.executor.hanging))
        self.nothing_held(agent)


@tiers.only_in_all('other events show how a fault is logged, too')
class TestIdleQemu(WordsCase):

    capped = ('two',)

    def test_is_frozen(self) -> None:
        host = self.begin()
        pid = host.qemu_pid('one')
        self.stop(pid)
        self.ticks_until('word', lambda: self.said('its QEMU does not'))
        self.ticks(2.0)
        os.kill(pid, signal.SIGCONT)
        uuid = self.uuids['one']
        self.over(f'domain {uuid}: its QEMU does not answer',
                  told=f'domain {uuid}: its QEMU answers again')


class TestIdleByUs(WordsCase):

    capped = ()

    def test_is_frozen(self) -> None:
        host = self.begin()
        agent, = self.agents
        uuid, pid = self.uuids['one'], host.qemu_pid('one')

        def said(text: str) -> bool:
            agent.sample()
            agent.tick({uuid: {Knob.CPU_IDLE: 1}})
            return self.said(text) > 0

        self.assertFalse(said('does not answer'))
        self.assertEqual([(uuid, Knob.CPU_IDLE)], self.held())
        self.stop(pid)
        self.wait_for('word', lambda: said('its QEMU does not'), timeout_s=60)
        os.kill(pid, signal.SIGCONT)
        self.wait_for('its end', lambda: said('its QEMU answers again'),
                      timeout_s=60)
        self.nothing_held(agent)
        self.warned_of(f'domain {uuid}: its QEMU does not answer, or a job '
                       'holds it; our own limit cpu_idle may be the cause')


class TestLife(WordsCase):
    """What Nova does all day is no warning: the line about the limits that
    were removed says what it was."""

    @tiers.only_in_all('other events show how a fault is logged, too')
    def test_deleted(self) -> None:
        host = self.begin()
        thread = threading.Thread(target=host.virsh, args=(
            'destroy one; undefine one',))
        thread.start()
        self.ticks(2.0)
        thread.join()
        self.capped = ('two',)
        self.over(told=None)

    @tiers.only_in_all('other events show how a fault is logged, too')
    def test_rebooted_hard(self) -> None:
        host = self.begin()
        host.virsh('destroy one; start one')
        pid = host.qemu_pid('one')
        self.ticks_until('its limits', lambda: 2 == sum(
            one.original.actions[0]['pid'] == pid
            for one in self.agents[0].leases.held().values()))
        self.over(told=None)

    @tiers.only_in_all('other events show how a fault is logged, too')
    def test_saved(self) -> None:
        host = self.begin()
        thread = threading.Thread(target=host.virsh, args=('managedsave one',))
        thread.start()
        self.ticks(3.0)
        thread.join()
        host.virsh('start one')
        # On a busy machine a write may have been under way.
        self.ticks_until('its end', lambda: self.all_held() and (
            self.said(CAME) or self.said(RACED)))
        self.over(*[CAME] * bool(self.said(CAME)),
                  told=RACED if self.said(RACED) else None)

    @tiers.only_in_all('other events show how a fault is logged, too')
    def test_migrated(self) -> None:
        self.migrated()

    def test_migrated_as_nova_does_it(self) -> None:
        self.migrated('--persistent-xml')

    def migrated(self, *options: str) -> None:
        source = self.begin(own_network=True)
        target = self.hypervisor(own_network=True)
        self.agents.append(self.quick(target))
        if options:
            path = source.directory / 'live.xml'
            path.write_text(source.virsh('dumpxml', 'one', '--migratable'))
            options += (str(path),)
        thread = threading.Thread(target=source.migrate, args=(
            'one', target, *options))
        thread.start()
        self.ticks(4.0)
        thread.join()
        self.over(CAME, told=None)
