# SPDX-License-Identifier: Apache-2.0

"""What Nova's API takes and refuses, by its own registry of validators."""

from __future__ import annotations

from nova.api.validation.extra_specs import validators
from nova import exception
import testtools

from scavenger_openstack.algorithms import flavor
from scavenger_openstack.nova import extra_specs

VALUES = ('', ' ', '0', '1', '0.5', '0.0', '00', '-1', '1e3', '1e-3', '1e',
          'nan', 'inf', '1_0', '٣', 'one', 'foreground', 'background',
          'true', 'false', 'True', 'Background', 'batch', 'x' * 128,
          'x' * 129, 'a b', 'a\tb', 'a\n', '64 MiB', '1' * 21, '.5', '5.')


class Validators(testtools.TestCase):

    def allowed(self, key: str, value: str) -> bool:
        try:
            validators.validate(key, value)
        except exception.ValidationError:
            return False
        return True

    def test_nova_has_loaded_them(self) -> None:
        self.assertLessEqual(set(flavor.KEYS), set(validators.VALIDATORS))

    def test_nova_and_the_agent_agree(self) -> None:
        """A value that Nova takes counts, one that it refuses does not."""
        for key in flavor.KEYS:
            for value in VALUES:
                self.assertEqual(not flavor.mistake(key, value),
                                 self.allowed(key, value),
                                 f'{key} = {value!r}')

    def test_there_are_no_others(self) -> None:
        for key in ('scavenger:', 'scavenger:min_cpu', 'scavenger:prority'):
            self.assertFalse(self.allowed(key, '1'), key)

    def test_those_of_others(self) -> None:
        self.assertTrue(self.allowed('hw:cpu_policy', 'dedicated'))
        self.assertTrue(self.allowed('mine:priority', 'whatever'))

    def test_each_is_described(self) -> None:
        for one in extra_specs.register():
            self.assertTrue(one.description.endswith('.'), one.name)
