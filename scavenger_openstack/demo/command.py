# SPDX-License-Identifier: Apache-2.0

"""``scavenger-demo``: its options and its entry point."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import json
import os
import pathlib
import sys

from scavenger_openstack import command_line
from scavenger_openstack.demo import act
from scavenger_openstack.demo import report
from scavenger_openstack.demo.stage.stage import clean
from scavenger_openstack.demo import watch
from scavenger_openstack import errors
from scavenger_openstack.ibench.interrupt import Interrupt
from scavenger_openstack.ibench.interrupt import Interrupted

EXIT_INTERRUPTED = 130


def parser() -> command_line.Parser:
    options = command_line.program(
        'scavenger-demo',
        description='Shows in about two minutes what the agent does: a '
                    'service alone, then beside a hog, then under the agent, '
                    'which names the hog and limits it.  Everything happens '
                    'on two CPUs, in cgroups of its own and a directory of '
                    'its own in /run, which it removes at the end; '
                    'kernel.task_delayacct is 1 meanwhile, for the whole '
                    'machine.  On cgroup v2 it enables controllers in '
                    'cgroup.subtree_control of the root, where they stay; in '
                    'a container the other processes are in a cgroup of its '
                    'own while it runs.',
        epilog='Exit code: 0 passed, 1 failed, 2 wrong usage, 3 '
               'inconclusive: other programs used the CPUs; 130 '
               'interrupted.')
    options.add_argument('--keep', action='store_true',
                         help='start a control plane, too, show at the end '
                              'what "openstack antagonist list" and '
                              '"openstack interference incident show" print, '
                              'and go on until Ctrl-C')
    options.add_argument('--seed', default='1',
                         help='makes the requests; the same seed, the same '
                              'requests (default 1)')
    options.add_argument('--output', type=pathlib.Path, metavar='DIR',
                         default=pathlib.Path('demo'),
                         help='where result.json and report.html go '
                              '(default: demo)')
    options.add_argument('--json', action='store_true',
                         help='print the result as JSON instead of the table')
    options.add_argument('--picture', type=pathlib.Path, metavar='FILE.svg',
                         help='run nothing; draw the result that is in '
                              '--output')
    options.add_argument('--clean', action='store_true',
                         help='run nothing; remove what a killed demo left, '
                              'and end one that was started with --keep')
    options.add_argument('--watch-foreground', metavar='CGROUP',
                         help='run nothing; show what the agent would do for '
                              'the cgroups below this one, touching nothing')
    options.add_argument('--watch-background', metavar='CGROUP',
                         help='the batch work beside it')
    options.add_argument('--seconds', type=_positive, default=30.0,
                         metavar='N', help='how long to watch (default 30)')
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return the exit code.

    :raises ScavengerError: the reason why it stopped, in one line
    :raises OSError: likewise
    """
    parse = parser()
    options = command_line.parse(
        parse, list(sys.argv[1:] if argv is None else argv))
    if bool(options.watch_foreground) != bool(options.watch_background):
        parse.error('--watch-foreground and --watch-background go together')
    try:
        if options.picture:
            return _picture(options)
        interrupt = Interrupt()
        if options.watch_foreground:
            return watch.watch(options.watch_foreground,
                               options.watch_background,
                               seconds=options.seconds,
                               interrupt=interrupt)
        if os.geteuid() != 0:
            raise errors.DriverError('needs root, since it makes cgroups; '
                                     'use sudo')
        if options.clean:
            return _clean()
        return act.play(options, interrupt)
    except Interrupted:
        print('scavenger-demo: interrupted; all that it made is removed, '
              'except what a line above names', file=sys.stderr)
        return EXIT_INTERRUPTED


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e6:
        raise ValueError(text)
    return value


_positive.__name__ = 'positive number'      # argparse prints it


def _clean() -> int:
    removed, playing, problems = clean()
    for name in removed:
        print(f'removed what demo {name} left')
    for name in playing:
        print(f'demo {name} is still running; left alone')
    for problem in problems:
        print(f'scavenger-demo: {problem}', file=sys.stderr)
    if not removed and not playing and not problems:
        print('nothing to remove')
    return 1 if problems else 0


def _picture(options: argparse.Namespace) -> int:
    source = options.output / 'result.json'
    try:
        drawn = report.svg(json.loads(source.read_text()))
    except (OSError, *errors.MISREAD) as exc:
        raise errors.ScavengerError(
            f'{source}: no result of the demo ({exc}); run it first, or '
            'say where the result is with --output') from exc
    options.picture.write_text(drawn + '\n')
    print(f'{options.picture} drawn from {source}')
    return 0
