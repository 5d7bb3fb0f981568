# SPDX-License-Identifier: Apache-2.0

"""``openstack interference priority``: what is background."""

from __future__ import annotations

import argparse

from osc_lib.command import command
from osc_lib import exceptions

from scavenger_openstack.osc import http
from scavenger_openstack.osc import listing
from scavenger_openstack.osc import scope
from scavenger_openstack.osc import table
from scavenger_openstack.osc.terminal import printable

SCOPES = ('instance', 'project', 'aggregate')
PATH = '/v1/priorities'

COLUMNS = (
    table.Column('scope', 'Scope'),
    table.Column('target', 'Target'),
    table.Column('value', 'Priority'),
    table.Column('application', 'Application'),
    table.Column('created_by', 'Set by'),
    table.Column('created_at', 'Set (UTC)', table.time),
    table.Column('followed', 'Followed'),
    table.Column('why_not', 'Why Not', table.short),
    table.Column('reason', 'Reason', table.short))
LONG = (table.Column('id', 'ID'), *COLUMNS[:-2],
        table.Column('why_not', 'Why Not'), table.Column('reason', 'Reason'))
SET = (*LONG, table.Column('workloads', 'Workloads Now'))


class ListPriorities(command.Lister):
    """List the priorities that operators set."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        listing.add_arguments(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> table.Answer:
        return listing.take(self.app, parsed_args, 'priorities', PATH,
                            COLUMNS, long=LONG, shape=_shape)


class SetPriority(command.ShowOne):
    """Make an instance, or those of a project or aggregate, background.

    Background may be limited for the sake of the foreground. What no rule
    and no flavor calls background is foreground. The rule for the instance
    counts first, then what its flavor says, then the rule for the project,
    then that for the aggregate: with --project or --aggregate a VM of a
    background flavor stays background. Background counts where the flavor
    says nothing and the host's file has [conductor] allow_background; "Why
    Not" says of an instance why its rule does not count.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        from scavenger_openstack.types import Priority
        parser = super().get_parser(prog_name)
        scope.add_arguments(parser, *SCOPES)
        parser.add_argument(
            'priority', metavar='<priority>',
            choices=[priority.value for priority in Priority],
            help='foreground: protected, never limited; or background.')
        parser.add_argument(
            '--application', metavar='<application>', default='',
            help='The application that the instances belong to: those of one '
                 'project with the same application do the same job and are '
                 'compared. Default: what the instance itself says. Example: '
                 '--application web')
        scope.add_reason(parser, 'batch project of the lab')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> table.Answer:
        rule = http.of(self.app).resource(
            'priority', 'POST', PATH,
            {**scope.of(self.app, parsed_args),
             'value': parsed_args.priority,
             'application': parsed_args.application,
             'reason': parsed_args.reason})
        scope.warn_of_none(self.app, rule)
        return table.record(parsed_args, SET, rule, _shape)


class UnsetPriority(command.Command):
    """Remove the priority that an operator set."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        scope.add_arguments(parser, *SCOPES)
        scope.add_reason(parser, 'the lab has moved')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        client = http.of(self.app)
        wanted = scope.of(self.app, parsed_args)
        rules, _ = client.listing('priorities', PATH, wanted)
        if not rules:
            raise exceptions.CommandError(
                f'No priority is set for the {wanted["scope"]} '
                f'{printable(wanted["target"])}.')
        http.delete_each(client, 'priorities', [rule['id'] for rule in rules],
                         parsed_args.reason)


def _shape(row: listing.Row) -> listing.Row:
    return {**row, 'target': table.beside(row, 'target', 'name')}
