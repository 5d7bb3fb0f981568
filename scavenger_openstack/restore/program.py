# SPDX-License-Identifier: Apache-2.0


"""Restore originals: the program that must work when nothing else does.

``scavenger-restore`` reads the leases that an agent left in its state
directory and restores the original of each knob.  It runs on the standard
library and the modules beside it (:mod:`.restoration`, :mod:`.actions`,
:mod:`.records`, :mod:`.state_directory`, :mod:`.watcher`, :mod:`.abilities`,
:mod:`.scheduling`), and needs no disk space.

What holds ``flock(lock)`` knows that no agent lives.  A lease is deleted
only then: an agent that was stopped may still write once when it is
continued, so its knobs are looked at again and again until it is dead or
has removed its limits itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from collections.abc import Sequence
import faulthandler
import io
import os
import signal
import sys
import time
from types import FrameType
from typing import NoReturn

from scavenger_openstack.restore.beat import Beat
from scavenger_openstack.restore import messages
from scavenger_openstack.restore.messages import Say
from scavenger_openstack.restore.pause import Pause
from scavenger_openstack.restore.pause import POLL_S
from scavenger_openstack.restore.pause import QUIET_S
from scavenger_openstack.restore.records import Lease
from scavenger_openstack.restore.records import now_s
from scavenger_openstack.restore import restoration
from scavenger_openstack.restore import scheduling
from scavenger_openstack.restore.state_directory import StateDir
from scavenger_openstack.restore.state_directory import UNREADABLE_POLLS

STATE_DIR = '/run/scavenger'
STOP_FILE = '/var/lib/scavenger/stop'


MAX_PAUSE_S = 2.0

WORK_SHARE = 0.1
"""So much of its time the watcher works at leases that have to stay, unless
that would take pauses above the longest."""

RETRIES = 20

RETRY_S = 0.1

BUSY_TRIES = 50
"""So often, :data:`RETRY_S` apart, the lock is tried that no agent holds."""

BUSY = ('a process that is no agent, such as another scavenger-restore, is at '
        'work here: try again when it has ended')


def take_signals(end: Callable[[int], object], *, with_parent: bool) -> None:
    """Take the signals from now on; in the main thread.

    SIGTERM and SIGINT end the watcher.  SIGHUP does nothing, since no options
    are read again, except on a terminal that is closed: that ends it, too.
    SIGUSR2 has C code write the stack of this thread to standard error, also
    when it hangs.

    :param end: is called with the signal that is to end the watcher
    :param with_parent: a terminal is the parent's: it ends, and we after it
    """
    def ends(number: int, frame: FrameType | None) -> None:
        end(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ends)
    if (os.isatty(0) and not with_parent
            and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN):
        signal.signal(signal.SIGHUP, ends)
    else:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        faulthandler.register(signal.SIGUSR2, file=sys.stderr,
                              all_threads=False)
    except (io.UnsupportedOperation, AttributeError, ValueError,
            RuntimeError):
        # Standard error is no file or closed: that must not end the watcher.
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)


class _Parser(argparse.ArgumentParser):
    """One line for what is wrong."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f'{self.prog}: {message}; see {self.prog} --help\n')


class _Version(argparse.Action):
    """Looked for only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from scavenger_openstack import version
        print(parser.prog, version())
        parser.exit()


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """
    :raises SystemExit: something is wrong, or help is printed.
    """
    parser = _Parser(
        prog='scavenger-restore', allow_abbrev=False,
        description='Restore what an agent has limited to what it was '
                    'before. Without an option: where the lease has run '
                    'out. It reads no configuration file.',
        epilog='Exit code: 0 no limit is left, 1 some limit is left or '
               'something failed, 2 wrong usage, 130 interrupted.')
    what = parser.add_mutually_exclusive_group()
    what.add_argument('--all', action='store_true',
                      help='restore everything; refused while an agent '
                           'runs, unless the stop file is there')
    what.add_argument('--watch', action='store_true',
                      help='stay, and restore whenever the agent dies, hangs '
                           'or is to stop: the watcher')
    parser.add_argument('--with-parent', type=int, metavar='PID',
                        help='with --watch: end when this process, which '
                             'started it, has ended and all is restored')
    parser.add_argument('--state-dir', default=STATE_DIR, metavar='DIR',
                        help='where the agent keeps its leases (default: '
                             '%(default)s)')
    parser.add_argument('--stop-file', metavar='FILE',
                        help='no limit is set while it exists (default: '
                             f'{STOP_FILE}; with another --state-dir '
                             'DIR/stop)')
    parser.add_argument('--version', action=_Version, nargs=0,
                        default=argparse.SUPPRESS,
                        help='print the version and end')
    options = parser.parse_args(argv)
    if options.with_parent is not None and not options.watch:
        parser.error('--with-parent goes with --watch')
    return options


def restore_due(state: StateDir, stop_file: str, say: Say, *,
                everything: bool = False, orphans: bool = False,
                progress: Callable[[], object] = bool) -> list[Lease]:
    """Restore what is due now; return what did not come back.

    Always due: leases that have run out, and all while the stop file is
    there.  ``orphans`` are the leases of an agent that is dead.

    :raises OSError: the state directory cannot be used.
    """
    state.pid, state.expires_s = 0, 0.0
    state.held, state.due = False, True
    state.found = state.open() and state.has_leases()
    if not state.found:
        state.due, state.died = False, 0
        say.forget()
        return []
    lock = state.take('lock')

    def due() -> bool:
        return lock >= 0 or os.path.exists(stop_file) or state.expired()

    try:
        state.held = lock < 0
        state.pid = state.holder() if state.held else 0
        if not state.held:
            state.died = 0      # the next agent may get that process id
        if orphans and lock >= 0:
            why = 'no agent runs'
        elif everything:
            why = 'all limits are to be restored'
        elif os.path.exists(stop_file):
            why = f'the stop file {stop_file} is there'
        elif state.expired():
            why = (f'agent {state.pid} has not renewed its leases, its '
                   'limits are restored until it does' if lock < 0 else
                   'the leases have run out and no agent runs')
        else:
            say.problems.pop('why', None)
            state.due = False
            return []
        say.problem('why', why)
        return restoration.restore_all(
            state.fd, say, delete=lock >= 0, progress=progress, due=due)
    finally:
        if lock >= 0:
            os.close(lock)


def once(state: StateDir, stop_file: str, say: Say, *,
         everything: bool) -> int:
    """Restore once, with some patience; return the exit code.

    :raises OSError: the state directory cannot be used.
    """
    if everything and state.open() and not os.path.exists(stop_file):
        lock = _take_lock(state)
        if lock < 0:
            pid = state.holder()
            say.out(f'agent {pid} is running: stop it first, or have it stop '
                    f'by the file {stop_file}' if pid else
                    f'{state.path}: {BUSY}')
            return 1
        os.close(lock)
    for _ in range(RETRIES):
        left = restore_due(state, stop_file, say, everything=everything)
        busy = state.held and not (state.pid or state.due)
        if not (left or say.unread or busy
                or 0 < state.unreadable < UNREADABLE_POLLS):
            return _rest(state, say)
        time.sleep(RETRY_S)
    _rest(state, say)
    return 1


def _take_lock(state: StateDir) -> int:
    for _ in range(BUSY_TRIES):
        lock = state.take('lock')
        if lock >= 0 or state.holder():
            break
        time.sleep(RETRY_S)
    return lock


def _rest(state: StateDir, say: Say) -> int:
    """Say which limits are in force all the same; return the exit code."""
    count, refused = state.count('.json'), state.count('.refused')
    where = f'{state.path}/leases'
    if count and 'why' not in say.problems:
        say.out(f'limits in force: {count}, '
                + (f'held by agent {state.pid}, which runs; '
                   'scavenger-agent stop-all removes them' if state.pid else
                   BUSY if state.held else
                   'no agent runs, and their leases end in '
                   f'{state.expires_s - now_s():.0f} s; scavenger-restore '
                   '--all restores them now') + f' (state directory '
                f'{state.path})')
    else:
        count = 0
    if refused:
        say.out(f'records refused in {where}: {refused}; their limits '
                'may be in force: look at each *.refused there, '
                'restore its knob by hand, then delete it')
    return 1 if count or refused or say.refused else 0


def watch(state: StateDir, stop_file: str, say: Say, *,
          parent: int | None = None) -> int:
    """Restore what is due, again and again, until SIGTERM.

    :param parent: end when this process, our parent, has and all is restored
    """
    # Before any wait: what it restores late, others suffer from.
    scheduling.process()
    ending: list[int] = []
    take_signals(ending.append, with_parent=parent is not None)
    woken, wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wakes)
    beat, pause = Beat(state, say), Pause(state, stop_file, woken)

    def turn() -> bool:
        beat.turn()
        return (bool(ending) or parent not in (None, os.getppid())
                or not beat.settled)

    while True:
        last = bool(ending)
        pause.mark()
        began_s = time.monotonic()
        left: list[Lease] = []
        try:
            if state.watcher < 0 and state.open():
                state.watcher = _become_watcher(state)
                if state.watcher < 0:
                    say.out(f'another watcher holds {state.path}/'
                                  'watcher.lock: one is enough')
                    return 1
            say.problems.pop('watcher', None)
        except OSError as exc:
            say.problem('watcher', f'{state.path}: {exc}')
        try:
            left = restore_due(state, stop_file, say, orphans=True,
                               progress=beat.turn)
            say.problems.pop('state', None)
        except OSError as exc:
            say.problem('state', f'{state.path}: {exc}')
        beat.turn(passed=True)
        # With caps left, a parent that is about to end still needs us.
        if last and not (os.getppid() == parent
                         and state.has_leases()):
            return 1 if left else 0
        # A parent that is being killed is gone before its lock is free: what
        # it leaves is restored then.
        orphan = parent not in (None, os.getppid())
        if orphan and not left and not state.has_leases():
            return 0
        if state.watcher >= 0 and not (
                last or orphan or state.due or state.unreadable
                or not beat.settled
                or state.pid and state.pid == state.died):
            pause.wait(QUIET_S, turn)
            continue
        # A pass over hundreds of limits of VMs takes a second of libvirtd,
        # and is made again for as long as an agent hangs.  The lock of one
        # that has died is free at any moment.
        pause_s = POLL_S
        if left or state.pid not in (0, state.died):
            took_s = time.monotonic() - began_s
            pause_s = max(POLL_S, min(MAX_PAUSE_S, took_s / WORK_SHARE))
        state.wait(pause_s)


def _become_watcher(state: StateDir) -> int:
    for _ in range(5):      # what asks whether we are here has it a moment
        fd = state.take('watcher.lock')
        if fd >= 0:
            return fd
        time.sleep(0.05)
    return -1


def default_stop_file(state_dir: str) -> str:
    """Return the same path as the agent does: it survives a reboot where it
    can."""
    if os.path.realpath(state_dir) == os.path.realpath(STATE_DIR):
        return STOP_FILE
    return os.path.join(state_dir, 'stop')


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``scavenger-restore``; 0 no limit is left, 1 some is, 2 usage."""
    args = parse(argv)
    stop_file = args.stop_file or default_stop_file(args.state_dir)
    state, say = StateDir(args.state_dir), Say(messages.line)
    if args.watch:
        return watch(state, stop_file, say, parent=args.with_parent)
    try:
        return once(state, stop_file, say, everything=args.all)
    except OSError as exc:
        messages.line(f'{args.state_dir}: {exc.strerror or exc}')
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == '__main__':
    sys.exit(main())
