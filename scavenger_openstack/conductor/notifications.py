# SPDX-License-Identifier: Apache-2.0

"""Sends what has happened to the message bus, each once, in its order.

When a conductor dies between sending and deleting, the next one sends that
message again, with the same ``message_id``.
"""

from __future__ import annotations

from collections.abc import Callable
import functools
from typing import Protocol

from scavenger_openstack.conductor import leader
from scavenger_openstack.db import connect
from scavenger_openstack.db.resources import notifications
from scavenger_openstack.text import iso

CLAIM = 'notifications'
EVERY_S = 1.0

AT_ONCE = 100
"""Messages that are read from the database at a time."""


class Notifier(Protocol):
    """The edge to the message bus: :class:`.rpc.Notifier`."""

    def send(self, event: str, message_id: str, time: str,
             payload: dict[str, object]) -> None:
        """Send one notification.

        :raises Unreachable: the bus does not take it now
        """


class Sender:
    """Sends what waits, and deletes each once it was sent."""

    def __init__(self, engine: connect.Engine, notifier: Notifier) -> None:
        self._engine = engine
        self._notifier = notifier

    def turn(self, still: Callable[[], None]) -> None:
        """Send all that waits.

        :param still: see :class:`.leader.Leader`
        :raises Unreachable: the bus is away; what waits is kept
        :raises DatabaseError: the database cannot be used
        """
        while True:
            waiting = connect.read(self._engine, functools.partial(
                notifications.oldest, limit=AT_ONCE))
            for row in waiting:
                still()
                self._notifier.send(
                    row['event'], row['uuid'], iso(row['time_s']),
                    row['payload'])
                connect.retried(self._engine, functools.partial(
                    notifications.remove, ids=[row['id']]), idempotent=True)
            if len(waiting) < AT_ONCE:
                return


def make_leader(engine: connect.Engine, notifier: Notifier, holder: str,
                clock: Callable[[], float]) -> leader.Leader:
    """Return what sends notifications in one of all conductors.

    :param holder: and ``clock``: see :class:`.leader.Leader`
    """
    return leader.Leader(
        engine, CLAIM, holder, clock, Sender(engine, notifier).turn,
        every_s=EVERY_S, what='notifications are not sent')
