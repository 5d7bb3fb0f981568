# SPDX-License-Identifier: Apache-2.0

"""What the pages of the operator's tasks have to be typed or written."""

from __future__ import annotations

from collections.abc import Iterator
import pathlib
import re
import shlex
import textwrap
from typing import NamedTuple

TOP = pathlib.Path(__file__).parents[3]
SOURCE = TOP / 'doc/source'
PAGES = (*sorted(path for folder in ('start', 'install', 'operate')
                 for path in (SOURCE / folder).glob('*.rst')),
         SOURCE / 'reference/confinement.rst')

INNER = re.compile(r'\$\(([^()]*)\)')
"""A command whose output is part of another command."""


class Command(NamedTuple):
    """One command of a console block."""

    page: str
    prompt: str
    """``#`` for root, ``$`` for an administrator of OpenStack."""
    words: tuple[str, ...]

    @property
    def text(self) -> str:
        return f'{self.page}: {self.prompt} {" ".join(self.words)}'


def name(page: pathlib.Path) -> str:
    return str(page.relative_to(SOURCE))


def blocks(page: pathlib.Path, language: str) -> Iterator[str]:
    """The blocks of a page in a language, without their indent."""
    for match in re.finditer(
            rf'^( *)\.\. code-block:: {language}\n\n'
            r'((?:\1   [^\n]*\n|\n)+)', page.read_text(), re.M):
        yield textwrap.dedent(match[2])


def commands(page: pathlib.Path) -> Iterator[Command]:
    """The commands of the console blocks of a page, in their order.

    What is piped, and what is in ``$(...)``, is a command of its own.
    """
    for block in blocks(page, 'console'):
        for line in block.replace('\\\n', ' ').splitlines():
            if line[:2] not in ('# ', '$ '):
                continue
            for inner in INNER.findall(line):
                yield Command(name(page), line[0], tuple(shlex.split(inner)))
            for part in _parts(line[2:]):
                yield Command(name(page), line[0], part)


def _parts(line: str) -> Iterator[tuple[str, ...]]:
    """The commands of a pipe, without redirections to files."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars='|>')
    lexer.whitespace_split = True
    lexer.commenters = ''
    words: list[str] = []
    for word in lexer:
        if word == '|':
            yield tuple(words)
            words = []
        elif word == '>':
            next(lexer)
        else:
            words.append(word)
    yield tuple(words)


def everything() -> list[Command]:
    """The commands of all pages."""
    return [command for page in PAGES for command in commands(page)]
