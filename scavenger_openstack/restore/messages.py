# SPDX-License-Identifier: Apache-2.0


"""What ``scavenger-restore`` says: lines for people, and words for systemd.

Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable
import os
import socket
import sys


class Say:
    """Lines for the operator: events always, a problem once."""

    def __init__(self, out: Callable[[str], object]) -> None:
        self.out = out
        self.problems: dict[str, str] = {}
        self.refused = self.unread = 0

    def event(self, name: str, text: str) -> None:
        self.problems.pop(name, None)
        self.out(text)

    def forget(self) -> None:
        """No lease is left: what was said of them may be said again."""
        self.problems = {name: text for name, text in self.problems.items()
                         if name in ('watcher', 'state', 'threads')}

    def problem(self, name: str, text: str) -> None:
        if self.problems.get(name) != text:
            self.problems[name] = text
            self.out(text)


def line(text: str) -> None:
    shown = ''.join(    # tenants choose names, terminals obey
        c if c.isprintable() else c.encode('unicode_escape').decode()
        for c in text)
    try:
        print('scavenger-restore:', shown, file=sys.stderr, flush=True)
    except OSError:
        pass                # a full disk must not keep us from restoring


def notify(message: bytes) -> None:
    """Tell systemd, if it asked."""
    where = os.environ.get('NOTIFY_SOCKET', '')
    if not where:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.sendto(message, '\0' + where[1:]
                        if where.startswith('@') else where)
    except OSError:
        pass                # no descriptor is left: systemd waits for a while


def starting() -> None:
    """Tell systemd that the start goes on: to restore what an earlier agent
    left takes a second for each VM that hangs, and there may be many."""
    notify(b'EXTEND_TIMEOUT_USEC=60000000')
