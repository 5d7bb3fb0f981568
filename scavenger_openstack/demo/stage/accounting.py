# SPDX-License-Identifier: Apache-2.0



"""The kernel's delay accounting, switched on for as long as a demo plays.

It is one switch of the whole machine, so one demo has it at a time: a lock
on the switch itself, which ends with its demo.  What it was before is kept
in the stage's directory, so that ``scavenger-demo --clean`` can put it back.
"""

from __future__ import annotations

import fcntl
import os
import pathlib

from scavenger_openstack import errors

SWITCH = pathlib.Path('/proc/sys/kernel/task_delayacct')
KEPT = 'task_delayacct'


class Accounting:
    """The switch, as one demo uses it.

    :param directory: the stage's
    """

    def __init__(self, directory: pathlib.Path) -> None:
        self._kept = directory / KEPT
        self._lock: int | None = None

    def switch_on(self) -> None:
        """Have waits counted for all processes that begin from now on.

        :raises DriverError: this kernel cannot, or another demo does.
        """
        try:
            self._take()
            before = SWITCH.read_text().strip()
            if before != '1':
                self._kept.write_text(before)
                SWITCH.write_text('1')
        except OSError as exc:
            raise errors.DriverError(
                f'{SWITCH}: {exc.strerror}; without delay accounting waits '
                'for the disk are not known (CONFIG_TASK_DELAY_ACCT)'
            ) from exc

    def restore(self) -> None:
        """Put it back as it was, if this demo has changed it.

        :raises DriverError: it does not take that, or another demo has it.
        """
        try:
            if self._kept.exists():
                self._take()
                SWITCH.write_text(self._kept.read_text())
                self._kept.unlink()
        except OSError as exc:
            raise errors.DriverError(
                f'{SWITCH} is not as it was: {exc.strerror}; write to it '
                f'what {self._kept} holds') from exc
        finally:
            self._give_up()

    def _take(self) -> None:
        if self._lock is not None:
            return
        self._lock = os.open(SWITCH, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._give_up()
            raise errors.DriverError(
                f'another demo plays --who, and needs {SWITCH} as it is; '
                'try again when it has ended') from None

    def _give_up(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
