# SPDX-License-Identifier: Apache-2.0

"""SoIs beside the closest stressor of stress-ng or job of fio.

For each resource that both have: a probe, which is an SoI of the same kind
(for memory capacity a file that is read again and again within a limited
cgroup), is measured alone, beside our SoI at 100 %, and beside the stressor,
in turn.  The effect is the share of its rate that the probe loses; printed is
our effect divided by theirs, which should be at least .9.  Both run on one
CPU: the probe's own for units of a core, another for all else.

    python benchmarks/ibench/closest.py [--sois 2,6] [--seconds 1]
        [--rounds 3] [--json]

Needs root, two CPUs, gcc, iproute2, stress-ng and fio.  The defaults take
about 2 minutes; make figures on a quiet machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import os
import pathlib
import shutil
import statistics
import sys
import time
from typing import Any
from typing import NamedTuple

import program
import stage as stage_

from scavenger_openstack import errors
from scavenger_openstack.ibench import arguments
from scavenger_openstack.ibench import catalogue
from scavenger_openstack.ibench import geometry
from scavenger_openstack.ibench import interrupt as interrupt_
from scavenger_openstack.ibench import options as options_
from scavenger_openstack.ibench import progress as progress_
from scavenger_openstack.ibench import run
from scavenger_openstack.tests.functional import base
from scavenger_openstack import text

FIO_PORT = 7006
SETTLE_S = 1.0
SHORT_S = 0.2
BAR = 0.9
LEAST_EFFECT = 0.05
"""A stressor that takes less of the probe's rate shows nothing here."""

LIMIT_BYTES = 384 << 20
HOLD_BYTES = 320 << 20
FILE_BYTES = 128 << 20
"""Memory capacity: what is held, and a file in the page cache, within a
limit that is smaller than both."""
PIECE_BYTES = 1 << 20

Document = dict[str, Any]


class Closest(NamedTuple):
    """A stressor.

    :ivar command: its words; ``{cpu}``, ``{path}`` and ``{bytes}`` are
        filled in
    :ivar far: what runs at the other end of the link meanwhile
    """

    soi: str
    name: str
    command: str
    far: str = ''


_STRESS = 'stress-ng --quiet --timeout 600 --taskset {cpu} '
_FIO = ('fio --name=job --time_based --runtime=600 --cpus_allowed={cpu} '
        '--eta=never ')

ALL = (
    Closest('memory_capacity', 'stress-ng --vm',
            _STRESS + '--vm 1 --vm-bytes {bytes} --vm-keep'),
    Closest('memory_bandwidth', 'stress-ng --stream', _STRESS + '--stream 1'),
    Closest('storage_bandwidth', 'fio, serial direct reads',
            _FIO + '--rw=read --bs=256k --direct=1 --size=256m '
            '--filename={path}/fio'),
    Closest('network_bandwidth', 'fio, a TCP stream',
            _FIO + '--rw=write --bs=256k --size=1t --ioengine=net '
            f'--hostname=10.99.0.2 --port={FIO_PORT} --protocol=tcp',
            _FIO + '--rw=read --bs=256k --size=1t --ioengine=net '
            f'--listen --port={FIO_PORT} --protocol=tcp'),
    Closest('llc_capacity', 'stress-ng --cache',
            _STRESS + '--cache 1 --cache-no-affinity'),
    Closest('integer', 'stress-ng --cpu, int64',
            _STRESS + '--cpu 1 --cpu-method int64'),
    Closest('floating_point', 'stress-ng --cpu, double',
            _STRESS + '--cpu 1 --cpu-method double'),
    Closest('vector', 'stress-ng --vecmath', _STRESS + '--vecmath 1'))

Probe = Callable[[], float]


@contextlib.contextmanager
def kernel_beside(host: run.Host, start: arguments.Start,
                  calibrated: run.Event, percent: float) -> Iterator[None]:
    """Run an SoI meanwhile, from its first report on."""
    kernel = run.Kernel(host, start, run.level_words(
        [arguments.Level(percent, run.ENDLESS_S)],
        chunk_s=calibrated['chunk_s'], every_s=SHORT_S))
    try:
        while not kernel.result.levels and not kernel.closed:
            host.interrupt.check()
            for _ in kernel.read():
                pass
        if kernel.closed:
            kernel.check()
        yield
    finally:
        kernel.end()


@contextlib.contextmanager
def stressor_beside(stage: stage_.Stage, closest: Closest, cpu: int,
                    path: pathlib.Path) -> Iterator[None]:
    """Run a stressor meanwhile, from :data:`SETTLE_S` after its start on.

    :raises DriverError: it ends early.
    """
    with contextlib.ExitStack() as stack:
        for words, enter in ((closest.far, stage.far),
                             (closest.command, stage.host_of(
                                 catalogue.find_soi(closest.soi)).enter)):
            if not words:
                continue
            command = words.format(cpu=cpu, path=path,
                                   bytes=HOLD_BYTES).split()
            # In a directory that goes: it may write reports.
            process = run.start_process(
                ['env', f'--chdir={path}', *enter, *command],
                stage.host.cgroup)
            stack.callback(run.end_process, process)
            stage.host.interrupt.wait_until(time.monotonic() + SETTLE_S)
        if process.poll() is not None:
            assert process.stderr is not None
            raise errors.DriverError(
                f'{closest.name} ended: '
                + process.stderr.read().decode().strip()[-300:])
        yield


def kernel_probe(host: run.Host, start: arguments.Start,
                 calibrated: run.Event, percent: float, seconds: float
                 ) -> float:
    """Return the operations per second of an SoI that never waits."""
    result, = run.play(host, [(start, run.level_words(
        [arguments.Level(percent, seconds)],
        chunk_s=calibrated['chunk_s'], every_s=SHORT_S))])
    return float(sum(1.0 / sample['chunk_s'] for sample in result.samples
                     if 'chunk_s' in sample) / len(result.samples))


READER = f'''
import os, sys, time
fd = os.open(sys.argv[1], os.O_RDONLY)
os.lseek(fd, 0, 0)
began_s = time.monotonic()
count = 0
while time.monotonic() - began_s < float(sys.argv[2]):
    if not os.read(fd, {PIECE_BYTES}):
        os.lseek(fd, 0, 0)
    count += 1
print(count / (time.monotonic() - began_s))
'''


def file_probe(host: run.Host, path: pathlib.Path, cpu: int, seconds: float
               ) -> float:
    """Return the pieces per second of a file that are read, after it was
    read once."""
    rate = 0.0
    for duration_s in (0.5, seconds):
        process = run.start_process(
            [sys.executable, '-c', READER, str(path), str(duration_s)],
            host.cgroup, (cpu,))
        try:
            while process.poll() is None:
                host.interrupt.wait_until(time.monotonic() + 0.05)
            assert process.stdout is not None
            rate = float(process.stdout.read() or 0)
        finally:
            run.end_process(process)
    return rate


def plan(stage: stage_.Stage, soi: catalogue.Soi, cpu: int, seed: int,
         **sizes: Any) -> arguments.Start:
    """Return how an SoI is started on a CPU."""
    cgroup = stage.host.cgroup
    return arguments.plan_start(soi, arguments.Surroundings(
        geometry=geometry.read_geometry(cpu, {}),
        memory=geometry.read_memory(cgroup.path if cgroup else None),
        cpus=(cpu,),
        path=str(stage.directory), address=stage.link.address, seed=seed,
        **sizes))


def compare(stage: stage_.Stage, closest: Closest,
            options: argparse.Namespace, step: Callable[[str], None]
            ) -> Document:
    """Return what SoI and stressor do to the probe."""
    soi = catalogue.find_soi(closest.soi)
    host = stage.host_of(soi)
    core = soi.kind == catalogue.Kind.RATE
    cpu = stage.service_cpu if core else stage.other_cpu
    capacity = soi.name == 'memory_capacity'
    start = plan(stage, soi, cpu, 1,
                 **({'size_bytes': HOLD_BYTES} if capacity else {}))
    calibrated = run.calibrate(host, start)
    if capacity:
        file = stage.directory / 'cached'
        with open(file, 'wb') as data:
            for _ in range(FILE_BYTES // PIECE_BYTES):
                data.write(os.urandom(PIECE_BYTES))
            os.fsync(data.fileno())

        def probe() -> float:
            return file_probe(host, file, stage.service_cpu, options.seconds)
    else:
        probed = plan(stage, soi, stage.service_cpu, 2)
        probed_alone = run.calibrate(host, probed)
        # A probe that fills the cache would disturb itself.
        percent = 50.0 if soi.name == 'llc_capacity' else 100.0

        def probe() -> float:
            return kernel_probe(host, probed, probed_alone, percent,
                                options.seconds)
    rates: dict[str, list[float]] = {'alone': [], 'ours': [], 'theirs': []}
    for _ in range(options.rounds):
        step(f'{soi.name}: the probe alone')
        rates['alone'].append(probe())
        step(f'{soi.name}: beside ours')
        with kernel_beside(host, start, calibrated, 100.0):
            rates['ours'].append(probe())
        step(f'{soi.name}: beside {closest.name}')
        with stressor_beside(stage, closest, cpu, stage.directory):
            rates['theirs'].append(probe())
    alone = statistics.median(rates['alone'])
    ours, theirs = (1 - statistics.median(rates[key]) / alone
                    for key in ('ours', 'theirs'))
    judged = theirs >= LEAST_EFFECT
    return {'soi': soi.name, 'closest': closest.name, 'same_cpu': core,
            'unit': 'MiB' if capacity else 'chunks', 'rates_per_s': rates,
            'effect': ours, 'closest_effect': theirs,
            'ratio': ours / theirs if judged else None,
            'reached': ours / theirs >= BAR if judged else None}


def lines(document: Document) -> list[str]:
    """Return the table."""
    rows = [[row['soi'], row['closest'],
             'same' if row['same_cpu'] else 'another',
             f'{100 * row["effect"]:.1f} %',
             f'{100 * row["closest_effect"]:.1f} %',
             '-' if row['ratio'] is None else f'{row["ratio"]:.2f}',
             {None: 'too little to judge', True: 'yes', False: 'no'}[
                 row['reached']]] for row in document['resources']]
    return [*text.columns(
        ('SoI', 'closest', 'CPU of the probe', 'our effect', 'theirs',
         'ratio', f'at least {BAR:g}'), rows, left=(0, 1, 2, 6)),
        'Effect: share of its rate that the probe loses, median of '
        f'{document["rounds"]}.']


def measure(options: argparse.Namespace, interrupt: interrupt_.Interrupt
            ) -> Document:
    """Return all that this command measures.

    :raises ConfigError: stress-ng or fio is not installed.
    """
    for needed in ('stress-ng', 'fio'):
        if not shutil.which(needed):
            raise errors.ConfigError(f'{needed} is not installed')
    names = [soi.name for soi in options.sois]
    chosen = [closest for closest in ALL if closest.soi in names]
    bar = progress_.Progress(3 * len(chosen) * options.rounds)
    try:
        return {'command': 'closest', 'seconds': options.seconds,
                'rounds': options.rounds,
                'resources': _measure_all(chosen, options, interrupt,
                                          bar.show_step)}
    finally:
        bar.end()


def _measure_all(chosen: Sequence[Closest], options: argparse.Namespace,
                 interrupt: interrupt_.Interrupt,
                 step: Callable[[str], None]) -> list[Document]:
    """Memory capacity in a cgroup with a limit of its own."""
    rows = []
    for limited in (True, False):
        part = [closest for closest in chosen
                if (closest.soi == 'memory_capacity') is limited]
        if not part:
            continue
        with contextlib.ExitStack() as stack:
            parent = '/'
            if limited:
                tree = stack.enter_context(base.CgroupTree())
                tree.put('memory', '', str(LIMIT_BYTES))
                parent = tree.name
            stage = stack.enter_context(stage_.opened(interrupt,
                                                      parent=parent))
            rows += [compare(stage, closest, options, step)
                     for closest in part]
    return rows


def main() -> int:
    parser = program.parser(__doc__, seconds=1.0)
    parser.add_argument(
        '--sois', metavar='SOI,...', default=','.join(
            closest.soi for closest in ALL),
        type=options_.catalogued(catalogue.find_sois),
        help='these (default all that have something close)')
    parser.add_argument('--rounds', metavar='N', type=int, default=3,
                        help='medians over so many (default 3)')
    return program.main(parser, measure, lines)


if __name__ == '__main__':
    sys.exit(main())
