# SPDX-License-Identifier: Apache-2.0

"""Results as tables for people."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from scavenger_openstack import text as text_

MARKS = {'passed': 'ok      ', 'failed': 'FAILED  ',
         'inconclusive': 'open    '}


def number(value: float | None, digits: int = 1) -> str:
    return '-' if value is None else f'{value:.{digits}f}'


def percent(value: float | None) -> str:
    return '-' if value is None else f'{100 * value:.0f} %'


def first(result: Mapping[str, Any]) -> str:
    """The line on top: the verdict, and why."""
    return f'{result["verdict"]}: {result["why"]}'


def criterion(test: Mapping[str, Any]) -> str:
    """What had to hold; and by which figure, if it is one."""
    if 'value' not in test:
        return str(test['name'])
    between = (f', between {test["low"]:.2f} and {test["high"]:.2f}'
               if 'low' in test else '')
    return (f'{test["name"]}: {test["value"]:.2f}{between} '
            f'(has to be {test["sign"]} {test["limit"]:g})')


def text(result: Mapping[str, Any], head: Sequence[str],
         titles: Sequence[str], rows: Iterable[Sequence[str]],
         notes: Iterable[str] = (), failed: Iterable[str] = ()) -> str:
    """The verdict, the table and the criteria.

    :param notes: what stands below the table; empty ones are left out
    :param failed: what failed besides the criteria
    """
    said = [first(result), '', *head, '', *text_.columns(titles, rows), '']
    for note in filter(None, notes):
        said += [note, '']
    said += [MARKS[test['outcome']] + criterion(test)
             for test in result['criteria']]
    return '\n'.join([*said, *(MARKS['failed'] + one for one in failed)])
