# SPDX-License-Identifier: Apache-2.0


"""Which libvirt there is, what it takes for no limit, and when it refuses."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import fixtures

from scavenger_openstack.agent import status
from scavenger_openstack.drivers.libvirt import client
from scavenger_openstack.drivers.libvirt import domains
from scavenger_openstack.drivers.libvirt import versions
from scavenger_openstack.restore import grammar
from scavenger_openstack.tests.functional import domain_life
from scavenger_openstack.tests.functional import virtual_host
from scavenger_openstack.types import Knob

WITHOUT = """
import sys
sys.modules["libvirt"] = None
from scavenger_openstack.tests.functional import libvirt_facts
libvirt_facts.print_facts(sys.argv[1])
"""


class TestVersions(virtual_host.VirtualHostTestCase):

    def test_they_are_logged_and_in_the_status(self) -> None:
        host = self.hypervisor()
        agent = self.agent(host)
        self.wait_for('word', lambda: self.said(f'libvirt {host.uri}: '))
        daemon, library, qemu = (
            re.search(f'{what}: .*?([0-9.]+)$', host.virsh(
                'version', '--daemon'), re.MULTILINE) for what in (
                    'Running against daemon', 'Using library',
                    'Running hypervisor'))
        assert daemon and library and qemu
        self.assertIn(f'libvirtd {daemon[1]}, libvirt library {library[1]}, '
                      f'QEMU {qemu[1]}', self.log.output)
        facts = agent.driver.libvirt_facts()
        self.assertEqual({'library': library[1], 'daemon': daemon[1],
                          'qemu': qemu[1]}, facts['versions'])
        self.assertEqual(
            [f'libvirt    answers; libvirtd {daemon[1]}, libvirt library '
             f'{library[1]}, QEMU {qemu[1]}'], status.libvirt_lines(facts))
        host.kill()
        self.wait_for('the end', lambda: self.said('cannot be reached'))
        host.start_again()
        self.wait_for('word', lambda: self.said('libvirt answers again'))
        self.wait_for('QEMU', lambda: agent.driver.libvirt_facts() == facts)
        self.assertEqual(1, self.said(f'libvirt {host.uri}: libvirtd'))


class TestNoQuota(domain_life.ChangesCase):

    def test_the_longest_is_none(self) -> None:
        """As it is told to a libvirtd that takes no -1 on cgroup v2."""
        host = self.hypervisor()
        guest = self.one(host)
        agent = self.agent(host)
        before = self.limits(host, 'one')
        caps = {Knob.CPU_CORES: 0.2}
        free = grammar.FREE_QUOTA_US
        with fixtures.MonkeyPatch(
                f'{versions.__name__}.no_quota_us', lambda *_: free):
            self.cap(agent, guest.uuid, caps)
            self.assertEqual(0.2, self.cores(host))
            step, = agent.leases.held()[
                guest.uuid, Knob.CPU_CORES].original.actions
            self.assertEqual(str(free), step['values']['vcpu_quota'])
            self.nothing_held(agent)
            text = host.virsh('dumpxml one')
            self.assertIn(f'<quota>{free}</quota>', text)
            self.assertNotIn('scavenger', text.partition('<metadata>')[2]
                             .partition('</metadata>')[0].replace(
                                 'scavenger:priority', '').replace(
                                 'scavenger:floor', ''))
            # What stands there now is no limit to us, and none for the next.
            self.assertIsNone(agent.read(guest.uuid, Knob.CPU_CORES))
            self.cap(agent, guest.uuid, caps)
            self.assertEqual(0.2, self.cores(host))
            # By the agent itself.
            with agent.driver._libvirt.domain(guest.uuid) as handle:
                handle.set_quota(-1, 100_000)
            self.assertIn(f'<quota>{free}</quota>',
                          host.virsh('dumpxml one'))
        agent.tick({guest.uuid: caps})
        self.nothing_held(agent)
        with agent.driver._libvirt.domain(guest.uuid) as handle:
            handle.set_quota(-1, 100_000)
        self.assertEqual(before, self.limits(host, 'one'))
        host.virsh('destroy one; start one')
        self.assertEqual(before, self.limits(host, 'one'))


class TestNotLetIn(virtual_host.VirtualHostTestCase):

    def test_authentication(self) -> None:
        """One line, the status says why, and it goes on by itself."""
        host = self.hypervisor()
        conf = host.directory / 'etc/libvirtd.conf'
        lets_in = conf.read_text()
        host.kill()
        conf.write_text(lets_in.replace('"none"', '"polkit"'))
        host.start_again()      # it lets root in
        client.LOOP.module()
        os.seteuid(65534)
        self.addCleanup(os.seteuid, 0)
        one = domains.Domains(host.uri, run_dir=str(host.run_dir),
                              timeout_s=0.2)
        self.addCleanup(one.close)
        self.assertEqual((), one.sample())
        self.wait_for('word', lambda: self.said('cannot be reached'))
        line, = status.libvirt_lines(one.libvirt_facts())
        self.assertRegex(line, 'libvirt    cannot be reached for [0-9]+ s: '
                               'qemu.*: libvirt says: ')
        self.assertIn('may use its socket', line)
        self.warned_of('libvirt cannot be reached')
        os.seteuid(0)
        self.wait_for('word', lambda: self.said('libvirt answers again'))
        line, = status.libvirt_lines(one.libvirt_facts())
        self.assertIn('libvirt    answers; libvirtd', line)
        self.warned_of('libvirt cannot be reached')

    def test_without_libvirt_python(self) -> None:
        """VMs are not seen; all else is."""
        host = self.hypervisor()
        config = host.directory / 'agent.conf'
        config.write_text(f'[libvirt]\nuri = {host.uri}\n')
        done = subprocess.run(
            [sys.executable, '-c', WITHOUT, str(config)], check=True,
            capture_output=True, text=True, timeout=60)
        self.assertEqual('', done.stderr)
        self.assertIn('their load counts as foreground', done.stdout)
        self.assertTrue(done.stdout.startswith('True '), done.stdout)
        self.assertIn("'state': 'is not used'", done.stdout)
        self.assertIn(f'install libvirt-python for {sys.executable} ',
                      done.stdout)
