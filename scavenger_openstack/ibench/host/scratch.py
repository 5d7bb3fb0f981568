# SPDX-License-Identifier: Apache-2.0

"""A directory of its own on a disk."""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import os
import pathlib
import shutil
import tempfile

from scavenger_openstack import errors
from scavenger_openstack.ibench.host.cgroup import is_alive

ROOM = pathlib.Path('/var/tmp')
"""On a disk, where /tmp may be memory."""
PREFIX = 'scavenger-ibench-'


@contextlib.contextmanager
def made() -> Iterator[pathlib.Path]:
    """Make the directory, and remove it with all that is in it.

    :raises ConfigError: it cannot be made.
    """
    try:
        directory = pathlib.Path(tempfile.mkdtemp(
            prefix=f'{PREFIX}{os.getpid()}-', dir=ROOM))
    except OSError as exc:
        raise errors.ConfigError(f'{ROOM}: {exc.strerror}: a directory is '
                                 'made there, or name one with --path'
                                 ) from exc
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def remove_leftovers() -> None:
    """Remove directories of this user's runs whose process is gone."""
    for path in ROOM.glob(PREFIX + '*-*'):
        if not path.is_symlink() and path.is_dir() \
                and path.lstat().st_uid == os.geteuid() \
                and not is_alive(
                    path.name.removeprefix(PREFIX).partition('-')[0]):
            shutil.rmtree(path, ignore_errors=True)
