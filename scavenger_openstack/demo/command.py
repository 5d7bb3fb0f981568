# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""``scavenger-demo``: its options, and what it does with them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import json
import os
import pathlib
import sys
import time
from typing import Any
from typing import NamedTuple

from scavenger_openstack import command_line
from scavenger_openstack.demo.filling import interval
from scavenger_openstack.demo.filling import phases
from scavenger_openstack.demo.filling import picture
from scavenger_openstack.demo.filling import play
from scavenger_openstack.demo.filling import report
from scavenger_openstack.demo.filling import result as result_
from scavenger_openstack.demo.filling import turns as turns_
from scavenger_openstack.demo.filling import verdict
from scavenger_openstack.demo import interrupt as interrupt_
from scavenger_openstack.demo.load import load
from scavenger_openstack.demo import product
from scavenger_openstack.demo import progress as progress_
from scavenger_openstack.demo.stage import cgroups
from scavenger_openstack.demo.stage import disk
from scavenger_openstack.demo.stage import keep
from scavenger_openstack.demo.stage import stage as stage_
from scavenger_openstack.demo import table
from scavenger_openstack.demo import watch
from scavenger_openstack.demo.who import play as who
from scavenger_openstack.demo.who import report as who_report
from scavenger_openstack.demo.who import result
from scavenger_openstack import errors


class Length(NamedTuple):
    """How long a demo plays; ``turns`` are pairs of them at most."""

    rounds: int
    seconds: float
    repeats: int
    turns: int
    most_s: float


MIB = 2**20
LINK_BYTES_PER_S = 12.5e6
SPARE_MIB = 512
LEAST_MEMORY_MIB = 1280
QUICK = Length(rounds=1, seconds=12.0, repeats=3, turns=30, most_s=345.0)
FULL = Length(rounds=4, seconds=30.0, repeats=4, turns=45, most_s=1500.0)
WHO_S = 170.0
EXIT = {'passed': 0, 'failed': 1, 'inconclusive': 3, 'not judged': 0}
EXIT_INTERRUPTED = 130
NEXT = 'Next, who disturbs whom: sudo .venv/bin/scavenger-demo --who'
NEXT_WHO = ('Next, on your own host: doc/source/install/index.rst; in mode '
            'observe the agent limits nothing, and scavenger-agent status '
            'shows what it would do')


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
                            'minutes, at most 6 when the machine is busy '
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
                            f'(default {FULL.turns}, with '
                            f'--quick {QUICK.turns})')
    found.add_argument('--phase-seconds', type=_positive(float),
                       metavar='S', help='measured seconds per phase; with '
                                         '--who, those in which jobs '
                                         f'disturb (default {WHO_S:g})')
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
        return (_who if options.who else _play)(options, interrupt)
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
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise errors.ScavengerError(
            f'{source}: no result of the demo ({exc}); play it first, or '
            'say where the result is with --output') from exc
    options.picture.write_text(drawn + '\n')
    print(f'{options.picture} drawn from {source}')
    return 0


def _cpus() -> list[int]:
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise errors.DriverError('the demo needs two CPUs at least; here is '
                                 'one')
    return cpus


def _check_memory(memory_mib: int) -> None:
    for line in pathlib.Path('/proc/meminfo').read_text().splitlines():
        if line.startswith('MemAvailable:'):
            free_mib = int(line.split()[1]) // 1024
            if free_mib < memory_mib + SPARE_MIB:
                raise errors.DriverError(
                    f'{free_mib} MiB of memory are available, the demo '
                    f'needs {memory_mib + SPARE_MIB}; free some or lower '
                    '--memory')


def _play(options: argparse.Namespace,
          interrupt: interrupt_.Interrupt) -> int:
    length = QUICK if options.quick else FULL
    settings = play.Settings(
        names=options.only or list(phases.PHASES),
        rounds=options.rounds or length.rounds,
        seconds=options.phase_seconds or length.seconds, seed=options.seed,
        repeats=length.repeats)
    cgroups.check()
    cpus = _cpus()
    _check_memory(options.memory)
    options.output.mkdir(parents=True, exist_ok=True)
    records, pairs, problem = _records(
        options, settings, options.turns or length.turns, length.most_s,
        cpus, interrupt)
    found = result_.summary(records, {
        'rounds': settings.rounds, 'seconds': settings.seconds,
        'seed': settings.seed, 'cpus': len(cpus),
        'memory_bytes': options.memory * MIB,
        'link_bytes_per_s': LINK_BYTES_PER_S,
        'memory_window_s': product.MEMORY_WINDOW_S,
        'network_window_s': product.NETWORK_WINDOW_S}, pairs, problem)
    text = json.dumps(found, indent=1) + '\n'
    (options.output / 'result.json').write_text(text)
    (options.output / 'report.html').write_text(report.page(found, records))
    print(text if options.json else table.text(found))
    print(f'{options.output}/result.json and {options.output}/report.html '
          f'written\n{NEXT}', file=sys.stderr)
    return EXIT[found['verdict']]


def _who(options: argparse.Namespace,
         interrupt: interrupt_.Interrupt) -> int:
    """Play the second act; the exit code."""
    seconds = options.phase_seconds or WHO_S
    cgroups.check('blkio')
    cpus = _cpus()
    _check_memory(options.memory)
    if options.keep:
        keep.check()
    options.output.mkdir(parents=True, exist_ok=True)
    print('scavenger-demo: who did it?  About '
          f'{(who.QUIET_S + seconds + 15) / 60:.1f} minutes',
          file=sys.stderr)
    stage = stage_.Stage(memory_bytes=options.memory * MIB,
                         link_bytes_per_s=LINK_BYTES_PER_S, cpus=cpus,
                         groups=who.GROUPS)
    plane = keep.Plane(stage.directory) if options.keep else None
    act, code = None, None
    problems: list[str] = []
    try:
        stage.make()
        load.build(stage.programs)
        interrupt.check()
        if plane:
            plane.open()
        act = who.Who(stage, interrupt, seconds=seconds, seed=options.seed,
                      more_config=plane.config if plane else '')
        try:
            record = act.play()
        finally:
            if sys.stderr.isatty():
                print('\r\033[K', end='', file=sys.stderr)
        if plane:
            code = _told(record, options)
            _play_on(act, plane, interrupt, options)
    finally:
        _strike(act, stage, problems)
    record['knobs_left'] += problems
    if code is None:
        return _told(record, options)
    return EXIT['failed'] if problems else code


def _play_on(act: who.Who, plane: keep.Plane,
             interrupt: interrupt_.Interrupt, options: argparse.Namespace
             ) -> None:
    """Show what happened by the real commands, and play on until a signal
    comes."""
    try:
        act.start_again()
        plane.mark()
        plane.wait(interrupt)
        print(f'\n{plane.screen()}\n{plane.help()}', flush=True,
              file=sys.stderr if options.json else sys.stdout)
        act.play_on()
    except interrupt_.Interrupted:
        print('scavenger-demo: everything is removed now', file=sys.stderr)


def _told(record: dict[str, Any], options: argparse.Namespace) -> int:
    """Write the result of the second act; the exit code."""
    found = result.summary(record)
    text = json.dumps({'result': found, 'record': record}) + '\n'
    (options.output / 'who.json').write_text(text)
    (options.output / 'who.html').write_text(who_report.page(found, record))
    print(json.dumps(found, indent=1) if options.json
          else result.text(found))
    print(f'{options.output}/who.json and {options.output}/who.html '
          f'written\n{NEXT_WHO}', file=sys.stderr)
    return EXIT[found['verdict']]


def _strike(playing: play.Play | who.Who | None, stage: stage_.Stage,
            problems: list[str]) -> None:
    """Remove everything; what does not go is said and added."""
    if playing:
        try:
            playing.stop()
        except errors.DriverError as exc:
            problems.append(str(exc))
    problems += stage.remove()
    for problem in problems:
        print(f'scavenger-demo: {problem}; run scavenger-demo --clean',
              file=sys.stderr)


def _records(options: argparse.Namespace, settings: play.Settings,
             turns: int, most_s: float, cpus: list[int],
             interrupt: interrupt_.Interrupt
             ) -> tuple[list[dict[str, Any]], list[dict[str, Any]], str]:
    """Build a stage, play on it, and remove it whatever happens.

    Returns the phases, the pairs of turns, and what ended it too early.

    :raises DriverError: before the first phase had ended.
    """
    names = list(settings.names)
    judged = set(verdict.NEEDED) <= set(names)
    begun_s = time.monotonic()
    progress = progress_.Progress(
        names, settings.rounds, settings.seconds,
        turns=min(turns, interval.LEAST) if judged else 0)
    print(f'scavenger-demo: about {progress.total_s / 60:.0f} minutes'
          + (f', up to {most_s / 60:.0f} if the machine is busy or the '
             'figures scatter' if judged else ''), file=sys.stderr)
    stage = stage_.Stage(memory_bytes=options.memory * MIB,
                         link_bytes_per_s=LINK_BYTES_PER_S, cpus=cpus)
    playing, playing_turns, problem = None, None, ''
    problems: list[str] = []
    try:
        stage.make()
        load.build(stage.programs)
        interrupt.check()
        playing = play.Play(stage, settings,
                            load.calibrate(stage.programs), interrupt,
                            progress)
        playing.rounds()
        if judged:
            playing_turns = turns_.Turns(stage, playing, interrupt, progress,
                                         settings.seed)
            playing_turns.play(most=turns, until_s=begun_s + most_s,
                               limit=verdict.P99_LIMIT)
    except (errors.DriverError, OSError) as exc:
        if playing is None or not playing.records:
            raise
        problem = str(exc)
    finally:
        progress.end()
        _strike(playing, stage, problems)
    records = playing.records
    records[-1]['knobs_left'] += problems
    if playing_turns:
        records[-1]['knobs_left'] += playing_turns.knobs_left
    return records, playing_turns.pairs if playing_turns else [], problem
