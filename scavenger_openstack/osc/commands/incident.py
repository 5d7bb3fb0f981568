# SPDX-License-Identifier: Apache-2.0

"""``openstack interference incident``: what happened, with the evidence."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import shutil
import time
from typing import Any

from osc_lib.command import command

from scavenger_openstack.osc import http
from scavenger_openstack.osc import listing
from scavenger_openstack.osc import table
from scavenger_openstack.osc import times
from scavenger_openstack import typed_amounts

MOST_COLUMNS = 1000
"""Of a drawing, however wide the terminal is."""

COLUMNS = (
    table.Column('id', 'ID'),
    table.Column('begun_at', 'Begun (UTC)', table.time),
    table.Column('duration_s', 'Duration', table.duration),
    table.Column('host', 'Host'),
    table.Column('victim', 'Victim'),
    table.Column('cause', 'Cause'),
    table.Column('antagonists', 'Antagonists'),
    table.Column('outcome', 'Outcome'))
LONG = (
    *COLUMNS,
    table.Column('signal', 'Signal'),
    table.Column('value', 'Value'),
    table.Column('threshold', 'Threshold'),
    table.Column('controller', 'Controller'),
    table.Column('action', 'Action'),
    table.Column('victim_instance', 'Victim Instance'),
    table.Column('victim_name', 'Victim Name'),
    table.Column('project', 'Project'),
    table.Column('changed_at', 'Changed (UTC)', table.time),
    table.Column('ended_at', 'Ended (UTC)', table.time))
SHOWN = (
    *LONG,
    table.Column('suspects', 'Suspects'),
    table.Column('grounds', 'Grounds'),
    table.Column('caps', 'Limits'),
    table.Column('evidence', 'Evidence'))


class ListIncidents(command.Lister):
    """List incidents, the newest first."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        listing.add_arguments(parser)
        listing.add_host(parser)
        listing.add_project(parser, 'Only with a victim of')
        parser.add_argument(
            '--victim', metavar='<workload>',
            help='Only with this victim: the name or UUID of an instance, or '
                 'the name of a container. Default: all. Example: '
                 '--victim /machine/web')
        parser.add_argument(
            '--antagonist', metavar='<workload>',
            help='Only those for which this workload was named; written like '
                 '--victim. Default: all.')
        parser.add_argument(
            '--cause', metavar='<cause>',
            help='Only with this cause, such as core, cache, '
                 'memory_bandwidth, disk, link, memory, eviction or unknown. '
                 'Default: all. Example: --cause disk')
        parser.add_argument(
            '--outcome', metavar='<outcome>',
            help='Only with this outcome: open, or that of the last limit '
                 'that was tried, confirmed, refuted or unclear, whether it '
                 'goes on or not; ended, where none was judged; or, where '
                 'eviction is the cause, recommended. Default: all. Example: '
                 '--outcome open')
        parser.add_argument(
            '--evidence-kind', metavar='<kind>',
            help='Only those whose strongest evidence is of this kind: '
                 'direct, share, timing or experiment. Default: all. '
                 'Example: --evidence-kind direct')
        parser.add_argument(
            '--since', metavar='<time>', type=times.since,
            help=f'Only what began at this time or later: {times.HOW}. A '
                 'duration means that long ago. What began before and goes '
                 'on is left out. Default: all that is kept. Example: '
                 '--since 2h')
        parser.add_argument(
            '--until', metavar='<time>', type=times.since,
            help='Only what began before this time; written like --since. '
                 'Default: now.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> table.Answer:
        now = time.time()
        return listing.take(
            self.app, parsed_args, 'incidents', '/v1/incidents', COLUMNS,
            long=LONG, shape=lambda row: _shape(row, now),
            filters=('host', 'project', 'victim', 'antagonist', 'cause',
                     'outcome', 'evidence_kind', 'since', 'until'))


class ShowIncident(command.ShowOne):
    """Show an incident with its evidence.

    Below the table the signals of the victim and of the suspects are drawn
    over time, in the width of the terminal; a column's height counts from 0.
    Other formats have the numbers in the field "evidence".
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            'incident', metavar='<incident>',
            help='The id that "openstack interference incident list" shows: '
                 '32 hexadecimal digits.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> table.Answer:
        self.incident = http.of(self.app).resource(
            'incident', 'GET', http.path_of('incidents',
                                            parsed_args.incident))
        now = time.time()
        return table.record(parsed_args, SHOWN, self.incident,
                            lambda row: _whole(row, now))

    def produce_output(self, parsed_args: argparse.Namespace,
                       column_names: Sequence[str], data: Any) -> int:
        status = super().produce_output(parsed_args, column_names, data)
        if parsed_args.formatter == 'table' and not parsed_args.columns:
            from scavenger_openstack.osc import drawing
            out = self.app.stdout
            width = parsed_args.max_width or shutil.get_terminal_size().columns
            with table.understood():
                drawn = list(drawing.lines(self.incident, ink=drawing.ink(out),
                                           width=min(width, MOST_COLUMNS)))
            for line in drawn:
                out.write(f'{line}\n')
        return status


def _shape(row: listing.Row, now: float) -> listing.Row:
    begun, ended = (None if row.get(field) is None else
                    times.parse(row[field])
                    for field in ('begun_at', 'ended_at'))
    return {
        **row, 'victim': table.named(row, 'victim', 'victim_name'),
        'value': _measured(row, 'value'),
        'threshold': _measured(row, 'threshold'),
        'antagonists': table.Cell(
            row.get('antagonists'), ', '.join(
                _name(antagonist)
                + ' (earlier)' * bool(antagonist.get('earlier'))
                for antagonist in row.get('antagonists') or ()) or '-'),
        'duration_s': None if begun is None else _lasted(begun, ended, now)}


def _lasted(begun_s: float, ended_s: float | None, now: float) -> table.Cell:
    lasted_s = round((now if ended_s is None else ended_s) - begun_s, 3)
    return table.Cell(lasted_s, table.duration(lasted_s)
                      + ' so far' * (ended_s is None))


def _whole(row: Mapping[str, Any], now: float) -> dict[str, Any]:
    evidence = row.get('evidence') or []
    return {
        **_shape(row, now),
        'suspects': table.Cell(
            row.get('suspects'),
            *map(_suspect, row.get('suspects') or ())),
        'grounds': table.Cell(
            row.get('grounds'),
            *(_ground(ground, row) for ground in row.get('grounds') or ())),
        'caps': table.Cell(
            row.get('caps'), *map(_limit, row.get('caps') or ())),
        'evidence': table.Cell(row.get('evidence'), _amount_of(evidence))}


def _measured(row: Mapping[str, Any], field: str) -> table.Cell:
    value = row.get(field)
    return table.Cell(value, '-' if value is None else
                      typed_amounts.human(row.get('signal') or '', value))


def _name(workload: Mapping[str, Any]) -> str:
    return str(workload.get('name') or workload.get('workload')
               or 'another workload')


def _suspect(suspect: Mapping[str, Any]) -> str:
    score = suspect.get('score')
    return (f'{_name(suspect)}: ' + ('no score' if score is None
                           else f'score {score:.2f}')
            + (', disturbed earlier' if suspect.get('earlier')
               else ', antagonist' * bool(suspect.get('antagonist')))
            + ', foreground: never limited' * bool(suspect.get('foreground')))


def _ground(ground: Mapping[str, Any], incident: Mapping[str, Any]) -> str:
    from scavenger_openstack.amounts import of_incident_ground
    return of_incident_ground(ground, incident)


def _limit(limit: Mapping[str, Any]) -> str:
    knob = limit.get('knob') or ''
    ended = limit.get('removed_at')
    values = [step.get('value') for step in limit.get('steps') or ()]
    return (f'{_name(limit)}: {knob} ' + ', then '.join(
        typed_amounts.human(knob, value)
        for value in values or [limit.get('value')]) + ' '
            f'from {table.time(limit.get("set_at"))} '
            + (f'to {table.time(ended)}' if ended else 'on'))


def _amount_of(evidence: Iterable[Mapping[str, Any]]) -> str:
    from scavenger_openstack.amounts import counted
    workloads = {series.get('workload') for series in evidence}
    values = sum(len(series.get('values') or ()) for series in evidence)
    return (f'{counted(values, "measurement")} of '
            f'{counted(len(workloads), "workload")}')
