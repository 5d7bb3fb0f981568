# SPDX-License-Identifier: Apache-2.0

"""``scavenger-demo``: its options, and what it does with them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import json
import os
import pathlib
import sys
from typing import Any

from scavenger_openstack import command_line
from scavenger_openstack.demo.filling import act as filling
from scavenger_openstack.demo.filling import interval
from scavenger_openstack.demo.filling import phases
from scavenger_openstack.demo.filling import picture
from scavenger_openstack.demo.stage import disk
from scavenger_openstack.demo.stage import stage as stage_
from scavenger_openstack.demo import watch
from scavenger_openstack.demo.who import act as who
from scavenger_openstack.demo.who import report as who_report
from scavenger_openstack import errors
from scavenger_openstack.ibench import interrupt as interrupt_

LEAST_MEMORY_MIB = 1280
EXIT_INTERRUPTED = 130


def parser() -> command_line.Parser:
    found = command_line.program(
        'scavenger-demo',
        description='Plays a latency-sensitive service beside batch work in '
                    'six ways and shows what the service feels and what '
                    'the batch work gets done; --who shows who disturbs '
                    'whom.  Everything happens in '
                    'cgroups and network namespaces of its own, which it '
                    'removes at the end, and in directories of its own in '
                    f'/run and {disk.ROOM}; --who also makes a loop device on '
                    f'a file of {disk.SIZE_MIB} MiB in {disk.ROOM} '
                    f'({disk.SPARE * disk.SIZE_MIB} MiB have to be free), '
                    'and has kernel.task_delayacct set to 1, for the whole '
                    'machine, while it plays.  On cgroup v2 it enables '
                    'controllers in cgroup.subtree_control of the root, '
                    'where they stay; in a container the other processes '
                    'are in a cgroup of its own while it plays.',
        epilog='Exit code: 0 passed (or nothing was to be judged), 1 failed, '
               '2 wrong usage, 3 inconclusive: the machine was not quiet, or '
               'the figures scatter around the bar; 130 interrupted.')
    found.add_argument('--quick', action='store_true',
                       help='1 round of short phases, then turns: about 4 '
                            'minutes, at most 9 when the machine is busy '
                            '(default: 4 rounds of long ones, 17 to 25 '
                            'minutes)')
    found.add_argument('--who', action='store_true',
                       help='play the second act instead, about 4 minutes: '
                            'who did it?  Batch jobs disturb two services '
                            'by CPU and by disk; the product has to find '
                            'out which, and limit them')
    found.add_argument('--keep', action='store_true',
                       help='with --who: show at the end what "openstack '
                            'antagonist list" and "openstack interference '
                            'incident show" print, and play on, with the '
                            'control plane, until Ctrl-C')
    found.add_argument('--rounds', type=_positive(int), metavar='N',
                       help='rounds to play')
    found.add_argument('--turns', type=_positive(int), metavar='N',
                       help='pairs of turns at most; the verdict on latency '
                            'rests on them, and below '
                            f'{interval.LEAST} nothing is decided '
                            f'(default {filling.FULL.turns}, with '
                            f'--quick {filling.QUICK.turns})')
    found.add_argument('--phase-seconds', type=_positive(float),
                       metavar='S', help='measured seconds per phase; with '
                                         '--who, those in which jobs '
                                         f'disturb (default {who.SECONDS:g})')
    found.add_argument('--only', metavar='PHASES', type=_names,
                       help='phases to play (default: all), with commas '
                            'between: '
                            + ', '.join(phases.PHASES))
    found.add_argument('--memory', type=_positive(int), metavar='MIB',
                       default=2048,
                       help='memory of the host that is played, in MiB '
                            '(default 2048)')
    found.add_argument('--seed', default='1',
                       help='makes the requests; the same seed, the same '
                            'requests (default 1)')
    found.add_argument('--output', type=pathlib.Path, metavar='DIR',
                       default=pathlib.Path('demo'),
                       help='where result.json and report.html go, with '
                            '--who who.json and who.html (default: demo)')
    found.add_argument('--json', action='store_true',
                       help='print the result as JSON instead of the table')
    found.add_argument('--picture', type=pathlib.Path, metavar='FILE.svg',
                       help='play nothing; draw the result that is in '
                            '--output')
    found.add_argument('--clean', action='store_true',
                       help='play nothing; remove what a killed demo left, '
                            'and end one that is kept')
    found.add_argument('--watch-foreground', metavar='CGROUP',
                       help='play nothing; show what the agent would do for '
                            'the cgroups below this one, touching nothing')
    found.add_argument('--watch-background', metavar='CGROUP',
                       help='the batch work beside it')
    found.add_argument('--seconds', type=_positive(float), default=30.0,
                       metavar='N', help='how long to watch (default 30)')
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the options say; the exit code.

    :raises ScavengerError: what stopped it, in one line
    :raises OSError: likewise
    """
    parse = parser()
    options = command_line.parse(
        parse, list(sys.argv[1:] if argv is None else argv))
    if bool(options.watch_foreground) != bool(options.watch_background):
        parse.error('--watch-foreground and --watch-background go together')
    if options.who:
        for name in ('quick', 'rounds', 'turns', 'only'):
            if getattr(options, name):
                parse.error(f'--{name} is for the first act; the second, '
                            '--who, takes --phase-seconds')
    elif options.keep:
        parse.error('--keep is for the second act, --who')
    if options.memory < LEAST_MEMORY_MIB:
        parse.error(f'--memory: the service and the batch work need '
                    f'{LEAST_MEMORY_MIB} MiB')
    try:
        if options.picture:
            return _picture(options)
        interrupt = interrupt_.Interrupt()
        if options.watch_foreground:
            return watch.watch(options.watch_foreground,
                               options.watch_background,
                               seconds=options.seconds,
                               interrupt=interrupt)
        if os.geteuid() != 0:
            raise errors.DriverError('needs root, since it makes cgroups '
                                     'and network namespaces; use sudo')
        if options.clean:
            return _clean()
        return (who if options.who else filling).play(options, interrupt)
    except interrupt_.Interrupted:
        print('scavenger-demo: interrupted; all that it made is removed, '
              'except what a line above names', file=sys.stderr)
        return EXIT_INTERRUPTED


def _positive(kind: type[int] | type[float]) -> Any:
    def convert(text: str) -> float:
        value = kind(text)
        if not 0 < value < 1e6:
            raise ValueError(text)
        return value
    convert.__name__ = f'positive {kind.__name__}'
    return convert


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(',') if name.strip()]
    unknown = [name for name in names if name not in phases.PHASES]
    if unknown or not names:
        raise argparse.ArgumentTypeError(
            f'no phase {", ".join(unknown) or "named"}; there are '
            + ', '.join(phases.PHASES))
    return [name for name in phases.PHASES if name in names]


def _clean() -> int:
    removed, playing, problems = stage_.clean()
    for name in removed:
        print(f'removed what demo {name} left')
    for name in playing:
        print(f'demo {name} is still playing; left alone')
    for problem in problems:
        print(f'scavenger-demo: {problem}', file=sys.stderr)
    if not removed and not playing and not problems:
        print('nothing to remove')
    return 1 if problems else 0


def _picture(options: argparse.Namespace) -> int:
    source = options.output / ('who.json' if options.who
                               else 'result.json')
    try:
        found = json.loads(source.read_text())
        drawn = (who_report.svg(found['record']) if options.who
                 else picture.svg(found))
    except (OSError, *errors.MISREAD) as exc:
        raise errors.ScavengerError(
            f'{source}: no result of the demo ({exc}); play it first, or '
            'say where the result is with --output') from exc
    options.picture.write_text(drawn + '\n')
    print(f'{options.picture} drawn from {source}')
    return 0
