# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.



"""The kernel's delay accounting, switched on for as long as a demo plays.

It is one switch of the whole machine.  What it was before is kept in the
stage's directory, so that ``scavenger-demo --clean`` can put it back.
"""

from __future__ import annotations

import contextlib
import pathlib

from scavenger_openstack import errors

SWITCH = pathlib.Path('/proc/sys/kernel/task_delayacct')
KEPT = 'task_delayacct'


def switch_on(directory: pathlib.Path) -> None:
    """Have waits counted for all processes that begin from now on.

    :raises DriverError: this kernel cannot.
    """
    try:
        before = SWITCH.read_text().strip()
        if before != '1':
            (directory / KEPT).write_text(before)
            SWITCH.write_text('1')
    except OSError as exc:
        raise errors.DriverError(
            f'{SWITCH}: {exc.strerror}; without delay accounting nobody can '
            'tell who waits for the disk (CONFIG_TASK_DELAY_ACCT)') from exc


def restore(directory: pathlib.Path) -> None:
    """Put it back as it was, if a demo has changed it."""
    kept = directory / KEPT
    with contextlib.suppress(FileNotFoundError):
        SWITCH.write_text(kept.read_text())
        kept.unlink()
