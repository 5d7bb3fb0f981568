# SPDX-License-Identifier: Apache-2.0

"""Commands that fail or hang cost the demo's uplink a bounded time."""

from __future__ import annotations

import os
import pathlib

import fixtures
import testtools

from scavenger_openstack.demo.stage import uplink
from scavenger_openstack import errors


class RemoveTest(testtools.TestCase):
    """Namespaces are files here, and a program of ours plays ``ip``."""

    def setUp(self) -> None:
        super().setUp()
        self.top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.MonkeyPatch(
            f'{uplink.__name__}.NETNS', self.top))
        for name, seconds in (('REMOVE_S', 2.0), ('COMMAND_S', 3.0)):
            self.useFixture(fixtures.MonkeyPatch(
                f'{uplink.__name__}.{name}', seconds))
        programs = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.ip = programs / 'ip'
        self.useFixture(fixtures.EnvironmentVariable(
            'PATH', f'{programs}:{os.environ["PATH"]}'))
        self.uplink = uplink.Uplink('abcdef', 1e6)
        for netns in self.uplink.netns.values():
            (self.top / netns).touch()

    def play(self, words: str) -> None:
        self.ip.write_text(f'#!/bin/sh\necho >> {self.top}/calls\n{words}\n')
        self.ip.chmod(0o755)

    def calls(self) -> int:
        return (self.top / 'calls').read_text().count('\n')

    def test_what_fails_is_tried_again_for_a_while(self) -> None:
        self.useFixture(fixtures.MonkeyPatch(
            f'{uplink.__name__}.REMOVE_S', 1.0))
        self.play('echo busy >&2; exit 1')
        found = self.assertRaises(errors.DriverError, self.uplink.remove)
        self.assertIn('busy', str(found))
        self.assertGreater(self.calls(), 1)

    def test_what_hangs_is_not_tried_for_ever(self) -> None:
        for name, seconds in (('REMOVE_S', 0.3), ('COMMAND_S', 0.5)):
            self.useFixture(fixtures.MonkeyPatch(
                f'{uplink.__name__}.{name}', seconds))
        self.play('exec sleep 60')
        found = self.assertRaises(errors.DriverError, self.uplink.remove)
        self.assertIn('no answer', str(found))
        self.assertLess(self.calls(), 6)

    def test_all_of_them_go(self) -> None:
        self.play(f'rm {self.top}/"$3"')
        self.uplink.remove()
        self.assertEqual({}, uplink.left_over())
