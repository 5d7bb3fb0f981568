# SPDX-License-Identifier: Apache-2.0

"""The program that the agent starts to measure a profile on this host.

It ends, and removes what it made, when the agent dies or shows no sign of
life for a lease, when the stop file is there, and when its time is over.
What it prints is the profile, in JSON.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from collections.abc import Sequence
import json
import os
import pathlib
import sys
from typing import Any

from scavenger_openstack import errors
from scavenger_openstack.ibench import catalogue
from scavenger_openstack.ibench.host import session
from scavenger_openstack.ibench.interrupt import Interrupt
from scavenger_openstack.ibench.interrupt import Interrupted
from scavenger_openstack.ibench.profile import whole
from scavenger_openstack.ibench.profile import wish
from scavenger_openstack.restore import records

EXIT_ENDED = 3
"""It was ended before it had measured all."""

LONG_REPEATS = 3
"""Of each SoI in the long form: fewer than on a host without tenants."""

STDIN = 0
"""A pipe over which the agent shows that it is alive."""

Measure = Callable[[argparse.Namespace, Interrupt],
                   dict[str, Any]]


class Supervision(Interrupt):
    """Ends an injection as soon as the agent, the kill switch or the budget
    wants that: :meth:`check` is called ten times a second."""

    def __init__(self, stop_file: pathlib.Path, lease_s: float,
                 seconds: float) -> None:
        super().__init__()
        self.why = ''
        self._stop_file = stop_file
        self._lease_s = lease_s
        self._alive_s = records.now_s()
        self._until_s = self._alive_s + seconds
        os.set_blocking(STDIN, False)

    def check(self) -> None:
        """:raises Interrupted: it is to end; :attr:`why` says why."""
        self.why = self.why or self._why()
        if self.why:
            raise Interrupted
        super().check()

    def _why(self) -> str:
        try:
            if not os.read(STDIN, 4096):
                return 'the agent has ended it, or has ended'
            self._alive_s = records.now_s()
        except BlockingIOError:
            pass
        if self._stop_file.exists():
            return 'the stop file is there'
        if records.now_s() - self._alive_s > self._lease_s:
            return f'no sign of life of the agent for {self._lease_s:g} s'
        if records.now_s() >= self._until_s:
            return 'its time is over'
        return ''


def main(argv: Sequence[str] | None = None,
         measure: Measure | None = None) -> int:
    """Measure, print, and return the exit status.

    :param measure: what measures, as :func:`measure_profile`
    """
    options = _parser().parse_args(argv)
    supervision = Supervision(options.stop_file, options.lease,
                              options.seconds)
    try:
        if options.clean:
            session.remove_leftovers()
            return 0
        supervision.check()
        profile = (measure or measure_profile)(options, supervision)
    except Interrupted:
        print(supervision.why or 'a signal has ended it', file=sys.stderr)
        return EXIT_ENDED
    except errors.ScavengerError as exc:
        print(exc, file=sys.stderr)
        return 1
    print(json.dumps(profile, separators=(',', ':')))
    return 0


def measure_profile(options: argparse.Namespace,
                    interrupt: Interrupt) -> dict[str, Any]:
    """Return the profile of the workload that the options name, by its own
    signal.

    :raises ScavengerError: it cannot be measured here.
    :raises Interrupted: it is to end.
    """
    is_short = options.form == 'short'
    document, _ = whole.make_profile(wish.Wish(
        sois=catalogue.SOIS, repeats=1 if is_short else LONG_REPEATS,
        short=is_short, cgroup=options.cgroup, instance=options.instance),
        interrupt, show=lambda words: None)
    return document


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog='supervised')
    parser.add_argument('--cgroup')
    parser.add_argument('--instance')
    parser.add_argument('--form', choices=('long', 'short'), default='long')
    parser.add_argument('--seconds', type=float, default=60.0)
    parser.add_argument('--lease', type=float, default=15.0)
    parser.add_argument('--stop-file', type=pathlib.Path,
                        default=pathlib.Path('/nonexistent'))
    parser.add_argument('--clean', action='store_true')
    return parser


if __name__ == '__main__':
    sys.exit(main())
