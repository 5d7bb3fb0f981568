# SPDX-License-Identifier: Apache-2.0

"""Files that agents of releases before wrote, and this one does not read.

They stay where they are: that release finds them if an operator goes back.
"""

from __future__ import annotations

import contextlib
import pathlib

from oslo_log import log

from scavenger_openstack.agent import private_files

LOG = log.getLogger(__name__)

HISTORY = 'history.jsonl'
SPOOL = 'spool.sqlite'


def warn(history_dir: pathlib.Path, sync_dir: pathlib.Path) -> None:
    """Log which of them are there, and what is lost with each.

    :param history_dir: of :class:`.store.Store`
    :param sync_dir: of the directives
    """
    history, spool = history_dir.parent / HISTORY, sync_dir / SPOOL
    with contextlib.suppress(OSError):
        if history.exists():
            LOG.warning(
                '%s: a history of a release before, which scavenger-agent '
                'history does not show; delete it, and %s.1, when it is not '
                'needed', history, history.name)
    with contextlib.suppress(OSError):
        if spool.exists():
            count = _entries(spool)
            LOG.warning(
                '%s: written by a release before and not read; entries that '
                'are not reported, which the control plane lacks: %s. Delete '
                'it, or install that release again and let it report them',
                spool, 'unknown' if count is None else count)


def _entries(spool: pathlib.Path) -> int | None:
    """Return how many entries wait there; ``None`` where it is not readable.
    """
    if private_files.why_not(spool):
        return None
    import sqlite3      # only a few agents need it, and only once
    try:
        with contextlib.closing(sqlite3.connect(
                f'{spool.absolute().as_uri()}?mode=ro', uri=True)) as database:
            [count] = database.execute(
                'SELECT count(*) FROM entries').fetchone()
    except sqlite3.Error:
        return None
    return int(count)
