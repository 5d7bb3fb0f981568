# SPDX-License-Identifier: Apache-2.0

"""The 17 sources of interference: numbers, names, kernels, documentation."""

from __future__ import annotations

import pathlib

import testtools

from scavenger_openstack import errors
from scavenger_openstack.ibench import build
from scavenger_openstack.ibench import catalogue

PAGE = pathlib.Path(__file__).parents[4] / 'doc/source/reference/ibench.rst'
NUMBERS = ('1 2 3 4 5 6 7 6a 7a 8 9 10 11 12 13 14 15').split()


class Sois(testtools.TestCase):

    def test_order_of_the_paper(self) -> None:
        self.assertEqual(NUMBERS, [soi.number for soi in catalogue.SOIS])

    def test_each_has_a_kernel(self) -> None:
        text = (build.SOURCES / 'main.c').read_text()
        for soi in catalogue.SOIS:
            self.assertIn(f'&{soi.name}', text)

    def test_each_has_a_row_in_the_documentation(self) -> None:
        text = PAGE.read_text()
        for soi in catalogue.SOIS:
            row = '\n     - '.join((
                f'   * - {soi.number}', f'``{soi.name}``', soi.whole,
                soi.intensity, soi.unit, str(soi.meter)))
            self.assertIn(f'{row}\n', text, f'write the row of {soi.name}')

    def test_by_number_or_name(self) -> None:
        for word, number in (('6', '6'), ("6'", '6a'), ('6a', '6a'),
                             ('SoI7', '7'), ('L2-Bandwidth', '7a'),
                             (' tlb ', '10')):
            self.assertEqual(number, catalogue.find_soi(word).number, word)

    def test_unknown(self) -> None:
        for word in ('', '0', '16', '7b', 'cache', '6,7'):
            self.assertRaises(errors.ConfigError, catalogue.find_soi, word)
        exc = self.assertRaises(errors.ConfigError, catalogue.find_soi,
                                'llc_capacty')
        self.assertIn('llc_capacity', str(exc))

    def test_several(self) -> None:
        self.assertEqual(['2', '6a'], [
            soi.number for soi in catalogue.find_sois("6',2,6a")])
