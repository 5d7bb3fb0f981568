# SPDX-License-Identifier: Apache-2.0

"""The reference of the log has what the code logs.

What is logged as ``'%s'`` gets its text elsewhere: one call further in the
same module it is looked for, beyond that only the lines of the reference are
checked.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
import pathlib
import re

import testtools

from scavenger_openstack.tests.unit import templates

TOP = pathlib.Path(__file__).parents[3]
REFERENCE = TOP / 'doc/source/reference/log.rst'

ROOMS = ('agent', 'drivers', 'recording', 'restore')
"""Rooms whose warnings and errors must be in the reference."""

LOUD = {'warning', 'error', 'exception', 'critical', 'log'}

def is_loud(call: ast.Call) -> bool:
    """Whether a call logs at WARNING or above."""
    match call:
        case ast.Call(func=ast.Attribute(value=ast.Name(id='LOG'),
                                         attr=level)) if level in LOUD:
            return level != 'log' or not re.search(
                r'^logging\.(INFO|DEBUG)$', ast.unparse(call.args[0]))
    return False


def logged(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and template of all that a module logs at WARNING or above."""
    constants = {
        target.id: statement.value for statement in tree.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets if isinstance(target, ast.Name)}
    relays = set()
    nodes = list(ast.walk(tree))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    if not any(map(is_loud, calls)):
        return
    for function in nodes:
        if not isinstance(function, ast.FunctionDef):
            continue
        given = [one.arg for one in function.args.args if one.arg != 'self']
        for call in ast.walk(function):
            if not (isinstance(call, ast.Call) and is_loud(call)):
                continue
            log = isinstance(call.func, ast.Attribute) \
                and call.func.attr == 'log'
            form, *values = call.args[1:] if log else call.args
            while isinstance(form, ast.Constant) and form.value == '%s':
                form, *values = values
            if isinstance(form, ast.Name):
                if form.id in given:
                    relays.add((function.name, given.index(form.id)))
                form = constants.get(form.id, form)
            for text in templates.of(form):
                yield call.lineno, text
    for call in calls if relays else ():
        name = ast.unparse(call.func).rpartition('.')[2]
        for relay, place in relays:
            if name == relay and len(call.args) > place:
                for text in templates.of(call.args[place]):
                    yield call.lineno, text


def lines() -> list[str]:
    """The first column of the reference."""
    cells = re.findall(r'^ +\* - (.*?)(?=^ +- )', REFERENCE.read_text(),
                       re.M | re.S)
    return [' '.join(line.split()) for cell in cells
            for line in re.findall('``(.*?)``', cell, re.S)]


class LogReference(testtools.TestCase):

    def test_each_warning_has_a_line(self) -> None:
        missing = []
        for path, tree in templates.modules().items():
            if path.relative_to(templates.PACKAGE).parts[0] not in ROOMS:
                continue
            for number, template in sorted(set(logged(tree))):
                if re.search('[a-z]{3}', template) and not any(
                        templates.matches(line, template) for line in lines()):
                    missing.append(f'{path.relative_to(TOP)}:{number} '
                                   f'{templates.read(template)}')
        if missing:
            self.fail('\n  '.join([f'add to {REFERENCE.relative_to(TOP)}:',
                                   *missing]))

    def test_each_line_is_in_the_code(self) -> None:
        stale = [line for line in lines() if not any(
            templates.matches(line, template)
            for template in templates.texts())]
        if stale:
            self.fail('\n  '.join([
                f'{REFERENCE.relative_to(TOP)} has lines that the code '
                'does not have:', *stale]))
