# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.


"""What can be said of libvirt without one."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time

import testtools

from scavenger_openstack.drivers import domain_blocks
from scavenger_openstack.drivers import libvirt
from scavenger_openstack import errors
from scavenger_openstack.tests.unit import libvirtd

MISSING = """
import sys
sys.modules['libvirt'] = None
from scavenger_openstack.drivers import libvirt
from scavenger_openstack import errors
try:
    libvirt.Libvirt('qemu:///system')
except errors.ConfigError as exc:
    print(exc)
"""


class Uris(testtools.TestCase):

    def test_those_that_cannot_work(self) -> None:
        for uri in ('', 'qemu', 'xen:///system', 'qemu:///session',
                    'qemu+ext:///system?command=/bin/sh',
                    'qemu+ssh://host/system', 'test:///default',
                    'qemu:///system?socket=/x;y', 'qemu:///system\n'):
            exc = self.assertRaises(errors.ConfigError, libvirt.Libvirt, uri)
            self.assertIn('qemu:///system', str(exc))

    def test_without_the_library(self) -> None:
        said = subprocess.run([sys.executable, '-c', MISSING], check=True,
                              stdout=subprocess.PIPE, text=True).stdout
        self.assertIn('install the package python3-libvirt', said)


class Connections(testtools.TestCase):

    def test_one_that_broke_is_closed(self) -> None:
        """Also if libvirt cannot even say whether it did."""
        machine = self.useFixture(libvirtd.Libvirtd()).machine
        found = libvirt.Libvirt('qemu:///system')
        before = machine.calls['open']

        def broke() -> None:
            raise libvirtd.libvirtError('no connection')

        for _ in range(2):
            with found.domain(libvirtd.UUID):
                pass
        self.assertEqual((1, 0), (machine.calls['open'] - before,
                                  machine.calls['close']))
        machine.before['isAlive'] = broke
        with found.domain(libvirtd.UUID):
            pass
        self.assertEqual((2, 1), (machine.calls['open'] - before,
                                  machine.calls['close']))
        found.close()
        self.assertEqual(2, machine.calls['close'])


class BlockStatistics(testtools.TestCase):

    def test_all_disks_together(self) -> None:
        self.assertIsNone(libvirt.total({}))
        self.assertIsNone(libvirt.total({'block.count': 1,
                                         'block.0.name': 'vda'}))
        self.assertEqual((3.5, 6, 3072), libvirt.total({
            'block.count': 2, 'block.0.rd.reqs': 2, 'block.0.rd.bytes': 1024,
            'block.0.rd.times': 500_000_000, 'block.0.wr.reqs': 4,
            'block.0.wr.bytes': 2048, 'block.0.wr.times': 3_000_000_000,
            'block.1.name': 'hda'}))

    def test_the_first_answer_tells_nothing_yet(self) -> None:
        """How many operations there were since then is not known, not 0."""
        machine = self.useFixture(libvirtd.Libvirtd()).machine
        statistics = domain_blocks.Statistics(
            libvirt.Libvirt('qemu:///system'), ticks=5, timeout_s=60.0)
        self.addCleanup(statistics.close)
        told = []
        for tick in range(15):
            statistics.tick()
            if tick % 5 == 0:
                end_s = time.monotonic() + libvirtd.DEADLINE_S
                while (machine.calls['stats'] <= tick // 5
                       and time.monotonic() < end_s):
                    time.sleep(0.001)
                time.sleep(0.02)    # the answer is on its way
            told.append(statistics.of(libvirtd.UUID))
        self.assertEqual([None] * 6, told[:6])
        self.assertEqual([1200, 1400, 1600, 1800, 2000, 2200, 2400, 2600,
                          2800], [one[1] for one in told[6:] if one])
        # Each operation took the very same time in each tick of an answer.
        waits = [(two[0] - one[0]) / (two[1] - one[1])
                 for one, two in itertools.pairwise(told[6:])
                 if one and two]
        self.assertEqual([waits[0]] * 4 + [waits[4]] * 4, waits)
        self.assertAlmostEqual(3 * libvirtd.WAIT_S, waits[0], places=6)
        self.assertAlmostEqual(5 * libvirtd.WAIT_S, waits[4], places=6)
