# SPDX-License-Identifier: Apache-2.0

"""``openstack interference spec``: what is usual for an application."""

from __future__ import annotations

import argparse

from osc_lib.command import command

from scavenger_openstack.osc import listing
from scavenger_openstack.osc import table

COLUMNS = (
    table.Column('project', 'Project'),
    table.Column('application', 'Application'),
    table.Column('cpu_model', 'CPU Model'),
    table.Column('signal', 'Signal'),
    table.Column('mean', 'Mean'),
    table.Column('stddev', 'Deviation'),
    table.Column('n', 'Samples'),
    table.Column('cpu_cores', 'CPU Cores'),
    table.Column('day', 'Day (UTC)'))


class ListSpecs(command.Lister):
    """List mean and standard deviation of applications' signals.

    An incident begins when a signal is well above its mean.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        listing.add_arguments(parser, long=False)
        listing.add_project(parser, 'Only applications of')
        parser.add_argument(
            '--application', metavar='<application>',
            help='Only this application. Default: all. Example: '
                 '--application web')
        parser.add_argument(
            '--cpu-model', metavar='<model>',
            help='Only on this model of CPU, as the listing shows it. '
                 'Default: all.')
        parser.add_argument(
            '--signal', metavar='<signal>',
            help='Only this signal: cpi, run_delay or io_wait. Default: all. '
                 'Example: --signal cpi')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> table.Answer:
        return listing.take(
            self.app, parsed_args, 'specs', COLUMNS,
            filters=('project', 'application', 'cpu_model', 'signal'))
