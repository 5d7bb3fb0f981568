# SPDX-License-Identifier: Apache-2.0

"""``openstack interference host``: the hosts, and what is set for them."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
import math
import re
from typing import Any

from osc_lib.command import command
from osc_lib import exceptions

from scavenger_openstack.osc import http
from scavenger_openstack.osc import listing
from scavenger_openstack.osc import scope
from scavenger_openstack.osc import table
from scavenger_openstack import typed_amounts


def _precision(value: Any) -> str:
    """Confirmed trials of those that were confirmed or refuted."""
    texts = []
    for name, counts in sorted((value or {}).items()):
        confirmed = counts.get('confirmed', 0)
        ended = confirmed + counts.get('refuted', 0)
        texts.append(f'{name} {confirmed}/{ended}'
                     + (f' ({confirmed / ended:.0%})' if ended else ''))
    return ', '.join(texts) or '-'


def _suffering(value: Any) -> str:
    """Return which workloads suffer without an incident, and why."""
    return '; '.join(f'{workload.get("name") or workload.get("workload")}: '
                     f'{workload.get("why")}'
                     for workload in value or ()) or '-'


def _remembered(value: Any) -> str:
    """Return the antagonists that disturb nothing now, and since when."""
    return '; '.join(
        f'{row.get("name") or row.get("workload")}: limit removed '
        f'{table.duration(row.get("age_s"))} ago'
        for row in value or ()) or '-'


def settings(value: Any) -> str:
    """The modes and parameters that are set, and what is allowed."""
    return '; '.join(
        'profiling allowed' if some is True else table.plain(some)
        for some in (value or {}).values() if some) or 'nothing'


_UNIT = re.compile('_(at|bytes|s|share)$')


def _of_fact(name: str, value: Any) -> str:
    """A fact with its unit, which is the end of its name."""
    if name.endswith('_at'):
        return f'{table.time(value)} (UTC)'
    if isinstance(value, bool) or not isinstance(value, int | float):
        return table.plain(value) or 'none'
    if name.endswith('_share'):
        return f'{100 * value:.2f} % of one CPU'
    if name.endswith('_bytes'):
        return typed_amounts.human('memory_bytes', value)
    return table.duration(value) if name.endswith('_s') else \
        table.plain(value)


def _modes(host: Mapping[str, Any], rest: Mapping[str, str]) -> table.Cell:
    """The modes that a host reported last, and those that are asked for.

    :param rest: what it does not follow
    """
    reported = host.get('modes') or {}
    asked = (host.get('settings') or {}).get('modes') or {}
    return table.Cell(reported, *[
        f'{name}={reported.get(name, "not known")}' + (
            f' at the last report; {asked[name]} is asked for, and '
            + ('not followed' if f'mode {name}' in rest
               else 'followed from the next on')
            if asked.get(name, reported.get(name)) != reported.get(name)
            else '')
        for name in sorted({**reported, **asked})])


def shape(host: Mapping[str, Any]) -> dict[str, Any]:
    """A host with cells of several lines."""
    facts, rest = (host.get(name) or {} for name in ('facts',
                                                     'not_followed'))
    return {
        **host,
        'facts': table.Cell(facts, *(
            f'{_UNIT.sub("", name).replace("_", " ")}: '
            f'{_of_fact(name, value)}'
            for name, value in sorted(facts.items()))),
        'modes': _modes(host, rest),
        'not_followed': table.Cell(rest, *([
            f'{what}: {why}' for what, why in sorted(rest.items())] or '-')),
        'missing': table.Cell(host.get('missing'), *(
            host.get('missing') or ('-',)))}


COLUMNS = (
    table.Column('name', 'Host'),
    table.Column('enforcing', 'Enforcing'),
    table.Column('stopped', 'Stopped'),
    table.Column('grade', 'Grade'),
    table.Column('last_seen_at', 'Last Seen (UTC)', table.time),
    table.Column('silent', 'Silent'),
    table.Column('modes', 'Modes'))
LONG = (
    *COLUMNS,
    table.Column('version', 'Version'),
    table.Column('headroom', 'Headroom', table.amounts_by_name),
    table.Column('used', 'Used by Background', table.amounts_by_name),
    table.Column('capacity', 'Capacity', table.amounts_by_name),
    table.Column('precision', 'Precision', _precision),
    table.Column('missing', 'Missing'),
    table.Column('suffering', 'Suffering', _suffering),
    table.Column('remembered', 'Remembered', _remembered))
SHOWN = (
    *LONG,
    table.Column('settings', 'Set Here', settings),
    table.Column('not_followed', 'Not Followed'),
    table.Column('followed_at', 'Follows up to (UTC)', table.time),
    table.Column('facts', 'Other Facts'))


class ListHosts(command.Lister):
    """List the hosts that have an agent.

    Enforcing: the agent may set limits now. Silent: it has not reported for
    some minutes; it goes on alone, with what it was last told.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        listing.add_arguments(parser)
        parser.add_argument(
            '--aggregate', metavar='<aggregate>',
            help='Only hosts of this host aggregate, by its name. Default: '
                 'all. Example: --aggregate batch')
        enforcing = parser.add_mutually_exclusive_group()
        enforcing.add_argument(
            '--enforcing', action='store_const', const=True, default=None,
            help='Only hosts that may set limits now. Default: all.')
        enforcing.add_argument(
            '--not-enforcing', dest='enforcing', action='store_const',
            const=False,
            help='Only hosts that set no limits now: they observe, or are '
                 'stopped. Default: all.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> table.Answer:
        return listing.take(
            self.app, parsed_args, 'hosts', '/v1/hosts', COLUMNS, long=LONG,
            filters=('aggregate', 'enforcing'))


class ShowHost(command.ShowOne):
    """Show a host, and the modes and parameters that are set for it."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_host(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> table.Answer:
        host = http.of(self.app).resource(
            'host', 'GET', http.path_of('hosts', parsed_args.host))
        return table.record(parsed_args, SHOWN, host, shape)


class SetHost(command.ShowOne):
    """Set modes and parameters of a host, in place of those in its file.

    The agent follows within one sync, some 10 s; until its next report the
    modes that are shown are those before. A mode that is less careful than
    that in the host's file is not followed; "Not Followed" says so.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_host(parser)
        add_changes(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> table.Answer:
        host = http.of(self.app).resource(
            'host', 'PATCH', http.path_of('hosts', parsed_args.host),
            changes(parsed_args))
        return table.record(parsed_args, SHOWN, host, shape)


def add_changes(parser: argparse.ArgumentParser) -> None:
    """The arguments of :func:`changes`."""
    from scavenger_openstack.types import Mode
    parser.add_argument(
        '--mode', metavar='<controller>=<mode>', action='append',
        type=_pair, default=[],
        help=f'How far a controller may go: {", ".join(Mode)}; empty '
             'for what the file of the host says. Can be repeated. '
             'Example: --mode attribution=observe')
    parser.add_argument(
        '--parameter', metavar='<section>.<option>=<value>',
        action='append', type=_pair, default=[],
        help='An option of a controller, in the unit of the '
             'configuration; empty for what the file of the host says. '
             'Can be repeated. Example: --parameter '
             'scavenger.memory_c=3')
    scope.add_reason(parser, 'memory is tight here')


def changes(parsed_args: argparse.Namespace, **more: Any) -> dict[str, Any]:
    """The request for what was typed.

    :param more: what is set besides modes and parameters
    :raises CommandError: nothing was.
    """
    body: dict[str, Any] = {**more}
    if parsed_args.mode:
        body['modes'] = {name: mode or None
                         for name, mode in parsed_args.mode}
    if parsed_args.parameter:
        body['parameters'] = {name: value_of(value) if value else None
                              for name, value in parsed_args.parameter}
    if not body:
        raise exceptions.CommandError('Nothing to set: give --mode or '
                                      '--parameter.')
    return {**body, 'reason': parsed_args.reason}


def _add_host(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        'host', metavar='<host>',
        help='The name of the host, as "openstack interference host list" '
             'shows it. Example: compute-17')


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition('=')
    if not name or not equals:
        raise argparse.ArgumentTypeError(f'{text!r} is not NAME=VALUE')
    return name, value


def value_of(text: str) -> float | str:
    """The number, or truth value, that a text is, else the text."""
    if text in ('true', 'false'):
        return text == 'true'
    try:
        value = float(text)
    except ValueError:
        return text
    if not math.isfinite(value):
        return text
    return int(value) if value.is_integer() else value
