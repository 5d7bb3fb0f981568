# SPDX-License-Identifier: Apache-2.0


"""The watcher's pause: what ends it.

Standard library only, like all that ``scavenger-restore`` runs on.
"""

from __future__ import annotations

from collections.abc import Callable
import contextlib
import ctypes
import fcntl
import os
import select
import struct
import time

from scavenger_openstack.restore.files import FILE
from scavenger_openstack.restore.records import now_s
from scavenger_openstack.restore.state_directory import StateDir
from scavenger_openstack.restore import watcher

POLL_S = 0.25
"""Where the kernel does not tell, what can make a lease due is looked at so
often."""
QUIET_S = 5.0
"""A whole pass is made so often when nothing makes a lease due."""

SLICE_S = watcher.BEAT_S + 0.02
"""Where it tells: a beat is due whenever this has passed."""

# inotify(7)
_CLOSED = 0x08          # after it was open for writing, as the agent's lock is
_MADE = 0x80 | 0x100    # moved to there, created
_GONE = 0x400 | 0x800   # deleted, moved away
_DIRECTORY = 0x40000000
_EVENT = struct.Struct('iIII')
_LIBC = ctypes.CDLL(None, use_errno=True)

_State = tuple[bool, int, int]


class Pause:
    """The pause after a pass that found nothing due.

    A pass opens, locks and reads a dozen files.  Here only what can make a
    lease due is followed: the agent ends or frees its lock, the leases run
    out, the stop file appears, the state directory is another one, and, while
    there is no lease, the first one is written.  The kernel tells (pidfd,
    inotify); to wake up costs far more than to look, so each wake-up counts.
    """

    def __init__(self, state: StateDir, stop_file: str, signals: int = -1
                 ) -> None:
        """:param signals: a descriptor that can be read after a signal"""
        self._state = state
        self._stop_file = os.path.abspath(stop_file)
        self._signals = signals
        self._heartbeat = os.path.join(state.path, 'heartbeat')
        self._leases = os.path.join(state.path, 'leases')
        self._marked: _State = (False, 0, 0)
        self._woken = False

    def mark(self) -> None:
        """Record the state before a pass: later changes end the pause."""
        self._marked = self._read()

    def wait(self, seconds: float, turn: Callable[[], bool]) -> None:
        """Wait until a lease may be due, ``seconds`` at most.

        :param turn: called at each look; what is true ends the pause
        """
        state = self._state
        end_s = time.monotonic() + seconds
        with contextlib.ExitStack() as opened:
            poller = select.poll()
            pidfd = lock = -1
            try:
                if state.held:
                    lock = os.open('lock', os.O_RDONLY | FILE,
                                   dir_fd=state.fd)
                    opened.callback(os.close, lock)
                if state.pid and state.pid != state.died:
                    pidfd = os.pidfd_open(state.pid)
                    opened.callback(os.close, pidfd)
                    poller.register(pidfd, select.POLLIN)
            except OSError:
                pass            # of another PID namespace: its lock tells
            if self._signals >= 0:
                poller.register(self._signals, select.POLLIN)
            slice_s = POLL_S
            changes = self._changes()
            if changes >= 0:
                opened.callback(os.close, changes)
                poller.register(changes, select.POLLIN)
                slice_s = SLICE_S
            if self._woken:     # the kernel tells before a lock is free
                slice_s, end_s = POLL_S, time.monotonic() + POLL_S
            self._woken = False
            while not (turn() or 0 < state.expires_s <= now_s()
                       or time.monotonic() >= end_s
                       or self._read() != self._marked
                       or lock >= 0 and _free(lock)):
                rest_s = min(slice_s, end_s - time.monotonic())
                ahead_s = state.expires_s - now_s()
                if ahead_s > 0:
                    rest_s = min(rest_s, ahead_s + 0.001)
                woken = [fd for fd, _ in poller.poll(max(0.0, rest_s) * 1000)]
                if pidfd in woken:
                    state.died = state.pid
                if woken and (woken != [changes] or _ended(changes)):
                    self._woken = True
                    return

    def _changes(self) -> int:
        """An inotify descriptor, -1 when the kernel cannot tell all."""
        fd = _LIBC.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if fd < 0:
            return -1
        state = self._state
        followed = {state.path: _GONE}
        if state.held:
            followed[f'{state.path}/lock'] = _CLOSED | _GONE
            followed[self._heartbeat] = _GONE
        if not state.found:
            followed[self._leases if os.path.isdir(self._leases)
                     else state.path] = _MADE | _GONE
        followed[os.path.dirname(self._stop_file)] = _MADE | _GONE
        for path, mask in followed.items():
            if _LIBC.inotify_add_watch(fd, os.fsencode(path), mask) < 0:
                os.close(fd)
                return -1
        return int(fd)

    def _read(self) -> _State:
        heartbeat = leases = 0
        try:
            heartbeat = os.stat(self._heartbeat).st_ino
            if not self._state.found:
                leases = os.stat(self._leases).st_mtime_ns
        except OSError:
            pass                # not there
        return os.path.exists(self._stop_file), heartbeat, leases


def _ended(changes: int) -> bool:
    """Whether more has happened than that files were made: an agent replaces
    its status each second, where the stop file may be made."""
    data, at = os.read(changes, 65536), 0
    while at < len(data):
        _, mask, _, size = _EVENT.unpack_from(data, at)
        at += _EVENT.size + size
        if mask & ~(_MADE | _DIRECTORY):
            return True
    return False


def _free(lock: int) -> bool:
    """Whether no agent holds it; it is not kept."""
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    fcntl.flock(lock, fcntl.LOCK_UN)
    return True
