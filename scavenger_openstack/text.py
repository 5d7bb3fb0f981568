# SPDX-License-Identifier: Apache-2.0

"""Columns, bars and lines for people, and JSON for programs."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import json
import math
import re
from typing import Any
from typing import TextIO

from scavenger_openstack.types import printable

BAR = 24

_IDS = re.compile(r'req-[0-9a-f-]{36}|0x[0-9a-f]+')


def columns(titles: Sequence[str], rows: Iterable[Sequence[str]],
            left: Collection[int] = (0,)) -> list[str]:
    """A line for the titles and for each row, in columns; of names the
    characters that are not printable are escaped.

    :param left: the columns that are aligned to the left
    """
    body = [tuple(map(printable, row)) for row in (titles, *rows)]
    widths = [max(map(len, column)) for column in zip(*body, strict=True)]
    return ['  '.join(
        cell.ljust(width) if i in left else cell.rjust(width)
        for i, (cell, width) in enumerate(zip(row, widths, strict=True))
    ).rstrip() for row in body]


def over(stream: TextIO, words: str = '') -> None:
    """Write over the last line, where it is a terminal; nothing elsewhere."""
    if stream.isatty():
        print(f'\r\033[K{words}', end='', file=stream, flush=True)


def bar(share: float) -> str:
    """How much of something is done."""
    return f'[{"#" * round(share * BAR):.<{BAR}}]'


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
