# SPDX-License-Identifier: Apache-2.0

"""``openstack interference exemption``: what is not limited."""

from __future__ import annotations

import argparse

from osc_lib.command import command

from scavenger_openstack.osc import http
from scavenger_openstack.osc import listing
from scavenger_openstack.osc import scope
from scavenger_openstack.osc import table

PATH = '/v1/exemptions'

COLUMNS = (
    table.Column('id', 'ID'),
    table.Column('scope', 'Scope'),
    table.Column('target', 'Target'),
    table.Column('created_by', 'Created by'),
    table.Column('created_at', 'Created (UTC)', table.time),
    table.Column('followed', 'Followed'),
    table.Column('why_not', 'Why Not', table.short),
    table.Column('reason', 'Reason', table.short))
LONG = (*COLUMNS[:-2], table.Column('why_not', 'Why Not'),
        table.Column('reason', 'Reason'))
SET = (*LONG, table.Column('workloads', 'Workloads Now'))


class ListExemptions(command.Lister):
    """List what is exempt from limits."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        listing.add_arguments(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> table.Answer:
        return listing.take(self.app, parsed_args, 'exemptions', PATH,
                            COLUMNS, long=LONG, shape=_shape)


class CreateExemption(command.ShowOne):
    """Exempt an instance, a project or an aggregate from limits.

    Only an override by "cap set" limits what is exempt. Incidents are found
    and recorded as before.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        scope.add_arguments(parser, 'instance', 'project', 'aggregate')
        scope.add_reason(parser, 'contract of 2026')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> table.Answer:
        exemption = http.of(self.app).resource(
            'exemption', 'POST', PATH,
            {**scope.of(self.app, parsed_args),
             'reason': parsed_args.reason})
        scope.warn_of_none(self.app, exemption)
        return table.record(parsed_args, SET, exemption, _shape)


class DeleteExemption(command.Command):
    """End exemptions."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            'exemption', metavar='<exemption>', nargs='+',
            help='The id that "openstack interference exemption list" '
                 'shows; can be repeated.')
        scope.add_reason(parser, 'the contract has ended')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        http.delete_each(http.of(self.app), 'exemptions',
                         parsed_args.exemption, parsed_args.reason)


def _shape(row: listing.Row) -> listing.Row:
    return {**row, 'target': table.beside(row, 'target', 'name')}
