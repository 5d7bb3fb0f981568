# SPDX-License-Identifier: Apache-2.0

"""Which directives the agent follows for the first time, on disk: those that
end it again and again are not followed any more.

A try begins before directives are followed, and is over when the agent has
gone on for some ticks, or was told to end.  What is left are tries in which it
ended otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
import json
import os
import pathlib

from scavenger_openstack.agent import private_files
from scavenger_openstack.agent import status
from scavenger_openstack import errors
from scavenger_openstack.restore import files

FILE = 'directives.tries'
MOST_BYTES = 8192
MOST = 3
"""So often the agent may end with directives of one digest."""
MOST_OF_ALL = 6
"""And with directives of any: a conductor may call the same by other names."""
RETRY_S = 3600.0
"""When the agent has gone on for so long, they are tried all the same: its
ends may have had another cause."""
KEPT = 8


class Tries:
    """How often each digest was tried without success.

    :param directory: of the file; made by others
    """

    def __init__(self, directory: pathlib.Path,
                 warn: Callable[[str], None]) -> None:
        self._path = directory / FILE
        self._warn = warn
        self._counts: dict[str, int] = {}

    def load(self) -> None:
        """Read what earlier runs left; nothing where that is no counts."""
        self._counts = {}
        try:
            counts = json.loads(status.read_file(self._path, MOST_BYTES))
            self._counts = {str(digest): int(count)
                            for digest, count in counts.items()}
        except (OSError, ValueError, TypeError, AttributeError,
                RecursionError, errors.ScavengerError):
            pass

    def spent(self, digest: str, ran_s: float) -> bool:
        """Whether directives are not to be tried any more.

        :param ran_s: for how long this run of the agent has gone on
        """
        return ran_s < RETRY_S and (
            self._counts.get(digest, 0) >= MOST
            or sum(self._counts.values()) >= MOST_OF_ALL)

    def begin(self, digest: str) -> None:
        """A try begins."""
        count = self._counts.pop(digest, 0) + 1
        self._counts = dict([*self._counts.items(),
                             (digest, count)][-KEPT:])
        self._write()

    def end(self, digest: str) -> None:
        """A try has succeeded, or the agent was told to end."""
        if self._counts.pop(digest, None) is not None:
            self._write()

    def _write(self) -> None:
        try:
            if self._counts:
                replace(self._path, json.dumps(self._counts).encode())
            else:
                self._path.unlink(missing_ok=True)
        except OSError as exc:
            self._warn(f'{self._path}: not written: {exc.strerror}; '
                       'directives that end the agent are tried again at '
                       'each start')


def replace(path: pathlib.Path, data: bytes) -> None:
    """Replace a file; there is always the old one or the new one.

    :raises OSError: it cannot be written.
    """
    private_files.make_directory(path.parent)
    files.replace(path, data, sync=True,
                  draft=str(path.with_name(path.name + '.new')))
    fd = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)        # or a power cut brings the old one back
    finally:
        os.close(fd)
