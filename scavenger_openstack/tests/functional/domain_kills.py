# SPDX-License-Identifier: Apache-2.0


"""As :mod:`.kills`, on the knobs of a domain."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time

import fixtures

from scavenger_openstack.tests.functional import base
from scavenger_openstack.tests.functional import domain_guest
from scavenger_openstack.tests.functional import hypervisor
from scavenger_openstack.tests.functional import kills
from scavenger_openstack.tests.functional import virtual_host

SLACK_S = 20.0
"""virsh and libvirtd take their time on a machine that has other work."""


class DomainStage(fixtures.Fixture):
    """A domain, a watcher and a state directory; made as a
    :class:`.kills.Stage`, so that what kills on that kills on this.

    ``tracer`` is the strace of the last agent, if it has one.
    """

    def __init__(self, host: hypervisor.Hypervisor, directory: pathlib.Path,
                 limits: virtual_host.VirtualHostTestCase,
                 lease_s: float = kills.LEASE_S + SLACK_S) -> None:
        super().__init__()
        self.lease_s = lease_s
        self.host = host
        self.directory = directory
        self.state_dir = directory / 'state'
        self._limits = limits
        self._environment = {
            **os.environ,
            'PYTHONPATH': str(pathlib.Path(base.__file__).parents[3])}

    def _setUp(self) -> None:
        self.guest = virtual_host.tiny(
            'one', machine='pc', paused=False, vcpus=2,
            disks=(domain_guest.Disk.make(self.host.disks / 'a'),))
        self.host.start_all([self.guest])
        self.config = self.directory / 'agent.conf'
        self.config.write_text(f'''
[DEFAULT]
state_dir = {self.state_dir}
[agent]
interval_s = {kills.INTERVAL_S}
lease_s = {self.lease_s}
write_deadline_s = 10
[libvirt]
uri = {self.host.uri}
run_dir = {self.host.run_dir}
timeout_s = 10
''')
        self.watcher = subprocess.Popen(
            [sys.executable, '-m', 'scavenger_openstack.restore.program',
             '--watch', '--state-dir', str(self.state_dir), '--stop-file',
             str(self.state_dir / 'stop')],
            stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(self._end, self.watcher)
        self.originals = self.look()

    def look(self) -> list[str]:
        """Every limit of the domain, as it runs and as it is defined."""
        group, = self.host.tree.path('cpu', '/machine').glob('qemu-*')
        return [*self._limits.limits(self.host, 'one'),
                *self._limits.limits(self.host, 'one', '--inactive'),
                *((group / file).read_text().strip()
                  for file in ('cpu.idle', 'cpu.shares'))]

    def changed(self) -> dict[str, tuple[str, str]]:
        """What is not at its original."""
        now = self.look()
        return {} if now == self.originals else {
            'domain': (str(self.originals), str(now))}

    def agent(self, ticks: int, *inject: str) -> subprocess.Popen[str]:
        """See :meth:`.kills.Stage.agent`."""
        agent, self.tracer = kills.scripted(
            self.config, ticks, inject, cwd=self.directory,
            env=self._environment)
        return agent

    def back_within(self, seconds: float) -> tuple[float, dict[str, object]]:
        """Wait until all is back; how long it took, and what is not."""
        began = time.monotonic()
        while changed := self.changed():
            if time.monotonic() - began > seconds + SLACK_S:
                return time.monotonic() - began, dict(changed)
            time.sleep(0.05)
        return time.monotonic() - began, {}

    def leases(self) -> list[pathlib.Path]:
        return list((self.state_dir / 'leases').glob('*.json'))

    @staticmethod
    def _end(process: subprocess.Popen[bytes]) -> None:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
