# SPDX-License-Identifier: Apache-2.0

"""The command line of ``scavenger-restore``.  Standard library only."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

STATE_DIR = '/run/scavenger'
STOP_FILE = '/var/lib/scavenger/stop'


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
