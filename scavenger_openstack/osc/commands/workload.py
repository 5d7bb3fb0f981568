# SPDX-License-Identifier: Apache-2.0

"""``openstack interference workload``: instances and containers."""

from __future__ import annotations

import argparse

from osc_lib.command import command

from scavenger_openstack.osc import listing
from scavenger_openstack.osc import table

COLUMNS = (
    table.Column('id', 'Workload'),
    table.Column('host', 'Host'),
    table.Column('name', 'Name'),
    table.Column('project', 'Project'),
    table.Column('priority', 'Priority'),
    table.Column('source', 'Set by'),
    table.Column('application', 'Application'),
    table.Column('vcpus', 'VCPUs'))
LONG = (
    *COLUMNS,
    table.Column('kind', 'Kind'),
    table.Column('instance', 'Instance'),
    table.Column('flavor', 'Flavor'),
    table.Column('floor', 'Floor', table.amounts_by_name),
    table.Column('since_at', 'Since (UTC)', table.time),
    table.Column('until_at', 'Until (UTC)', table.time))


class ListWorkloads(command.Lister):
    """List instances and containers, with their priorities.

    "Set by" is what the priority comes from; "default" is nothing: such a
    workload is foreground, and never limited.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        from scavenger_openstack.types import Priority
        parser = super().get_parser(prog_name)
        listing.add_arguments(parser)
        listing.add_host(parser)
        listing.add_project(parser, 'Only instances of')
        parser.add_argument(
            '--instance', metavar='<instance>',
            help='Only this instance, by its name or UUID. Default: all.')
        parser.add_argument(
            '--application', metavar='<application>',
            help='Only workloads of this application: those that do the same '
                 'job. Default: all. Example: --application web')
        parser.add_argument(
            '--priority', choices=[priority.value for priority in Priority],
            help='Only foreground or only background. Default: both.')
        parser.add_argument(
            '--gone', action='store_const', const=True, default=None,
            help='Those that are there no more. Default: those that are '
                 'there.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> table.Answer:
        return listing.take(
            self.app, parsed_args, 'workloads', COLUMNS,
            long=LONG,
            filters=('host', 'project', 'instance', 'application',
                     'priority', 'gone'))
