# SPDX-License-Identifier: Apache-2.0

"""Which VM disturbs another one, named by an agent that came later."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import time
from typing import Any

import fixtures
from testtools import content

from scavenger_openstack.drivers.kernel import cpu_waits
from scavenger_openstack import errors
from scavenger_openstack.tests.functional import domain_guest
from scavenger_openstack.tests.functional import virtual_host
from scavenger_openstack.tests import tiers

NAMED_S = 15.0
"""From the first tick: how long a program takes to start depends on what else
this machine does."""


@tiers.only_in_all('its parts have tests; a time under load')
class NamedTest(virtual_host.VirtualHostTestCase):

    def test_what_was_there_first(self) -> None:
        """It computes beside a foreground VM on one CPU, and never rests;
        another one on that CPU is innocent."""
        try:
            cpu_waits.CpuWaits({}).close()
        except errors.Unsupported as exc:
            self.skipTest(str(exc))
        bench = self.hypervisor()
        # Whatever else this machine does hardly counts beside this.
        bench.tree.put('weight', '', '262144'
                       if bench.tree.version == 1 else '10000')
        cpu = str(max(os.sched_getaffinity(0)))
        hog, innocent = (virtual_host.background(name, cpuset=cpu)
                         for name in ('hog', 'innocent'))
        web = domain_guest.DomainGuest(name='web', cpuset=cpu)
        bench.start_all([hog, innocent, web])
        consoles = {guest.name: bench.console(guest.name)
                    for guest in (hog, innocent, web)}
        for name in 'hog', 'web':
            consoles[name].tell('cpu 1')
        incident, took_s = self.named(*self.agent_of(
            bench.uri, str(bench.run_dir)))
        self.addDetail('incident', content.json_content(incident))
        self.assertEqual((web.uuid, [hog.uuid], ['direct']), (
            incident['victim'], incident['antagonists'],
            [ground['kind'] for ground in incident['grounds']
             if ground['workload'] == hog.uuid]))
        self.assertLess(took_s, NAMED_S)
        print(f'{self.id()}: named {took_s:.1f} s after the first tick',
              file=sys.stderr)

    def agent_of(self, uri: str, run_dir: str) -> tuple[
            subprocess.Popen[str], pathlib.Path]:
        top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        config = top / 'agent.conf'
        config.write_text('\n'.join((
            '[agent]', 'controllers = attribution',
            '[attribution]', 'mode = observe', '[conductor]',
            'enabled = false', '[libvirt]', f'uri = {uri}',
            f'run_dir = {run_dir}')))
        agent = subprocess.Popen(
            [sys.executable, '-m', 'scavenger_openstack.cmd.agent', 'run',
             '--config-file', str(config), '--state-dir',
             str(top / 'state')], stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True)
        self.addCleanup(agent.communicate, timeout=60)
        self.addCleanup(agent.terminate)
        return agent, top / 'state' / 'status.json'

    def named(self, agent: subprocess.Popen[str], status: pathlib.Path
              ) -> tuple[dict[str, Any], float]:
        """The first incident, and seconds from the first tick until it is
        reported."""
        self.wait_for('a tick', lambda: (agent.poll() is not None
                                         or status.exists()), timeout_s=60)
        began_s = time.monotonic()
        incidents: list[dict[str, Any]] = []

        def reported() -> bool:
            self.assertIsNone(agent.poll())
            incidents[:] = json.loads(status.read_text()).get(
                'incidents') or ()
            return bool(incidents)

        self.wait_for('an incident', reported, timeout_s=60)
        return incidents[0], time.monotonic() - began_s
