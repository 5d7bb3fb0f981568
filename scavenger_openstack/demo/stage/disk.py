# SPDX-License-Identifier: Apache-2.0



"""A directory on the machine's disk, and a disk of the demo's own in it.

That is a loop device on a file, past the page cache: it cannot answer faster
than the machine's disk, since no page of the file is kept in memory.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import stat
import subprocess

from scavenger_openstack import errors

ROOM = pathlib.Path('/var/lib')
"""/run is memory; this has to be a disk, where only root makes files."""

PREFIX = 'scavenger-demo-'
MIB = 2**20
SIZE_MIB = 512
SPARE = 2
LOSETUP_S = 60.0


class Disk:
    """``path`` is such as /dev/loop0 once it is made."""

    def __init__(self, name: str) -> None:
        self.directory = ROOM / (PREFIX + name)
        self._file = self.directory / 'disk'
        self.path = ''

    @property
    def device(self) -> str:
        """Its name, such as loop0."""
        return pathlib.Path(self.path).name

    def make_directory(self) -> None:
        """Make the directory, for the disk and for programs.

        :raises DriverError: no program can be started from there.
        """
        self.directory.mkdir(mode=0o700)
        if os.statvfs(self.directory).f_flag & os.ST_NOEXEC:
            raise errors.DriverError(
                f'{ROOM} is mounted noexec: the demo starts programs that it '
                'compiles there; remount it with exec')

    def make(self) -> None:
        """Fill a file in the directory and put a disk on it.

        :raises DriverError: there is no room, or there are no loop devices.
        """
        if (shutil.disk_usage(self.directory).free
                < SPARE * SIZE_MIB * MIB):
            raise errors.DriverError(
                f'{ROOM}: {SPARE * SIZE_MIB} MiB of room are needed for the '
                "demo's disk")
        with self._file.open('wb') as file:
            for _ in range(SIZE_MIB):   # holes would cost no reading
                file.write(os.urandom(MIB))
            file.flush()
            os.fsync(file.fileno())
        try:
            self.path = losetup('--direct-io=on', '--find', '--show',
                                 str(self._file)).strip()
        except errors.DriverError as exc:
            raise errors.DriverError(
                f'{exc}, and direct I/O on the file system of {ROOM}'
            ) from exc

    def remove(self) -> None:
        """Take the disk and its file away, also of a demo that was killed.

        A disk that is still in use goes with its last user.

        :raises DriverError: it is not one that we made, or does not go.
        """
        try:
            if self._is_there():
                self._detach()
                shutil.rmtree(self.directory)
        except OSError as exc:
            raise errors.DriverError(
                f'{self.directory} cannot be removed: {exc.strerror}'
            ) from exc

    def _detach(self) -> None:
        if self._file.exists():
            for line in losetup('--associated', str(self._file),
                                 '--noheadings', '--output',
                                 'NAME').splitlines():
                losetup('--detach', line.strip())

    def _is_there(self) -> bool:
        """Whether there is anything to remove, all of it ours.

        No other user can change that later, in a directory of our own.

        :raises DriverError: it is not ours; nothing was touched.
        :raises OSError: it cannot be looked at
        """
        if not os.path.lexists(self.directory):
            return False
        if not _is_own(self.directory):
            raise errors.DriverError(
                f'{self.directory} is not what a demo made, and is left '
                'alone: see whose it is, and remove it by hand')
        try:
            file = os.open(self._file, os.O_PATH | os.O_NOFOLLOW
                           | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        try:
            what = os.fstat(file)
        finally:
            os.close(file)
        if not stat.S_ISREG(what.st_mode) or what.st_uid != os.geteuid():
            raise errors.DriverError(
                f'{self._file} is not the file that a demo made, and is '
                'left alone: see whose it is, and remove it by hand')
        return True


def left_over() -> set[str]:
    """Names of demos that have a disk."""
    return {path.name.removeprefix(PREFIX)
            for path in ROOM.glob(PREFIX + '*') if _is_own(path)}


def _is_own(path: pathlib.Path) -> bool:
    """Whether it is a directory that only we can write to."""
    try:
        what = path.lstat()
    except OSError:
        return False
    return (stat.S_ISDIR(what.st_mode) and what.st_uid == os.geteuid()
            and stat.S_IMODE(what.st_mode) == 0o700)


def losetup(*arguments: str) -> str:
    """What it prints.

    :raises DriverError: it is not there, fails or hangs.
    """
    try:
        return subprocess.run(
            ['losetup', *arguments], check=True, capture_output=True,
            text=True, start_new_session=True, timeout=LOSETUP_S).stdout
    except FileNotFoundError:
        raise errors.DriverError('no losetup: install util-linux (mount on '
                                 'Debian)') from None
    except subprocess.TimeoutExpired:
        raise errors.DriverError(
            f'losetup {" ".join(arguments)}: no answer in {LOSETUP_S:.0f} s'
        ) from None
    except subprocess.CalledProcessError as exc:
        raise errors.DriverError(
            f'losetup {" ".join(arguments)}: {exc.stderr.strip()}; the '
            'second act needs loop devices') from exc
