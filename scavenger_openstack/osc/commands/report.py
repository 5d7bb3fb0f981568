# SPDX-License-Identifier: Apache-2.0

"""``openstack interference report``: what a span of time was like."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from osc_lib.command import command

from scavenger_openstack.osc import http
from scavenger_openstack.osc import listing
from scavenger_openstack.osc import table
from scavenger_openstack.osc.terminal import printable
from scavenger_openstack.osc import times


def core_hours(value: Any) -> str:
    """Return CPU seconds as core-hours."""
    return '-' if value is None else f'{value / 3600:,.1f} core-h'


def gib_hours(value: Any) -> str:
    """Return byte seconds as GiB-hours."""
    return '-' if value is None else f'{value / 2 ** 30 / 3600:,.1f} GiB-h'


SUMS = (table.Column('incidents', 'Incidents'),
        table.Column('interference_s', 'Interference', table.duration))
WORK = (table.Column('background_core_s', 'Background CPU', core_hours),
        table.Column('background_byte_s', 'Background Memory', gib_hours))
JUDGED = (table.Column('confirmed', 'Confirmed'),
          table.Column('refuted', 'Refuted'))

COLUMNS: Mapping[str, tuple[table.Column, ...]] = {
    'projects': (
        table.Column('project', 'Project'),
        table.Column('application', 'Application'),
        table.Column('workloads', 'Workloads'), *SUMS),
    'hosts': (table.Column('host', 'Host'), *SUMS, *WORK),
    'antagonists': (
        table.Column('workload', 'Antagonist'), table.Column('host', 'Host'),
        table.Column('project', 'Project'),
        table.Column('application', 'Application'), *SUMS, *JUDGED),
    'precision': (
        table.Column('controller', 'Controller'), *JUDGED,
        table.Column('unclear', 'Unclear'))}

BY = {'project': 'projects', 'host': 'hosts', 'antagonist': 'antagonists',
      'controller': 'precision'}


class ShowReport(command.Lister):
    """Report interference and background work of a span of time.

    Interference is how long workloads were disturbed by others, each for
    itself: what a credit is for. Background is what background work got of
    idle capacity. Full hours are counted; the worst rows come first. The
    totals, which are of all rows, are on the standard error.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--since', metavar='<time>', type=times.since,
            help=f'Count from this time on: {times.HOW}. A duration means '
                 'that long ago. Default: 7d. Example: --since 30d')
        parser.add_argument(
            '--until', metavar='<time>', type=times.since,
            help='Count up to this time; written like --since. Default: the '
                 'last full hour.')
        parser.add_argument(
            '--by', choices=tuple(BY), default='project',
            help='What a row is: a project with an application, a host, an '
                 'antagonist, or a controller with how its limits ended. '
                 'Default: project.')
        parser.add_argument(
            '--limit', metavar='<rows>', type=listing.rows, default=100,
            help='Show at most so many rows, up to 1000. Default: 100.')
        parser.add_argument(
            '--html', metavar='<file>',
            help='Write all of it to this file, as one page that needs '
                 'nothing but itself. A file that is there is replaced.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> table.Answer:
        report = http.of(self.app).resource(
            'report', 'GET', http.path_of('report'), query={
                name: getattr(parsed_args, name)
                for name in ('since', 'until', 'limit')
                if getattr(parsed_args, name) is not None})
        with table.understood():
            page = _page(report) if parsed_args.html else ''
            self.app.stderr.write(f'{printable(totals(report))}\n')
            answer = table.rows(
                parsed_args, COLUMNS[BY[parsed_args.by]],
                report[BY[parsed_args.by]])
        if parsed_args.html:
            table.write_page(parsed_args.html, page)
        return answer


def totals(report: Mapping[str, Any]) -> str:
    """Return the totals of a report in a sentence."""
    return (f'{times.human(report["since_at"])} to '
            f'{times.human(report["until_at"])} (UTC): '
            f'{report["incidents"]} incidents, '
            f'{table.duration(report["interference_s"])} of interference; '
            f'background work got {core_hours(report["background_core_s"])} '
            f'and {gib_hours(report["background_byte_s"])}')


def _page(report: Mapping[str, Any]) -> str:
    from scavenger_openstack.osc import report_page
    return report_page.page(report, totals(report), COLUMNS)
