# SPDX-License-Identifier: Apache-2.0

"""What is over, as partitioned Parquet, for questions that are asked later.

One file a day and table, ``TABLE/day=2026-11-28/rows.parquet``, in a
directory or wherever fsspec writes to.  A day is written once, when no agent
will report of it any more, and appears whole: until then it has another name,
and in a directory it is on the disk before it has its own.
"""

from __future__ import annotations

from collections.abc import Iterator
import datetime
import functools
import json
import pathlib
import re
from typing import Any
from typing import NamedTuple

import fsspec
from fsspec.implementations import local
import pyarrow
from pyarrow import parquet

from scavenger_openstack.db import connect
from scavenger_openstack.db.resources import archive
from scavenger_openstack import errors
from scavenger_openstack.restore import files as restore_files

ROWS = 'rows.parquet'
UNFINISHED = '.unfinished'

SECRETS = re.compile(r'(?<=://)\S*[@?]\S*?(?=:?(\s|\Z))')
"""What is after the scheme of a URL that may have a password, a key or a token
in it."""

TYPES = {int: pyarrow.int64(), float: pyarrow.float64(),
         bool: pyarrow.bool_(), str: pyarrow.string(),
         dict: pyarrow.string()}


class Written(NamedTuple):
    """A file that was written."""

    name: str
    day: str
    rows: int
    size_bytes: int


def write(engine: connect.Engine, url: str, now_s: float
          ) -> Iterator[Written]:
    """Write the days that are settled and not there yet, the oldest first.

    :param url: a directory, or what fsspec takes, such as s3://BUCKET/PATH
    :raises DatabaseError: the database cannot be used
    :raises ConfigError: the archive cannot be written to
    """
    try:
        files, top = fsspec.core.url_to_fs(url)
        for part in archive.PARTS:
            for day_s in connect.read(engine, functools.partial(
                    archive.days, part=part, now_s=now_s)):
                day = datetime.datetime.fromtimestamp(
                    day_s, datetime.UTC).date().isoformat()
                directory = f'{top}/{part.name}/day={day}'
                if not files.exists(f'{directory}/{ROWS}'):
                    yield Written(part.name, day, *_write(
                        engine, part, day_s, files, directory))
    except (OSError, ValueError, ImportError, pyarrow.ArrowException) as exc:
        # File systems quote the URL: what led to it is not shown either.
        raise errors.ConfigError(SECRETS.sub(
            '***', f'{url}: the archive cannot be written: {exc}')) from None


def _write(engine: connect.Engine, part: archive.Part, day_s: int,
           files: Any, directory: str) -> tuple[int, int]:
    """Write a day; return its rows and bytes."""
    schema = pyarrow.schema([(name, TYPES[kind])
                             for name, kind in part.columns.items()])
    path, unfinished = (f'{directory}/{ROWS}{suffix}'
                        for suffix in ('', UNFINISHED))
    count = 0
    files.makedirs(directory, exist_ok=True)
    try:
        with files.open(unfinished, 'wb') as file, parquet.ParquetWriter(
                file, schema, compression='zstd') as writer:
            after = None
            while rows := connect.read(engine, functools.partial(
                    archive.page, part=part, day_s=day_s, after=after)):
                writer.write_table(pyarrow.table({
                    name: [_cell(row[name], kind) for row in rows]
                    for name, kind in part.columns.items()}, schema))
                after, count = rows[-1], count + len(rows)
        size_bytes = files.size(unfinished)
        if isinstance(files, local.LocalFileSystem):
            restore_files.replace(path, None, draft=unfinished, sync=True)
            # The directories of the day and of the table may be new, too.
            for above in list(pathlib.Path(directory).parents)[:2]:
                restore_files.sync_names(above)
        else:
            files.mv(unfinished, path)
    except BaseException:
        if files.exists(unfinished):
            files.rm(unfinished)
        raise
    return count, size_bytes


def _cell(value: Any, kind: type) -> Any:
    return (json.dumps(value) if kind is dict and value is not None
            else value)
