# SPDX-License-Identifier: Apache-2.0

"""The directive ``program-help``: what ``--help`` of a program prints.

``.. program-help:: scavenger-manage`` shows it of the program and of each of
its commands, so these pages cannot be of another version than the programs.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import importlib.metadata
import io
import os
import re
import sys
from typing import Any
import warnings

from docutils import nodes
from docutils.parsers.rst import Directive

WIDTH = 79

COMMANDS = re.compile(
    r'(?:\{(?P<list>[a-z,-]+)\}|(?P<bars>[a-z-]+(?: \| [a-z-]+)*)) \.\.\.$')
"""How a usage line ends that is followed by a command."""


class ProgramHelp(Directive):
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        found: list[nodes.Node] = []
        for words, text in helps([self.arguments[0]]):
            typed = ' '.join([*words, '--help'])
            found += [nodes.paragraph('', '', nodes.literal(typed, typed)),
                      nodes.literal_block(text, text, language='none')]
        return found


def helps(words: list[str]) -> Iterator[tuple[list[str], str]]:
    """A command line without options, and its help; then its commands."""
    text = help_of(words)
    yield words, text
    usage = ' '.join(text.partition('\n\n')[0].split())
    commands = COMMANDS.search(usage)
    if commands:
        for name in re.split(r',| \| ', commands['list'] or commands['bars']):
            yield from helps([*words, name])


def help_of(words: list[str]) -> str:
    """
    :raises RuntimeError: the program printed none.
    """
    [program] = importlib.metadata.entry_points(
        group='console_scripts', name=words[0])
    with warnings.catch_warnings(action='ignore'):
        main = program.load()
    said, before = io.StringIO(), (sys.argv, os.environ.get('COLUMNS'))
    sys.argv = [*words, '--help']
    os.environ['COLUMNS'] = str(WIDTH)
    try:
        with contextlib.redirect_stdout(said), \
                contextlib.suppress(SystemExit):
            main(sys.argv[1:])
    finally:
        sys.argv = before[0]
        if before[1] is None:
            del os.environ['COLUMNS']
        else:
            os.environ['COLUMNS'] = before[1]
    if not said.getvalue().startswith('usage:'):
        raise RuntimeError(f'{" ".join(words)} --help prints no usage')
    return said.getvalue().rstrip()


def setup(app: Any) -> dict[str, Any]:
    app.add_directive('program-help', ProgramHelp)
    return {'parallel_read_safe': False}
