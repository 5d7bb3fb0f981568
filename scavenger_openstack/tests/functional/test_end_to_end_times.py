# SPDX-License-Identifier: Apache-2.0


"""Within which time what happens on hosts, and what operators type, counts.

Times are taken where things happen: by the agents, when a tick has ended, and
by the control plane, in its rows.  How long a command takes to start is in
none of them.  Where CPUs were short meanwhile, a time says nothing of the
product: then it is tried again, and in the end skipped.
"""

from __future__ import annotations

from collections.abc import Callable
import functools
import os
import signal
import time
from typing import Any

from testtools import content

from scavenger_openstack.db import tables
from scavenger_openstack.tests.functional import fleet
from scavenger_openstack.tests.functional import stalls
from scavenger_openstack.tests import tiers

NAMED_S = fleet.SYNC_S + 1.0
"""An antagonist is known in the cloud."""
FOLLOWED_S = fleet.SYNC_S + 2 * fleet.TICK_S
"""What an operator wants is so on the host."""
EXPIRED_S = 2 * fleet.TICK_S
"""An override that ran out has gone: no call is needed for that."""

TRIES = 3
STARVED = 0.05
"""From this share of the time on in which this process had to wait for a CPU,
nothing can be told."""

SPIN = 'while True: pass'


@tiers.only_in_all('times of the wall clock')
class EndToEndTimes(fleet.FleetTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.stalls = self.useFixture(stalls.Stalls())
        self.not_told: list[str] = []

    def keeps(self, what: str, most_s: float,
              attempt: Callable[[int], float], tries: int = TRIES) -> None:
        """An attempt takes at most that, unless CPUs were short.

        :param attempt: gets 0, 1 ...; what it returns is in seconds
        """
        for number in range(tries):
            began = time.monotonic()
            took_s = attempt(number)
            short = self.stalls.share(began)
            told = f'{took_s:.2f} s, at most {most_s:g} s'
            self.addDetail(f'{what} {number}', content.text_content(
                f'{told}; no CPU for {short:.0%} of the time'))
            if took_s <= most_s:
                return
            if short < STARVED:
                self.fail(f'{what}: {told}')
        self.not_told.append(what)

    def test_three_hosts(self) -> None:
        self.keeps('an antagonist is listed', NAMED_S, self.antagonist)
        self.keeps('an override is in the cgroups', FOLLOWED_S,
                   self.override)
        self.keeps('the kill switch removes every limit', FOLLOWED_S,
                   self.kill_switch)
        self.keeps('a deleted override has gone', FOLLOWED_S, self.deleted)
        self.keeps('an override that ran out has gone', EXPIRED_S,
                   self.expired)
        self.keeps('the override of an agent that was killed has gone',
                   fleet.LEASE_S, self.killed, tries=1)
        if self.not_told:
            self.skipTest('CPUs were too busy to tell in what time: '
                          + '; '.join(self.not_told))

    def antagonist(self, number: int) -> float:
        """From the tick that names it until ``antagonist list`` has it.

        Each try has a host that has had none.
        """
        host = self.hosts[number]
        hog = self.spawn(SPIN, host.tree, '/batch/hog')
        try:
            named_s = self.until('it is named', functools.partial(
                host.named_s, '/batch/hog'))
            name = host.workload('/batch/hog')
            self.wait_for('it is reported', lambda: self.rows(
                tables.antagonist_hours, workload=name))
            known_s = time.time()
            self.assertEqual(
                [(name, host.name, 1)],
                [(one['workload'], one['host'], one['incidents']) for one in
                 self.json('antagonist', 'list', '--host', host.name)])
            return known_s - named_s
        finally:
            hog.kill()
            hog.wait()

    def override(self, number: int) -> float:
        """From its row to the end of the tick in which it is in the cgroup,
        on the slowest host."""
        cores = 0.5 + number / 10
        asked_s = {host.name: self.ask(host, '/batch/a', cores).created_s
                   for host in self.hosts}
        found = self.at_all('the override', lambda host: host.limited_s(
            '/batch/a', cores))
        self.assertEqual([cores] * fleet.HOSTS, [
            host.cores('/batch/a') for host in self.hosts])
        return max(found[name] - asked_s[name] for name in found)

    def kill_switch(self, number: int) -> float:
        """From its row to the end of the tick of the slowest host, on each
        of which there is a regulator's limit and an operator's."""
        self.limited()
        self.text('interference', 'protection', 'disable', '--cloud',
                  '--reason', 'the test')
        [row] = self.rows(tables.switches, scope='cloud')
        found = self.at_all('no limit', fleet.Host.free_s)
        self.assertEqual([('0', None)] * fleet.HOSTS, [
            (host.idle(), host.cores('/batch/a')) for host in self.hosts])
        self.text('interference', 'protection', 'enable', '--cloud',
                  '--reason', 'the test')
        self.limited()
        return max(found.values()) - row.changed_s

    def limited(self) -> None:
        """Wait for both limits of each host."""
        for host in self.hosts:
            self.wait_for('limits', lambda host=host: (
                host.idle() == '1' and host.cores('/batch/a')))

    def deleted(self, number: int) -> float:
        host, below = self.hosts[0], '/batch/a'
        if number:
            self.ask(host, below, 0.5)
        self.wait_for('in the cgroup', lambda: host.cores(below)
                      and not host.limited_s(below, None))
        self.text('interference', 'cap', 'unset', host.name,
                  host.workload(below), 'cpu_cores', '--reason', 'x')
        deleted_s = max(row.deleted_s or 0.0 for row in self.rows(
            tables.overrides, workload=host.workload(below)))
        gone_s = self.until('gone', lambda: host.limited_s(below, None))
        self.assertIsNone(host.cores(below))
        return gone_s - deleted_s

    def expired(self, number: int) -> float:
        host, below = self.hosts[1], '/batch/b'
        lasts_s = 4 * 3 ** number       # a slow host is to see it, too
        row = self.ask(host, below, 0.5, f'{lasts_s}s')
        self.wait_for('in the cgroup', lambda: host.limited_s(below, 0.5)
                      or time.time() > row.expires_s)
        if not host.limited_s(below, 0.5):
            return time.time() - row.created_s
        gone_s = self.until('gone', lambda: host.limited_s(below, None))
        self.assertIsNone(host.cores(below))
        self.assertGreaterEqual(gone_s, row.expires_s)
        return gone_s - row.expires_s

    def killed(self, number: int) -> float:
        """By the watcher's hand, so the cgroup alone tells."""
        host = self.hosts[2]
        self.assertEqual('1', host.idle())
        self.assertIsNotNone(host.cores('/batch/a'))
        began = time.monotonic()
        os.kill(host.status()['pid'], signal.SIGKILL)
        self.wait_for('restored', lambda: (host.idle(), host.cores(
            '/batch/a')) == ('0', None))
        took_s = time.monotonic() - began
        self.wait_for('no leases, and no watcher', lambda: not (
            host.leases() or host.watchers()))
        return took_s

    def ask(self, host: fleet.Host, below: str, cores: float,
            lasts: str = '10m') -> Any:
        """Set an override with the command; its row."""
        self.text('interference', 'cap', 'set', host.name,
                  host.workload(below), 'cpu_cores', f'{cores:g}',
                  '--expires', lasts, '--reason', 'the test')
        [row] = self.rows(tables.overrides, workload=host.workload(below),
                          deleted_s=None)
        return row

    def at_all(self, what: str, look: Callable[[fleet.Host], float]
               ) -> dict[str, float]:
        """Wait until something is so on all hosts; when it came to be so.

        :param look: when that was on a host, 0 while it is not
        """
        found: dict[str, float] = {}

        def everywhere() -> bool:
            for host in self.hosts:
                if host.name not in found and (at_s := look(host)):
                    found[host.name] = at_s
            return len(found) == len(self.hosts)

        self.wait_for(what, everywhere)
        return found
