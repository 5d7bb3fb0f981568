# SPDX-License-Identifier: Apache-2.0

"""Our record in a domain, and what it may say."""

from __future__ import annotations

from xml.etree import ElementTree
from xml.sax import saxutils

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import testtools

from scavenger_openstack.drivers.libvirt import metadata
from scavenger_openstack.restore import grammar
from scavenger_openstack.tests.unit.examples import ENCODABLE
from scavenger_openstack.tests.unit.examples import EXAMPLES
from scavenger_openstack.types import Knob


def inside(*records: tuple[Knob | str, str], more: str = ''
           ) -> ElementTree.Element:
    """A domain with these records, under the namespaces of these knobs."""
    texts = [text.replace('<lease', f'<lease xmlns="'
                          f'{grammar.NAMESPACE}/{knob}"', 1)
             for knob, text in records]
    return ElementTree.XML(f'<domain><metadata><a/>{"".join(texts)}'
                           f'</metadata>{more}</domain>')


class TestRecord(testtools.TestCase):

    ORIGINALS = {
        Knob.CPU_CORES: {'vcpu_quota': '-1', 'vcpu_period': '100000'},
        Knob.MEMORY_BYTES: {'balloon_kib': '131072'},
        Knob.IO_BYTES_PER_S: {'vda.total_bytes_sec': '0',
                              'vdb.write_bytes_sec_max_length': '1'},
        Knob.IO_OPS_PER_S: {'vda.read_iops_sec': '0',
                            'vda.read_iops_sec_max': '0'},
        Knob.PAUSED: {'state': 'running'}}

    def all(self) -> list[tuple[Knob | str, str]]:
        return [(knob, metadata.build(knob, values))
                for knob, values in self.ORIGINALS.items()]

    def test_there_and_back(self) -> None:
        self.assertEqual((self.ORIGINALS, ()),
                         metadata.find(inside(*self.all())))
        for knob, values in self.ORIGINALS.items():
            self.assertEqual(
                metadata.build(knob, values), metadata.build(
                    knob, dict(reversed(values.items()))))

    def test_as_libvirt_shows_it(self) -> None:
        """With our prefix."""
        text = metadata.build(Knob.PAUSED, {'state': 'running'})
        name = f'xmlns:scavenger="{metadata.uri(Knob.PAUSED)}"'
        shown = text.replace('<original', '\n  <scavenger:original').replace(
            '<lease', f'<scavenger:lease {name}').replace(
            '</lease', '</scavenger:lease')
        found = metadata.find(ElementTree.XML(
            f'<domain><metadata>{shown}</metadata></domain>'))
        self.assertEqual({Knob.PAUSED: {'state': 'running'}}, found.records)

    def test_none(self) -> None:
        for text in ('<domain/>', '<domain><metadata><lease/><a:lease '
                     'xmlns:a="b"/></metadata></domain>'):
            self.assertEqual(metadata.NOTHING, metadata.find(
                ElementTree.XML(text)))
        self.assertEqual(metadata.NOTHING, metadata.find(
            inside(('cpu_idle', '<lease><original/></lease>'))))

    def test_under_its_own_name_only(self) -> None:
        text = metadata.build(Knob.CPU_CORES, {'vcpu_quota': '7'})
        found = metadata.find(inside((Knob.MEMORY_BYTES, text)))
        self.assertEqual({Knob.MEMORY_BYTES: {}}, found.records)
        self.assertEqual(1, len(found.problems))

    def test_nothing_else_can_be_said(self) -> None:
        wrong = [(Knob.CPU_CORES, 'vcpu_quota', value) for value in (
            '', 'max', '-2', '1.5', '1\n', ' 1', '٣', '9' * 19)]
        wrong += [(Knob.CPU_CORES, 'emulator_quota', '1'),
                  (Knob.CPU_SET, 'vcpupin.0', '0'),
                  (Knob.CPU_CORES, 'vda.total_bytes_sec', '1'),
                  (Knob.MEMORY_BYTES, 'hard_limit_kib', '1'),
                  (Knob.IO_BYTES_PER_S, '../x.total_bytes_sec', '1'),
                  (Knob.IO_BYTES_PER_S, 'vda.total_iops_sec', '1'),
                  (Knob.IO_OPS_PER_S, 'vda.size_iops_sec', '1'),
                  (Knob.PAUSED, 'state', 'destroyed'),
                  (Knob.CPU_IDLE, 'idle', '0'),
                  (Knob.EGRESS_BYTES_PER_S, 'rate', '1')]
        for knob, key, value in wrong:
            self.assertRaises(ValueError, metadata.build, knob,
                              {key: value})
            found = metadata.find(inside((knob, (
                f'<lease><original knob="{knob}" '
                f'key={saxutils.quoteattr(key)} '
                f'value={saxutils.quoteattr(value)}/></lease>'))))
            self.assertEqual({knob: {}} if knob in metadata.GRAMMAR
                             else {}, found.records, f'{key} {value}')
            self.assertEqual(len(found.records), len(found.problems))

    def test_half_of_a_way_back_is_none(self) -> None:
        """But it does not spoil the other knobs."""
        found = metadata.find(inside(*(
            (knob, text.replace('"100000"', '"x"'))
            for knob, text in self.all())))
        self.assertEqual({**self.ORIGINALS, Knob.CPU_CORES: {}},
                         found.records)
        self.assertIn("'vcpu_period' = 'x'", found.problems[0])
        twice = ('<lease><original knob="cpu_cores" key="vcpu_quota" '
                 'value="1"/><original knob="cpu_cores" key="vcpu_quota" '
                 'value="-1"/></lease>')
        self.assertEqual({Knob.CPU_CORES: {}}, metadata.find(
            inside((Knob.CPU_CORES, twice))).records)

    def test_too_many(self) -> None:
        found = metadata.find(inside((
            Knob.IO_OPS_PER_S, f'<lease>{"<original/>" * 5000}</lease>')))
        self.assertEqual(({Knob.IO_OPS_PER_S: {}}, 1),
                         (found.records, len(found.problems)))
        self.assertRaises(
            ValueError, metadata.build, Knob.IO_OPS_PER_S,
            {f'v{n}.read_iops_sec': '0' for n in range(5000)})

    @settings(max_examples=EXAMPLES or 200)
    @given(st.text(ENCODABLE, max_size=60), st.text(ENCODABLE, max_size=20))
    def test_any_text(self, key: str, value: str) -> None:
        root = inside(*self.all())
        for one in root.iter():
            for name, old, new in (('key', 'vcpu_quota', key),
                                   ('value', 'running', value)):
                if one.get(name) == old:
                    one.set(name, new)
        found = metadata.find(root)
        self.assertEqual(self.ORIGINALS.keys(), found.records.keys())
        for knob, values in found.records.items():
            if values and knob is not Knob.PAUSED:
                self.assertEqual(self.ORIGINALS[knob], values)
