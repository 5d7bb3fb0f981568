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
               *, has: tuple[str, ...] = ('device',)) -> None:
        path = self.root / 'sys/class/net' / name
        path.mkdir(parents=True)
        for one in has:
            (path / one).mkdir()
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

    def test_nothing_to_look_at(self) -> None:
        self.assertEqual([], uplinks.find(str(self.root)))
