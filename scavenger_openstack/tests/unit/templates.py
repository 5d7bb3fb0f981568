# SPDX-License-Identifier: Apache-2.0

"""The texts that the code can print, found in its sources.

A *template* is a text in the code with :data:`HOLE` in place of each value.  A
line of the documentation matches a template that begins like it; a word of
:data:`BLANK`, such as a single capital, stands for a value, ``...`` for
anything.
"""

from __future__ import annotations

import ast
import functools
import pathlib
import re

PACKAGE = pathlib.Path(__file__).parents[2]

HOLE = '\0'
BLANK = re.compile(r'(\.\.\.)|\b(?:[A-Z]|KNOB|URI)\b')
VALUE = re.compile(r'%(?:\(\w+\))?[-#0 +]*[\d*]*(?:\.[\d*]+)?[a-zA-Z]')


@functools.cache
def modules() -> dict[pathlib.Path, ast.Module]:
    return {path: ast.parse(path.read_bytes())
            for path in sorted(PACKAGE.rglob('*.py'))
            if PACKAGE / 'tests' not in path.parents}


def of(node: ast.expr) -> list[str]:
    """What a text may be, with a hole for each value."""
    match node:
        case ast.Constant(value=str(text)):
            return [VALUE.sub(HOLE, text).replace('%%', '%')]
        case ast.JoinedStr(values=values):
            return [''.join(
                str(one.value) if isinstance(one, ast.Constant) else HOLE
                for one in values)]
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return [a + b for a in of(left) for b in of(right)]
        case ast.IfExp(body=body, orelse=other):
            return of(body) + of(other)
    return [HOLE]


@functools.cache
def texts() -> frozenset[str]:
    """All templates of the package but those of docstrings."""
    found = set()
    kinds = (ast.Constant, ast.JoinedStr, ast.BinOp)
    for tree in modules().values():
        plain = set()
        for node in ast.walk(tree):     # a statement before what is in it
            if isinstance(node, ast.Expr):
                plain.add(node.value)
            elif isinstance(node, kinds) and node not in plain:
                found.update(of(node))
    return frozenset(found)


@functools.cache
def pattern(line: str) -> re.Pattern[str]:
    """What begins like a line of the reference."""
    made, at = '', 0
    for blank in BLANK.finditer(line):
        made += re.escape(line[at:blank.start()])
        made += '.*?' if blank[1] else f'{HOLE}+'
        at = blank.end()
    return re.compile(made + re.escape(line[at:]), re.S)


def matches(line: str, template: str) -> bool:
    return pattern(line).match(template) is not None


def read(template: str) -> str:
    return template.replace(HOLE, '...')
