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

import subprocess
import sys

import testtools

from scavenger_openstack.drivers import libvirt
from scavenger_openstack import errors

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
