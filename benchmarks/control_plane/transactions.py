# SPDX-License-Identifier: Apache-2.0

"""How long the transactions of a process are, whatever its version.

Of those of reports and of the other work of a conductor apart; a process that
has SCAVENGER_TIMES in its environment keeps the longest in that file.
"""

from __future__ import annotations

import json
import os
import pathlib
import threading
import time
from typing import Any

import sqlalchemy

WORK = 'conductor'
"""The thread of a conductor that does what is due from time to time."""


class Longest:
    """Listens to all engines of this process.

    ``longest_s`` is by whether it was such work.
    """

    def __init__(self, file: str = '') -> None:
        self.longest_s = {'reports': 0.0, 'work': 0.0}
        self._file = file
        for name in ('begin', 'commit', 'rollback'):
            sqlalchemy.event.listen(sqlalchemy.Engine, name,
                                    getattr(self, f'_{name}'))

    def taken_s(self) -> float:
        """The longest of all kinds since the last call."""
        longest_s = max(self.longest_s.values())
        self.longest_s = dict.fromkeys(self.longest_s, 0.0)
        return longest_s

    def _begin(self, connection: Any) -> None:
        connection.info['begun_s'] = time.perf_counter()

    def _commit(self, connection: Any) -> None:
        begun_s = connection.info.pop('begun_s', None)
        if begun_s is None:
            return
        kind = ('work' if threading.current_thread().name == WORK
                else 'reports')
        took_s = time.perf_counter() - begun_s
        if took_s > self.longest_s[kind]:
            self.longest_s[kind] = took_s
            if self._file:
                pathlib.Path(self._file).write_text(json.dumps(
                    self.longest_s))

    _rollback = _commit


def in_environment() -> None:
    """Listen, if the environment names a file."""
    file = os.environ.get('SCAVENGER_TIMES')
    if file:
        Longest(file)
