# SPDX-License-Identifier: Apache-2.0

"""``openstack interference profile``: what workloads tolerate and cause."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

from osc_lib.command import command
from osc_lib import exceptions

from scavenger_openstack.osc.commands import profiling
from scavenger_openstack.osc import http
from scavenger_openstack.osc import listing
from scavenger_openstack.osc import names
from scavenger_openstack.osc import scope
from scavenger_openstack.osc import table
from scavenger_openstack.osc.terminal import printable
from scavenger_openstack.osc import times

PATH = '/v1/profiles'
LISTED = 'The id that "openstack interference profile list" shows'


def measured(value: Any) -> str:
    """Return the time of a measurement, in UTC."""
    return f'{times.date(value)} {times.clock(value)}'


COLUMNS = (
    table.Column('id', 'ID'),
    table.Column('kind', 'Kind'),
    table.Column('target', 'Target'),
    table.Column('project', 'Project'),
    table.Column('source', 'Source'),
    table.Column('measured_s', 'Measured (UTC)', measured),
    table.Column('tolerated', 'Tolerates Least'),
    table.Column('caused', 'Causes Most'))
MORE = (
    table.Column('form', 'Form'),
    table.Column('host', 'Host'),
    table.Column('created_by', 'Created by'),
    table.Column('created_at', 'Created (UTC)', table.time),
    table.Column('stale_at', 'Stale Since (UTC)', table.time))
LONG = (*COLUMNS, *MORE)
SHOWN = (
    *COLUMNS[:-2], *MORE,
    table.Column('qos', 'Quality of Service'),
    table.Column('tolerated', 'Tolerated'),
    table.Column('caused', 'Caused'),
    table.Column('missing', 'Not Measured'))


class ListProfiles(command.Lister):
    """List interference profiles.

    A profile says of each source of interference what a workload tolerates
    and what it causes. The table has the source that it tolerates least and
    the one that it causes most of; "show" and other formats have all.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        listing.add_arguments(parser)
        _add_target(parser, 'Only of')
        listing.add_project(parser, 'Only profiles of')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> table.Answer:
        kind, target = parsed_args.of or (None, None)
        return listing.take(
            self.app, parsed_args, 'profiles', PATH, COLUMNS, long=LONG,
            filters=('project',), shape=_listed, kind=kind, target=target)


class ShowProfile(command.ShowOne):
    """Show an interference profile."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            'profile', metavar='<profile>',
            help=f'{LISTED}: 32 hexadecimal digits.')
        parser.add_argument(
            '--page', metavar='<file>',
            help='Write a heat map of it to this file, as one HTML page that '
                 'needs nothing but itself. A file that is there is '
                 'replaced.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> table.Answer:
        row = http.of(self.app).resource(
            'profile', 'GET', http.path_of('profiles', parsed_args.profile))
        answer = table.record(parsed_args, SHOWN, row, _whole)
        if parsed_args.page:
            with table.understood():
                page = _page(row)
            table.write_page(parsed_args.page, page)
        return answer


class CreateProfile(command.ShowOne):
    """Store an interference profile in place of an older one.

    It is that of a file, or with --host it is measured on that host now, by
    injecting load beside its tenants, where an aggregate allows that.

    The older one of the same application, flavor or image, of the same
    project, is in the audit. An estimate never replaces a measured profile.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        source = parser.add_mutually_exclusive_group(required=True)
        source.add_argument(
            '--file', metavar='<file>',
            help='The profile, as "scavenger-ibench profile" writes it. '
                 'Example: --file profile.json')
        source.add_argument(
            '--host', metavar='<host>',
            help='Have it measured on this host, by its name. It takes '
                 '--workload and --reason. Example: --host compute-17')
        profiling.add_arguments(parser)
        _add_target(parser, 'It is of')
        parser.add_argument(
            '--project', metavar='<project>',
            help='It is for workloads of this project, by its name, or its '
                 'id where there is no Keystone; "" for those of all '
                 'projects. Default: as in the file.')
        parser.add_argument(
            '--reason', metavar='<sentence>',
            help='Why; it is kept in the audit. Default: none. Example: '
                 '--reason "new release"')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> table.Answer:
        if parsed_args.host:
            return table.record(parsed_args, SHOWN, profiling.measure(
                self.app, parsed_args), _whole)
        fields: dict[str, Any] = {}
        if parsed_args.of:
            fields['kind'], fields['target'] = parsed_args.of
        if parsed_args.project is not None:
            fields['project'] = names.project(self.app, parsed_args.project)
        body = _read(parsed_args.file, fields)
        if parsed_args.reason is not None:
            body['reason'] = parsed_args.reason
        return table.record(parsed_args, SHOWN, http.of(self.app).resource(
            'profile', 'POST', PATH, body), _whole)


class DeleteProfile(command.Command):
    """Delete interference profiles; the audit has what they were."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            'profile', metavar='<profile>', nargs='+',
            help=f'{LISTED}; can be repeated.')
        scope.add_reason(parser, 'measured beside a backup')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        http.delete_each(http.of(self.app), 'profiles',
                         parsed_args.profile, parsed_args.reason)


def _add_target(parser: argparse.ArgumentParser, help: str) -> None:
    """Add one option for each kind of target, of which at most one is given.

    :param help: of what, before "this application"
    """
    group = parser.add_mutually_exclusive_group()
    for kind, words, example in (
            ('application', 'by its tag', 'web'),
            ('flavor', 'by its name or id', 'm1.large'),
            ('image', 'by its id', '2a1b0c9d-1111-4222-8333-444455556666')):
        group.add_argument(
            f'--{kind}', dest='of', metavar=f'<{kind}>', type=_target(kind),
            help=f'{help} this {kind}, {words}. Example: --{kind} {example}')


def _target(kind: str) -> Callable[[str], tuple[str, str]]:
    def target(text: str) -> tuple[str, str]:
        if not text:
            raise argparse.ArgumentTypeError('a name is needed')
        return kind, text
    return target


def _read(path: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the profile of a file with these fields in place of its own.

    :raises CommandError: the file cannot be read, or is not a profile.
    """
    from scavenger_openstack import errors
    from scavenger_openstack.wire import profile
    try:
        with open(path, 'rb') as file:
            data = file.read(profile.MAX_PROFILE_BYTES + 1)
        return profile.as_json(profile.parse(data, **fields))
    except (OSError, ValueError) as exc:
        raise exceptions.CommandError(printable(
            f'{path} cannot be read: {exc}')) from exc
    except errors.WireError as exc:
        raise exceptions.CommandError(printable(
            f'{path} is not a profile: {exc}')) from exc


def _page(row: Mapping[str, Any]) -> str:
    """Return the heat map of a profile as a page."""
    from scavenger_openstack.plot import heat
    from scavenger_openstack.plot import page
    cells = [(column.title, _cell(column, _whole(row)))
             for column in SHOWN if column.field not in ('tolerated',
                                                         'caused')]
    return heat.page(f'{row["kind"]} {row["target"]}', row, [
        f"<section class='card'>{page.table(('Field', 'Value'), cells)}"
        '</section>'])


def _cell(column: table.Column, row: Mapping[str, Any]) -> str:
    value = row.get(column.field)
    return (value.human_readable() if isinstance(value, table.Cell)
            else printable(column.human(value)))


def _listed(row: listing.Row) -> listing.Row:
    return {**row, **{name: table.Cell(row[name], _extreme(row[name], choose))
                      for name, choose in (('tolerated', min),
                                           ('caused', max))}}


def _extreme(estimates: Mapping[str, Mapping[str, float]],
             choose: Callable[..., Any]) -> str:
    if not estimates:
        return '-'
    value, soi = choose((estimate['value'], soi)
                        for soi, estimate in estimates.items())
    return f'{soi} {100 * value:.0f} %'


def _whole(row: Mapping[str, Any]) -> dict[str, Any]:
    from scavenger_openstack.plot import heat
    qos = row['qos']
    return {
        **row,
        **{name: table.Cell(row[name], *(
            f'{soi}: {heat.amount(heat.estimate(fields))}'
            for soi, fields in row[name].items()) or '-')
            for name in ('tolerated', 'caused')},
        'missing': table.Cell(row['missing'], *(
            f'{soi}: {why}' for soi, why in (row['missing'] or {}).items())),
        'qos': table.Cell(qos, '-' if qos is None else
                          f'{qos["signal"]} {table.plain(qos["alone"])} '
                          f'alone, breaks at {table.plain(qos["bound"])}')}
