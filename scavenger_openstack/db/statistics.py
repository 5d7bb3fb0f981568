# SPDX-License-Identifier: Apache-2.0

"""Statistics that hosts reported, until they are part of the specs: what a
signal of an application usually is.  Source: CPI2, section 3.1."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from scavenger_openstack.db import rows
from scavenger_openstack.db import tables

KEY = ('project', 'application', 'cpu_model', 'signal')

VALUES = ('mean', 'stddev', 'n', 'm2', 'cpu_cores', 'day_s')
"""What a spec is, besides whose it is."""

_S, _T = tables.statistics.c, tables.specs.c
_W = tables.workloads.c


def listed(connection: sa.Connection, host_id: int, since_s: float
           ) -> dict[tuple[str, str], int]:
    """Return how many workloads of each project and application are on a host,
    or have been since then."""
    counts: dict[tuple[str, str], int] = {}
    for condition in (_W.until_s.is_(None), _W.until_s >= since_s):
        for project, application, count in connection.execute(sa.select(
                _W.project, _W.application, sa.func.count()).where(
                    _W.host_id == host_id, condition).group_by(
                        _W.project, _W.application)):
            key = project, application
            counts[key] = counts.get(key, 0) + count
    return counts


def newest(connection: sa.Connection) -> int:
    """The last id of all rows, 0 without any."""
    return connection.scalar(sa.select(sa.func.max(_S.id))) or 0


def waiting(connection: sa.Connection, after: int, most: int
            ) -> Sequence[sa.Row[Any]]:
    """The rows that follow an id, by id, with what specs are made of."""
    return connection.execute(sa.select(
        _S.id, _S.host_id, _S.hour_s, _S.n, _S.mean, _S.m2, _S.least,
        _S.most, _S.cpu_cores, *(_S[name] for name in KEY)).where(
            _S.id > after).order_by(_S.id).limit(most)).all()


def remove(connection: sa.Connection, ids: Sequence[int]) -> int:
    """Delete rows; how many of them were there."""
    return sum(connection.execute(sa.delete(tables.statistics).where(
        _S.id.in_(some))).rowcount for some in rows.batches(ids))


def specs(connection: sa.Connection, keys: Collection[tuple[str, ...]]
          ) -> Sequence[sa.Row[Any]]:
    """The specs of these keys that there are, locked until the transaction
    ends: key, then n, mean, m2, cores and day."""
    spec_rows: list[sa.Row[Any]] = []
    for some in rows.batches(sorted(keys)):
        spec_rows += connection.execute(sa.select(
            *(_T[name] for name in KEY), _T.n, _T.mean, _T.m2, _T.cpu_cores,
            _T.day_s).where(rows.keyed(
                connection, [_T[name] for name in KEY], some))
            .order_by(_T.id).with_for_update())
    return spec_rows


def set_specs(connection: sa.Connection, specs: Sequence[rows.Row]) -> None:
    """Insert or replace specs."""
    rows.put(connection, tables.specs, KEY, VALUES, specs)


def end_specs(connection: sa.Connection, before_s: float, most: int) -> int:
    """Delete specs without samples since then, at most so many; how many."""
    ids = connection.scalars(sa.select(_T.id).where(
        _T.day_s < before_s).limit(most)).all()
    return sum(connection.execute(sa.delete(tables.specs).where(
        _T.id.in_(some))).rowcount for some in rows.batches(ids))


def specs_page(connection: sa.Connection, *, project: str | None = None,
               application: str | None = None, cpu_model: str | None = None,
               signal: str | None = None, after: int | None = None,
               limit: int) -> list[rows.Row]:
    """Return a page of specs, the newest first."""
    return rows.newest(
        connection, sa.select(tables.specs), tables.specs,
        {_T.application: application, _T.project: project,
         _T.cpu_model: cpu_model, _T.signal: signal}, after, limit)
