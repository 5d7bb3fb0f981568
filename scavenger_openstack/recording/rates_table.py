# SPDX-License-Identifier: Apache-2.0


"""Rates that another program measured, out of a table.

The format is a public interface; its page in the documentation is
``recordings``.  A table is read as a whole: rows may come in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
import pathlib
import statistics
from typing import Any
from typing import NamedTuple

from scavenger_openstack import errors
from scavenger_openstack import types

SCHEMA = 1
"""Version of the columns."""

RATES = ('cpu_cores', 'cpi', 'run_delay', 'io_wait_s_per_op',
         'llc_misses_per_s', 'io_bytes_per_s', 'net_tx_bytes_per_s',
         'memory_bytes')
OPTIONAL_RATES = ('throttled_share', 'io_ops_per_s', 'net_rx_bytes_per_s')
REQUIRED = ('time_s', 'workload', 'priority', 'application', 'cpu_model',
            *RATES)
OPTIONAL = ('host', 'project', 'vcpus', *OPTIONAL_RATES)

DEFAULT_HOST = 'local'
DEFAULT_INTERVAL_S = 1.0
"""Of a host that is in the table with one time only."""

SHORTEST_S = 0.001
"""No usual interval is shorter: windows are counted in it."""

LARGEST = 2.0 ** 64
"""No number is as large; those of many can be added up."""

LINK = 'link'
"""What the one shared link of a table is called."""

Cells = Mapping[str, Any]
"""A row: what stands in each known column; an empty text or ``None`` for
what was not measured."""


class Capacity(NamedTuple):
    """The capacity of a host, for regulators; ``None``: not given."""

    cpus: int | None = None
    memory_bytes: float | None = None
    link_bytes_per_s: float | None = None


class Row(NamedTuple):
    """One workload at one time; the rates have no interval yet."""

    line: int
    cpu_model: str | None
    rates: types.WorkloadRates


class Host:
    """The rates of one host in a table, by time.

    ``interval_s`` is the usual time between two rows of a workload.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.cpu_model: str | None = None
        self.times: dict[float, dict[str, Row]] = {}
        self.interval_s = DEFAULT_INTERVAL_S

    def settle(self) -> None:
        """Sort what was added."""
        self.times = dict(sorted(self.times.items()))
        times = list(self.times)
        steps = [b - a for a, b in zip(times, times[1:], strict=False)]
        if steps:
            self.interval_s = max(SHORTEST_S, statistics.median_low(steps))

    def rates(self, capacity: Capacity) -> Iterator[types.Rates]:
        """Generate one :class:`Rates` per time, in order of time.

        The sums of the host are those of its workloads; a sum is unknown
        while that of any workload is.
        """
        topology = {cpu: types.Cpu(cpu, 0, 0)
                    for cpu in range(capacity.cpus or 0)}
        shared = capacity.link_bytes_per_s is not None
        links = {LINK: capacity.link_bytes_per_s or 0.0} if shared else {}
        before: float | None = None
        for time_s, rows in self.times.items():
            interval_s = (self.interval_s if before is None
                          else time_s - before)
            before = time_s
            workloads = tuple(row.rates._replace(interval_s=interval_s)
                              for row in rows.values())
            used = _total(rated.memory_bytes for rated in workloads)
            available = None
            if capacity.memory_bytes is not None and used is not None:
                available = max(0, int(capacity.memory_bytes - used))
            yield types.Rates(
                time_s, interval_s, workloads, topology,
                None if capacity.memory_bytes is None
                else int(capacity.memory_bytes), available, links,
                {LINK: _total(rated.net_tx_bytes_per_s for rated in workloads)}
                if shared else {}, {LINK: LINK} if shared else {},
                cpu_model=self.cpu_model, link_rx_bytes_per_s={LINK: _total(
                    rated.net_rx_bytes_per_s for rated in workloads)}
                if shared else {})


def _total(values: Iterator[float | None]) -> float | None:
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total


class Table:
    """A table that was read: its hosts in the order of their first rows.

    ``warnings`` are sentences for the operator.
    """

    def __init__(self, path: pathlib.Path,
                 floor: Mapping[types.Knob, float]) -> None:
        self._path = path
        self._floor = floor
        self._workloads: dict[tuple[str | None, ...], types.Workload] = {}
        self.hosts: dict[str, Host] = {}
        self.warnings: list[str] = []

    def add(self, line: int, cells: Cells) -> None:
        """Take a row.

        :raises DriverError: a cell is wrong: file, line, column.
        """
        try:
            time_s = _number(cells, 'time_s')
            if time_s is None:
                raise ValueError('time_s: empty')
            host = self._host(cells)
            row = Row(line, _text(cells, 'cpu_model'), self._rates(cells))
            name = row.rates.workload.id
            rows = host.times.setdefault(time_s, {})
            if name in rows:
                raise ValueError(
                    f'workload: {name!r:.60} is there twice at time_s '
                    f'{time_s:.15g}, also in line {rows[name].line}')
            if row.cpu_model is not None:
                if host.cpu_model not in (None, row.cpu_model):
                    raise ValueError(
                        f'cpu_model: {row.cpu_model!r:.60}, but host '
                        f'{host.name} had {host.cpu_model!r:.60}; a host has '
                        'one')
                host.cpu_model = row.cpu_model
            rows[name] = row
        except ValueError as exc:
            raise errors.DriverError(f'{self._path}:{line}: {exc}') from None

    def finish(self, lines: int) -> Table:
        """Return the table, after all rows were added.

        :raises DriverError: there is none.
        """
        if not self.hosts:
            raise errors.DriverError(
                f'{self._path}:{lines}: no row below the header')
        for host in self.hosts.values():
            host.settle()
        return self

    def _host(self, cells: Cells) -> Host:
        name = _text(cells, 'host') or DEFAULT_HOST
        host = self.hosts.get(name)
        if host is None:
            host = self.hosts[name] = Host(name)
        return host

    def _rates(self, cells: Cells) -> types.WorkloadRates:
        numbers: dict[str, Any] = {name: _number(cells, name)
                                   for name in (*RATES, *OPTIONAL_RATES)}
        memory = numbers.pop('memory_bytes')
        return types.WorkloadRates(
            self._workload(cells), 0.0, **numbers,
            memory_bytes=None if memory is None else int(memory))

    def _workload(self, cells: Cells) -> types.Workload:
        vcpus = _number(cells, 'vcpus')
        if vcpus is not None and vcpus <= 0:
            raise ValueError(f'vcpus: {vcpus:g} is not above 0')
        name = _text(cells, 'workload')
        if name is None:
            raise ValueError('workload: empty')
        written = _text(cells, 'priority')
        try:
            priority = types.Priority(
                (written or types.Priority.FOREGROUND).lower())
        except ValueError:
            raise ValueError(
                f'priority: {written!r:.60} is not '
                + ' or '.join(types.Priority)
                + ' (or empty, which is foreground)') from None
        key = (name, written, _text(cells, 'project'),
               _text(cells, 'application'), repr(vcpus))
        workload = self._workloads.get(key)
        if workload is None:
            workload = self._workloads[key] = types.Workload(
                name, priority, source='table' if written else 'default',
                project=key[2], application=key[3],
                vcpus=1.0 if vcpus is None else vcpus, group=name,
                floor=self._floor, interfaces=(LINK,))
        return workload


def _text(cells: Cells, column: str) -> str | None:
    """Return what a cell says; ``None`` for an empty one."""
    value = cells.get(column)
    if value is None:
        return None
    if not isinstance(value, str):
        raise ValueError(f'{column}: {value!r:.60} is not a text')
    return value.strip() or None


def _number(cells: Cells, column: str) -> float | None:
    """A number from 0 up; ``None`` for an empty cell."""
    value = cells.get(column)
    if value is None:
        return None
    if isinstance(value, str):
        text = value.strip()
        if not text:
            return None
        try:
            # float() would take digits of other scripts, and 1_000.
            number = float(text if text.isascii() and '_' not in text
                           else 'no')
        except ValueError:
            raise ValueError(
                f'{column}: {text!r:.60} is not a number') from None
    elif isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value)
    else:
        raise ValueError(f'{column}: {value!r:.60} is not a number')
    if not 0 <= number < LARGEST:
        raise ValueError(f'{column}: {value!s:.60} is not a finite number '
                         'from 0 up; leave the cell empty if it was not '
                         'measured')
    return number
