# SPDX-License-Identifier: Apache-2.0

"""A tap that another program uses already, or later."""

from __future__ import annotations

import subprocess

from scavenger_openstack.agent.apply import actuator
from scavenger_openstack.agent.apply import refusals
from scavenger_openstack.drivers.network import tap
from scavenger_openstack import errors
from scavenger_openstack.knobs import OF_NETWORK
from scavenger_openstack.tests.functional import taps
from scavenger_openstack.tests.functional.taps import RATE
from scavenger_openstack.tests.functional.taps import VM
from scavenger_openstack import types


class Others(taps.TapTestCase):
    """What another program has at the ingress is never touched."""

    def refused(self, what: str, *, late: bool = False) -> None:
        """Nothing is done; ``late``: but our limit has to be removed."""
        before = taps.listing(self.vm.host)
        for call in (lambda: self.driver.read(VM, RATE),
                     lambda: self.driver.restore_actions(VM, RATE),
                     lambda: self.driver.write(VM, RATE, 1e6)):
            exc = self.assertRaises(errors.WorkloadGone if late
                                    else errors.Unsupported, call)
            self.assertIn(what, str(exc))
        self.assertEqual(before, taps.listing(self.vm.host))
        self.assertTrue(self.vm.arrives(1))

    def drop(self, preference: str) -> None:
        """A filter such as a firewall may have."""
        self.vm.tc('filter', 'add', 'dev', taps.TAP, 'ingress', 'protocol',
                   'ip', 'pref', preference, 'u32', 'match', 'ip', 'dport',
                   '4242', '0xffff', 'action', 'mirred', 'egress', 'mirror',
                   'dev', 'br0')

    def test_filters(self) -> None:
        for kind in ('ingress', 'clsact'):
            self.vm.tc('qdisc', 'add', 'dev', taps.TAP, kind)
            self.refused(f'an empty qdisc {kind}')
            self.drop('7')
            self.refused('a filter (u32, pref 7)')
            self.vm.tc('qdisc', 'del', 'dev', taps.TAP, kind)
        self.assertEqual(1e6, self.driver.write(VM, RATE, 1e6))

    def test_filters_that_came_later(self) -> None:
        """Ours goes, theirs stays."""
        step = self.step()
        for preference in ('7', '50000'):
            self.driver.write(VM, RATE, 1e6)
            self.drop(preference)
            self.refused(f'pref {preference}', late=True)
            self.assertTrue(self.restore_by(step))
            self.refused(f'pref {preference}')
            self.assertFalse(self.restore_by(step))
            shown = self.vm.tc('filter', 'show', 'dev', taps.TAP, 'ingress')
            self.assertIn(f'pref {preference} u32', shown)
            self.assertNotIn('23712', shown)
            self.assertNotIn(': scv', self.vm.ip('link'))
            self.assertTrue(self.vm.arrives(20))
            self.vm.tc('qdisc', 'del', 'dev', taps.TAP, 'ingress')
        self.driver.write(VM, RATE, 1e6)
        self.vm.tc('qdisc', 'del', 'dev', taps.TAP, 'ingress')
        self.vm.tc('qdisc', 'add', 'dev', taps.TAP, 'clsact')
        self.drop('7')
        self.assertTrue(self.restore_by(step))
        self.assertIn('clsact', self.vm.tc('qdisc', 'show'))
        self.assertNotIn(': scv', self.vm.ip('link'))

    def test_the_agent_steps_aside(self) -> None:
        """Its limit is set, then removed for a filter that came later."""
        agent = self.new_agent()
        cap = types.Cap(VM, RATE, 1e6, 'test', 'to see it')

        def tick() -> list[str]:
            problems = agent.reconcile({(VM, RATE): cap},
                                       agent.read([cap])).problems
            self.wait_for('nothing is being removed any more',
                          lambda: not agent.pending)
            return problems

        self.assertEqual([], tick())
        self.assertEqual(1e6, self.driver.read(VM, RATE))
        self.drop('7')
        for _ in range(2 * actuator.READ_TICKS):
            problems = tick()
        self.assertIn('pref 7', ''.join(problems))
        self.assertEqual({}, self.leases.held())
        self.assertNotIn(': scv', self.vm.ip('link'))
        self.vm.tc('qdisc', 'del', 'dev', taps.TAP, 'ingress')
        for _ in range(refusals.LONGEST_TICKS):
            problems = tick()
        self.assertEqual([], problems)
        self.assertEqual(1e6, self.driver.read(VM, RATE))
        agent.remove((VM, RATE))
        self.same()

    def test_nftables_at_the_ingress(self) -> None:
        """An IFB hands packets back behind these hooks."""
        try:
            taps.hook_nftables(self.vm.host, taps.TAP)
        except OSError as exc:
            self.skipTest(f'needs nf_tables with the netdev family: {exc}')
        self.refused('the nftables chain "scv filter"')
        taps.unhook_nftables(self.vm.host)
        step = self.step()
        self.driver.write(VM, RATE, 1e6)
        taps.hook_nftables(self.vm.host, taps.TAP, family=1, hook=5)
        self.refused('the nftables chain "scv filter"', late=True)
        self.assertTrue(self.restore_by(step))
        self.refused('the nftables chain "scv filter"')
        taps.unhook_nftables(self.vm.host)
        for device, hook in (('br0', 0), (taps.TAP, 1)):
            taps.hook_nftables(self.vm.host, device, hook=hook)
            self.assertEqual(1e6, self.driver.write(VM, RATE, 1e6))
            taps.unhook_nftables(self.vm.host)
        self.assertTrue(self.restore_by(step))
        try:
            taps.hook_nftables(self.vm.host, taps.TAP[:1], prefix=True)
        except OSError:
            return      # a kernel before 6.16
        self.refused('the nftables chain "scv filter"')

    def test_a_name_that_is_taken(self) -> None:
        name = f'scv{self.vm.ifindex}'
        for words in (('type', 'ifb'), ('group', '23712', 'type', 'bridge')):
            self.vm.ip('link', 'add', name, *words)
            self.refused(f'a device {name} of another program')
            step = {'do': 'tap', 'netns': self.vm.host, 'dev': taps.TAP,
                    'ifindex': self.vm.ifindex}
            self.assertFalse(self.restore_by(step))
            self.assertIn(name, self.vm.ip('link'))
            self.vm.ip('link', 'del', name)

    def test_a_device_that_sends(self) -> None:
        """By a macvtap leaves what its VM sends."""
        try:
            self.vm.ip('link', 'add', 'link', 'up1', 'name', 'mac0', 'type',
                       'macvtap', netns=self.vm.far)
        except subprocess.CalledProcessError as exc:
            self.skipTest(f'needs macvtap: {exc}')
        self.driver.attach('other', tap.Tap(f'{self.vm.far}:mac0'))
        for knob in OF_NETWORK:
            exc_ = self.assertRaises(errors.Unsupported, self.driver.write,
                                     'other', knob, 1e6)
            self.assertIn('as a device, not as a tap', str(exc_))
        self.driver.attach('other', f'{self.vm.far}:mac0')
        self.assertEqual(1e6, self.driver.write('other', RATE, 1e6))
