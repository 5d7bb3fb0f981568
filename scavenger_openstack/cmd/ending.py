# SPDX-License-Identifier: Apache-2.0

"""How a command ends: its exit code, and one line when something failed."""

from __future__ import annotations

from collections.abc import Callable
import io
import os
import select
import sys

from scavenger_openstack import errors
from scavenger_openstack.types import printable

FAILED = 1
USAGE = 2
INTERRUPTED = 130
"""What a shell shows for a command that SIGINT has ended."""


def code(program: str, work: Callable[[], int], extra: str = 'control'
         ) -> int:
    """Do ``work`` and return its exit code.

    What stops it goes to standard error: :data:`USAGE` when the
    configuration, the command line or what is installed cannot work, with
    one line for each finding, :data:`FAILED` for what else is expected to go
    wrong, with one line.  A fault of ours stays a traceback.  It is no failure
    that nothing reads the output to its end.

    :param extra: what installs the packages that the program needs
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Tenants choose names: of characters that the terminal may lack.
        sys.stdout.reconfigure(errors='backslashreplace')
    try:
        try:
            exit_code = work()
        except SystemExit as exc:       # help or the version was printed
            if exc.code:
                raise
            exit_code = 0
        if sys.stdout is not None:
            sys.stdout.flush()
        return exit_code
    except errors.ConfigError as exc:
        for finding in exc.args:
            print_line(program, finding)
        return USAGE
    except ModuleNotFoundError as exc:
        missing = errors.missing_package(exc, extra)
        if not missing:
            raise
        print_line(program, missing)
        return USAGE
    except (errors.ScavengerError, OSError) as exc:
        if isinstance(exc, BrokenPipeError) and _is_unread():
            return unread()
        print_line(program, sentence(exc))
        _drop_output()
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def sentence(exc: BaseException) -> str:
    """Return what an exception says, in one line without control
    characters."""
    if isinstance(exc, OSError) and exc.strerror:
        return _line(f'{exc.filename}: {exc.strerror}' if exc.filename
                     else exc.strerror)
    return _line(str(exc) or type(exc).__name__)


def print_line(program: str, text: str) -> None:
    """Print one line to standard error."""
    if sys.stderr is not None:
        print(f'{program}:', _line(text), file=sys.stderr)


def unread() -> int:
    """The reader of our output has ended: the rest is not wanted."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _is_unread() -> bool:
    """Whether the reader of our output has ended."""
    if sys.stdout is None:
        return False
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _drop_output() -> None:
    """Python shall not try once more, at its end, what has failed."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        unread()


def _line(text: str) -> str:
    return '\n'.join(map(printable, text.split('\n'))).replace('\n', ' ')
