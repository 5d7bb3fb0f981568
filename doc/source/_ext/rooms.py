# SPDX-License-Identifier: Apache-2.0

"""The directive ``rooms``: the packages, by their level of imports.

The levels are those that the test of imports enforces, the words are the first
sentence of a room's docstring.
"""

from __future__ import annotations

import ast
import pathlib
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList

import scavenger_openstack
from scavenger_openstack.tests.unit import test_imports

HERE = pathlib.Path(scavenger_openstack.__file__).parent


class Rooms(Directive):

    def run(self) -> list[nodes.Node]:
        lines = ['.. list-table::', '   :header-rows: 1',
                 '   :widths: 10 25 65', '', '   * - Level', '     - Room',
                 '     - What is in there']
        for room, level in sorted(test_imports.LEVELS.items(),
                                  key=lambda one: (one[1], one[0])):
            if room and path(room) is not None:
                lines += [f'   * - {level}', f'     - ``{room}``',
                          f'     - {described(room)}']
                for below in rooms_below(room):
                    lines += ['   * -', f'     - ``{below}``',
                              f'     - {described(below)}']
        found = nodes.Element()
        self.state.nested_parse(StringList(lines, 'rooms'), 0, found)
        return found.children


def path(room: str) -> pathlib.Path | None:
    """Where a room is; none of those that are still to come."""
    for found in (HERE / room / '__init__.py', HERE / f'{room}.py'):
        if found.exists():
            return found
    return None


def rooms_below(room: str) -> list[str]:
    return sorted(f'{room}/{found.parent.name}' for found
                  in (HERE / room).glob('*/__init__.py')
                  if found.read_text())


def described(room: str) -> str:
    """
    :raises KeyError: nothing says what is in there.
    """
    found = path(room)
    assert found is not None
    text = ast.get_docstring(ast.parse(found.read_bytes()))
    if not text:
        raise KeyError(f'{found} has no docstring')
    return ' '.join(text.partition('\n\n')[0].split())


def setup(app: Any) -> dict[str, Any]:
    app.add_directive('rooms', Rooms)
    return {'parallel_read_safe': True}
