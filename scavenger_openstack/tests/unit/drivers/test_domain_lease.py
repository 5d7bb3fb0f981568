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

"""Our record in a domain, and what it may say."""

from __future__ import annotations

from xml.etree import ElementTree
from xml.sax import saxutils

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import testtools

from scavenger_openstack.drivers import domain_lease
from scavenger_openstack.tests.unit.algorithms.strategies import EXAMPLES
from scavenger_openstack.types import Knob


class TestLease(testtools.TestCase):

    ORIGINALS = {
        Knob.CPU_CORES: {'vcpu_quota': '-1', 'vcpu_period': '100000'},
        Knob.CPU_SET: {'vcpupin.0': '0-3', 'emulatorpin': '0,2-3'},
        Knob.MEMORY_BYTES: {'balloon_kib': '131072'},
        Knob.IO_BYTES_PER_S: {'vda.total_bytes_sec': '0',
                              'vdb.write_bytes_sec_max_length': '1'},
        Knob.IO_OPS_PER_S: {'vda.read_iops_sec': '0',
                            'vda.size_iops_sec': '0'},
        Knob.PAUSED: {'state': 'running'}}

    def test_there_and_back(self) -> None:
        text = domain_lease.build(self.ORIGINALS)
        self.assertEqual((self.ORIGINALS, ()), domain_lease.parse(text))
        turned = {knob: dict(reversed(values.items())) for knob, values
                  in reversed(self.ORIGINALS.items())}
        self.assertEqual(text, domain_lease.build(turned))
        self.assertEqual(({}, ()), domain_lease.parse(domain_lease.build({})))

    def test_as_libvirt_shows_it(self) -> None:
        """Inside of the domain with our prefix, alone without."""
        name = f'xmlns:scavenger="{domain_lease.NAMESPACE}"'
        shown = domain_lease.build(self.ORIGINALS).replace(
            '<original', '\n  <scavenger:original').replace(
            '<lease', f'<scavenger:lease {name}').replace(
            '</lease', '</scavenger:lease')
        self.assertEqual(self.ORIGINALS, domain_lease.parse(shown).originals)
        metadata = ElementTree.XML(f'<metadata><a/>{shown}</metadata>')
        self.assertEqual((self.ORIGINALS, ()), domain_lease.find(metadata))
        self.assertIsNone(domain_lease.find(None))
        self.assertIsNone(domain_lease.find(ElementTree.XML(
            '<metadata><lease/><a:lease xmlns:a="b"/></metadata>')))

    def test_one_element_for_each_knob(self) -> None:
        def element(knob: str, text: str) -> str:
            return text.replace(
                '<lease>', f'<lease xmlns="{domain_lease.NAMESPACE}/{knob}">')
        cores = {Knob.CPU_CORES: {'vcpu_quota': '-1'}}
        paused = {Knob.PAUSED: {'state': 'running'}}
        texts = [element('cpu_cores', domain_lease.build(cores)),
                 element('paused', domain_lease.build(paused)),
                 # Under its own name only, and nothing under another.
                 element('memory_bytes', domain_lease.build(
                     {Knob.CPU_CORES: {'vcpu_quota': '7'}})),
                 element('cpu_idle', '<lease><original/></lease>')]
        found = domain_lease.find(ElementTree.XML(
            f'<metadata>{"".join(texts)}</metadata>'))
        self.assertEqual(({**cores, **paused}, ()), found)

    def test_nothing_else_can_be_said(self) -> None:
        wrong = [(Knob.CPU_CORES, 'vcpu_quota', value) for value in (
            '', 'max', '-2', '1.5', '1\n', ' 1', '٣', '9' * 19)]
        wrong += [(Knob.CPU_SET, 'vcpupin.0', value) for value in (
            '', '3-1', '0-99999', 'a', '0,', '^1')]
        wrong += [(Knob.CPU_CORES, 'emulator_quota', '1'),
                  (Knob.CPU_CORES, 'vda.total_bytes_sec', '1'),
                  (Knob.IO_BYTES_PER_S, '../x.total_bytes_sec', '1'),
                  (Knob.IO_BYTES_PER_S, 'vda.total_iops_sec', '1'),
                  (Knob.PAUSED, 'state', 'destroyed'),
                  (Knob.CPU_IDLE, 'idle', '0'),
                  (Knob.EGRESS_BYTES_PER_S, 'rate', '1')]
        for knob, key, value in wrong:
            self.assertRaises(ValueError, domain_lease.build,
                              {knob: {key: value}})
            lease = domain_lease.parse(
                f'<lease><original knob="{knob}" '
                f'key={saxutils.quoteattr(key)} '
                f'value={saxutils.quoteattr(value)}/></lease>')
            self.assertEqual({}, lease.originals, f'{knob} {key} {value}')
            self.assertEqual(1, len(lease.problems))

    def test_half_of_a_way_back_is_none(self) -> None:
        """But it does not spoil the other knobs."""
        text = domain_lease.build(self.ORIGINALS).replace('"100000"', '"x"')
        lease = domain_lease.parse(text)
        self.assertEqual(self.ORIGINALS.keys() - {Knob.CPU_CORES},
                         lease.originals.keys())
        self.assertIn("'vcpu_period' = 'x'", lease.problems[0])
        twice = ('<lease><original knob="cpu_cores" key="vcpu_quota" '
                 'value="1"/><original knob="cpu_cores" key="vcpu_quota" '
                 'value="-1"/></lease>')
        self.assertEqual({}, domain_lease.parse(twice).originals)

    def test_garbage_says_so(self) -> None:
        for text in ('', 'x', '<lease', '<!DOCTYPE a []><lease/>',
                     '<lease>' + '<original/>' * 5000 + '</lease>'):
            lease = domain_lease.parse(text)
            self.assertEqual(({}, 1), (lease.originals, len(lease.problems)))
        too_many = {Knob.CPU_SET: {f'vcpupin.{n}': '0' for n in range(5000)}}
        self.assertRaises(ValueError, domain_lease.build, too_many)

    @settings(max_examples=EXAMPLES or 200)
    @given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=20))
    def test_any_text(self, garbage: str, key: str, value: str) -> None:
        domain_lease.parse(garbage)
        good = domain_lease.build(self.ORIGINALS)
        lease = domain_lease.parse(
            good.replace('vcpu_quota', key).replace('running', value))
        self.assertTrue(self.ORIGINALS.items() >= {
            knob: values for knob, values in lease.originals.items()
            if knob is not Knob.PAUSED}.items())
