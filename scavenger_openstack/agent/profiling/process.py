# SPDX-License-Identifier: Apache-2.0

"""The process that measures a profile: a program of its own, so that an
injection neither has the agent's real-time priority nor outlives it.

It ends by itself when its standard input does, which is when the agent dies,
when no sign of life of the agent has come over it for a lease, and when the
stop file is there: see :mod:`scavenger_openstack.ibench.host.supervised`.
"""

from __future__ import annotations

from collections.abc import Sequence
import contextlib
import os
import subprocess
import sys
import tempfile
from typing import IO

from scavenger_openstack.wire.profile import MAX_PROFILE_BYTES

PREPARE = (
    'import os; os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0));'
    'open("/proc/self/oom_score_adj", "w").write("1000");')
"""The priority of the agent goes before anything else is done, and that it is
the last to be killed when memory is short."""

COMMAND = (
    sys.executable, '-c', PREPARE +
    'from scavenger_openstack.ibench.host import supervised;'
    'raise SystemExit(supervised.main())')

MOST_READ = MAX_PROFILE_BYTES + 1
"""Bytes that are read of what it writes."""


class Process:
    """A process that measures: its standard output is the profile.

    :raises OSError: it cannot be started.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._files: list[IO[bytes]] = [tempfile.TemporaryFile(),
                                        tempfile.TemporaryFile()]
        try:
            self._process = subprocess.Popen(
                [*COMMAND, *words], stdin=subprocess.PIPE,
                stdout=self._files[0], stderr=self._files[1],
                # From where it is started Python would load modules.
                start_new_session=True, cwd='/')
            assert self._process.stdin is not None
            os.set_blocking(self._process.stdin.fileno(), False)
        except OSError:
            for file in self._files:
                file.close()
            raise

    def beat(self) -> None:
        """Send a sign of life of the agent."""
        stdin = self._process.stdin
        if stdin is not None and not stdin.closed:
            with contextlib.suppress(OSError):
                os.write(stdin.fileno(), b'.')

    def stop(self) -> None:
        """Ask the process to remove what it made, and to end."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()

    def kill(self) -> None:
        """Kill the process; the kernel kills what it injects with."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    def status(self) -> int | None:
        """Return the exit status, ``None`` while the process runs."""
        return self._process.poll()

    def wait(self, seconds: float) -> bool:
        """Whether the process ends within so long."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.poll() is not None

    def texts(self) -> tuple[str, str]:
        """Return standard output, and standard error in one line."""
        texts = []
        for file in self._files:
            file.seek(0)
            texts.append(file.read(MOST_READ).decode('utf-8', 'replace'))
        return texts[0].strip(), ' '.join(texts[1].split())

    def close(self) -> None:
        """Close the files of a process that has ended."""
        self.stop()
        for file in self._files:
            file.close()
