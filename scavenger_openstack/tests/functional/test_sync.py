# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time
from typing import Any

from scavenger_openstack.tests.functional import agents
from scavenger_openstack.tests.functional import reporting
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import report

SYNC_S = 1.0
TICK_S = 0.2

CONTROL_PLANE = (
    'oslo_messaging', 'sqlalchemy', 'sqlite3',
    'scavenger_openstack.agent.control_plane', 'scavenger_openstack.conductor',
    'scavenger_openstack.db', 'scavenger_openstack.rpc')
"""Modules that only an agent with a control plane needs."""

LEAVES_MODULES = """
import pathlib
import sys
from scavenger_openstack.cmd import standalone

try:
    standalone.main(sys.argv[2:])
finally:
    pathlib.Path(sys.argv[1]).write_text('\\n'.join(sys.modules))
"""


class SyncTest(agents.AgentTestCase):
    """A real agent on real cgroups, and what it tells and follows."""

    def setUp(self) -> None:
        super().setUp()
        self.tree.make('/batch/b')
        # Without it there would be a conductor in the process.
        self.configure('[DEFAULT]', 'transport_url = fake:/',
                       '[scavenger]', 'mode = enforce',
                       'use_cpu_leftover = false', '[conductor]',
                       'enabled = true', f'sync_s = {SYNC_S}')
        self.digest = 0

    def start_agent(self) -> subprocess.Popen[str]:
        here = pathlib.Path(reporting.__file__).parents[3]
        process = subprocess.Popen(
            [sys.executable, '-m', reporting.__name__,
             '--config-file', str(self.config),
             '--state-dir', str(self.state_dir)], cwd=self.directory,
            env={**os.environ, 'PYTHONPATH': str(here)},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        self.addCleanup(self._stop, process)
        return process

    def limited(self) -> subprocess.Popen[str]:
        process = self.start_agent()
        self.wait_for('background is idle class', lambda: self.idle() == '1')
        return process

    def reports(self) -> list[report.Report]:
        try:
            lines = (self.directory / 'reports').read_bytes().splitlines()
        except FileNotFoundError:
            return []
        return [codec.decode(line, report.Report, report.MAX_REPORT_BYTES)
                for line in lines]

    def facts(self) -> report.Facts:
        """Those of the last report."""
        found = self.reports()
        return found[-1].facts if found else report.Facts()

    def entries(self, kind: type) -> list[Any]:
        return [one for told in self.reports() for one in told.entries
                if isinstance(one, kind)]

    def want(self, **fields: Any) -> float:
        """Give out directives; the time when that was."""
        self.digest += 1
        draft = self.directory / 'draft'
        draft.write_bytes(codec.encode(report.Directives(
            issued_s=time.time(), digest=str(self.digest), **fields)))
        draft.rename(self.directory / 'directives')
        return time.monotonic()

    def override(self, workload: str, value: float | None,
                 lasts_s: float = 600.0) -> report.Override:
        return report.Override(
            id=workload, workload=f'{self.tree.name}{workload}',
            knob='cpu_cores', value=value, reason='the test asks for it',
            expires_s=time.time() + lasts_s)

    def cores(self, group: str) -> float | None:
        """The limit of a group, ``None`` without any."""
        text = self.tree.get('quota', group).split()[0]
        return None if text in ('-1', 'max') else int(text) / 100_000

    def test_kill_switch(self) -> None:
        process = self.limited()
        began = self.want(protection=False, protection_reason='power cut')
        self.wait_for('no limit', lambda: self.idle() == '0'
                      and not self.leases())
        took_s = time.monotonic() - began
        self.addDetail('seconds', agents.base.testtools.content.text_content(
            f'{took_s:.2f}'))
        self.wait_for('the status says so', lambda: 'the control plane: '
                      'power cut' in str(self.status().get('state')))
        self.wait_for('a report says so', lambda: self.facts(
            ).stopped.endswith('power cut'))
        self.assertFalse(self.facts().enforcing)
        # It holds over a restart, without a conductor.
        (self.directory / 'away').touch()
        process.terminate()
        process.communicate(timeout=60)
        self.start_agent()
        self.wait_for('it turns', lambda: self.ticks() > 5)
        self.assertEqual('0', self.idle())
        (self.directory / 'away').unlink()
        self.want()
        self.wait_for('limits again', lambda: self.idle() == '1')

    def test_a_mode_that_the_file_does_not_allow(self) -> None:
        """Report, status and log have it, and what to do."""
        process = self.limited()
        self.want(modes={'attribution': 'enforce', 'scavenger': 'enforce'})
        self.wait_for('it is reported', lambda: self.facts().refused.keys()
                      == {'mode attribution'})
        facts = self.facts()
        why = facts.refused['mode attribution']
        self.assertIn('the file of this host says observe', why)
        self.assertEqual(('observe', 'observe', 'enforce'), (
            facts.modes['attribution'], facts.own_modes['attribution'],
            facts.own_modes['scavenger']))
        self.assertIn('cpu_cores', facts.limited or ())
        status = dict(self.status().get('conductor') or {})  # type: ignore[call-overload]
        self.assertEqual({'mode attribution': why}, status['refused'])
        self.want()
        self.wait_for('it is over', lambda: not self.facts().refused)
        process.terminate()
        _, err = process.communicate(timeout=60)
        self.assertEqual(1, err.count('is not followed here: mode '
                                      f'attribution: {why}'), err)

    def test_the_stop_file_wins(self) -> None:
        self.want()
        self.limited()
        (self.state_dir / 'stop').touch()
        self.wait_for('no limit', lambda: self.idle() == '0')
        self.want(overrides=[self.override('/batch/a', 0.5)])
        self.wait_for('they are followed', lambda: str(self.digest) in [
            told.directives_digest for told in self.reports()])
        ticks = self.ticks()
        self.wait_for('ticks', lambda: self.ticks() > ticks + 3)
        self.assertEqual(('0', None), (self.idle(), self.cores('/batch/a')))

    def test_overrides(self) -> None:
        self.limited()
        began = self.want(overrides=[
            self.override('/batch/a', 0.5),
            self.override('/batch/b', 0.001, lasts_s=8.0),
            self.override('/services/s', 0.5),
            self.override('/batch/gone', 0.5)])
        self.wait_for('in the cgroup', lambda: self.cores('/batch/a') == 0.5)
        self.addDetail('seconds', agents.base.testtools.content.text_content(
            f'{time.monotonic() - began:.2f}'))
        self.wait_for('at its floor',
                      lambda: self.cores('/batch/b') == 0.1)
        self.wait_for('what is refused is told', lambda: self.facts(
            ).refused.keys() == {'override /services/s',
                                         'override /batch/gone'})
        self.assertIn('foreground', self.facts().refused[
            'override /services/s'])
        self.assertIsNone(self.cores('/services/s'))
        self.wait_for('one ran out', lambda: self.cores('/batch/b') is None)
        self.assertEqual(0.5, self.cores('/batch/a'))
        self.want()
        self.wait_for('one was deleted',
                      lambda: self.cores('/batch/a') is None)
        self.wait_for('all of it is told', lambda: [
            (one.workload, one.what) for one in self.entries(report.Limit)
            if one.owner == 'operator'].count(
                (f'{self.tree.name}/batch/a', 'removed')) == 1)

    def test_an_override_dies_with_its_agent(self) -> None:
        process = self.limited()
        self.want(overrides=[self.override('/batch/a', 0.5)])
        self.wait_for('in the cgroup', lambda: self.cores('/batch/a') == 0.5)
        watcher = self.watcher()
        process.kill()
        process.communicate(timeout=60)
        self.wait_for('restored', lambda: self.cores('/batch/a') is None
                      and self.idle() == '0')
        signal.pidfd_send_signal(watcher, 0)

    def test_modes(self) -> None:
        self.limited()
        self.want(modes={'scavenger': 'observe'})
        self.wait_for('no limit', lambda: self.idle() == '0')
        self.wait_for('it is told', lambda: self.facts().modes.get(
            'scavenger') == 'observe')
        self.want()
        self.wait_for('limits again', lambda: self.idle() == '1')

    def test_each_event_is_told_once(self) -> None:
        """Also what happened while the conductor was away, and before the
        agent was killed."""
        (self.directory / 'away').touch()
        process = self.limited()
        self.wait_for('it is kept', lambda: list(
            (self.state_dir / 'history').glob('*.events')))
        time.sleep(2 * SYNC_S)
        process.kill()
        process.communicate(timeout=60)
        self.wait_for('restored', lambda: self.idle() == '0')
        (self.directory / 'away').unlink()
        second = self.limited()
        self.wait_for('two have set it', lambda: [
            one.what for one in self.entries(report.Limit)
            if one.knob == 'cpu_idle'].count('set') == 2)
        second.terminate()
        second.communicate(timeout=60)
        runs = {told.run_id for told in self.reports() if told.entries}
        self.assertEqual(2, len(runs))
        seen = [(told.run_id, one.sequence) for told in self.reports()
                for one in told.entries]
        self.assertEqual(len(seen), len(set(seen)))
        self.assertEqual(
            ['started', 'started', 'ended'],
            [one.what for one in self.entries(report.AgentEvent)
             if one.what != 'state'])

    def test_without_a_control_plane_libvirt_and_links(self) -> None:
        """Nothing of them is loaded."""
        self.configure('[scavenger]', 'mode = enforce')
        modules = self.directory / 'modules'
        process = subprocess.Popen(
            [sys.executable, '-c', LEAVES_MODULES, str(modules),
             '--config-file', str(self.config),
             '--state-dir', str(self.state_dir)], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(self._stop, process)
        self.wait_for('background is idle class', lambda: self.idle() == '1')
        process.terminate()
        process.communicate(timeout=60)
        found = modules.read_text().splitlines()
        self.assertIn('scavenger_openstack.agent.service', found)
        self.assertEqual([], [name for name in found if name.startswith(
            (*CONTROL_PLANE, 'scavenger_openstack.drivers.libvirt',
             'scavenger_openstack.drivers.network.limits'))])
        self.assertFalse((self.state_dir / 'sync').exists())
