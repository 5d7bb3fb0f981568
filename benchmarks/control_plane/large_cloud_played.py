# SPDX-License-Identifier: Apache-2.0

"""A conductor beside a slow Placement, and a slow Nova."""

from __future__ import annotations

import time
from typing import Any

import cloud
import figures
import played_services
import sqlalchemy
from sqlalchemy import func
from sqlalchemy import select
import transactions

from scavenger_openstack.conductor.nova import client
from scavenger_openstack.conductor.nova import reconciling
from scavenger_openstack.conductor import placement
from scavenger_openstack.conductor import placement_api
from scavenger_openstack.conductor import placement_writer
from scavenger_openstack.db import connect
from scavenger_openstack.db import tables

PARAMS = placement.Params(smooth_s=300.0, step=0.1, interval_s=60.0,
                          silent_s=120.0)
CHANGE_S = 60.0
"""An instance of the cloud changes so often."""
VANISHED = 2000
"""Instances that are deleted while Nova's changes are not read."""


def nothing() -> None:
    """The claim is still ours."""


def placement_rounds(engine: sqlalchemy.Engine, measured: figures.Figures,
                     hosts: int, there: int, call_s: float) -> None:
    """
    :param there: hosts that Placement has, of all
    :param call_s: how long each of its calls takes
    """
    late_s = [0.0]
    with played_services.closing(played_services.Placement(
            there, call_s)) as served:
        writer = placement_writer.Writer(
            engine, placement_api.Placement(served.client()), PARAMS,
            lambda: time.time() + late_s[0])
        _report(engine, {'cpu': 20.0}, {'cpu': 20.0})
        _round(writer, served, measured, 'after a start', hosts, there)
        late_s[0] = PARAMS.interval_s + 1
        # Half of the hosts have less to offer, the other half more.
        _report(engine, {'cpu': 10.0}, {'cpu': 60.0})
        begun_s = _round(writer, served, measured, 'all hosts moved', hosts,
                         there)
        less = [name for name in served.written_s
                if int(name.rpartition(':')[0].rpartition('-')[2]) % 2]
        measured.add('Placement, all hosts moved, last that offers less, s',
                  hosts / there * (max(
                      served.written_s[name] for name in less) - begun_s),
                  f'{there} hosts')


def _round(writer: placement_writer.Writer,
           served: played_services.Placement, measured: figures.Figures,
           what: str, hosts: int, there: int) -> float:
    """One turn; when it began."""
    before, begun_s = served.served.total, time.monotonic()
    cpu_s = time.thread_time()
    written = writer.turn(nothing)
    took_s = time.monotonic() - begun_s
    measured.add(f'Placement, {what}, s', hosts / there * took_s,
              f'{written} of {there} hosts written in {took_s:.1f} s')
    measured.add(f'Placement, {what}, calls a host',
              (served.served.total - before) / there)
    measured.add(f'Placement, {what}, ms of CPU a host',
              1e3 * (time.thread_time() - cpu_s) / there,
              'of the thread of the turn')
    return begun_s


def _report(engine: sqlalchemy.Engine, odd: dict[str, float],
            even: dict[str, float]) -> None:
    """All hosts have reported now, and have so much headroom by the number
    in their name."""
    id_ = tables.hosts.c.id
    for rest, headroom in ((1, odd), (0, even)):
        with connect.writing(engine) as connection:
            connection.execute(tables.hosts.update().where(
                id_ % 2 == rest).values(last_seen_s=time.time(), facts={
                    'enforcing': True, 'grade': 'B', 'used': cloud.FACTS.used,
                    'headroom': cloud.FACTS.headroom | headroom,
                    'capacity': cloud.FACTS.capacity}))


def nova_reads(engine: sqlalchemy.Engine, measured: figures.Figures,
               hosts: int, longest: transactions.Longest) -> None:
    """Read all instances, then what changes, then all again where many have
    vanished."""
    count = hosts * cloud.WORKLOADS
    with played_services.closing(played_services.Nova(
            count, time.time(), CHANGE_S)) as nova:
        reader = reconciling.Reconciler(engine, client.Nova(
            nova.served.session(), endpoint_override=nova.served.url),
            nova.clock)
        longest.taken_s()
        _turn(reader, nova, measured, 'all instances')
        measured.add('Nova, all instances, longest transaction, s',
                  longest.taken_s())
        _lags(nova, measured, 'while all are read')
        for _ in range(10):
            nova.pass_s(60)
            reader.turn(nothing)
        nova.lags_s.clear()
        before, begun_s = nova.served.total, nova.now
        for _ in range(30):
            nova.pass_s(60)
            reader.turn(nothing)
        measured.add('Nova, a turn with changes, s of Nova',
                  (nova.now - begun_s) / 30 - 60, '30 turns')
        measured.add('Nova, a turn with changes, calls',
                  (nova.served.total - before) / 30)
        _lags(nova, measured, 'between')
        gone = min(VANISHED, count // 10)
        nova.gone = gone
        nova.pass_s(7 * 3600)
        _turn(reader, nova, measured, f'all, {gone:,} have vanished')
        with connect.reading(engine) as connection:
            left = connection.scalar(select(func.count()).select_from(
                tables.flavor_tags)) - (count - gone)
        measured.add('Nova, vanished instances that are known still', left)
        print('  calls: ' + ', '.join(
            f'{number} {kind}' for kind, number
            in sorted(nova.served.calls.items())))


def _turn(reader: reconciling.Reconciler, nova: played_services.Nova,
          measured: figures.Figures, what: str) -> None:
    before, begun_s = nova.served.total, nova.now
    wall_s, cpu_s = time.monotonic(), time.thread_time()
    changed = reader.turn(nothing)
    measured.add(f'Nova, {what}, s of Nova', nova.now - begun_s,
              f'in {time.monotonic() - wall_s:.0f} s, {changed:,} changed')
    measured.add(f'Nova, {what}, calls', nova.served.total - before)
    measured.add(f'Nova, {what}, s of CPU', time.thread_time() - cpu_s)


def _lags(nova: played_services.Nova, measured: figures.Figures, what: str
          ) -> Any:
    waiting = [nova.now - since_s for since_s in nova.waiting.values()]
    measured.add(f'Nova, {what}, oldest change that was not read, s',
              max([*nova.lags_s, *waiting], default=0.0),
              f'{len(nova.lags_s)} changes')
