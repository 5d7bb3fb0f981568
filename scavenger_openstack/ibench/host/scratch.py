# SPDX-License-Identifier: Apache-2.0

"""A directory of its own on a disk, and a loop device on a file in it."""

from __future__ import annotations

import os
import pathlib
import shutil
import tempfile

from scavenger_openstack import amounts
from scavenger_openstack import errors
from scavenger_openstack.ibench.host import cgroup as cgroup_
from scavenger_openstack.ibench.host import programs

ROOM = pathlib.Path('/var/tmp')
"""On a disk, where /tmp may be memory."""
PREFIX = 'scavenger-ibench-'
_SPARE = 2
_PIECE_BYTES = 1 << 20


class Scratch:
    """:meth:`remove` works at any moment."""

    def __init__(self) -> None:
        self.directory: pathlib.Path | None = None

    def make(self) -> pathlib.Path:
        """Make the directory and return it.

        :raises ConfigError: it cannot be made.
        """
        _remove_leftovers()
        try:
            self.directory = pathlib.Path(tempfile.mkdtemp(
                prefix=f'{PREFIX}{os.getpid()}-', dir=ROOM))
        except OSError as exc:
            raise errors.ConfigError(f'{ROOM}: {exc.strerror}: a directory '
                                     'is made there') from exc
        return self.directory

    def make_device(self, size_bytes: int) -> str:
        """Make a loop device on a file without holes and return its path.

        Reads go through the page cache of the file, so that its rate is
        steady, and above that of the machine's disk.

        :raises ConfigError: no room, no loop devices.
        """
        assert self.directory is not None
        free = shutil.disk_usage(self.directory).free
        if _SPARE * size_bytes > free:
            raise errors.ConfigError(
                f'{ROOM} has {amounts.of_bytes(free)} free; '
                f'{amounts.of_bytes(_SPARE * size_bytes)} are needed')
        file = self.directory / 'device'
        with file.open('wb') as data:
            for _ in range(0, size_bytes, _PIECE_BYTES):
                data.write(os.urandom(_PIECE_BYTES))
        try:
            return _losetup('--find', '--show', '--read-only',
                            str(file)).strip()
        except errors.DriverError as exc:
            raise errors.ConfigError(
                f'{exc} (containers often have no loop devices)') from exc

    def remove(self) -> None:
        """Remove device and directory; gone is fine.

        :raises DriverError: the device does not go.
        :raises OSError: the directory does not go.
        """
        if self.directory is not None and self.directory.exists():
            _remove(self.directory)


def _remove(directory: pathlib.Path) -> None:
    file = directory / 'device'
    if file.exists():
        for name in _losetup('--associated', str(file), '--noheadings',
                             '--output', 'NAME').split():
            _losetup('--detach', name)
    shutil.rmtree(directory)


def _losetup(*words: str) -> str:
    return programs.call('losetup', *words,
                              package='util-linux (mount on Debian)')


def _remove_leftovers() -> None:
    """Remove directories of this user's runs whose process is gone."""
    for path in ROOM.glob(PREFIX + '*-*'):
        what = path.lstat()
        if not path.is_symlink() and path.is_dir() \
                and what.st_uid == os.geteuid() and not cgroup_.is_alive(
                    path.name.removeprefix(PREFIX).partition('-')[0]):
            _remove(path)
