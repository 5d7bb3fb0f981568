# SPDX-License-Identifier: Apache-2.0


"""Writes what the agent's slow loop saw and wanted to a file, line by line.

:mod:`scavenger_openstack.recording.replay` reads it again; the page
``recordings`` of the documentation has every field.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import errno
import json
import os
import pathlib
import time
from typing import Any
from typing import Protocol

from oslo_config import cfg
from oslo_log import log

from scavenger_openstack.algorithms.perfiso import perfiso
from scavenger_openstack import conf as conf_package
from scavenger_openstack.decision import changes
from scavenger_openstack.decision.controller import Controller
from scavenger_openstack.decision import orders
from scavenger_openstack.decision import settle
from scavenger_openstack.drivers import base
from scavenger_openstack import errors
from scavenger_openstack.recording import line_format
from scavenger_openstack.recording import order_format
from scavenger_openstack.restore import files
from scavenger_openstack.restore import records
from scavenger_openstack import types
from scavenger_openstack import version
from scavenger_openstack.wire import json_fields
from scavenger_openstack.wire.json_fields import as_json

LOG = log.getLogger(__name__)

MEASURED = types.WorkloadSample._fields[1:-1]
KEEP_FREE = 0.05
"""Share of a disk that is left to others: it may be the instances' own."""

GAUGES = ('time_s', 'wall_time_s', 'memory_total_bytes',
          'memory_available_bytes', 'memory_free_bytes', 'refault_bytes')


def header(conf: cfg.ConfigOpts,
           controllers: Iterable[tuple[Controller, types.Mode]],
           params_of: Callable[[str, Any], Any],
           state: Mapping[str, Any], loaded_s: float) -> dict[str, Any]:
    """The first line: all that the decisions start from.

    :param params_of: the ``Params`` of a section, of this class
    :param state: what the controllers were given when they were made
    :param loaded_s: when that was, in seconds of CLOCK_BOOTTIME
    """
    return {
        'type': 'header', 'schema': line_format.SCHEMA,
        'version': version(), 'host': conf.agent.host,
        'boot_id': records.boot_id(), 'time_s': records.now_s(),
        'wall_time_s': time.time(), 'interval_s': conf.agent.interval_s,
        'loaded_s': loaded_s,
        'controllers': [{
            'name': controller.name, 'mode': mode,
            'params': _values(params_of(controller.name,
                                        controller.params_type)),
            'state': state.get(controller.name)}
            for controller, mode in controllers],
        'isolation': {
            'name': perfiso.Controller.name,
            'mode': conf_package.mode(conf, 'perfiso'),
            'params': _values(params_of('perfiso', perfiso.Params))},
        **({'protect': conf.agent.protect} if conf.agent.protect else {})}


def _values(params: Any) -> dict[str, Any]:
    return {field.name: getattr(params, field.name)
            for field in dataclasses.fields(params)}


class Tick(Protocol):
    """The values that a line is made of: see ``agent.loop.Tick``."""

    time_s: float
    sample: types.HostSample | None
    decided: settle.Decided | None
    reset: bool
    stopped: bool
    unwatched: bool
    unmet: Mapping[str, int]
    pending: frozenset[types.KnobKey]
    orders: orders.Orders

    @property
    def problems(self) -> Sequence[str]:
        """The faults of this tick."""
        ...


class RecordedKnobs:
    """Knobs that remember what was written to them and read back."""

    def __init__(self, knobs: base.Knobs) -> None:
        self._knobs = knobs
        self._written: collections.deque[tuple[str, types.Knob, types.Value,
                                               types.Value | None]]
        self._written = collections.deque()
        self.read = knobs.read
        self.restore_actions = knobs.restore_actions
        self.queue, self.refresh = knobs.queue, knobs.refresh
        self.notify, self.executor = knobs.notify, knobs.executor

    def write(self, workload: str, knob: types.Knob, value: types.Value,
              state: base.KnobState | None = None) -> types.Value | None:
        in_force = self._knobs.write(workload, knob, value, state)
        self._written.append((workload, knob, value, in_force))
        return in_force

    def written(self) -> list[tuple[str, types.Knob, types.Value,
                                    types.Value | None]]:
        """Return what was written since the last call, by whatever thread."""
        writes = []
        while self._written:
            writes.append(self._written.popleft())
        return writes


class Recorder:
    """One recording.  Whatever goes wrong with it, the agent goes on."""

    def __init__(self, path: pathlib.Path, knobs: base.Knobs) -> None:
        self._path = path
        self._fd = -1
        self._size = 0
        self.knobs = RecordedKnobs(knobs)
        self._host: dict[str, Any] = {}
        self._workloads: dict[str, types.Workload] = {}
        self._originals: dict[types.KnobKey, types.Value] = {}
        self._in_force: set[types.KnobKey] = set()
        self._changes = changes.Changes()
        self._orders = orders.NO_ORDERS
        self._params: dict[str, dict[str, Any]] = {}
        self._written_params: dict[str, Any] = {}

    def start(self, first: Mapping[str, Any]) -> None:
        """Make the file and write its header.

        :raises ConfigError: it is there already, or cannot be made.
        """
        try:
            self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT
                               | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
                               0o600)
        except FileExistsError:
            raise errors.ConfigError(
                f'--record {self._path}: it is there already and will not '
                'be overwritten; give another name') from None
        except OSError as exc:
            raise errors.ConfigError(
                f'--record {self._path}: {exc.strerror}') from exc
        self._params = {
            controller['name']: controller['params'] for controller in (
                *first['controllers'], first['isolation'])}
        self._write(first)

    def tick(self, tick: Tick, in_force: Collection[types.KnobKey],
             params: Mapping[str, Any] = {}) -> None:
        """Add the line of one tick.

        :param in_force: the knobs that hold a cap of ours now
        :param params: the ``Params`` of this tick, by section
        """
        written = self.knobs.written()
        if self._fd < 0:
            return
        line: dict[str, Any] = {'type': 'tick', 'time_s': tick.time_s}
        for name, flag in (('stopped', tick.stopped),
                           ('unwatched', tick.unwatched),
                           ('reset', tick.reset)):
            if flag:
                line[name] = True
        asked = order_format.changed(tick.orders, self._orders)
        self._orders = tick.orders
        if asked:
            line['orders'] = asked
        other = {section: changed for section, values in params.items()
                 if (changed := self._other(section, values))}
        if other:
            line['params'] = other
        if tick.sample is not None:
            line['sample'] = self._sample(tick.sample)
        if tick.decided is not None:
            self._add_outside(line, tick, tick.decided)
        self._add_decided(line, tick)
        if written:
            line['written'] = written
        now_in_force = set(in_force)
        if self._in_force - now_in_force:
            line['removed'] = sorted(self._in_force - now_in_force)
        self._in_force = now_in_force
        if tick.problems:
            line['problems'] = tick.problems
        self._write(line)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _other(self, section: str, params: Any) -> dict[str, Any]:
        """Return the parameters of a section that have changed."""
        if self._written_params.get(section) is params:
            return {}
        self._written_params[section] = params
        above = self._params.get(section, {})
        now = self._params[section] = _values(params)
        return {name: value for name, value in now.items()
                if name not in above or value != above[name]}

    def _sample(self, sample: types.HostSample) -> dict[str, Any]:
        """Return the sample as JSON; what rarely changes only if it did."""
        document = {name: value for name in GAUGES
                    if (value := getattr(sample, name)) is not None}
        host = self._host
        for name in json_fields.HOST:
            value = getattr(sample, name)
            if name not in host or (host[name] is not value
                                    and host[name] != value):
                document[name] = as_json(value)
                host[name] = value
        document['cpu_busy_s'] = sample.cpu_busy_s  # json makes texts of keys
        for name in 'link_tx_bytes', 'link_rx_bytes':
            if by_link := getattr(sample, name):
                document[name] = by_link
        if sample.direct:
            document['direct'] = as_json(sample.direct)
        document['workloads'] = list(map(self._workload, sample.workloads))
        self._workloads = {rated[0].id: rated[0] for rated in sample.workloads}
        return document

    def _workload(self, sample: types.WorkloadSample) -> dict[str, Any]:
        workload = sample[0]
        before = self._workloads.get(workload.id)
        document: dict[str, Any] = {'id': workload.id}
        if before is not workload and before != workload:
            document = {'workload': as_json(workload)}
        for name, value in zip(MEASURED, sample[1:-1], strict=True):
            if value is not None:
                document[name] = value
        if sample.caps_in_force:
            document['caps_in_force'] = dict(sample.caps_in_force)
        return document

    def _add_outside(self, line: dict[str, Any], tick: Tick,
                     decided: settle.Decided) -> None:
        """Add what the decision depended on besides samples and
        parameters."""
        originals = {key: value for key, value in decided.originals.items()
                     if value is not None}
        if originals != self._originals:
            self._originals = originals
            by_knob: dict[str, dict[str, types.Value]] = {}
            for (workload, knob), value in originals.items():
                by_knob.setdefault(knob, {})[workload] = value
            line['originals'] = by_knob
        if decided.fast.sets:
            line['fast'] = {'sets': decided.fast.sets, 'floors': _grouped(
                (cap.owner, cap.workload, cap.knob, cap)
                for cap in decided.fast.floors)}
        if tick.unmet:
            line['unmet'] = tick.unmet
        if tick.pending:
            line['pending'] = sorted(tick.pending)

    def _add_decided(self, line: dict[str, Any], tick: Tick) -> None:
        """Add what differs from the decision before."""
        wanted = self._changes.wanted
        if tick.decided is not None:
            changed = self._changes.of(tick.decided)
        elif tick.stopped or tick.unwatched:
            changed = self._changes.of_none()
        else:
            return
        if changed.wanted:
            line['wanted'] = _grouped(
                ((cap or wanted[key]).owner, *key, cap)
                for key, cap in changed.wanted.items())
        if changed.would:
            line['would'] = _grouped(
                (*key, cap) for key, cap in changed.would.items())
        if changed.incidents:
            line['incidents'] = [
                {'controller': change.controller,
                 'incident': as_json(change.incident),
                 **({'ended': True} if change.ended else {})}
                for change in changed.incidents]

    def _write(self, line: Mapping[str, Any]) -> None:
        """Add a line as a whole, or give up for good."""
        try:
            disk = os.fstatvfs(self._fd)
            if disk.f_bavail < KEEP_FREE * disk.f_blocks:
                raise OSError(errno.ENOSPC, 'less than 5 % of the disk is '
                                            'free')
            data = json.dumps(line, separators=(',', ':')).encode() + b'\n'
            files.write_all(self._fd, data)
            self._size = os.lseek(self._fd, 0, os.SEEK_CUR)
        except (OSError, TypeError, ValueError) as exc:
            LOG.warning('recording to %s ended: %s; the agent goes on '
                        'without', self._path, exc)
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._size)
            self.close()


def _grouped(caps: Iterable[tuple[str, str, types.Knob, types.Cap | None]]
             ) -> list[dict[str, Any]]:
    """Caps with the same knob, owner and reason as one object."""
    groups: dict[tuple[str, str, str | None], dict[str, Any]] = {}
    for owner, workload, knob, cap in caps:
        reason = cap.reason if cap else None
        group = groups.get((owner, knob, reason))
        if group is None:
            group = {'knob': knob, 'owner': owner, 'values': {}}
            if cap:
                group['reason'] = reason
            groups[owner, knob, reason] = group
        group['values'][workload] = cap.value if cap else None
    return list(groups.values())
