# SPDX-License-Identifier: Apache-2.0

"""Whether each SoI does to its resource what its intensity says.

Each intensity is a process of its own; a meter that is not the SoI's own
measures the effect, and a line is fitted through effects over intensities.
Where this host has no such meter the SoI's own figures are shown and marked
as such, and where these say nothing, the reason.

Source: iBench, section IV-A.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import functools
import random
import statistics
import time
from typing import NamedTuple

from scavenger_openstack import errors
from scavenger_openstack.ibench import arguments
from scavenger_openstack.ibench.arguments import Level
from scavenger_openstack.ibench.catalogue import Kind
from scavenger_openstack.ibench.catalogue import Meter
from scavenger_openstack.ibench.catalogue import Soi
from scavenger_openstack.ibench import run
from scavenger_openstack.ibench.validation import meters

TOLERANCE = 0.05
"""A step down of at most this share of the whole span is noise."""


LEVELS = tuple(range(10, 101, 10))

CALIBRATIONS = 5
"""Of so many at least the fastest counts."""

PROBE_EVERY_S = 0.02

TURN_S = 0.02

SLOW_DOWN = 'slow-down'

LEAST_SLOW_DOWN = 0.1
"""A probe that is slowed less, at any level, shows nothing."""

LLC_PROBE_SHARE = 0.5
"""Of the LLC: a probe that fills it would disturb itself."""


class Fit(NamedTuple):
    """A line through points; ``r2`` is the share of the variance that it
    explains."""

    slope: float
    intercept: float
    r2: float
    monotone: bool


def fit_line(points: Sequence[tuple[float, float]]) -> Fit | None:
    """Return the line of least squares; None for fewer than three points,
    or values that are all the same.

    :param points: intensity and value, in ascending order of intensity
    """
    x = [point[0] for point in points]
    y = [point[1] for point in points]
    if len(points) < 3 or min(x) == max(x) or min(y) == max(y):
        return None
    slope, intercept = statistics.linear_regression(x, y)
    span = max(y) - min(y)
    return Fit(slope, intercept, statistics.correlation(x, y) ** 2,
               slope > 0 and all(after >= before - TOLERANCE * span
                                 for before, after
                                 in zip(y, y[1:], strict=False)))


@dataclasses.dataclass
class Row:
    """The result of a validation of one SoI.

    :ivar meter: what measured, None when nothing could
    :ivar unit: of the values
    :ivar independent: the meter is not the SoI's own report
    :ivar points: intensity in percent and value
    :ivar reason: why there is no independent meter, or no point
    """

    soi: Soi
    whole: str = ''
    meter: str | None = None
    unit: str = ''
    independent: bool = False
    points: list[tuple[float, float]] = dataclasses.field(
        default_factory=list)
    reason: str = ''

    def fit(self) -> Fit | None:
        return fit_line(self.points)


@dataclasses.dataclass(frozen=True)
class Bench:
    """The host, probes and settings of a validation.

    :ivar link_device: the near end of its own link, None without one
    :ivar probe_cpu: another CPU than that of the SoI, None without one
    :ivar sibling_cpu: another one of the same core, likewise
    :ivar step: called before each measurement, with its name
    """

    host: run.Host
    chosen: arguments.Surroundings
    seconds: float
    repeats: int
    link_host: run.Host | None = None
    link_device: str | None = None
    no_link: str = ''
    probe_cpu: int | None = None
    sibling_cpu: int | None = None
    step: Callable[[str], None] = print

    def host_of(self, soi: Soi) -> run.Host:
        """Return where the kernel of an SoI runs."""
        if soi.name == 'network_bandwidth' and self.link_host is not None:
            return self.link_host
        return self.host

    def plan(self, soi: Soi) -> arguments.Start:
        """Return how an SoI is started for its validation.

        :raises ConfigError: it cannot be here.
        """
        chosen = self.chosen
        if soi.name == 'network_bandwidth' and self.link_host is None:
            raise errors.ConfigError(self.no_link)
        elif soi.name == 'interconnect' and self.probe_cpu is not None:
            chosen = chosen._replace(
                cpus=(*chosen.cpus, self.probe_cpu), size_bytes=None)
        elif soi.name not in ('memory_capacity', 'storage_capacity',
                              'storage_bandwidth'):
            chosen = chosen._replace(size_bytes=None)
        return arguments.plan_start(soi, chosen)


def validate_soi(bench: Bench, soi: Soi) -> Row:
    """Measure one SoI at each of :data:`LEVELS`.

    Of the repeats of a level the one counts that other work of the host
    disturbed least: the highest rate or footprint, the lowest slow-down.
    What this host cannot do is the row's reason.

    :raises Interrupted: a signal came.
    """
    row = Row(soi)
    try:
        start = bench.plan(soi)
        row.whole = start.whole
        method = _choose_method(bench, row)
        if method is None:
            return row
        bench.step(f'{soi.name}: rate alone')
        calibrated = run.calibrate(
            bench.host_of(soi), start,
            times=max(bench.repeats, CALIBRATIONS))
        values: dict[int, list[float]] = {level: [] for level in LEVELS}
        for repeat in range(bench.repeats):
            # In another order each time: what drifts is not the intensity.
            order = random.Random(repeat).sample(LEVELS, len(LEVELS))
            for level in order:
                bench.step(f'{soi.name}: {level} %, {row.meter}')
                values[level].append(method.measure(start, calibrated,
                                                    level))
        row.points = [(level, method.combine(values[level]))
                      for level in LEVELS]
        most = max(value for _, value in row.points)
        if row.fit() is None:
            row.reason = f'{row.meter}: the same at each intensity'
        elif row.unit == SLOW_DOWN and most < LEAST_SLOW_DOWN:
            row.reason = (f'the probe is slowed by {100 * most:.1f} % at '
                          'most, too little to judge: it may not share the '
                          'resource, as CPUs of a VM often do not share '
                          'the cache that they show, or one CPU is too few '
                          'to fill it')
    except (errors.ConfigError, errors.DriverError, OSError) as exc:
        row.points = []
        row.reason = ' '.join(str(exc).split())
    return row


class Method(NamedTuple):
    """The way in which a level is measured, and one value made of its
    repeats."""

    measure: Callable[[arguments.Start, run.Event, int], float]
    combine: Callable[[list[float]], float] = max


def _choose_method(bench: Bench, row: Row) -> Method | None:
    """Set the row's meter and return how to read it; None: nothing can."""
    meter, soi = row.soi.meter, row.soi
    row.meter, row.independent = str(meter), True
    gauge: Callable[[int], float]
    if meter in (Meter.RESIDENT, Meter.BLOCKS):
        row.unit = 'bytes'
        path = bench.chosen.path
        if meter == Meter.RESIDENT or path is None:
            gauge = meters.resident_bytes
        else:
            gauge = functools.partial(meters.file_bytes, directory=path)
        return Method(lambda start, calibrated, level: _held(
            bench, start, calibrated, level, gauge))
    if meter in (Meter.STORAGE, Meter.LINK):
        row.unit = 'bytes/s'
        device = bench.link_device
        if meter == Meter.STORAGE or device is None:
            gauge = meters.storage_bytes
        else:
            gauge = functools.partial(meters.link_bytes, device=device)
        return Method(lambda start, calibrated, level: _rate(
            bench, start, calibrated, level, gauge))
    cpu = bench.probe_cpu if meter == Meter.PROBE else bench.sibling_cpu
    if meter != Meter.RATE and cpu is not None:
        row.unit = SLOW_DOWN
        alone_s: list[float] = []
        return Method(lambda start, calibrated, level: _beside_s(
            bench, start, calibrated, level, cpu, alone_s),
            lambda times_s: min(times_s) / min(alone_s) - 1)
    row.independent = False
    row.reason = {
        Meter.PROBE: 'no second CPU for a probe',
        Meter.SIBLING: 'one thread per core: no probe can share the core, '
                       'and no counter of the CPU is read',
        Meter.RATE: 'the units have no meter but counters of the CPU',
    }[meter]
    if soi.name == 'prefetcher':
        row.meter = None
        row.reason += '; its rate says nothing of the prefetchers'
        return None
    if soi.kind == Kind.CAPACITY:
        row.meter, row.unit = 'own footprint', 'bytes'
        return Method(lambda start, calibrated, level: _own(
            bench, start, calibrated, level)['held_bytes'])
    row.meter, row.unit = 'own rate', f'{soi.unit}/s'
    return Method(lambda start, calibrated, level: _rate_of(
        _own(bench, start, calibrated, level)))


def _own(bench: Bench, start: arguments.Start, calibrated: run.Event,
         level: int) -> run.Event:
    """The SoI's own last report."""
    result, = run.play(bench.host_of(start.soi), [
        (start, run.level_words([Level(level, bench.seconds)],
                                chunk_s=calibrated['chunk_s']))])
    return result.levels[-1]


def _rate_of(report: run.Event) -> float:
    return float(report['operations'] / report['seconds'])


def _held(bench: Bench, start: arguments.Start, calibrated: run.Event,
          level: int, gauge: Callable[[int], float]) -> float:
    """The highest reading of a gauge while a level is held, for as long as
    it takes to fill it twice."""
    size = start.disk_bytes or 0
    fill_s = (2 * level / 100 * size / calibrated['bytes_per_s']
              if calibrated.get('bytes_per_s') else 0.0)
    return max(value for _, value in _read_meter(
        bench, start, calibrated, level, bench.seconds + fill_s, gauge))


def _rate(bench: Bench, start: arguments.Start, calibrated: run.Event,
          level: int, gauge: Callable[[int], float]) -> float:
    """Return what a counter grows by per second from the first report on."""
    readings = _read_meter(bench, start, calibrated, level, bench.seconds,
                           gauge)
    (begin_s, before), (end_s, after) = readings[0], readings[-1]
    return (after - before) / (end_s - begin_s)


def _read_meter(bench: Bench, start: arguments.Start, calibrated: run.Event,
                level: int, seconds: float, gauge: Callable[[int], float]
                ) -> list[tuple[float, float]]:
    """Time and value of a meter, from the first report on for ``seconds``.

    The kernel is ended then: one that ended by itself could be gone at any
    reading, and has nothing any more.
    """
    readings: list[tuple[float, float]] = []

    def read(kernels: Sequence[run.Kernel]) -> bool:
        if not kernels[0].result.levels:
            return False        # it is not ready
        now_s = time.monotonic()
        readings.append((now_s, gauge(kernels[0].process.pid)))
        return now_s > readings[0][0] + seconds

    run.play(bench.host_of(start.soi), [(start, run.level_words(
        [Level(level, run.ENDLESS_S)], chunk_s=calibrated['chunk_s'],
        every_s=min(run.EVERY_S, bench.seconds)))],
        on_turn=read, turn_s=TURN_S)
    return readings


def _beside_s(bench: Bench, start: arguments.Start, calibrated: run.Event,
              level: int, cpu: int, alone_s: list[float]) -> float:
    """Return how long a chunk of a probe takes beside a level.

    :param alone_s: how long it takes alone, just before, is added to these
    """
    probe = arguments.plan_start(start.soi, bench.chosen._replace(
        cpus=(cpu,), size_bytes=None, seed=bench.chosen.seed + 1))
    percent = (LLC_PROBE_SHARE * 100
               if start.soi.name == 'llc_capacity' else 100.0)
    chunk_s = calibrated['chunk_s']
    words = run.level_words([Level(percent, bench.seconds)],
                            chunk_s=chunk_s, every_s=PROBE_EVERY_S)
    alone, = run.play(bench.host, [(probe, words)])
    alone_s.append(_chunk_s(alone))
    beside, _ = run.play(bench.host, [
        (probe, words), (start, run.level_words(
            [Level(level, bench.seconds)], chunk_s=chunk_s))])
    return _chunk_s(beside)


def _chunk_s(result: run.Result) -> float:
    """The median over reports: what else takes the CPU for a moment does
    not change it."""
    times = [sample['chunk_s'] for sample in result.samples
             if 'chunk_s' in sample]
    if not times:
        raise errors.DriverError(
            f'{result.start.soi.name} did no chunk: give it more --seconds')
    return statistics.median(times)


def reached(bench: Bench, first: Soi, second: Soi, percent: float,
            alone: dict[str, float]) -> tuple[float, float]:
    """Return the intensity that each of two SoIs reaches beside the other,
    as a share of what it reaches alone.

    :param alone: rates alone by name; what is missing is measured and added
    :raises ConfigError: one of them cannot be here.
    :raises DriverError: one fails.
    :raises Interrupted: a signal came.

    Source: iBench, section IV-C and figure 4.
    """
    rates = []
    jobs = []
    for soi in (first, second):
        start = bench.plan(soi)
        host = bench.host_of(soi)
        calibrated = run.calibrate(host, start) if f'{soi.name} chunk' \
            not in alone else {'chunk_s': alone[f'{soi.name} chunk']}
        alone[f'{soi.name} chunk'] = calibrated['chunk_s']
        words = run.level_words([Level(percent, bench.seconds)],
                                chunk_s=calibrated['chunk_s'])
        if soi.name not in alone:
            result, = run.play(host, [(start, words)])
            alone[soi.name] = _rate_of(result.levels[-1])
        jobs.append((start, words))
    host = (bench.link_host if bench.link_host is not None
            and 'network_bandwidth' in (first.name, second.name)
            else bench.host)
    for soi, result in zip((first, second), run.play(host, jobs),
                           strict=True):
        rates.append(_rate_of(result.levels[-1]) / alone[soi.name]
                     if alone[soi.name] else 0.0)
    return rates[0], rates[1]
