# SPDX-License-Identifier: Apache-2.0

"""The references of log, status and kill switch say what the code says.

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
LEAST = 5
"""A line of the reference with fewer letters would match almost anything."""


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

    def test_lines_say_enough(self) -> None:
        self.assertGreater(len(lines()), 50)
        self.assertEqual([], [line for line in lines() if len(
            templates.BLANK.sub('', line)) < LEAST])

    def test_no_line_is_there_twice(self) -> None:
        self.assertEqual(sorted(set(lines())), sorted(lines()))


class OtherReferences(testtools.TestCase):
    """Texts of commands that the documentation explains."""

    def terms(self, page: str, begin: str, end: str, term: str) -> list[str]:
        text = (TOP / 'doc/source' / page).read_text()
        text = text[text.index(begin):]
        return re.findall(term, text[:text.index(end)], re.M)

    def printed(self, terms: list[str], least: int) -> None:
        self.assertGreaterEqual(len(terms), least)
        self.assertEqual([], [term for term in terms if not any(
            templates.matches(f'...{term}', template)
            for template in templates.texts())])

    def test_status(self) -> None:
        self.printed(self.terms('reference/status.rst', 'Other lines\n---',
                                'As JSON\n---', r'^\*([^*]+)\*'), 10)

    def test_states(self) -> None:
        states = self.terms('reference/status.rst', '*state* is one of',
                            '*grade* says',
                            r'^([a-z][a-z: ]+?)(?:  .*| see .*)$')
        self.printed([part for state in states
                      for part in state.split(': ')], 4)

    def test_kill_switch(self) -> None:
        self.printed(self.terms('operate/run-book.rst', 'Stop everything\n===',
                                'By hand,', r'^``(.+)``$'), 5)


class Templates(testtools.TestCase):
    """What this test finds in a module."""

    def found(self, source: str) -> list[str]:
        return [templates.read(text) for _, text in logged(ast.parse(source))]

    def test_formats(self) -> None:
        self.assertEqual(['... has %, ... MiB'], self.found(
            "def f(): LOG.warning('%s has %%, %.1f MiB', a, b)"))
        self.assertEqual(['a', 'b'], self.found(
            "def f(): LOG.error('a' if x else 'b')"))
        self.assertEqual([], self.found("def f(): LOG.info('a')"))
        self.assertEqual([], self.found(
            "def f(): LOG.log(logging.INFO, 'a')"))
        self.assertEqual(['a'], self.found(
            "def f(): LOG.log(x if y else z, 'a')"))

    def test_constants_and_relays(self) -> None:
        self.assertEqual(['a b'], self.found(
            "TEXT = 'a ' 'b'\ndef f(): LOG.warning(TEXT)"))
        self.assertEqual(['...', 'no ... of ...'], self.found(
            "def f(self, about, text): LOG.warning('%s', text)\n"
            "self.f('x', f'no {a} of ' + b)"))

    def test_matches(self) -> None:
        for yes, line, template in (
                (True, 'X has N MiB more', '\0 has \0 MiB more ...'),
                (True, '... MiB more', 'a \0 has \0 MiB more'),
                (False, 'X has N MiB less', '\0 has \0 MiB more'),
                (False, 'X has N MiB', 'a \0 has \0 MiB')):
            self.assertIs(yes, templates.matches(line, template), line)
