# SPDX-License-Identifier: Apache-2.0

"""Domains' XML that is wrong, too much, or meant to be."""

from __future__ import annotations

import math
import time

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import testtools

from scavenger_openstack.drivers.libvirt import nova_metadata
from scavenger_openstack.drivers.libvirt import safe_xml
from scavenger_openstack.drivers.libvirt import xml
from scavenger_openstack import errors
from scavenger_openstack.tests.unit.drivers.libvirt.domain_texts import domain
from scavenger_openstack.tests.unit.drivers.libvirt.domain_texts import nova
from scavenger_openstack.tests.unit.drivers.libvirt.domain_texts import PROJECT
from scavenger_openstack.tests.unit.drivers.libvirt.domain_texts import TUNE
from scavenger_openstack.tests.unit.drivers.libvirt.domain_texts import UUID
from scavenger_openstack.tests.unit.examples import ENCODABLE
from scavenger_openstack.tests.unit.examples import EXAMPLES
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority


class TestWrongXml(testtools.TestCase):

    def refused(self, text: str) -> str:
        said = str(self.assertRaises(errors.DriverError, xml.parse,
                                     text))
        self.assertTrue(said.isprintable() and len(said) < 400, said)
        return said

    def test_no_domain(self) -> None:
        good = domain()
        for text in ('', 'garbage', '<network/>', good[:-9], good + 'x',
                     good.replace(UUID, '../../x'), '\0', '\ud800',
                     good.replace('KiB', 'bushels'),
                     good.replace('131072', '0'), good.replace('131072', 'x'),
                     good.replace('<vcpu placement="static">2</vcpu>', ''),
                     good.replace('>2</vcpu>', '>two</vcpu>'),
                     good.replace('instance-00000001', '')):
            self.refused(text)

    def test_entities_are_refused(self) -> None:
        laughs = ''.join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">'
                         for n in range(1, 12))
        for subset in (f'<!ENTITY e0 "ha">{laughs}',
                       '<!ENTITY e11 SYSTEM "file:///etc/passwd">', ''):
            self.assertIn('DTD', self.refused(
                f'<!DOCTYPE domain [{subset}]>'
                + domain(nova(name='x').replace('>x<', '>&e11;<'))))
        self.refused(domain('&e11;'))

    def test_a_lot_of_text_takes_little_time(self) -> None:
        deep = '<a>' * 300_000 + '</a>' * 300_000
        many = '<disk/>' * 300_000
        specs = nova({f'scavenger:{n}': 'x' * 500 for n in range(2000)})
        start = time.process_time()
        self.assertIn('at most', self.refused(
            domain() + ' ' * safe_xml.MAX_CHARS))
        for text in (domain(deep), domain(devices=many)):
            self.assertEqual(Priority.FOREGROUND,
                             xml.parse(text).priority)
        one = xml.parse(domain(specs))
        self.assertLess(len(one.warnings), nova_metadata.MAX_SPECS + 1)
        self.assertLess(time.process_time() - start, 20)


text = st.text(ENCODABLE, max_size=60)
# What XML can hold at all; libvirt lets nothing else in.
told = st.text(st.characters(
    exclude_categories=['Cs', 'Cc']), max_size=60)


class TestFuzz(testtools.TestCase):

    @settings(max_examples=EXAMPLES or 200)
    @given(text)
    def test_any_text(self, garbage: str) -> None:
        try:
            xml.parse(garbage)
        except errors.DriverError:
            pass

    @settings(max_examples=EXAMPLES or 200)
    @given(text, st.integers(0, 4000), st.integers(0, 200))
    def test_a_domain_with_something_cut_out(
            self, garbage: str, start: int, length: int) -> None:
        good = domain(nova({'scavenger:priority': 'background'}, {}),
                      tune=TUNE)
        start %= len(good)
        try:
            xml.parse(good[:start] + garbage
                      + good[start + length:])
        except errors.DriverError:
            pass

    @settings(max_examples=EXAMPLES or 200)
    @given(told, told, told, told)
    def test_what_operators_and_tenants_may_write(
            self, name: str, key: str, value: str, tenant: str) -> None:
        one = xml.parse(domain(nova(
            {f'scavenger:{key}': value, 'scavenger:floor_cpu_cores': value},
            {'scavenger_application': tenant, key: tenant}, name=name)))
        self.assertEqual(key == 'priority' and value == 'background',
                         one.priority is Priority.BACKGROUND)
        self.assertTrue(0 < one.floor[Knob.CPU_CORES] < math.inf)
        self.assertTrue(one.application is None
                        or one.application.startswith(f'{PROJECT}/'))
        for said in one.warnings:
            self.assertTrue(said.isprintable(), ascii(said))
