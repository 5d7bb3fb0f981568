# SPDX-License-Identifier: Apache-2.0

"""How many lines the agent writes of what happens to a VM with five limits,
and which: at most :data:`MOST`, and each is one of these."""

from __future__ import annotations

from collections.abc import Callable
import contextlib
import json
import pathlib
import re
import signal
import subprocess
import sys
import time

import fixtures
from testtools import content

from scavenger_openstack.tests.functional import domain_guest
from scavenger_openstack.tests.functional import five_limits
from scavenger_openstack.tests.functional import hypervisor
from scavenger_openstack.tests.functional import virtual_host
from scavenger_openstack.tests import tiers

MOST = 3
QUIET_S = 5.0
"""So long nothing more is written when all is as it was."""

NAME = 'instance-00000001'
SET = f'INFO [45] limits set: {NAME} '
REMOVED = f'INFO [2-5] limits removed: {NAME} .*: %s \\(five\\); see'
MET = (f'INFO ([2-5] limits|limit) removed: {NAME} .*: .*domain '
       '(.* does not run here|is not running)')
"""It may come first, for some: a write met a VM that was just ending."""
CPU_SET = f'INFO limit set: {NAME} .*cpu_set'
"""It may come first: the others wait for libvirt."""
DELAYS = '[A-Z]+ delays are (not )?measured'
"""Another test switched delay accounting, which the machine has one of."""


class Agent:
    """An agent as a process, and its log from INFO on."""

    def __init__(self, host: hypervisor.Hypervisor, directory: pathlib.Path
                 ) -> None:
        self.directory = directory
        config = directory / 'agent.conf'
        config.write_text('\n'.join((
            '[DEFAULT]', f'log_file = {directory}/agent.log',
            'logging_default_format_string = %(levelname)s %(message)s',
            '[agent]', 'interval_s = 0.5', 'require_watcher = false',
            '[perfiso]', 'mode = off', '[libvirt]', f'uri = {host.uri}',
            f'run_dir = {host.run_dir}')))
        self.process = subprocess.Popen(
            [sys.executable, '-m', five_limits.__name__, 'run',
             '--config-file', str(config),
             '--state-dir', str(directory / 'state')],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        self._seen = 0

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def log(self) -> list[str]:
        with contextlib.suppress(FileNotFoundError):
            return (self.directory / 'agent.log').read_text().splitlines()
        return []

    def new(self) -> list[str]:
        """What it has written since :meth:`seen`."""
        return [line for line in self.log()[self._seen:]
                if not re.match(DELAYS, line)]

    def seen(self) -> None:
        self._seen = len(self.log())

    def limits(self) -> list[str]:
        """The knobs of all limits in force."""
        with contextlib.suppress(FileNotFoundError):
            return sorted(one['knob'] for one in json.loads((
                self.directory / 'state/status.json').read_text())['caps'])
        return []


class LinesTest(virtual_host.VirtualHostTestCase):

    def begin(self, *others: str, own_network: bool = False
              ) -> hypervisor.Hypervisor:
        host = self.hypervisor(own_network=own_network)
        self.guests = [virtual_host.background(name, disks=(
            domain_guest.Disk.make(host.disks / name, 2**20),))
            for name in (NAME, *others)]
        host.start_all(self.guests)
        self.here = self.agent_on(host)
        self.in_force(self.here, len(self.guests))
        self.here.seen()
        return host

    def agent_on(self, host: hypervisor.Hypervisor) -> Agent:
        found = Agent(host, pathlib.Path(
            self.useFixture(fixtures.TempDir()).path))
        self.addCleanup(lambda: self.addDetail(
            'log', content.text_content('\n'.join(found.log()))))
        self.addCleanup(found.stop)
        return found

    def in_force(self, agent: Agent, vms: int = 1) -> None:
        """Until all limits are, and nothing more is written."""
        wanted = sorted([*five_limits.LIMITS] * vms)
        self.wait_for('five limits of each', lambda: agent.limits() == wanted,
                      timeout_s=60)
        time.sleep(QUIET_S)
        self.assertEqual(wanted, agent.limits())

    def wrote(self, agent: Agent, pattern: str) -> Callable[[], bool]:
        return lambda: any(re.match(pattern, line) for line in agent.new())

    def lines(self, agent: Agent, *patterns: str) -> None:
        """It wrote these, and no others but :data:`CPU_SET`, :data:`MET`."""
        found = agent.new()
        text = '\n'.join(found)
        self.addDetail('lines', content.text_content(text))
        self.assertLessEqual(len(found), MOST, text)
        found = [line for line in found if not re.match(CPU_SET, line)]
        if found and re.match(MET, found[0]):
            del found[0]
        self.assertEqual(len(patterns), len(found), text)
        for pattern, line in zip(patterns, found, strict=True):
            self.assertTrue(re.match(pattern, line), f'{pattern}: {line}')

    @tiers.only_in_all('hard reboots and kills count lines, too')
    def test_powered_off_and_started(self) -> None:
        """As a soft reboot of Nova ends: with a new QEMU."""
        host = self.begin()
        host.virsh(f'destroy {NAME}')
        self.wait_for('the end', self.wrote(self.here, REMOVED % '.*'))
        host.virsh(f'start {NAME}')
        self.in_force(self.here)
        self.lines(self.here, REMOVED % 'the VM was powered off', SET)

    @tiers.only_in_all('hard reboots and kills count lines, too')
    def test_rebooted_softly(self) -> None:
        """As Nova does it: the ACPI button, and a start when it is off."""
        host = self.begin()
        host.console(NAME, reset=False)
        self.here.seen()
        host.virsh(f'shutdown {NAME} --mode acpi')
        self.wait_for('it is off', lambda: host.virsh(
            f'domstate {NAME} --reason').strip() == 'shut off (shutdown)',
            timeout_s=60)
        host.virsh(f'start {NAME}')
        self.in_force(self.here)
        self.lines(self.here, REMOVED % 'the VM shut down(, and was started '
                   'again)?', SET)

    @tiers.only_in_all('hard reboots and kills count lines, too')
    def test_started_again_at_once(self) -> None:
        host = self.begin()
        host.virsh(f'destroy {NAME}; start {NAME}')
        self.wait_for('new limits', self.wrote(self.here, SET))
        self.in_force(self.here)
        self.lines(self.here, REMOVED % 'the VM was powered off(, and was '
                   'started again)?', SET)

    def test_rebooted_hard(self) -> None:
        """As Nova does it: all of it is made again."""
        host = self.begin()
        host.virsh(f'destroy {NAME}; undefine {NAME}')
        host.define(*self.guests)
        host.virsh(f'start {NAME}')
        self.wait_for('new limits', self.wrote(self.here, SET))
        self.in_force(self.here)
        self.lines(self.here, REMOVED % 'the VM was powered off(, and was '
                   'started again)?', SET)

    @tiers.only_in_all('hard reboots and kills count lines, too')
    def test_reset(self) -> None:
        """The limits stay."""
        host = self.begin()
        host.virsh(f'reset {NAME}')
        self.in_force(self.here)
        self.lines(self.here)

    @tiers.only_in_all('hard reboots and kills count lines, too')
    def test_migrated(self) -> None:
        source = self.begin(own_network=True)
        target = self.hypervisor(own_network=True)
        there = self.agent_on(target)
        self.wait_for('its start', lambda: any(
            'QEMU' in line for line in there.log()))
        time.sleep(1)
        there.seen()
        source.migrate(NAME, target)
        self.in_force(there)
        self.lines(there, f'WARNING domain {NAME} .*came with a limit on .*'
                   ': removed', SET)
        self.lines(self.here,
                   REMOVED % 'the VM migrated to another host')

    @tiers.only_in_all('hard reboots and kills count lines, too')
    def test_libvirtd_restarts(self) -> None:
        self.restarted(self.begin(), signal.SIGTERM)

    def test_libvirtd_is_killed(self) -> None:
        self.restarted(self.begin(), signal.SIGKILL)

    @tiers.only_in_all('hard reboots and kills count lines, too')
    def test_libvirtd_of_many_restarts(self) -> None:
        """No line for each VM, nor for each limit."""
        self.restarted(self.begin(*map('instance-0000001{}'.format, range(4))),
                       signal.SIGTERM)

    def restarted(self, host: hypervisor.Hypervisor, number: int) -> None:
        host.kill(number)
        self.wait_for('word', self.wrote(self.here, '.*cannot be reached'))
        host.start_again()
        self.wait_for('its end', self.wrote(self.here, '.*answers again'))
        self.in_force(self.here, len(self.guests))
        self.lines(self.here, 'WARNING libvirt cannot be reached',
                   'INFO libvirt answers again after')
