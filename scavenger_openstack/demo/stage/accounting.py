# SPDX-License-Identifier: Apache-2.0

"""The kernel's delay accounting, switched on for as long as a demo runs.

The agent reads from it how long cgroups wait for CPUs.  It is one switch of
the whole machine, so one demo has it at a time: a lock on the switch itself,
which ends with its demo.  What it was before is kept in the stage's
directory, so that ``scavenger-demo --clean`` can restore it.
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

    def take(self) -> None:
        """Lock the switch.

        :raises DriverError: this kernel has none, or another demo runs.
        """
        if self._lock is not None:
            return
        try:
            self._lock = os.open(SWITCH, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._unlock()
            raise errors.DriverError(
                'another demo is running: wait until it has ended, or end '
                'it (scavenger-demo --clean ends one that was started with '
                '--keep)') from None
        except OSError as exc:
            raise _unknown_waits(exc) from exc

    def switch_on(self) -> None:
        """Let the kernel count the waits of all processes that start later.

        :raises DriverError: this kernel cannot, or another demo runs.
        """
        self.take()
        try:
            before = SWITCH.read_text().strip()
            if before != '1':
                self._kept.write_text(before)
                SWITCH.write_text('1')
        except OSError as exc:
            raise _unknown_waits(exc) from exc

    def restore(self) -> None:
        """Restore the switch, if this demo has changed it.

        :raises DriverError: it cannot be written, or another demo has it.
        """
        try:
            if self._kept.exists():
                self.take()
                SWITCH.write_text(self._kept.read_text())
                self._kept.unlink()
        except OSError as exc:
            raise errors.DriverError(
                f'{SWITCH} is not as it was: {exc.strerror}; write to it '
                f'what {self._kept} holds') from exc
        finally:
            self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _unknown_waits(exc: OSError) -> errors.DriverError:
    return errors.DriverError(
        f'{SWITCH}: {exc.strerror}; without delay accounting it is not known '
        'how long cgroups wait for CPUs (Linux 5.14 or newer with '
        'CONFIG_TASK_DELAY_ACCT; in a container /proc/sys has to be '
        'writable, as with docker run --privileged)')
