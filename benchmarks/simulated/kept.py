# SPDX-License-Identifier: Apache-2.0


"""Results of finished runs, so that what was cut goes on where it ended."""

from __future__ import annotations

from collections.abc import Collection
import hashlib
import json
import pathlib
import sys
from typing import Any

TELLING = {'catalogue', 'command', 'process_pool', 'output', 'progress',
           'summary', 'table'}
"""Modules of the laboratory that show results and do not make them."""


def code() -> str:
    """A hash of the code that makes results: all of ours that is loaded."""
    found = hashlib.sha256()
    for name, module in sorted(sys.modules.items()):
        room, _, rest = name.removeprefix('scavenger_openstack.').partition(
            '.')
        path = getattr(module, '__file__', None)
        if (name.startswith('scavenger_openstack.') and path
                and room not in ('cmd', 'conf')
                and not (room == 'laboratory' and rest in TELLING)):
            found.update(name.encode() + pathlib.Path(path).read_bytes())
    return found.hexdigest()


class Kept:
    """Results by what was done, one JSON line each.

    They count only for the code that made them.
    """

    def __init__(self, directory: pathlib.Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._path = directory / 'records.jsonl'
        self._code = code()
        self._found: dict[str, dict[str, Any]] = {}
        if self._path.exists():
            for line in self._path.read_text().splitlines():
                try:
                    one = json.loads(line)
                except ValueError:
                    continue    # cut in the middle
                self._found[one['of']] = one

    def get(self, what: object, needed: Collection[str] = ()
            ) -> dict[str, Any] | None:
        """What came of it: ``record`` and ``cost_s``.

        :param needed: names that the record's ``scores`` have to have
        """
        found = self._found.get(self._mark(what))
        if found is None or not (set(needed)
                                 <= set(found['record'].get('scores', ()))):
            return None
        return found

    def add(self, what: object, record: dict[str, Any],
            cost_s: float) -> None:
        one = {'of': self._mark(what), 'cost_s': cost_s, 'record': record}
        self._found[one['of']] = one
        with self._path.open('a') as file:
            file.write(json.dumps(one) + '\n')

    def _mark(self, what: object) -> str:
        return hashlib.sha256(f'{self._code} {what}'.encode()).hexdigest(
            )[:16]
