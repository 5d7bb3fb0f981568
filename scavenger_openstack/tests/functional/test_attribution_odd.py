# SPDX-License-Identifier: Apache-2.0

"""A real agent and input that should not be: no innocent is named.

Hardware counters are in ``test_perf`` and ``test_guest_pmu``, delay
accounting in ``test_delay_accounting``; here are odd victims, odd suspects,
odd clocks and what was learnt on another CPU.
"""

from __future__ import annotations

from collections.abc import Mapping
import json
import mmap
import pathlib
import signal
import subprocess
import time
from typing import Any

import fixtures

from scavenger_openstack.demo import product
from scavenger_openstack.tests.functional import suspects
from scavenger_openstack.tests import tiers

DEADLINE_S = 120.0

LEARNS_FROM = 500
"""Samples that cpi2 wants before it compares, where it has to take them from
the state of another agent: it is never here for so long."""

CPI2 = """\
[cpi2]
signal = run_delay
sample_s = 0.5
period_s = 0.5
min_own_samples = {samples}
"""

READ = '''
import mmap
fd = os.open({path!r}, os.O_RDONLY | os.O_DIRECT)
buffer = mmap.mmap(-1, {size})
print('up')
while True:
    os.preadv(fd, [buffer], 0)
    time.sleep(0.01)
'''

ANOTHER_CPU = 'mount --bind "$0" /proc/cpuinfo && exec "$@"'


def facts(document: Mapping[str, Any], controller: str) -> dict[str, Any]:
    """What a controller says of itself in the status."""
    found: dict[str, Any] = document['controllers'][controller]['facts']
    assert 'fault' not in found, found
    return found


def samples(document: Mapping[str, Any], controller: str = 'attribution'
            ) -> int:
    """How many a detector has in its window."""
    return int(facts(document, controller)['samples'])


class OddInputTest(suspects.SuspectsTestCase):

    @property
    def windows(self) -> pathlib.Path:
        """What the agent keeps over a restart."""
        return self.directory / 'state/windows.json'

    def kept(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.windows.read_text())[name]
        return found

    def keep(self, name: str, **changes: object) -> None:
        """Change what an agent that has ended left to the next."""
        state = json.loads(self.windows.read_text())
        state[name].update(changes)
        self.windows.write_text(json.dumps(state))

    def run_reader(self, below: str) -> subprocess.Popen[str]:
        """A foreground workload that waits for a disk."""
        file = pathlib.Path(self.useFixture(
            fixtures.TempDir('/var/tmp')).path) / 'data'
        file.write_bytes(bytes(mmap.PAGESIZE))
        return self.run_along(below, READ.format(path=str(file),
                                                 size=mmap.PAGESIZE))

    def wait_for_samples(self, status: product.Status, count: int) -> None:
        """Wait for attribution to have so many; none is named meanwhile.
        """
        def enough() -> bool:
            self.assertEqual(set(), self.named(status, set()))
            return samples(status.last) >= count

        self.wait_for(f'{count} samples', enough, DEADLINE_S)

    def wait_for_names(self, status: product.Status, hogs: set[str]) -> None:
        self.wait_for(f'{sorted(hogs)} are named, and no others',
                      lambda: self.named(status, hogs) == hogs, DEADLINE_S)

    def test_a_victim_alone_and_a_suspect_that_comes_later(self) -> None:
        """Most of what is known is of the time before the suspect came."""
        self.run_innocents()
        readers = [self.run_reader(below)
                   for below in ('/fore/lookup', '/fore/catalog')]
        status = self.agent(controllers='cpi2,perfcloud,attribution',
                            more=CPI2.format(samples=10))
        self.wait_for_samples(status, 14)
        self.assertGreaterEqual(
            status.last['grade']['delays']['measured_io_wait'], 2)
        # One of no application has none to differ from.
        found = facts(status.last, 'perfcloud')
        self.assertEqual({'cpi', 'io_wait'}, found.keys())
        for one in found.values():
            self.assertEqual((None, 0),
                             (one['deviation'], one['antagonists']))
        # Where other programs take their CPU, the agent would ask what they
        # wait for, long before it asks that of the victim.
        for reader in readers:
            reader.kill()
            reader.wait(30)
        hogs = self.run_hogs('/back/hog')
        self.wait_for_names(status, hogs)
        # One by itself is an outlier of its own past.
        self.wait_for('cpi2 has an incident', lambda: [
            one for one in self.incidents(status, 'unknown')
            if (one['victim'], one['signal']) == (self.victim_id,
                                                  'run_delay')], DEADLINE_S)
        self.assertEqual(hogs, self.named(status, hogs))
        self.end()

    def test_two_that_cannot_be_told_apart(self) -> None:
        self.run_innocents()
        hogs = self.run_hogs('/back/one', '/back/two')
        self.wait_for_names(self.agent(), hogs)
        self.end()

    @tiers.only_in_all('unit tests give the detector the same input')
    def test_an_agent_that_stands_still(self) -> None:
        """For longer than samples, then than the window and the leases."""
        window_s = 6.0
        self.run_innocents()
        status = self.agent(window_s=window_s, more='[agent]\nlease_s = 5\n')
        assert self.process is not None
        self.wait_for_samples(status, 5)
        for pause_s in (1.5, window_s + 0.6):
            before_s, before = status.last['time_s'], samples(status.last)
            self.process.send_signal(signal.SIGSTOP)
            try:
                time.sleep(pause_s)
            finally:
                went_on_s = time.clock_gettime(time.CLOCK_BOOTTIME)
                self.process.send_signal(signal.SIGCONT)
            self.wait_for('the agent goes on', lambda last=went_on_s: (
                status.refresh() and status.last['time_s'] > last), DEADLINE_S)
            now_s, now = status.last['time_s'], samples(status.last)
            if pause_s > window_s:      # those of before are forgotten
                self.assertLessEqual(now, 2 + (now_s - went_on_s) / 0.5)
            elif now_s - before_s < window_s:
                self.assertGreaterEqual(now, before)
            self.assertEqual(set(), self.named(status, set()))
        self.wait_for_names(status, self.run_hogs('/back/hog'))
        self.end()
        self.assertIn('the leases ran out',
                      (self.directory / 'agent.log').read_text())

    @tiers.only_in_all('unit tests give the detector the same input')
    def test_a_clock_behind_that_of_the_agent_before(self) -> None:
        """What it learnt has no end by this clock, so it is not believed."""
        up_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        within = ('unshare', '--time', '--boottime', f'-{int(up_s / 2)}')
        done = subprocess.run([*within, 'cat', '/proc/uptime'], text=True,
                              capture_output=True)
        if done.returncode or float(done.stdout.split()[0]) > 0.9 * up_s:
            self.skipTest('needs a time namespace: a kernel of 5.6 or later '
                          f'with CONFIG_TIME_NS: {done.stderr}')
        self.run_innocents()
        self.wait_for_samples(self.agent(mode='enforce'), 1)
        self.end()
        saved_s = self.kept('attribution')['saved_s']
        hogs = self.run_hogs('/back/hog')
        [hog] = hogs
        self.keep('attribution',
                  good=[[hog, 'cpu_cores', ['', '', self.victim_id],
                         'run_delay', 8.0, True, saved_s + 3600, None]],
                  backs_off=[[['', '', self.victim_id], 'run_delay', hog,
                              saved_s + 300, 300.0]])
        status = self.agent(mode='enforce', within=within)
        self.assertLess(status.last['time_s'], saved_s)
        self.wait_for_names(status, hogs)
        self.wait_for('the hog is limited', lambda: status.refresh() and [
            cap for cap in status.caps() if cap['workload'] == hog],
            DEADLINE_S)
        self.end()
        kept = self.kept('attribution')
        self.assertEqual([], [one for one in kept['good']
                              if one[6] > kept['saved_s'] + 3600])
        self.assertEqual([], kept['backs_off'])

    @tiers.only_in_all('unit tests give the detector the same input')
    def test_a_spec_without_variance_and_another_cpu(self) -> None:
        """It is used on the CPU that it is of, and on no other."""
        def agent(*within: str) -> product.Status:
            return self.agent(
                controllers='cpi2,attribution', within=within,
                more=CPI2.format(samples=LEARNS_FROM))

        def outliers(status: product.Status) -> list[dict[str, Any]]:
            self.assertEqual(set(), self.named(status, set()))
            return self.incidents(status, 'unknown')

        cpus = pathlib.Path('/proc/cpuinfo').read_text()
        other = self.directory / 'cpuinfo'
        other.write_text('processor\t: 0\nmodel name\t: Another CPU\n')
        self.run_innocents()
        status = agent()
        self.wait_for('a sample', lambda: (
            status.refresh() and samples(status.last, 'cpi2') >= 1),
            DEADLINE_S)
        self.end()
        kept = self.kept('cpi2')
        self.assertIn(kept['cpu_model'] or '', cpus)
        if not kept['cpu_model']:
            self.skipTest('/proc/cpuinfo tells no model')
        histories = {name: [name, created_s, history] for
                     name, created_s, history in kept['histories']}
        histories[self.victim_id][2] = [2.0 * LEARNS_FROM, 0.0, 0.0, None]
        self.keep('cpi2', histories=list(histories.values()))

        status = agent()
        self.wait_for('one that waits at all is an outlier',
                      lambda: outliers(status), DEADLINE_S)
        [one] = outliers(status)
        self.assertEqual((self.victim_id, 'run_delay', 0.0), (
            one['victim'], one['signal'], one['threshold']))
        self.end()

        status = agent('unshare', '--mount', 'sh', '-c', ANOTHER_CPU,
                       str(other))
        self.wait_for('as many samples', lambda: (
            status.refresh() and samples(status.last, 'cpi2') >= 6),
            DEADLINE_S)
        self.assertEqual([], outliers(status))
        self.end()
        kept = self.kept('cpi2')
        self.assertEqual('Another CPU', kept['cpu_model'])
        for _, _, (count, *_) in kept['histories']:
            self.assertLess(count, LEARNS_FROM)
