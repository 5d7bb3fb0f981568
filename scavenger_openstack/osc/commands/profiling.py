# SPDX-License-Identifier: Apache-2.0

"""``openstack interference profiling``: profiles that are being measured."""

from __future__ import annotations

import argparse
from typing import Any

from osc_lib.command import command
from osc_lib import exceptions
from osc_lib import shell

from scavenger_openstack.osc.commands import eviction
from scavenger_openstack.osc import listing
from scavenger_openstack.osc import names
from scavenger_openstack.osc import plugin
from scavenger_openstack.osc import scope
from scavenger_openstack.osc import table

FORMS = ('short', 'long')

COLUMNS = (
    table.Column('id', 'ID'),
    table.Column('host', 'Host'),
    table.Column('workload', 'Workload'),
    table.Column('kind', 'Kind'),
    table.Column('target', 'Target'),
    table.Column('state', 'State'),
    table.Column('used_s', 'Seconds'),
    table.Column('created_by', 'Created by'),
    table.Column('created_at', 'Created (UTC)', table.time),
    table.Column('detail', 'Detail', table.short))
LONG = (*COLUMNS[:-1], table.Column('detail', 'Detail'),
        table.Column('form', 'Form'), table.Column('project', 'Project'),
        table.Column('seconds', 'Seconds at Most'),
        table.Column('changed_at', 'Changed (UTC)', table.time),
        table.Column('reason', 'Reason'))


class ListProfilings(command.Lister):
    """List profiles that hosts were asked to measure, and what came of
    each."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        listing.add_arguments(parser)
        listing.add_host(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> table.Answer:
        return listing.take(self.app, parsed_args, 'profilings', COLUMNS,
                            long=LONG, filters=('host',))


class DeleteProfiling(command.Command):
    """End the measurement of a profile; nothing of it is stored."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            'profiling', metavar='<profiling>',
            help='The id that "openstack interference profiling list" '
                 'shows.')
        scope.add_reason(parser, 'a busy evening')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        scope.delete_each(plugin.client_of(self.app).delete_profiling,
                          [parsed_args.profiling], parsed_args.reason)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what says where and how a profile is measured."""
    parser.add_argument(
        '--workload', metavar='<workload>',
        help='With --host: the instance, by its name or UUID, or the name of '
             'the container. Example: --workload web-3')
    parser.add_argument(
        '--form', choices=FORMS, default=FORMS[0],
        help='With --host: short takes some seconds and is rough, long takes '
             '2 to 15 minutes. Default: short.')
    parser.add_argument(
        '--seconds', metavar='<seconds>', type=float,
        help='With --host: load is injected for so long at most. Default: '
             '120 for the short form, 900 for the long one.')


def measure(app: shell.OpenStackShell, parsed_args: argparse.Namespace
            ) -> dict[str, Any]:
    """Have a host measure a profile; return what was stored.

    :raises CommandError: it was not measured, and why.
    """
    if not parsed_args.workload or not parsed_args.reason:
        raise exceptions.CommandError('--host takes --workload and --reason.')
    client = plugin.client_of(app)
    body: dict[str, Any] = {
        'host': parsed_args.host, 'form': parsed_args.form,
        'reason': parsed_args.reason,
        'workload': parsed_args.workload
        if parsed_args.workload.startswith('/')
        else names.instance(app, parsed_args.workload)}
    if parsed_args.seconds is not None:
        body['seconds'] = parsed_args.seconds
    if parsed_args.of:
        body['kind'], body['target'] = parsed_args.of
    row = client.create_profiling(**body)
    row = eviction.awaited(
        app, row, client.get_profiling,
        '"openstack interference profiling delete" ends it')
    if row['state'] == 'failed':
        raise exceptions.CommandError(
            f'The profile of {parsed_args.workload} was not measured: '
            f'{row["detail"]}')
    return next(profile for profile in client.profiles(**{
        name: row[name] for name in ('kind', 'target', 'project')
        if row[name]}) if profile['project'] == row['project'])
