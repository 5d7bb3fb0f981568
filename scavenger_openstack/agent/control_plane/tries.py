# SPDX-License-Identifier: Apache-2.0

"""Tries of new directives, on disk: directives that end the agent several
times are not followed any more.

A try begins before directives are followed, and is over when the agent has
run for some ticks, or was stopped.  The tries that are left are those in which
it ended otherwise.
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
"""Most ends of the agent with directives of one digest."""
MOST_OF_ALL = 6
"""Most ends with directives of any digest: a conductor may give the same ones
other digests."""
RETRY_S = 3600.0
"""When the agent has run for so long, they are tried again: its ends may have
had another cause."""
KEPT = 8


class Tries:
    """The number of unfinished tries of each digest.

    :param directory: of the file; made by others
    """

    def __init__(self, directory: pathlib.Path,
                 warn: Callable[[str], None]) -> None:
        self._path = directory / FILE
        self._warn = warn
        self._counts: dict[str, int] = {}

    def load(self) -> None:
        """Read the counts of earlier runs; none from a file that is damaged.
        """
        self._counts = {}
        try:
            counts = json.loads(status.read_file(self._path, MOST_BYTES))
            self._counts = {str(digest): int(count)
                            for digest, count in counts.items()}
        except (OSError, ValueError, TypeError, AttributeError,
                RecursionError, errors.ScavengerError):
            pass

    def spent(self, digest: str, ran_s: float) -> bool:
        """Return whether directives are not to be tried any more.

        :param ran_s: how long this agent has been running
        """
        return ran_s < RETRY_S and (
            self._counts.get(digest, 0) >= MOST
            or sum(self._counts.values()) >= MOST_OF_ALL)

    def begin(self, digest: str) -> None:
        """Count the begin of a try."""
        count = self._counts.pop(digest, 0) + 1
        self._counts = dict([*self._counts.items(),
                             (digest, count)][-KEPT:])
        self._write()

    def end(self, digest: str) -> None:
        """Forget a try that succeeded, or in which the agent was stopped."""
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
        os.fsync(fd)        # else a power cut may restore the old one
    finally:
        os.close(fd)
