# SPDX-License-Identifier: Apache-2.0

"""Which devices count as uplinks, on file trees like those of real hosts."""

from __future__ import annotations

import pathlib

import fixtures
import testtools

from scavenger_openstack.drivers.network import uplinks


class TestUplinks(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)

    def device(self, name: str, speed: str = '10000', state: str = 'up',
               *, has: tuple[str, ...] = ('device',), master: str = '',
               port: str = '') -> None:
        path = self.root / 'sys/class/net' / name
        path.mkdir(parents=True)
        for one in has:
            (path / one).mkdir(parents=True)
        if master:
            (path / 'master').symlink_to(f'../{master}')
        if port:
            (path / 'phys_port_name').write_text(f'{port}\n')
        (path / 'speed').write_text(f'{speed}\n')
        (path / 'operstate').write_text(f'{state}\n')

    def test_hardware_that_is_up(self) -> None:
        self.device('lo', '-1', 'unknown', has=())
        self.device('eno1')
        self.device('eno2', '-1', 'down')
        self.device('br-ex', has=('bridge',))
        self.device('tap1', '10', has=('tun_flags',))
        self.device('virtio0', '-1')
        self.assertEqual(['eno1'], uplinks.find(str(self.root)))

    def test_a_bond_stands_for_its_devices(self) -> None:
        self.device('bond0', '20000', has=('bonding',))
        for name in ('eno1', 'eno2'):
            self.device(name, has=('device', 'bonding_slave'))
        self.assertEqual(['bond0'], uplinks.find(str(self.root)))

    def test_what_shares_the_wire_of_another(self) -> None:
        self.device('ens9f0')
        for name in ('ens9f0v0', 'ens9f0v1'):
            self.device(name, has=('device/physfn',))
        self.device('en9f0s88', has=('device/sfnum',))
        self.device('ib0.8001', has=('device', 'parent'))
        for name, port in (('eth9', 'pf0vf3'), ('eth10', 'pf0'),
                           ('eth11', 'c1pf0sf88')):
            self.device(name, port=port)
        self.assertEqual(['ens9f0'], uplinks.find(str(self.root)))

    def test_the_port_of_a_card_has_a_name_too(self) -> None:
        self.device('ens9f0np0', port='p0')
        self.assertEqual(['ens9f0np0'], uplinks.find(str(self.root)))

    def test_a_part_of_another_device_is_none(self) -> None:
        """Of a team, of a bond without its directory, of a failover."""
        self.device('uplink', '20000', has=())
        self.device('eno1', master='uplink')
        self.device('eno2', master='uplink')
        self.assertEqual(['uplink'], uplinks.find(str(self.root)))
        self.device('wire')
        self.device('wirenby', master='wire')
        self.assertEqual(['uplink', 'wire'], uplinks.find(str(self.root)))

    def test_a_bond_that_is_down_is_not_its_devices(self) -> None:
        self.device('bond0', '-1', 'down', has=('bonding',))
        self.device('eno1', master='bond0')
        self.assertEqual([], uplinks.find(str(self.root)))

    def test_what_is_plugged_into_a_switch_is_one(self) -> None:
        self.device('br0', '10000', has=('bridge',))
        self.device('bond0', has=('bonding',), master='br0')
        self.device('eno1', master='bond0', has=('device', 'bonding_slave'))
        self.device('ovs-system', '-1', 'unknown', has=())
        self.device('eno7', master='ovs-system')
        self.assertEqual(['bond0', 'eno7'], uplinks.find(str(self.root)))
