# SPDX-License-Identifier: Apache-2.0

"""The options of ``scavenger-ibench``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeVar

from scavenger_openstack import command_line
from scavenger_openstack import errors
from scavenger_openstack.ibench import catalogue
from scavenger_openstack.ibench import consent
from scavenger_openstack.ibench import geometry
from scavenger_openstack.ibench.profile import qos
from scavenger_openstack.ibench.profile import signals

T = TypeVar('T')

RUN_S = 5.0
RAMP_S = 0.01
"""Of each level.  "By default all kernels run for 10msec".  Source: iBench,
section III-B."""
VALIDATE_S = 0.5
PROFILE_REPEATS = 3
LONGEST_S = 86400.0
SHORTEST_S = 0.001


def parser() -> command_line.Parser:
    """Return the parser with all commands."""
    top = command_line.program(
        'scavenger-ibench',
        description='Makes load on one resource of this host at a chosen '
                    'intensity: 17 sources of interference (SoIs), such as '
                    'memory capacity, LLC bandwidth or the TLB. Each is '
                    'measured alone first, then runs open: beside other '
                    'work it falls behind, and the table shows by how much. '
                    'As root it runs in a cgroup of its own.',
        epilog='Exit code: 0 done, 1 a kernel failed, 2 wrong usage or '
               'something that cannot be on this host, 130 interrupted. '
               'Nothing that it makes stays behind. '
               'Example: scavenger-ibench run llc_capacity --intensity 40 '
               '--seconds 5 --cpus 1')
    add = command_line.add_commands(top)
    listing = add('list', 'show the sources of interference, and what 100 % '
                          'is of')
    listing.add_argument('--json', action='store_true',
                         help='print one JSON document')
    add('build', 'compile the kernels now, else the first run does')
    _add_run(add('run', 'hold one intensity', 'The SoI is a number or a '
                 'name of "scavenger-ibench list".'))
    _add_ramp(add('ramp', 'go through intensities, one after the other',
                  'By default each lasts 10 ms, as in the paper.'))
    _add_mix(add('mix', 'run several at once, each at its intensity',
                 'Each is measured alone before all begin together. The '
                 'first runs on the first of --cpus, the second on the '
                 'second, and so on in turn.'))
    serve = add('serve', 'be the remote end of network_bandwidth until '
                         'Ctrl-C', 'Whatever can reach the address can make '
                         'it answer: use it in a network of your own.')
    serve.add_argument('--address', required=True, metavar='IP:PORT',
                       help='where to listen')
    _add_validate(add('validate', 'measure whether each SoI does to its '
                      'resource what its intensity says', 'Each SoI has a '
                      'meter that is not its own report, where this host '
                      'has one; a line is fitted through it. Takes 5 '
                      'minutes or more; other load on the host spoils it.'))
    _add_profile(add(
        'profile', 'measure what interference a workload tolerates and '
        'causes',
        'Tolerated is, per SoI, the intensity from 0 to 1 at which the '
        'quality of service (QoS) of the workload breaks; caused is the share '
        'of its rate alone that the SoI, at 100 %, loses beside the '
        'workload. Turns alone and turns beside an SoI alternate. The SoIs '
        'slow the workload down meanwhile, by half and more: do not profile '
        'what a tenant uses.',
        epilog='Examples: scavenger-ibench profile --command "gzip -k big" '
        '(its duration, +5 %) | scavenger-ibench profile --cgroup /batch/a '
        '(how it progresses, -5 %) | scavenger-ibench profile --cgroup '
        '/memcached --meter "./client --print-p99" --qos "p99_s<0.002" '
        '--output memcached.json'))
    return top


def _add_run(parser: command_line.Parser) -> None:
    parser.add_argument('soi', type=catalogued(catalogue.find_soi),
                        metavar='SOI')
    parser.add_argument('--intensity', required=True, metavar='PERCENT',
                        type=command_line.number(0, 100),
                        help='0 (idle) to 100')
    _add_common(parser, RUN_S, 'how long, such as 5, 10ms or 2m')


def _add_ramp(parser: command_line.Parser) -> None:
    parser.add_argument('soi', type=catalogued(catalogue.find_soi),
                        metavar='SOI')
    parser.add_argument('--levels', metavar='P,P,...', type=levels,
                        default=[float(level) for level
                                 in range(10, 101, 10)],
                        help='intensities in percent, in order (default '
                             '10,20,...,100)')
    _add_common(parser, RAMP_S, 'how long each level lasts')


def _add_mix(parser: command_line.Parser) -> None:
    parser.add_argument('mix', type=catalogued(mix),
                        metavar='SOI=PERCENT,...',
                        help='such as llc_capacity=40,2=20')
    _add_common(parser, RUN_S, 'how long')


def _add_validate(parser: command_line.Parser) -> None:
    parser.add_argument('--only', metavar='SOI,...',
                        type=catalogued(catalogue.find_sois),
                        default=list(catalogue.SOIS),
                        help='these SoIs (default: all)')
    parser.add_argument('--repeats', metavar='N', default=3,
                        type=command_line.number(1, 100, whole=True),
                        help='how often each level is measured (default 3)')
    parser.add_argument('--no-pairs', action='store_true',
                        help='leave out all pairs on one core')
    _add_common(parser, VALIDATE_S, 'how long each level lasts')


def _add_profile(parser: command_line.Parser) -> None:
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument('--cgroup', dest='workload_cgroup', metavar='PATH',
                      help='the workload is what runs in this cgroup, such '
                           'as /machine.slice/batch, and below')
    what.add_argument('--instance', metavar='ID',
                      help='the workload is this Nova instance: its UUID, or '
                           'its name in libvirt')
    what.add_argument('--command', dest='workload_command',
                      metavar='COMMAND',
                      help='the workload is started by this command (no '
                           'shell) and ended with the profile; its errors '
                           'are shown')
    parser.add_argument('--workload-cpus', metavar='LIST',
                        help='where the --command runs (default: the CPUs '
                             'of this shell but for one)')
    parser.add_argument('--qos', metavar='NAME<BOUND', type=catalogued(
                            qos.parse_qos),
                        help='when the QoS breaks: ' + (
                            f'{qos.FORM}. NAME is duration_s of a --command '
                            'that ends, one of the signals that are counted '
                            f'({signals.names()}), or else any name for the '
                            'numbers that the --meter, or without it the '
                            '--command, prints: one in each line, the last '
                            'word of it. BOUND is in the unit of the signal, '
                            'or in % of what it is alone (default: '
                            'duration_s<+5% of a --command, else '
                            'progress>-5%)').replace('%', '%%'))
    parser.add_argument('--meter', metavar='COMMAND',
                        help='a command (no shell) that measures the '
                             'workload, such as a client, and prints a '
                             'number per line until it is ended, some in '
                             'each turn')
    parser.add_argument('--sois', metavar='SOI,...',
                        type=catalogued(catalogue.find_sois),
                        default=list(catalogue.SOIS),
                        help='these SoIs (default: all)')
    parser.add_argument('--repeats', metavar='N',
                        type=command_line.number(1, 100, whole=True),
                        help='how often each SoI is measured; low and high '
                             'are those of single repeats (default '
                             f'{PROFILE_REPEATS}; with --short 1)')
    parser.add_argument('--seconds', type=seconds, metavar='S',
                        help='the least length of a turn (default: 1 to 4, '
                             'the longer the more the signal varies alone)')
    parser.add_argument('--short', action='store_true',
                        help='10 ms of each SoI, all at 100 %%, as in '
                             'section V-D of the paper: what is tolerated is '
                             'on the straight line from the signal alone; '
                             'rough')
    _add_kernels(parser, 'those that the workload is pinned to; the last of '
                         'this shell where it is not pinned')
    parser.add_argument('--beside-cpus', metavar='LIST',
                        help='CPUs of those SoIs whose resource CPUs share '
                             '(memory, storage, network, LLC), so that the '
                             'workload does not wait for the CPU, too '
                             '(default: --cpus; of a --command as many as it '
                             'has of those that it may not use)')
    where = parser.add_mutually_exclusive_group()
    where.add_argument('--parent-cgroup', dest='cgroup', metavar='PATH',
                       default='/',
                       help='make the cgroup of the kernels below this one, '
                            'whose limits then hold for them (default /)')
    where.add_argument('--no-cgroup', action='store_true',
                       help='stay in the cgroup of this shell')
    parser.add_argument('--output', metavar='FILE',
                        help='write the document there, which "openstack '
                             'interference profile create --file" takes')


def _add_common(parser: command_line.Parser, default_s: float, words: str
                ) -> None:
    parser.add_argument('--seconds', type=seconds, default=default_s,
                        metavar='S', help=f'{words} (default {default_s:g})')
    parser.add_argument('--threads', metavar='N',
                        type=command_line.number(1, 256, whole=True),
                        help='threads of a kernel, in turn on --cpus '
                             '(default 1; interconnect: one per CPU)')
    where = parser.add_mutually_exclusive_group()
    where.add_argument('--cgroup', metavar='PATH', default='/',
                       help='make the cgroup of the kernels below this one, '
                            'whose limits then hold for them (default /)')
    where.add_argument('--no-cgroup', action='store_true',
                       help='stay in the cgroup of this shell')
    _add_kernels(parser, 'the last that this shell may use')


def _add_kernels(parser: command_line.Parser, default_cpus: str) -> None:
    parser.add_argument('--cpus', metavar='LIST',
                        help='CPUs of the SoIs, such as 1 or 0-3 (default: '
                             f'{default_cpus})')
    parser.add_argument('--path', metavar='PATH',
                        help='for storage: a directory, in which a file '
                             'without a name is made, or a block device, '
                             'which is only read')
    parser.add_argument('--address', metavar='IP:PORT',
                        help='for network_bandwidth: where "scavenger-ibench '
                             'serve" runs (default, as root and but for '
                             'profile: a link of its own between two network '
                             'namespaces)')
    parser.add_argument('--size', metavar='SIZE', type=size,
                        help='what 100 %% is of in place of the whole '
                             'memory, disk or cache, such as 512M')
    parser.add_argument('--geometry', metavar='NAME=SIZE,...', default={},
                        type=sizes,
                        help='sizes in place of what the host shows: '
                             + ', '.join(geometry.OVERRIDES))
    parser.add_argument('--seed', metavar='N', default=1,
                        type=command_line.number(1, 1e15, whole=True),
                        help='of the random orders (default 1)')
    parser.add_argument('--yes', action='store_true',
                        help=f'take more than {consent.SHARE:.0%} of the '
                             'free memory or disk without asking'
                        .replace('%', '%%'))
    parser.add_argument('--json', action='store_true',
                        help='print one JSON document at the end')
    parser.add_argument('--html', metavar='FILE',
                        help='write a page with plots')


def catalogued(read: Callable[[str], T]) -> Callable[[str], T]:
    """Return a reader of words whose error is one of the command line."""
    def convert(text: str) -> T:
        try:
            return read(text)
        except errors.ConfigError as exc:
            raise argparse.ArgumentTypeError(str(exc)) from exc
    return convert


def _readable(read: Callable[[str], T]) -> Callable[[str], T]:
    """Return a reader whose error keeps its sentence."""
    def convert(text: str) -> T:
        try:
            return read(text)
        except ValueError as exc:
            raise argparse.ArgumentTypeError(str(exc)) from exc
    return convert


size = _readable(geometry.parse_bytes)
sizes = _readable(geometry.parse_overrides)


def seconds(text: str) -> float:
    """Return the seconds of ``5``, ``10ms`` or ``2m``.

    :raises ArgumentTypeError: it is none, or out of range.
    """
    word = text.strip()
    duration_s = command_line.duration_s(
        f'{word}s' if word[-1:].isdecimal() else word)
    if duration_s is None or not SHORTEST_S <= duration_s <= LONGEST_S:
        raise argparse.ArgumentTypeError(
            f'{text} is no duration from 1ms to 24h, such as 5, 10ms or 2m')
    return duration_s


def levels(text: str) -> list[float]:
    """Return the intensities in ``10,20,50``.

    :raises ArgumentTypeError: one is none.
    """
    read = command_line.number(0, 100)
    return [read(part.strip()) for part in text.split(',')]


def mix(text: str) -> list[tuple[catalogue.Soi, float]]:
    """Return the SoIs and intensities in ``6=40,memory_bandwidth=20``.

    :raises ConfigError: there is no such SoI.
    :raises ArgumentTypeError: an intensity is wrong, or an SoI is twice in
        it.
    """
    read = command_line.number(0, 100)
    parts = []
    for part in text.split(','):
        name, equals, percent = part.partition('=')
        if not equals:
            raise argparse.ArgumentTypeError(
                f'{part!r} is not SOI=PERCENT')
        parts.append((catalogue.find_soi(name), read(percent.strip())))
    if len({soi for soi, _ in parts}) < len(parts):
        raise argparse.ArgumentTypeError(f'{text}: name each SoI once')
    return parts
