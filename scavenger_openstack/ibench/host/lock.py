# SPDX-License-Identifier: Apache-2.0

"""One validation, one profile, or several runs at a time on a host.

A file is locked, shared by runs; the lock goes with the process.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import fcntl
import os

from scavenger_openstack import errors

FILE = '/run/lock/scavenger-ibench'


@contextlib.contextmanager
def locked(*, alone: bool, path: str = FILE) -> Iterator[None]:
    """Hold the lock meanwhile.

    :param alone: nothing else of this kind may run
    :raises ConfigError: another process holds it, or there is no such
        directory.
    """
    try:
        descriptor = _open(path)
    except OSError as exc:
        raise errors.ConfigError(
            f'{path} cannot be opened ({exc.strerror}): it is locked, so '
            'that measurements do not disturb each other') from exc
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_NB | (
                fcntl.LOCK_EX if alone else fcntl.LOCK_SH))
        except BlockingIOError:
            raise errors.ConfigError(
                'another scavenger-ibench ' + (
                    'runs' if alone else 'validates or profiles')
                + ' on this host and '
                f'would be disturbed; wait for its end (lslocks shows the '
                f'process that holds {path})') from None
        yield
    finally:
        os.close(descriptor)


def _open(path: str) -> int:
    """Open the file; of every user, so that all lock the same."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        return os.open(path, flags | os.O_CREAT, 0o644)
