# SPDX-License-Identifier: Apache-2.0

"""Our notification driver with a clock around it, and with faults in it.

It runs in nova-compute in place of ours, see :mod:`.watching`.
"""

from __future__ import annotations

import json
import os
import pathlib
import time
from typing import Any
from typing import NamedTuple

from scavenger_openstack.nova import notifier
from scavenger_openstack.nova import tags

VARIABLE = 'SCAVENGER_WATCHED'
"""Names the directory of the files below, in nova-compute's environment."""

CALLS, RAISE = 'calls', 'raise'
"""A line for each call; while the second is there, our code raises."""

NS_PER_S = 1e9


class Call(NamedTuple):
    """One notification: how long Nova was kept, without the time that its
    thread was ready to run and had no CPU."""

    event: str
    instance: str
    blocked_s: float
    raised: str


class Driver(notifier.Driver):
    """Ours; it runs in nova-compute."""

    def __init__(self, *words: Any, **named: Any) -> None:
        super().__init__(*words, **named)
        self._directory = pathlib.Path(os.environ[VARIABLE])
        for name in ('event', 'tag'):
            setattr(tags, name, _raising(getattr(tags, name),
                                         self._directory / RAISE))

    def notify(self, ctxt: Any, msg: Any, priority: Any, retry: Any) -> None:
        raised = ''
        waited_s = _waited_s()
        began = time.monotonic()
        try:
            super().notify(ctxt, msg, priority, retry)
        except BaseException as exc:
            raised = repr(exc)
            raise
        finally:
            took_s = time.monotonic() - began
            found = Call(msg['event_type'], _instance(msg['payload']),
                         took_s - (_waited_s() - waited_s), raised)
            with open(self._directory / CALLS, 'a') as file:
                file.write(json.dumps(found) + '\n')


def _raising(function: Any, path: pathlib.Path) -> Any:
    """The same function, which raises while there is such a file."""
    def call(*words: Any, **named: Any) -> Any:
        if path.exists():
            raise RuntimeError('a fault of a test')
        return function(*words, **named)
    return call


def _instance(payload: Any) -> str:
    """Which instance a notification is about, '' for no instance."""
    data = payload.get('nova_object.data', payload)
    return str(data.get('uuid', data.get('instance_id', '')))


def _waited_s() -> float:
    """How long this thread has been ready to run and had no CPU."""
    with open('/proc/thread-self/schedstat') as file:
        return int(file.read().split()[1]) / NS_PER_S
