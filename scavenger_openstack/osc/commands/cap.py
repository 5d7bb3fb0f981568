# SPDX-License-Identifier: Apache-2.0

"""``openstack interference cap``: limits, and operators' overrides."""

from __future__ import annotations

import argparse

from osc_lib.command import command
from osc_lib import exceptions
from osc_lib import shell

from scavenger_openstack.osc import http
from scavenger_openstack.osc import listing
from scavenger_openstack.osc import names
from scavenger_openstack.osc import scope
from scavenger_openstack.osc import table
from scavenger_openstack.osc import times
from scavenger_openstack import typed_amounts

COLUMNS = (
    table.Column('host', 'Host'),
    table.Column('workload', 'Workload'),
    table.Column('knob', 'Knob'),
    table.Column('value', 'Limit'),
    table.Column('owner', 'Set by'),
    table.Column('set_at', 'Set (UTC)', table.time),
    table.Column('reason', 'Reason', table.short))
PAST = (
    *COLUMNS[:-1],
    table.Column('removed_at', 'Removed (UTC)', table.time),
    table.Column('why', 'Removed for', table.short))
LONG = (
    table.Column('id', 'ID'),
    *COLUMNS[:-1],
    table.Column('removed_at', 'Removed (UTC)', table.time),
    table.Column('original', 'Without It'),
    table.Column('name', 'Name'),
    table.Column('instance', 'Instance'),
    table.Column('project', 'Project'),
    table.Column('incidents', 'Incidents'),
    table.Column('override', 'Override'),
    table.Column('reason', 'Reason'),
    table.Column('why', 'Removed for'))
OVERRIDES = (
    table.Column('host', 'Host'),
    table.Column('workload', 'Workload'),
    table.Column('knob', 'Knob'),
    table.Column('value', 'Limit'),
    table.Column('expires_at', 'Expires (UTC)', table.time),
    table.Column('created_by', 'Set by'),
    table.Column('followed', 'Followed', table.known_flag),
    table.Column('why_not', 'Why Not', table.short),
    table.Column('reason', 'Reason', table.short))
OVERRIDES_LONG = (
    table.Column('id', 'ID'),
    *OVERRIDES[:-2],
    table.Column('why_not', 'Why Not'),
    table.Column('created_at', 'Set (UTC)', table.time),
    table.Column('instance', 'Instance'),
    table.Column('name', 'Name'),
    table.Column('reason', 'Reason'))


class ListCaps(command.Lister):
    """List the limits that are in force, those that were, or overrides."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        listing.add_arguments(parser)
        from scavenger_openstack.types import Knob
        knobs = [str(knob) for knob in Knob]
        which = parser.add_mutually_exclusive_group()
        which.add_argument(
            '--past', action='store_true',
            help='Limits that were removed. Default: those in force.')
        which.add_argument(
            '--overrides', action='store_true',
            help='What operators asked for with "cap set" and has not '
                 'expired, whether the host follows it yet or not. Default: '
                 'limits in force.')
        listing.add_host(parser)
        parser.add_argument(
            '--workload', metavar='<workload>',
            help='Only of this workload: the name or UUID of an instance, or '
                 'the name of a container; with --overrides only. Default: '
                 'all.')
        listing.add_project(parser, 'Not with --overrides: only of '
                                    'instances of')
        parser.add_argument(
            '--instance', metavar='<instance>',
            help='Only of this instance, by its name or UUID; not with '
                 '--overrides. Default: all.')
        parser.add_argument(
            '--knob', metavar='<knob>', choices=knobs,
            help=f'Only on this knob: {", ".join(knobs)}; not with '
                 '--overrides. Default: all. Example: --knob cpu_cores')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> table.Answer:
        overrides = parsed_args.overrides
        names = ('host', 'workload') if overrides \
            else ('host', 'project', 'instance', 'knob')
        for name in ('workload', 'project', 'instance', 'knob'):
            if name not in names and getattr(parsed_args, name) is not None:
                raise exceptions.CommandError(
                    f'--{name} is for listings '
                    f'with{"out" * overrides} --overrides.')
        if overrides:
            return listing.take(
                self.app, parsed_args, 'overrides', '/v1/caps/overrides',
                OVERRIDES, long=OVERRIDES_LONG, filters=names, shape=_shape)
        return listing.take(
            self.app, parsed_args, 'caps', '/v1/caps',
            PAST if parsed_args.past else COLUMNS, long=LONG,
            filters=names, shape=_shape, in_force=not parsed_args.past)


class SetCap(command.ShowOne):
    """Override a limit of a background workload until it expires.

    The agent of the host follows within one sync, some 10 s, and removes
    the limit when the override expires or is unset, and when the agent ends.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_knob(parser)
        parser.add_argument(
            'value', metavar='<value>', help='The limit, or "none": no limit '
            'on this knob, whatever the controllers want. '
            f'{typed_amounts.how()}.')
        parser.add_argument(
            '--expires', metavar='<time>', type=times.until, required=True,
            help=f'When the override ends: {times.HOW}. A duration counts '
                 'from now. Example: --expires 2h')
        scope.add_reason(parser, 'nightly backup runs late',
                         'shown with the limit and kept in the audit')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> table.Answer:
        try:
            value = typed_amounts.parse(parsed_args.knob, parsed_args.value)
        except ValueError as exc:
            raise exceptions.CommandError(f'{exc}.') from exc
        override = http.of(self.app).resource(
            'override', 'PUT', _path(self.app, parsed_args),
            {'value': value, 'reason': parsed_args.reason,
             'expires_at': parsed_args.expires})
        return table.record(parsed_args, OVERRIDES_LONG, override, _shape)


class UnsetCap(command.Command):
    """End an override before it expires."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_knob(parser)
        scope.add_reason(parser, 'the backup is done')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        http.of(self.app).request(
            'DELETE', _path(self.app, parsed_args),
            query={'reason': parsed_args.reason})


def _add_knob(parser: argparse.ArgumentParser) -> None:
    from scavenger_openstack.knobs import OVERRIDABLE
    knobs = [str(knob) for knob in OVERRIDABLE]
    parser.add_argument(
        'host', metavar='<host>',
        help='The name of the host that the workload is on. Example: '
             'compute-17')
    parser.add_argument(
        'workload', metavar='<workload>',
        help='The name or UUID of an instance, or the name of a container. '
             'Example: /batch/job-1')
    parser.add_argument(
        'knob', metavar='<knob>', choices=knobs,
        help=f'What is limited: {", ".join(knobs)}.')


def _path(app: shell.OpenStackShell, arguments: argparse.Namespace) -> str:
    return http.path_of('caps', arguments.host, arguments.knob,
                        names.workload(app, arguments.workload))


def _shape(row: listing.Row) -> listing.Row:
    knob = row.get('knob') or ''
    values = {field: table.Cell(row[field],
                                typed_amounts.human(knob, row[field]))
              for field in ('value', 'original') if field in row}
    return {**row, **values,
            'workload': table.named(row, 'workload', 'name')}
