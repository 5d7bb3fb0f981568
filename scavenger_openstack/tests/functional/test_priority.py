# SPDX-License-Identifier: Apache-2.0

"""A VM that an operator calls background: from the command to its cgroup."""

from __future__ import annotations

from typing import Any

from scavenger_openstack.tests.functional import domain_guest
from scavenger_openstack.tests.functional import embedded
from scavenger_openstack.tests.functional import hypervisor
from scavenger_openstack.tests.functional import virtual_host


class PriorityTestCase(hypervisor.HypervisorTestCase,
                       embedded.EmbeddedTestCase):
    """Command, API, conductor, agent, libvirt and the kernel."""

    allowed = True

    def setUp(self) -> None:
        super().setUp()
        self.bench = self.hypervisor()
        self.guest = domain_guest.tiny('one')   # its flavor says nothing
        self.bench.start_all([self.guest])
        with self.config.open('a') as file:
            file.write(f'\n[libvirt]\nuri = {self.bench.uri}\n'
                       f'run_dir = {self.bench.run_dir}\ntimeout_s = 10\n'
                       '[conductor]\n'
                       f'allow_background = {self.allowed}\n')
        self.before = self.limits()
        self.begin()
        self.wait_for('the VM is known', self.known, embedded.START_S)

    def limits(self) -> list[str]:
        """All limits of the VM, and whether it is of the idle class."""
        [group] = self.bench.tree.path('cpu', '/machine').glob('qemu-*')
        return [*virtual_host.limits(self.bench, 'one'),
                (group / 'cpu.idle').read_text().strip()]

    def known(self) -> Any:
        """What the control plane says of the VM."""
        return next((one for one in self.json(
            'interference', 'workload', 'list', '--long')
            if one['instance'] == self.guest.uuid), None)

    def ask(self) -> None:
        self.assertEqual('foreground', self.known()['priority'])
        self.assertEqual('0', self.limits()[-1])
        self.text('interference', 'priority', 'set', '--instance',
                  self.guest.uuid, 'background', '--reason', 'batch')


class Followed(PriorityTestCase):

    def test_background_and_back(self) -> None:
        self.ask()
        self.wait_for('idle class', lambda: self.limits()[-1] == '1',
                      embedded.START_S)
        self.wait_for('it is known', lambda: (
            self.known()['priority'], self.known()['source']) == (
                'background', 'override'), embedded.START_S)
        self.wait_for('the limit is known', lambda: [
            one for one in self.json('interference', 'cap', 'list')
            if one['workload'] == self.guest.uuid
            and one['knob'] == 'cpu_idle'], embedded.START_S)
        self.text('interference', 'priority', 'unset', '--instance',
                  self.guest.uuid, '--reason', 'the test')
        self.wait_for('no limit', lambda: self.limits() == self.before,
                      embedded.START_S)
        self.wait_for('that is known', lambda: (
            self.known()['priority'] == 'foreground'
            and not [one for one in self.json('interference', 'cap', 'list')
                     if one['workload'] == self.guest.uuid]), embedded.START_S)


class Refused(PriorityTestCase):

    allowed = False

    def test_a_host_that_does_not_allow_it(self) -> None:
        """It says which and why, and the VM stays what it is."""
        self.ask()
        [host] = self.json('interference', 'host', 'list')
        self.wait_for('the host says so', lambda: 'allow_background' in str(
            self.json('interference', 'host', 'show', host['name'])[
                'not_followed'].get(f'priority {self.guest.uuid}')),
            embedded.START_S)
        self.assertEqual('foreground', self.known()['priority'])
        self.assertEqual(self.before, self.limits())
