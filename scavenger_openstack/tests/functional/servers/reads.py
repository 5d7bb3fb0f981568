# SPDX-License-Identifier: Apache-2.0

"""How many rows a database reads for what is asked of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection
from sqlalchemy import Engine
from sqlalchemy import event


def analyze(engine: Engine, *tables: str) -> None:
    """Bring the statistics up to date, as a server does by itself."""
    with engine.connect().execution_options(
            isolation_level='AUTOCOMMIT') as connection:
        for table in tables:
            connection.exec_driver_sql(
                f'VACUUM ANALYZE {table}'
                if engine.dialect.name == 'postgresql'
                else f'ANALYZE TABLE {table}')


def rows(connection: Connection, work: Callable[[], object]) -> int:
    """Rows, and entries of indexes, that MariaDB or PostgreSQL looks at; of
    PostgreSQL blocks besides, since it does not count entries of an index
    that are passed over.  SQLite does not count.

    :param work: reads with this connection
    """
    if connection.dialect.name != 'postgresql':
        connection.exec_driver_sql('FLUSH STATUS')
        work()
        return sum(
            int(row[1]) for row in connection.exec_driver_sql(
                "SHOW SESSION STATUS LIKE 'Handler_read%%'")
            if row[0] != 'Handler_read_retry')
    said: list[tuple[str, Any]] = []

    def listen(connection: Connection, cursor: Any, statement: str,
               parameters: Any, *rest: Any) -> None:
        said.append((statement, parameters))

    event.listen(connection, 'before_cursor_execute', listen)
    try:
        work()
    finally:
        event.remove(connection, 'before_cursor_execute', listen)
    plans = [connection.exec_driver_sql(
        'EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) ' + statement,
        parameters).scalar_one()[0]['Plan'] for statement, parameters in said]
    return sum(plan['Shared Hit Blocks'] + plan['Shared Read Blocks']
               + _scanned(plan) for plan in plans)


def _scanned(plan: dict[str, Any]) -> int:
    """Rows that the scans of a plan give or leave out; a bitmap of an index
    is counted by its blocks."""
    found = sum(map(_scanned, plan.get('Plans', ())))
    if 'Scan' in plan['Node Type'] \
            and plan['Node Type'] != 'Bitmap Index Scan':
        found += plan['Actual Loops'] * (
            plan['Actual Rows'] + plan.get('Rows Removed by Filter', 0)
            + plan.get('Rows Removed by Index Recheck', 0))
    return int(found)
