# SPDX-License-Identifier: Apache-2.0

"""Both ends of the call, over oslo.messaging's transport within a process;
with a broker: tests/functional/test_conductor.py."""

from __future__ import annotations

import traceback

import fixtures
import testtools

from scavenger_openstack import errors
from scavenger_openstack import rpc
from scavenger_openstack.tests.unit.rpc_cases import configuration
from scavenger_openstack.tests.unit.rpc_cases import Mixin


class Within(Mixin, testtools.TestCase):
    """One process."""

    @classmethod
    def url(cls) -> str:
        return 'fake://'


class Alone(testtools.TestCase):

    def test_no_conductor(self) -> None:
        client = rpc.Client(configuration('fake://nobody'), timeout_s=0.2)
        for _ in range(rpc.REBUILD_AFTER + 1):      # and connects again
            self.assertEqual(
                'no answer from a conductor within 0.2 s',
                str(self.assertRaises(errors.Unreachable, client.sync,
                                      b'{}')))
        client.close()

    def test_a_fault_of_a_library(self) -> None:
        """Of any type; the next call connects again."""
        from oslo_messaging._drivers import impl_fake
        client = rpc.Client(configuration('fake://nobody'), timeout_s=0.2)

        def fail(*args: object, **options: object) -> None:
            raise KeyError('a library')

        with fixtures.MonkeyPatch(
                f'{impl_fake.__name__}.FakeDriver.send', fail):
            self.assertIn('a library', str(self.assertRaises(
                errors.Unreachable, client.sync, b'{}')))
        self.assertIn('no answer', str(self.assertRaises(
            errors.Unreachable, client.sync, b'{}')))
        client.close()

    def test_a_url_of_no_kind(self) -> None:
        self.assertIn('transport_url', str(self.assertRaises(
            errors.ConfigError,
            rpc.Client(configuration('nonsense://x')).sync, b'{}')))

    def test_a_password_that_is_no_part_of_a_url(self) -> None:
        """It is not in the message, nor in a traceback."""
        for url in ('rabbit://u:secret/2@host', 'rabbit://u:secret#2@host/',
                    'rabbit://u:secret@[host', 'u:secret@host',
                    '//u:secret@host/'):
            client = rpc.Client(configuration(url))
            exc = self.assertRaises(errors.ConfigError, client.sync, b'{}')
            self.assertIn('transport_url', str(exc))
            self.assertNotIn('secret', ''.join(
                traceback.format_exception(exc)), url)
