# SPDX-License-Identifier: Apache-2.0

"""The windows that controllers learned, kept over a restart of the agent."""

from __future__ import annotations

import json
import pathlib
from typing import Any

from oslo_log import log

from scavenger_openstack.agent.loop import Loop
from scavenger_openstack.agent import status
from scavenger_openstack.decision.controller import UNUSABLE
from scavenger_openstack import errors

LOG = log.getLogger(__name__)


def save(path: pathlib.Path, loop: Loop) -> None:
    """Write the state of the controllers."""
    try:
        status.write(path, loop.state())
    except OSError as exc:
        LOG.warning('%s: windows not saved, a restart learns them again: %s',
                    path, exc)


def load(path: pathlib.Path, loop: Loop, now: float
         ) -> dict[str, Any]:
    """Load the state of the controllers; return it.

    :param now: CLOCK_BOOTTIME in seconds
    """
    state: dict[str, Any] = {}
    try:
        document = json.loads(status.read_file(path, status.MAX_BYTES))
        if not isinstance(document, dict):
            raise ValueError('not an object')
        state = document
        loop.load(state, now)
    except FileNotFoundError:
        pass
    except (OSError, errors.ScavengerError, *UNUSABLE) as exc:
        LOG.warning('%s: not usable, learning again: %r', path, exc)
    return state
