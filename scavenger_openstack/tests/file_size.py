# SPDX-License-Identifier: Apache-2.0

"""A limit of this process that has a write come back short."""

from __future__ import annotations

import resource

import fixtures


class FileSize(fixtures.Fixture):
    """No file is written beyond so many bytes, until :meth:`end`.

    A write that begins before takes what has room, as on a full disk.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def _setUp(self) -> None:
        self.before = resource.getrlimit(resource.RLIMIT_FSIZE)
        self.addCleanup(self.end)
        resource.setrlimit(resource.RLIMIT_FSIZE,
                           (self.size, self.before[1]))

    def end(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self.before)
