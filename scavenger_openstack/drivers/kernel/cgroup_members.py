# SPDX-License-Identifier: Apache-2.0

"""Which processes and threads are in a cgroup."""

from __future__ import annotations

import errno
import os

PROCESSES, THREADS, THREADS_V1 = 'cgroup.procs', 'cgroup.threads', 'tasks'

_READ_SIZE = 1 << 16


def read(path: str, directory: int | None = None, *,
         size: int | None = None) -> bytes:
    """What one of the files above lists, a number per line.

    Nothing where the cgroup has no such list: the processes of a threaded
    cgroup of version 2 are listed in a cgroup above it.

    Opened again each time, and read to the end: over a kept descriptor
    version 1 answers with a list of up to a second ago, for as long as it is
    asked at least once a second, and one read returns no more than a page.

    :param path: relative to the open ``directory``, if that is given
    :param size: no more is read after so many bytes
    :raises OSError: it cannot be read.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
    data = b''
    try:
        while part := os.read(fd, _READ_SIZE):
            data += part
            if size is not None and len(data) >= size:
                break
    except OSError as exc:
        if exc.errno != errno.EOPNOTSUPP:
            raise
    finally:
        os.close(fd)
    return data
