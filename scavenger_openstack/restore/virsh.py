# SPDX-License-Identifier: Apache-2.0


"""A ``virsh`` that stays, and is told its commands one by one.

To start virsh and to connect takes it some 30 ms, a command less than one.
So one is kept for the next steps, and ends when it has been idle for a
while.  When its commands end, because we have died, it ends by itself.

virsh reads its standard input as if it were typed: it writes a prompt and
all that it reads (readline), whether or not that is a terminal.  What a
command says stands between two marks that cannot be guessed, since a domain
holds text of tenants.  A mark is typed in another form than it is said in,
so what virsh repeats is none.  Errors come on standard error, and before the
last mark, which is a command of its own: a command that virsh does not
understand does not hold it up.  Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import os
import re
import select
import subprocess
import threading
import time

from scavenger_openstack.restore import grammar
from scavenger_openstack.restore import processes

CONNECT_S = 10.0
"""So long it may take to start virsh and to connect."""

IDLE_S = 10.0
"""A session that was not used for so long ends."""

KEPT = 4
"""So many idle sessions are kept for one URI."""

_ENVIRONMENT = {'PATH': '/usr/sbin:/usr/bin:/sbin:/bin', 'LC_ALL': 'C',
                'TERM': 'dumb',
                # Neither a history nor the keys of the user.
                'XDG_CACHE_HOME': '/dev/null', 'INPUTRC': '/dev/null'}
_NO_HISTORY = "error: Failed to create '/dev/null/"
_COMMAND = re.compile(r'[a-z][A-Za-z0-9 _.,:/=@-]*')
_CHUNK = 65536
MOST_BYTES = 1 << 26
"""What says more is not virsh, and must not fill the memory."""


class VirshError(Exception):
    """A command failed, or virsh has ended; the text is what it says."""


class Silent(VirshError):
    """There was no answer in time."""


class Session:
    """One running virsh.

    One that failed is of no use any more (``sound``): what it would say
    next may belong to what it was told before.

    :param uri: of the hypervisor; it has to be a valid one
    :raises VirshError: it cannot be run, or cannot connect in time.
    """

    def __init__(self, uri: str, connect_s: float = CONNECT_S) -> None:
        self.idle_since_s = 0.0
        self.sound = False
        self._token = os.urandom(8).hex()
        self._number = 0
        self._output, self._errors = bytearray(), bytearray()
        try:
            # In a session of its own: a Ctrl-C is not for it, and it finds
            # no terminal to ask for a password.
            self._process = subprocess.Popen(
                ['virsh', '-q', '-c', uri], env=_ENVIRONMENT, bufsize=0,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, start_new_session=True)
        except OSError as exc:
            raise VirshError(
                f'it cannot be run ({exc}): '
                + grammar.advice(exc, 'libvirt-clients')) from None
        assert (self._process.stdin and self._process.stdout
                and self._process.stderr)
        self._stdin = self._process.stdin
        os.set_blocking(self._stdin.fileno(), False)
        self._typing = b''
        self._files = {self._process.stdout.fileno(): self._output,
                       self._process.stderr.fileno(): self._errors}
        self._poll = select.poll()
        for fd in self._files:
            self._poll.register(fd, select.POLLIN)
        try:
            self.ask('echo', within_s=connect_s)
        except Silent:
            self.close()
            raise VirshError('nothing: it does not connect within '
                             f'{connect_s:.0f} s') from None
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The id of the process of virsh."""
        return self._process.pid

    def ask(self, command: str, *, within_s: float) -> str:
        """Return what virsh says to a command.

        :raises VirshError: the command failed, or virsh has ended.
        :raises Silent: there was no answer in time.
        :raises ValueError: the command holds what no command of ours does.
        """
        if not _COMMAND.fullmatch(command):
            raise ValueError(f'{command!r:.99} is no command')
        self.sound = False
        self._output.clear()
        self._errors.clear()
        self._number += 1
        typed, marks = zip(*((f'echo {self._token}""{mark}{self._number}',
                              f'{self._token}{mark}{self._number}'.encode())
                             for mark in ('from', 'to', 'end')), strict=True)
        # It may be more than fits in the pipe.
        self._typing = (f'{typed[0]}; {command}; {typed[1]}\n'
                        f'{typed[2]}\n').encode()
        self._poll.register(self._stdin, select.POLLOUT)
        self._read_until(marks[2], within_s)
        errors = self._complaints()
        _, begun, answer = self._output.partition(marks[0])
        answer, ended, _ = answer.partition(marks[1])
        if 'error:' in errors or not begun or not ended:
            raise VirshError(errors or f'nothing to {command!r:.99}')
        self.sound = True
        return answer.decode(errors='replace')

    def stale(self) -> bool:
        """Whether it has lost its connection, or its life, while idle."""
        with contextlib.suppress(VirshError):
            while self._read(0):
                pass
            return bool(self._errors)
        return True

    def close(self) -> None:
        """End it, whatever it is doing."""
        self.sound = False
        processes.end(self._process)

    def _read_until(self, mark: bytes, within_s: float) -> None:
        """Read until a mark is there, and all errors from before that."""
        until_s = time.monotonic() + within_s
        while mark not in self._output:
            if not self._read(until_s - time.monotonic()):
                raise Silent(f'no answer within {within_s:.0f} s')
        while self._read(0):
            pass

    def _read(self, within_s: float) -> bool:
        """Read once; return whether there was anything to read.

        :raises VirshError: virsh has ended, and all was read.
        """
        if within_s < 0:
            return False
        ready = self._poll.poll(within_s * 1e3)
        for fd, _ in ready:
            if fd == self._stdin.fileno():
                self._type()
                continue
            data = os.read(fd, _CHUNK)
            self._files[fd] += data
            if len(self._files[fd]) > MOST_BYTES:
                raise VirshError(f'more than {MOST_BYTES} bytes')
            if not data:
                self._poll.unregister(fd)
                del self._files[fd]
        if not self._files:
            raise VirshError(self._complaints() or 'nothing, it was ended')
        return bool(ready)

    def _type(self) -> None:
        try:
            self._typing = self._typing[os.write(self._stdin.fileno(),
                                                 self._typing):]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._typing = b''      # it says why it has ended
        if not self._typing:
            self._poll.unregister(self._stdin)

    def _complaints(self) -> str:
        text = self._errors.decode(errors='replace').partition(_NO_HISTORY)
        return ' '.join(text[0].split())


class Sessions:
    """Sessions that are kept, by their URI; for any number of threads.

    A hypervisor that did not let one in is left alone for as long as that
    took: many steps do not wait for one that hangs each by itself.  That, and
    the timeout of each command, stand in for the executor of the drivers,
    since a restorer has the standard library only and no threads to lose: of
    its own it has one timer, which ends idle sessions while no step runs.
    """

    def __init__(self, *, connect_s: float = CONNECT_S,
                 idle_s: float = IDLE_S) -> None:
        self._connect_s, self._idle_s = connect_s, idle_s
        self._mutex = threading.Lock()
        self._idle: dict[str, list[Session]] = {}
        self._refused: dict[str, tuple[float, str]] = {}
        self._timer: threading.Timer | None = None

    @contextlib.contextmanager
    def use(self, uri: str) -> Iterator[Session]:
        """A session that no other thread uses.

        It is kept if it is sound afterwards, and ended if not.

        :raises VirshError: there is none to be had.
        """
        session = self._take(uri) or self._start(uri)
        try:
            yield session
        finally:
            if not (session.sound and self._keep(uri, session)):
                session.close()

    def close(self) -> None:
        """End all that are idle."""
        with self._mutex:
            idle, self._idle = self._idle, {}
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        for session in sum(idle.values(), []):
            session.close()

    def _take(self, uri: str) -> Session | None:
        while True:
            with self._mutex:
                idle = self._idle.get(uri)
                if not idle:
                    return None
                session = idle.pop()
            if not session.stale():
                return session
            session.close()

    def _start(self, uri: str) -> Session:
        began_s = time.monotonic()
        with self._mutex:
            until_s, why = self._refused.pop(uri, (0.0, ''))
            if began_s < until_s:
                self._refused[uri] = until_s, why
                raise VirshError(why)
        try:
            return Session(uri, self._connect_s)
        except VirshError as exc:
            now_s = time.monotonic()
            with self._mutex:
                self._refused[uri] = 2 * now_s - began_s, str(exc)
            raise

    def _keep(self, uri: str, session: Session) -> bool:
        with self._mutex:
            idle = self._idle.setdefault(uri, [])
            if len(idle) >= KEPT or not self._watch():
                return False
            session.idle_since_s = time.monotonic()
            idle.append(session)
            return True

    def _watch(self) -> bool:
        if self._timer is None:
            timer = threading.Timer(self._idle_s, self._end_idle)
            timer.daemon = True
            timer.name = 'idle-sessions'
            try:
                timer.start()
            except RuntimeError:    # no more threads, or Python ends
                return False
            self._timer = timer
        return True

    def _end_idle(self) -> None:
        now_s = time.monotonic()
        with self._mutex:
            self._timer = None
            every, self._idle = self._idle, {}
            old = []
            for uri, idle in every.items():
                for session in idle:
                    if now_s - session.idle_since_s < self._idle_s:
                        self._idle.setdefault(uri, []).append(session)
                    else:
                        old.append(session)
            if self._idle and not self._watch():
                old += sum(self._idle.values(), [])
                self._idle = {}
        for session in old:
            session.close()


SESSIONS = Sessions()
"""Those of this process."""
