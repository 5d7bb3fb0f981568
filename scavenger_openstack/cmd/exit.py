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

"""How a command ends: its exit code, and one line when something failed."""

from __future__ import annotations

from collections.abc import Callable
import sys

from scavenger_openstack.agent import status
from scavenger_openstack import errors

FAILED = 1
USAGE = 2
INTERRUPTED = 130
"""What a shell shows for a command that SIGINT has ended."""


def code(program: str, work: Callable[[], int]) -> int:
    """Do ``work`` and return its exit code.

    What stops it goes to standard error: :data:`USAGE` when the
    configuration cannot work, with one line for each finding,
    :data:`FAILED` for what else is expected to go wrong, with one line.  A
    fault of ours stays a traceback.
    """
    try:
        return work()
    except errors.ConfigError as exc:
        for finding in exc.args:
            _print(program, finding)
        return USAGE
    except (errors.ScavengerError, OSError) as exc:
        _print(program, exc)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def _print(program: str, exc: object) -> None:
    line = status.shown(str(exc)).replace('\n', ' ')
    print(f'{program}: {line}', file=sys.stderr)
