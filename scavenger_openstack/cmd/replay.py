# SPDX-License-Identifier: Apache-2.0

"""``scavenger-replay``: what controllers decide over a recording."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from collections.abc import Sequence
import itertools
import pathlib
import sys
from typing import TYPE_CHECKING

from scavenger_openstack.cmd import ending
from scavenger_openstack import command_line
from scavenger_openstack import errors
from scavenger_openstack import text
from scavenger_openstack.types import printable

if TYPE_CHECKING:
    from oslo_config import cfg

    from scavenger_openstack.laboratory import replay
    from scavenger_openstack.laboratory import replay_settings
    from scavenger_openstack.recording import replay as recordings

PROG = 'scavenger-replay'

CAPACITIES = {'cpus': 'CPU', 'memory_bytes': 'memory',
              'link_bytes_per_s': 'network'}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return 0, 1 (failed), 2 (usage) or 130."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    return ending.code(PROG, lambda: _main(arguments))


def parser() -> command_line.Parser:
    program = command_line.program(
        PROG, 'What controllers decide over a recording, with the options '
              'that it was made with or with others.')
    program.add_argument('file', metavar='FILE',
                         help='a recording of scavenger-agent run --record, '
                              'or a table of rates (CSV; Parquet where '
                              'pyarrow is installed)')
    program.add_argument('--format', default='table',
                         choices=['table', 'json'],
                         help='table (the default): lines for people; json: '
                              'one object per line with all numbers that '
                              'each decision was made from')
    program.add_argument('--set', action='append', default=[],
                         metavar='SECTION.OPTION=VALUE',
                         help='what if: another value for a parameter or the '
                              'mode of a controller, such as '
                              'scavenger.memory_c=3; can be given more than '
                              'once')
    program.add_argument('--compare', action='store_true',
                         help='print two settings side by side: as recorded '
                              '(a table: as configured), and with --set')
    program.add_argument('--verify', action='store_true',
                         help='compare with the decisions in the recording '
                              'itself; the exit code is 1 at the first line '
                              'that differs')
    program.add_argument('--thresholds', action='store_true',
                         help='print the thresholds that perfcloud learns '
                              'from it: the largest deviations across the '
                              'VMs of an application; record while nothing '
                              'disturbs them')
    group = program.add_argument_group('of a table, which does not have them')
    group.add_argument('--cpus', metavar='N',
                       type=command_line.number(1, 4096, whole=True),
                       help='CPUs of each host')
    group.add_argument('--memory-bytes', metavar='BYTES',
                       type=command_line.number(1),
                       help='memory of each host')
    group.add_argument('--link-bytes-per-s', metavar='BYTES',
                       type=command_line.number(1),
                       help='what the one link of each host carries in a '
                            'second')
    command_line.add_configuration(program, host=False, before=True)
    return program


def _main(arguments: Sequence[str]) -> int:
    options = command_line.parse(parser(), arguments)
    from scavenger_openstack.cmd import configuration
    from scavenger_openstack.recording import table_files
    conf = configuration.load(PROG, options)
    if options.verify and (options.compare or options.set):
        raise errors.ConfigError(
            '--verify looks at the recorded settings only: leave out '
            '--compare and --set')
    if options.thresholds and (options.verify or options.compare):
        raise errors.ConfigError(
            '--thresholds prints thresholds alone: leave out --verify and '
            '--compare')
    if options.compare and not options.set:
        raise errors.ConfigError(
            '--compare needs --set: against what shall it be compared?')
    path = pathlib.Path(options.file)
    if path.exists() and not path.is_file():
        raise errors.ScavengerError(
            f'{path}: not a regular file, and it is read more than once; '
            'write what it gives to a file first')
    try:
        code = (_table(conf, options, path) if table_files.is_table(path)
                else _recording(options, path))
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        return ending.unread()


def _recording(options: argparse.Namespace, path: pathlib.Path) -> int:
    from scavenger_openstack.laboratory import replay
    from scavenger_openstack.laboratory import replay_settings
    from scavenger_openstack.recording import replay as recordings
    from scavenger_openstack import version
    for option in CAPACITIES:
        if getattr(options, option) is not None:
            raise errors.ConfigError(
                f'--{option.replace("_", "-")} is for tables: a recording '
                'has its own')
    recording = recordings.read(path)
    try:
        settings, notes = replay_settings.of_header(recording.header)
        if recording.header.version != version():
            notes.append(f'recorded by version {recording.header.version}, '
                         f'this is {version()}')
        _print_notes(f'{path}: {note}' for note in notes)
        code = (_verify(path, recording, settings) if options.verify else
                _show(options, replay.Recording(recording), settings))
        if recording.cut_off:
            _print_notes([f'{path}:{recording.cut_off}: the last line was '
                          'never finished and is passed over'])
        return code
    finally:
        recording.close()


def _table(conf: cfg.ConfigOpts, options: argparse.Namespace,
           path: pathlib.Path) -> int:
    from scavenger_openstack.conf import cgroups as conf_cgroups
    from scavenger_openstack.laboratory import replay
    from scavenger_openstack.laboratory import replay_settings
    from scavenger_openstack.recording import rates_table
    from scavenger_openstack.recording import table_files
    if options.verify:
        raise errors.ConfigError(
            f'--verify: {path} is a table, which says nothing of decisions')
    for option in CAPACITIES:
        value = getattr(options, option)
        if value is not None and not value < rates_table.LARGEST:
            raise errors.ConfigError(
                f'--{option.replace("_", "-")}: {value} is not a finite '
                'number')
    table = table_files.read(path, conf_cgroups.floors(conf))
    _print_notes(table.warnings)
    capacity = rates_table.Capacity(options.cpus, options.memory_bytes,
                                    options.link_bytes_per_s)
    missing = [option for option, value in zip(CAPACITIES, capacity,
                                               strict=True) if value is None]
    if missing:
        _print_notes([
            ('only detectors run, regulators do not: they need '
             if len(missing) == len(CAPACITIES) else
             'rules for ' + ', '.join(CAPACITIES[name] for name in missing)
             + ' are off: they need ')
            + ' '.join('--' + name.replace('_', '-') for name in missing)])
    return _show(options, replay.Table(table, capacity),
                 replay_settings.of_options(conf, any(
                     value is not None for value in capacity)),
                 several=len(table.hosts) > 1)


def _verify(path: pathlib.Path, recording: recordings.Recording,
            settings: replay_settings.Settings) -> int:
    from scavenger_openstack.laboratory import replay
    ticks, decisions, difference = replay.verify(recording, settings)
    if difference is not None:
        print(printable(
            f'{path}:{difference.line}: time_s {difference.time_s:.3f}: '
            f'{difference.what}'))
        return ending.FAILED
    if not ticks:
        print(f'{path}: there is no tick to verify')
        return ending.FAILED
    print(f'{path}: {ticks} ticks, {decisions} decisions: all as recorded')
    return 0


def _show(options: argparse.Namespace, source: replay.Source,
          settings: replay_settings.Settings, several: bool = False) -> int:
    from scavenger_openstack.laboratory import replay
    from scavenger_openstack.laboratory import replay_compare
    from scavenger_openstack.laboratory import replay_output
    from scavenger_openstack.laboratory import replay_settings
    after = replay_settings.changed(settings, options.set)
    if options.thresholds:
        return _thresholds(options, source, after)
    if options.compare:
        comparison = replay_compare.compare(
            source, settings, after,
            ('recorded' if isinstance(source, replay.Recording)
             else 'configured', ' '.join(options.set)))
        _print([text.json_line(comparison.as_json())]
               if options.format == 'json' else comparison.lines())
        return 0
    table = replay_output.Table(several)
    ticks = decisions = 0
    for step in replay.run(source, after):
        ticks += 1
        decisions += replay.count(step.changed)
        if options.format == 'json':
            _print(map(text.json_line, replay_output.documents(step)))
        else:
            _print(table.lines(step))
    if options.format == 'table':
        print(f'{ticks} ticks, {decisions} decisions')
    return 0


def _thresholds(options: argparse.Namespace, source: replay.Source,
                settings: replay_settings.Settings) -> int:
    from scavenger_openstack.algorithms import perfcloud
    from scavenger_openstack.laboratory import papers
    from scavenger_openstack.laboratory import replay
    params = (settings.params(perfcloud.NAME)
              if perfcloud.NAME in [
                  controller.name for controller in settings.controllers]
              else perfcloud.Params())
    hosts = [papers.peaks(
        (step.decided.rates for step in steps if step.decided), params,
        source.interval_s(host)) for host, steps in itertools.groupby(
            replay.run(source, settings), key=lambda step: step.host)]
    largest = {parameter: max(
        [level for levels in hosts
         if (level := levels[parameter]) is not None],
        default=None) for parameter in papers.PARAMETERS.values()}
    if options.format == 'json':
        _print([text.json_line({'type': 'thresholds', **largest})])
        return 0
    _print([f'[{perfcloud.NAME}]', *(
        f'# {parameter}: no two VMs of an application had that signal'
        if level is None else f'{parameter} = {level!r}'
        for parameter, level in largest.items())])
    return 0


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


def _print_notes(notes: Iterable[str]) -> None:
    for note in notes:
        print(f'{PROG}: {printable(note)}', file=sys.stderr)


if __name__ == '__main__':
    sys.exit(main())
