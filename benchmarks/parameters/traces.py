# SPDX-License-Identifier: Apache-2.0


"""What the sensitivity study looks at: series, each as the agent sees it.

A series is a name, a capacity and points in time; a :class:`Trace` is the
same as the values that the controller takes, so that the rule under study is
the one that the agent runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
import math
import pathlib
import random
import re
import statistics
from typing import Any


from scavenger_openstack.algorithms.scavenger.scavenger import NAME
from scavenger_openstack.algorithms.scavenger.scavenger import Params
from scavenger_openstack.decision.rates import rates
from scavenger_openstack.recording import replay
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates

DAY_S, HOUR_S = 86_400.0, 3600.0
MEMORY = 'memory'
MEMORY_BYTES = 2 ** 36

FILES = {
    'mean': 'alibaba2018_dcavg_10s.parquet',
    'machines': 'alibaba2018_machine_usage_16machines.parquet',
    'pods': 'alibaba2026_genai_pod_mem.parquet',
}
OTHERS = 'traces of others'
TOO_SHORT = 'too short for advice'
PYARROW = ('reading Parquet needs pyarrow, which is not installed; '
           'run: pip install pyarrow')

Point = tuple[float, float]


class Absent(Exception):
    """What is needed for a part is not here; says what to do."""


@dataclasses.dataclass(frozen=True, slots=True)
class Trace:
    """One machine, pod or link.  ``resource`` is ``memory`` or a device.

    ``interval_s`` is what the controller is told about the time between
    ticks: it makes windows of seconds into windows of samples.
    """

    name: str
    resource: str
    interval_s: float
    ticks: Sequence[Rates]


@dataclasses.dataclass(frozen=True, slots=True)
class Group:
    """Traces that are studied together.

    ``unit`` is what violations are counted by, what is drawn again and
    again for the intervals, and what the worst one is of: a trace, or
    ``block_s`` of it.  ``basis``: what kind of evidence that is.
    """

    key: str
    title: str
    unit: str
    about: str
    traces: Sequence[Trace]
    block_s: float = math.inf
    basis: str = OTHERS

    @property
    def resource(self) -> str:
        return ('memory' if self.traces[0].resource == MEMORY
                else 'network')

    @property
    def interval_s(self) -> float:
        return self.traces[0].interval_s

    def without_ticks(self) -> Group:
        """The same for reports: the ticks are many."""
        return dataclasses.replace(self, traces=[
            dataclasses.replace(self.traces[0], ticks=())])


def of_points(name: str, capacity: float, points: Iterable[Point], *,
              resource: str, interval_s: float) -> Trace:
    """A trace of what the foreground uses: (time in s, use).

    Capacity and use have the same unit, whatever it is; memory becomes
    bytes of a host of :data:`MEMORY_BYTES`.  Nothing else is on the host.
    """
    ticks = []
    for time_s, value in points:
        value = max(0.0, value)
        if resource == MEMORY:
            ticks.append(Rates(
                time_s=time_s, interval_s=interval_s, workloads=(),
                memory_total_bytes=MEMORY_BYTES,
                memory_available_bytes=MEMORY_BYTES - round(
                    MEMORY_BYTES * value / capacity)))
        else:
            ticks.append(Rates(
                time_s=time_s, interval_s=interval_s, workloads=(),
                links={resource: capacity},
                link_tx_bytes_per_s={resource: value}))
    return Trace(name, resource, interval_s, ticks)


def without_background(tick: Rates) -> Rates:
    """The same for the memory and network rules, and quicker to look at.

    What the background uses is not foreground, so it is taken off here, as
    the controller would.  A tick that does not know all of it is left as it
    is: the controller has its own way with that.
    """
    background = [one for one in tick.workloads
                  if one[0].priority is Priority.BACKGROUND]
    if (not background or tick.memory_available_bytes is None
            or any(one.memory_bytes is None or one.net_tx_bytes_per_s is None
                   and one[0].interfaces for one in background)):
        return tick
    sent = dict(tick.link_tx_bytes_per_s)
    for one in background:
        link = next((tick.link_of[name] for name in one[0].interfaces
                     if name in tick.link_of), None)
        rate = sent.get(link) if link is not None else None
        if link is not None and rate is not None:
            sent[link] = max(0.0, rate - (one.net_tx_bytes_per_s or 0.0))
    return dataclasses.replace(
        tick, link_tx_bytes_per_s=sent,
        workloads=tuple(one for one in tick.workloads
                        if one[0].priority is not Priority.BACKGROUND),
        memory_available_bytes=tick.memory_available_bytes + sum(
            one.memory_bytes or 0 for one in background))


def recorded(path: pathlib.Path) -> tuple[list[Rates], float, Params]:
    """The ticks of a recording, their interval in seconds, and the
    parameters in use.

    :raises OSError, DriverError: it cannot be read.
    """
    recording = replay.read(path)
    ticks = []
    before: HostSample | None = None
    for turn in recording:
        if turn.sample is not None:
            ticks.append(rates(None if turn.reset else before, turn.sample))
            before = turn.sample
    known = {field.name for field in dataclasses.fields(Params)}
    params = {name: value for one in recording.header.controllers
              if one.name == NAME for name, value in one.params.items()
              if name in known}
    return ticks, recording.header.interval_s, Params(**params)


def of_recording(ticks: Sequence[Rates], interval_s: float) -> list[Group]:
    """Memory and each shared link of a recorded host, hour by hour.

    Foreground workloads stay in: newcomers are reserved their allotment, as
    in the agent.
    """
    ticks = [without_background(tick) for tick in ticks]
    hours = (ticks[-1].time_s - ticks[0].time_s) / HOUR_S if ticks else 0.0
    about = (f'{len(ticks)} samples, {hours:.2g} hours, {interval_s:g} s '
             f'apart. What background work used is taken off; what it did '
             f'to the foreground, and the limits in force while this was '
             f'recorded, are in the numbers.')
    basis = 'the recording'
    if hours < DAY_S / HOUR_S:
        about += (' That is less than a day: take what follows for a look, '
                  'not for advice.')
        basis += f' of {hours:.2g} hours: {TOO_SHORT}'
    found = []
    if any(tick.memory_total_bytes and tick.memory_available_bytes is not None
           for tick in ticks):
        found.append(Group('memory', 'Memory: the recorded host', 'hour',
                           about, [Trace('memory', MEMORY, interval_s, ticks)],
                           HOUR_S, basis))
    links = dict.fromkeys(link for tick in ticks for link in tick.links)
    return found + [
        Group('link-' + re.sub('[^A-Za-z0-9.-]', '_', link),
              f'Network: {link} of the recorded host',
              'hour', about, [Trace(link, link, interval_s, ticks)], HOUR_S,
              basis)
        for link in links]


def columns(path: pathlib.Path, *names: str) -> list[list[Any]]:
    """Columns of a Parquet file.

    :raises Absent: the file or what reads it is not here.
    """
    if not path.exists():
        raise Absent(f'no {path.name} in {path.parent}; say where the '
                     f'traces are with --data DIR')
    try:
        import pyarrow.parquet
    except ImportError:
        raise Absent(f'{path.name}: {PYARROW}') from None
    try:
        table = pyarrow.parquet.read_table(path, columns=list(names))
        missing = set(names) - set(table.column_names)
    except (OSError, pyarrow.ArrowException) as exc:
        raise Absent(f'{path} is not a Parquet file that can be read: '
                     f'{str(exc).splitlines()[0]:.120}') from None
    if missing or not table.num_rows:
        raise Absent(f'{path} has no {", ".join(sorted(missing)) or "rows"}: '
                     f'not the trace that is meant')
    return [table.column(name).to_pylist() for name in names]


def _by_name(names: Sequence[Any], times: Sequence[float],
             values: Sequence[float]) -> dict[Any, list[Point]]:
    """Points in order of time per name; of two at a time the first."""
    found: dict[Any, dict[float, float]] = {}
    for name, time_s, value in zip(names, times, values, strict=True):
        found.setdefault(name, {}).setdefault(time_s, value)
    return {name: sorted(points.items()) for name, points in found.items()}


def spacing_s(points: Sequence[Point]) -> float:
    """Mean seconds between points, holes of an hour and more left out."""
    gaps = [b[0] - a[0] for a, b in zip(points, points[1:], strict=False)]
    return statistics.fmean(gap for gap in gaps if gap < 3600)


def mean_trace(data: pathlib.Path) -> Group:
    """Memory, the mean of about 4,000 machines, 10 s apart."""
    days, rows, values = columns(
        data / FILES['mean'], 'day', 'row', 'mem_util_percent')
    points = _by_name(['mean'] * len(days), [
        day * DAY_S + row * 10.0
        for day, row in zip(days, rows, strict=True)], values)['mean']
    return Group(
        'mean', 'Memory: mean of about 4,000 machines, 10 s apart', 'day',
        f'{len(set(days))} days, {len(points)} samples. The mean of so many '
        f'machines moves far less than any of them. It is all the memory '
        f'in use, by batch jobs too: the trace does not tell them apart.',
        [of_points('mean', 100.0, points, resource=MEMORY,
                   interval_s=10.0)], DAY_S)


def mean_link(data: pathlib.Path) -> Group:
    """Sending rate, the mean of about 4,000 machines, 10 s apart."""
    days, rows, values = columns(
        data / FILES['mean'], 'day', 'row', 'net_out')
    points = _by_name(['mean'] * len(days), [
        day * DAY_S + row * 10.0
        for day, row in zip(days, rows, strict=True)], values)['mean']
    return Group(
        'mean-link', 'Network: mean of about 4,000 machines, 10 s apart',
        'day', f'{len(set(days))} days, {len(points)} samples of what is '
        f'sent, in percent of the link. The mean of so many machines moves '
        f'far less than any of them.',
        [of_points('mean', 100.0, points, resource='link',
                   interval_s=10.0)], DAY_S)


def machines(data: pathlib.Path) -> Group:
    """Memory of single machines; most samples are absent."""
    names, times, values = columns(
        data / FILES['machines'], 'machine_id', 't_s', 'mem_util_percent')
    parts = _by_name(names, times, values)
    every_s = statistics.fmean(map(spacing_s, parts.values()))
    return Group(
        'machines', f'Memory: {len(parts)} machines, about {every_s:.0f} s '
                    f'apart', 'machine',
        f'{len(values)} samples of whole machines, batch jobs included, in '
        f'integer percent. Only '
        f'about one in ten 10 s slots is there, so the rule is told an '
        f'interval of {every_s:.0f} s, the mean. It learns again after a gap '
        f'longer than its window, as in the agent: '
        f'"held" says for which share of the samples it had a model.',
        [of_points(str(name), 100.0, points, resource=MEMORY,
                   interval_s=every_s) for name, points in parts.items()])


def pods(data: pathlib.Path, *, least_samples: int = 120) -> Group:
    """Memory of pods as a share of their limit, 57 s apart."""
    names, times, values = columns(
        data / FILES['pods'], 'pod', 't_s', 'mem_util')
    parts = {name: points
             for name, points in _by_name(names, times, values).items()
             if name != -1 and len(points) >= least_samples}
    return Group(
        'pods', f'Memory: {len(parts)} pods, 57 s apart', 'pod',
        f'The pods with at least {least_samples} samples, each as if it '
        f'were all the foreground of a host of the size of its limit. '
        f'Samples without a pod are left out.',
        [of_points(f'pod {name}', 1.0, points, resource=MEMORY,
                   interval_s=57.0) for name, points in parts.items()])


def pod_hosts(data: pathlib.Path, *, size: int = 8, seed: int = 1) -> Group:
    """Memory of made-up hosts: sums of pods that are there throughout."""
    names, times, values = columns(
        data / FILES['pods'], 'pod', 't_s', 'mem_util')
    parts = {name: points
             for name, points in _by_name(names, times, values).items()
             if name != -1}
    longest = max(map(len, parts.values()))
    whole = sorted(name for name, points in parts.items()
                   if len(points) == longest)
    random.Random(seed).shuffle(whole)
    traces: list[Trace] = []
    for first in range(0, len(whole) - size + 1, size):
        chosen = [parts[name] for name in whole[first:first + size]]
        traces.append(of_points(
            f'host {len(traces)}', float(size),
            [(at[0][0], sum(value for _, value in at))
             for at in zip(*chosen, strict=True)],
            resource=MEMORY, interval_s=57.0))
    return Group(
        'hosts', f'Memory: {len(traces)} hosts of {size} pods, 57 s apart',
        'host',
        f'The rule sees the sum of the foreground. These are sums of {size} '
        f'pods drawn at random among the {len(whole)} complete ones, each '
        f'pod taken to have the same limit.', traces)


def thinned(group: Group, every: int) -> Group:
    """Of each trace one sample in ``every``: the same, seen less often."""
    return dataclasses.replace(group, traces=[
        dataclasses.replace(trace, interval_s=trace.interval_s * every,
                            ticks=trace.ticks[::every])
        for trace in group.traces])


