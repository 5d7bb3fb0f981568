# SPDX-License-Identifier: Apache-2.0

"""Columns, bars and lines for people, and JSON for programs.

Names come from tenants: they may be of characters that are two columns wide
on a terminal, or none.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import datetime
import json
import math
import re
from typing import Any
from typing import overload
from typing import TextIO
import unicodedata

from scavenger_openstack.types import printable

BAR = 24

_NO_COLUMN = ('Mn', 'Me', 'Cf')
"""Categories of characters that are drawn over the one before."""
_JAMO = re.compile('[\u1160-\u11ff\ud7b0-\ud7fb]')
"""The second and third parts of a Korean syllable, likewise."""
_SKIN = re.compile('[\U0001f3fb-\U0001f3ff]')
_FLAG = re.compile('[\U0001f1e6-\U0001f1ff]')
_AS_EMOJI = '\ufe0f'
_SYMBOLS = ('So', 'Sm')
_KEYS = '#*0123456789'
"""What that makes two columns wide."""

_IDS = re.compile(r'req-[0-9a-f-]{36}|0x[0-9a-f]+')


def width(text: str) -> int:
    """How many columns of a terminal a printable text takes.

    Source: Unicode, annexes 11 (East Asian width) and 51 (emoji).
    """
    return len(text) if text.isascii() else sum(
        more for _, more in _widths(text))


def _widths(text: str) -> Iterator[tuple[str, int]]:
    """Each character, and by how many columns it widens the text."""
    base, wide = '', 0
    for char in text:
        more = 2 if unicodedata.east_asian_width(char) in 'WF' else 1
        if char == _AS_EMOJI:
            more = int(wide == 1 and (unicodedata.category(base) in _SYMBOLS
                                      or base in _KEYS))
            wide += more
        elif (unicodedata.category(char) in _NO_COLUMN or _JAMO.match(char)
                or wide == 2 and _SKIN.match(char)):
            more = 0
        elif _FLAG.match(char):     # two of them are one
            more = 0 if base and _FLAG.match(base) else 2
            base, wide = char if more else '', more
        else:
            base, wide = char, more
        yield char, more


def _pieces(text: str, most: int) -> Iterator[str]:
    """The text in pieces of at most so many columns."""
    piece, taken = '', 0
    for char, more in _widths(text):
        if piece and taken + more > most:
            yield piece
            piece, taken = '', 0
        piece += char
        taken += more
    yield piece


def cut(text: str, most: int) -> str:
    """The text, shortened to so many columns."""
    pieces = _pieces(text, most)
    first = next(pieces)
    if next(pieces, None) is None:
        return first
    return f'{next(_pieces(first, most - 3))}...'


def wrap(text: str, most: int, first: str = '', rest: str = '') -> list[str]:
    """The words of a text in lines of so many columns.

    :param first: before the first line
    :param rest: before the others, not shorter
    """
    room = most - len(rest)
    lines: list[list[str]] = [[]]
    left = most - len(first)
    for word in text.split(' '):
        for piece in _pieces(word, room):
            needed = width(piece) + bool(lines[-1])
            if lines[-1] and needed > left:
                lines.append([])
                left, needed = room, needed - 1
            lines[-1].append(piece)
            left -= needed
    return [(rest if i else first) + ' '.join(line)
            for i, line in enumerate(lines)]


def padded(text: str, columns: int, *, left: bool = True) -> str:
    """The text with blanks, to the right of it where it is on the left."""
    blanks = ' ' * (columns - width(text))
    return text + blanks if left else blanks + text


def row(cells: Sequence[str], widths: Sequence[int],
        left: Collection[int] = (0,)) -> str:
    """A line of a table.

    :param cells: printable
    :param widths: of the columns
    :param left: the columns that are aligned to the left
    """
    return '  '.join(
        padded(cell, wide, left=i in left)
        for i, (cell, wide) in enumerate(zip(cells, widths, strict=True))
    ).rstrip()


def columns(titles: Sequence[str], rows: Iterable[Sequence[str]],
            left: Collection[int] = (0,)) -> list[str]:
    """A line for the titles, if there are any, and for each row, in columns;
    of names the characters that are not printable are escaped.

    :param left: the columns that are aligned to the left
    """
    body = [tuple(map(printable, one))
            for one in (*((titles,) if titles else ()), *rows)]
    widths = [max(map(width, column)) for column in zip(*body, strict=True)]
    return [row(one, widths, left) for one in body]


def over(stream: TextIO, words: str = '') -> None:
    """Write over the last line, where it is a terminal; nothing elsewhere."""
    if stream.isatty():
        print(f'\r\033[K{words}', end='', file=stream, flush=True)


def bar(share: float) -> str:
    """How much of something is done."""
    return f'[{"#" * round(share * BAR):.<{BAR}}]'


@overload
def iso(time_s: float) -> str: ...


@overload
def iso(time_s: None) -> None: ...


def iso(time_s: float | None) -> str | None:
    """Such as ``2026-11-22T23:57:44.250Z``; ``None`` for what no calendar
    has."""
    if time_s is None or not math.isfinite(time_s):
        return None
    try:
        at = datetime.datetime.fromtimestamp(time_s, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return at.isoformat(timespec='milliseconds').replace('+00:00', 'Z')


def time_s(iso_text: str) -> float:
    """Return the UNIX time of ISO 8601 text, in UTC unless it has an offset.

    :raises ValueError: it is no such text.
    """
    at = datetime.datetime.fromisoformat(iso_text)
    if at.tzinfo is None:
        at = at.replace(tzinfo=datetime.UTC)
    return at.timestamp()


def without_ids(line: str) -> str:
    """The same without ids of requests and addresses of objects, which are
    others each time: to tell whether a line says what was said before."""
    return _IDS.sub('', line)


def json_line(value: Any, *, compact: bool = False) -> str:
    """JSON in one line; a number that JSON lacks is null."""
    return _json(value, separators=(',', ':') if compact else None)


def json_page(value: Any) -> str:
    """JSON in many lines, which people can read, too; likewise."""
    return _json(value, indent=1)


def _json(value: Any, **form: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False, **form)
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False, **form)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
