# SPDX-License-Identifier: Apache-2.0


"""The units' capabilities: enough for the whole job, and none to spare."""

from __future__ import annotations

import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import sys

import fixtures

from scavenger_openstack.tests.functional import base
from scavenger_openstack.tests.functional.confinement import confined
from scavenger_openstack.tests.functional import kills

UNITS = pathlib.Path(__file__).parents[3] / 'etc/systemd'
AGENT = UNITS / 'scavenger-agent.service'
WATCHER = UNITS / 'scavenger-restore.service'
NAMESPACES = UNITS / 'network-namespaces.conf.example'

WATCH = ('"$PYTHON" -c '
         '"from scavenger_openstack.drivers.kernel import cpu_waits; '
         'from scavenger_openstack.drivers.kernel import sched_switch; '
         'sched_switch.SchedSwitch().close(); cpu_waits.CpuWaits({}).close()"')

PARANOID = pathlib.Path('/proc/sys/kernel/perf_event_paranoid')

PROBES = {
    'CAP_DAC_OVERRIDE': 'echo 0 >"$CGROUP/cpu.idle"',
    'CAP_NET_ADMIN': 'tc qdisc replace dev lo root tbf rate 1mbit '
                     'burst 10k latency 1s',
    'CAP_BPF': WATCH,
    'CAP_PERFMON': WATCH,
    'CAP_KILL': 'kill -0 "$ROOTS"',
}
"""What each capability of the agent is there for, as shell commands."""


def capabilities(*files: pathlib.Path) -> list[str]:
    """What the units give, in the order that they stand there."""
    return [line.partition('=')[2] for file in files
            for line in file.read_text().splitlines()
            if line.startswith('AmbientCapabilities=')]


class PrivilegesTest(base.FunctionalTestCase):

    def setUp(self) -> None:
        super().setUp()
        for tool in ('setpriv', 'unshare', 'tc', 'ip', 'strace'):
            if shutil.which(tool) is None:
                self.skipTest(f'needs {tool}: see bindep.txt')

    def probe(self, command: str, names: list[str], **values: str) -> bool:
        """Whether ``command`` works with some capabilities.

        It has a network of its own, and tracefs where systemd mounts it.
        """
        done = subprocess.run(
            ['unshare', '--mount', '--net', 'sh', '-c',
             'mountpoint -q /sys/kernel/tracing || '
             'mount -t tracefs tracefs /sys/kernel/tracing && exec "$@"',
             'sh', *confined(names), 'sh', '-c', command],
            env={**os.environ, **values, 'PYTHON': sys.executable},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, timeout=30)
        return done.returncode == 0

    def test_each_capability_is_needed(self) -> None:
        values = {'CGROUP': str(self.cgroups().path('cpu')),
                  'ROOTS': str(os.getpid())}
        names = capabilities(AGENT)
        self.assertEqual(set(PROBES), set(names))
        paranoid = int(PARANOID.read_text())
        for name, command in PROBES.items():
            if command == WATCH and paranoid > 2:
                continue
            fewer = [other for other in names if other != name]
            self.assertTrue(self.probe(command, names, **values), name)
            self.assertFalse(self.probe(command, fewer, **values),
                             f'nothing needs {name}')
        if paranoid > 2:
            self.skipTest(f'those of the fast loop need {PARANOID} at 2, it '
                          f'is {paranoid}; the others are needed')

    def test_the_whole_job_as_an_unprivileged_user(self) -> None:
        """Every knob is set, and restored after a SIGKILL."""
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        shutil.chown(directory, pwd.getpwnam('nobody').pw_uid)
        python = directory / 'python'
        agent_runs = confined(capabilities(AGENT, NAMESPACES))
        watcher_runs = confined(capabilities(WATCHER, NAMESPACES))
        python.write_text(
            '#!/bin/sh\n'
            'case "$*" in\n'
            f'*restore.program*) exec {" ".join(watcher_runs)} '
            f'{sys.executable} "$@" ;;\n'
            f'*) exec {" ".join(agent_runs)} {sys.executable} "$@" ;;\n'
            'esac\n')
        python.chmod(0o755)
        self.useFixture(fixtures.MonkeyPatch('sys.executable', str(python)))
        stage = self.useFixture(kills.Stage(self.cgroups(), directory))
        agent = stage.agent(0)
        self.addCleanup(agent.communicate)
        self.addCleanup(agent.kill)
        self.wait_for('every knob was set once', stage.all_touched())
        status = pathlib.Path(f'/proc/{agent.pid}/status').read_text()
        self.assertIn(f'Uid:\t{pwd.getpwnam("nobody").pw_uid}\t', status)
        agent.send_signal(signal.SIGKILL)
        _, left = stage.back_within(kills.LEASE_S)
        self.assertEqual({}, left)
        self.assertTrue(stage.wait_no_leases(kills.LEASE_S))
