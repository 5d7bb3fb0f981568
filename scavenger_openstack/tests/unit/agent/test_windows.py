# SPDX-License-Identifier: Apache-2.0

"""What the controllers learnt, over a restart."""

from __future__ import annotations

import pathlib
from typing import Any

import fixtures
import testtools

from scavenger_openstack.agent import windows


class Learning:
    """What keeps and takes a state; the loop asks its controllers."""

    def __init__(self, **state: Any) -> None:
        self.learnt = state
        self.loaded_s: float | None = None

    def state(self) -> dict[str, Any]:
        return self.learnt

    def load(self, state: dict[str, Any], now: float) -> None:
        self.learnt = {'mu': float(state['mu'])}
        self.loaded_s = now


class WindowsTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        self.path = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path) / 'windows.json'

    def load(self) -> tuple[Learning, dict[str, Any]]:
        after: Any = Learning()
        return after, windows.load(self.path, after, 7.0)

    def test_what_is_saved_is_loaded(self) -> None:
        before: Any = Learning(mu=2.5)
        windows.save(self.path, before)
        after, state = self.load()
        self.assertEqual(({'mu': 2.5}, {'mu': 2.5}, 7.0),
                         (after.learnt, state, after.loaded_s))
        self.assertEqual('', self.log.output)

    def test_nothing_was_learnt(self) -> None:
        after, state = self.load()
        self.assertEqual(({}, None, ''),
                         (state, after.loaded_s, self.log.output))

    def test_a_file_that_is_damaged(self) -> None:
        for text in ('', '{', '[]', '7', '{}', '{"mu": "x"}', '{"mu": []}'):
            self.path.write_text(text)
            after, _ = self.load()
            self.assertIsNone(after.loaded_s)
        self.assertEqual(7, self.log.output.count('learning again'))

    def test_where_nothing_can_be_written(self) -> None:
        before: Any = Learning(mu=2.5)
        windows.save(self.path / 'no' / 'such', before)
        self.assertIn('a restart learns them again', self.log.output)
