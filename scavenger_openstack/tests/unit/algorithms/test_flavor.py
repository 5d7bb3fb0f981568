# SPDX-License-Identifier: Apache-2.0

"""What extra specs say."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
import testtools

from scavenger_openstack.algorithms import flavor
from scavenger_openstack.tests.unit.examples import ENCODABLE
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority

IMAGE = '70a599e0-31e7-49b7-b260-868f441e862b'


class Read(testtools.TestCase):

    def test_all_of_them(self) -> None:
        self.assertEqual(
            flavor.Flavor(Priority.BACKGROUND, 'render', {
                Knob.CPU_CORES: 0.5, Knob.MEMORY_BYTES: 64.0 * 2 ** 20,
                Knob.IO_BYTES_PER_S: 1e6, Knob.IO_OPS_PER_S: 50.0,
                Knob.EGRESS_BYTES_PER_S: 1e5}, False),
            flavor.read({
                'scavenger:priority': 'background',
                'scavenger:application': 'render',
                'scavenger:protect': 'false',
                'scavenger:floor_cpu_cores': '0.5',
                'scavenger:floor_memory_mb': '64',
                'scavenger:floor_io_bytes_per_s': '1e6',
                'scavenger:floor_io_ops_per_s': '50',
                'scavenger:floor_egress_bytes_per_s': '100000'}))

    def test_protection(self) -> None:
        for text in ('true', 'false'):
            self.assertEqual((text == 'true', ()), flavor.read(
                {'scavenger:protect': text})[3:])

    def test_application(self) -> None:
        """The first name that can be one, else flavor and image."""
        image, made = IMAGE, f'm1.small@{IMAGE}'
        for names, wanted in (
                (('a', 'b', 'c'), 'a'), ((None, '', 'c'), 'c'),
                (('x' * 129, 'b'), 'b'), (('a\nb', None), made),
                ((), made)):
            self.assertEqual(wanted, flavor.application(
                *names, image=image, flavor=' m1.small '))
        for odd in ('', 'x', image + '0', image.upper(), image + '\n'):
            self.assertEqual('', flavor.application(
                image=odd, flavor='m1.small'))
        for odd in ('', ' '):
            self.assertEqual('', flavor.application(image=image, flavor=odd))

    def test_what_is_wrong(self) -> None:
        for key, values in (
                ('scavenger:priority', ('', 'Background', 'batch', ' ')),
                ('scavenger:application', ('', 'x' * 129, 'a\nb')),
                ('scavenger:floor_cpu_cores', ('0', '-1', 'one', 'nan', 'inf',
                                               '1e999', '', '1' * 21)),
                ('scavenger:floor_memory_mb', ('0.0', '64 MiB')),
                ('scavenger:protect', ('', 'True', 'yes', '0', 'false ')),
                ('scavenger:', ('1',)), ('scavenger:min_cpu', ('1',))):
            for value in values:
                found = flavor.read({key: value})
                [wrong] = found.wrong
                self.assertEqual((key, value), wrong[:2])
                self.assertTrue(wrong.why)
                self.assertEqual(flavor.Flavor(), found._replace(wrong=()))

    def test_what_is_wrong_leaves_the_rest(self) -> None:
        found = flavor.read({'scavenger:floor_cpu_cores': 'x',
                             'scavenger:priority': 'background'})
        self.assertEqual((Priority.BACKGROUND, 1),
                         (found.priority, len(found.wrong)))

    def test_names_that_are_made_of_flavor_and_image(self) -> None:
        image = '70a599e0-31e7-49b7-b260-868f441e862b'
        made = flavor.application(image=image, flavor='m1')
        self.assertEqual(f'm1@{image}', made)
        for name, expected in ((made, True), (f'p/{made}', True),
                               ('shop', False), ('shop@x', False),
                               (image, False)):
            self.assertIs(expected, flavor.is_made_of_image(name))

    @given(st.dictionaries(
        st.sampled_from(flavor.KEYS) | st.text(ENCODABLE).map(
            lambda text: flavor.PREFIX + text), st.text(ENCODABLE)))
    def test_anything(self, specs: dict[str, str]) -> None:
        """Each counts, or is told of; nothing is made up."""
        found = flavor.read(specs)
        said = ((found.priority is not None)
                + (found.application is not None) + len(found.floor))
        self.assertEqual(len(specs), said + len(found.wrong))
        self.assertTrue(all(0 < one < math.inf
                            for one in found.floor.values()))
