# SPDX-License-Identifier: Apache-2.0

"""A program that is improved in steps, with a profile after each.

Collaborative filtering, as in the paper: ratings of 180,000 users by
PQ-reconstruction, as written first, with SIMD instructions on rows, and with
ratings reordered so that the row of a user is read once.  All do the same
work and end at the same error.  Printed are, for each, the quantities of
figure 8 and what ``scavenger-ibench profile`` says that it tolerates and
causes.

Performance is updates per second in place of IPC, and the use of memory
bandwidth is what a probe loses beside the program ("caused"): there is no
counter of the CPU for either.

Source: iBench, section V-C and figure 8: 35 % less time, 49 % less footprint.

    python benchmarks/ibench/development.py [--sois 2,6,7,9,12]
        [--seconds 1] [--repeats 2] [--json]

Needs root, two CPUs and gcc.  The defaults take about 8 minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
from typing import Any
from typing import NamedTuple

import profiled
import program

from scavenger_openstack.ibench import build
from scavenger_openstack.ibench import catalogue
from scavenger_openstack.ibench.host import scratch
from scavenger_openstack.ibench import interrupt as interrupt_
from scavenger_openstack.ibench import options as options_
from scavenger_openstack.ibench import run
from scavenger_openstack import text

SOURCE = pathlib.Path(__file__).parent / 'filtering.c'
RATINGS = 500_000
PASSES = 10
SOIS = 'memory_bandwidth,llc_capacity,llc_bandwidth,l1d,floating_point'
WORKS = 3

Document = dict[str, Any]


class Form(NamedTuple):
    """A form of the program.

    :ivar passes: that take the better part of a second, for the profile
    """

    name: str
    flags: tuple[str, ...]
    passes: int


FORMS = (Form('as written', ('-O1', '-fno-tree-vectorize'), 1),
         Form('vectors', ('-O3', '-march=native', '-ffast-math'), 20),
         Form('reordered', ('-O3', '-march=native', '-ffast-math'), 30))


def work(binary: pathlib.Path, cpu: int,
         interrupt: interrupt_.Interrupt) -> Document:
    """Return what the program printed after its work."""
    process = run.start_process(
        [str(binary), str(RATINGS), str(PASSES)], None, (cpu,))
    try:
        while process.poll() is None:
            interrupt.check()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(interrupt_.SLICE_S)
        assert process.stdout is not None
        return dict(json.loads(process.stdout.read()))
    finally:
        run.end_process(process)


def measure(options: argparse.Namespace, interrupt: interrupt_.Interrupt
            ) -> Document:
    """Return all that this command measures."""
    cpus = sorted(os.sched_getaffinity(0))
    forms = []
    with scratch.made() as top:
        for number, form in enumerate(FORMS):
            binary = top / f'filtering-{number}'
            build.compile_c([SOURCE], binary, *form.flags,
                            f'-DFORM={number}', '-lm')
            works = [work(binary, cpus[0], interrupt) for _ in range(WORKS)]
            profile = profiled.profile_command(
                [str(binary), str(RATINGS), str(form.passes)], options.sois,
                interrupt, cpu=cpus[0],
                seconds=options.seconds, repeats=options.repeats)
            seconds = statistics.median(done['seconds'] for done in works)
            forms.append({
                'form': form.name, 'seconds': seconds,
                'updates_per_s': RATINGS * PASSES / seconds,
                'cpu_s': statistics.median(done['cpu_s'] for done in works),
                'resident_bytes': works[0]['resident_bytes'],
                'error': works[0]['error'], 'profile': profile})
    return {'command': 'development', 'ratings': RATINGS, 'passes': PASSES,
            'sois': [soi.name for soi in options.sois], 'forms': forms}


def lines(document: Document) -> list[str]:
    """Return the tables."""
    forms = document['forms']
    first = forms[0]
    rows = [[form['form'], f'{form["seconds"]:.2f}',
             f'{form["updates_per_s"] / 1e6:.1f}', f'{form["cpu_s"]:.2f}',
             f'{form["resident_bytes"] / 2 ** 20:.0f}',
             f'{form["error"]:.3f}',
             *(f'{100 * (form[key] / first[key] - 1):+.0f} %'
               for key in ('seconds', 'resident_bytes'))]
            for form in forms]
    printed = text.columns(
        ('form', 'seconds', 'M updates/s', 'CPU s', 'MiB', 'error', 'time',
         'footprint'), rows, left=(0,))
    rows = []
    for part in ('tolerated', 'caused'):
        for name in document['sois']:
            rows.append([part, name, *(_value(form['profile'][part], name)
                                       for form in forms)])
    return [*printed, '', *text.columns(
        ('part', 'SoI', *(form['form'] for form in forms)), rows,
        left=(0, 1))]


def _value(part: dict[str, Any], name: str) -> str:
    return f'{part[name]["value"]:.2f}' if name in part else '-'


def main() -> int:
    parser = program.parser(__doc__, seconds=1.0)
    parser.add_argument('--sois', metavar='SOI,...', default=SOIS,
                        type=options_.catalogued(catalogue.find_sois))
    parser.add_argument('--repeats', metavar='N', type=int, default=2,
                        help='of each profile (default 2)')
    return program.main(parser, measure, lines)


if __name__ == '__main__':
    sys.exit(main())
