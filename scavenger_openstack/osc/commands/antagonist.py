# SPDX-License-Identifier: Apache-2.0

"""``openstack antagonist``: the workloads that disturb others, ranked."""

from __future__ import annotations

import argparse

from osc_lib.command import command

from scavenger_openstack.osc import listing
from scavenger_openstack.osc import table
from scavenger_openstack.osc import times

COLUMNS = (
    table.Column('workload', 'Antagonist'),
    table.Column('host', 'Host'),
    table.Column('project', 'Project'),
    table.Column('incidents', 'Incidents'),
    table.Column('victims', 'Victims'),
    table.Column('interference_s', 'Interference', table.duration),
    table.Column('causes', 'Causes'),
    table.Column('disturbs_now', 'Disturbs Now'),
    table.Column('limited', 'Limited Now'))
LONG = (
    *COLUMNS,
    table.Column('instance', 'Instance'),
    table.Column('name', 'Name'),
    table.Column('application', 'Application'),
    table.Column('confirmed', 'Confirmed'),
    table.Column('refuted', 'Refuted'),
    table.Column('foreground', 'Foreground'))


class ListAntagonists(command.Lister):
    """List the workloads that disturb others, the worst first.

    They disturb now, or a detector limits them because they did.

    With --earlier, --since or --until: also those that did and do no more.

    Interference is how long incidents lasted in which the evidence named
    this workload. Limited Now: for that, or by an operator; the limits that
    all background work has do not count.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        listing.add_arguments(parser)
        parser.add_argument(
            '--earlier', action='store_true',
            help='Also those that disturbed others in the span of time and '
                 'do no more.')
        parser.add_argument(
            '--sort', choices=('interference_s', 'incidents', 'victims'),
            help='Rank by the time of interference, the number of incidents, '
                 'or the number of victims. Default: interference_s.')
        parser.add_argument(
            '--since', metavar='<time>', type=times.since,
            help=f'Count from this time on: {times.HOW}. A duration means '
                 'that long ago. Full hours are counted. Default: 24h. '
                 'Example: --since 3d')
        parser.add_argument(
            '--until', metavar='<time>', type=times.since,
            help='Count up to this time; written like --since. Default: now.')
        listing.add_host(parser)
        listing.add_project(parser, 'Only antagonists of')
        listing.add_project(parser, 'Only what was done to',
                            'victim-project')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> table.Answer:
        earlier = (parsed_args.earlier or parsed_args.since
                   or parsed_args.until)
        return listing.take(
            self.app, parsed_args, 'antagonists', COLUMNS,
            long=LONG, shape=_shape, filters=(
                'since', 'until', 'host', 'project', 'victim_project',
                'sort'), now=None if earlier else True)


def _shape(row: listing.Row) -> listing.Row:
    return {**row, 'workload': table.named(row, 'workload', 'name'),
            'limited': table.Cell(
                row.get('limited'), 'never: foreground' if row.get(
                    'foreground') else table.plain(row.get('limited')))}
