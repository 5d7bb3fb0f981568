# SPDX-License-Identifier: Apache-2.0

"""What all listings have in common: pages, filters, columns."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from osc_lib import shell

from scavenger_openstack.osc import names
from scavenger_openstack.osc import plugin
from scavenger_openstack.osc import table
from scavenger_openstack.osc.terminal import printable

LIMIT_ROWS = 100

Row = Mapping[str, Any]


def add_arguments(parser: argparse.ArgumentParser, *,
                  long: bool = True) -> None:
    """Add the options that each listing has."""
    if long:
        parser.add_argument(
            '--long', action='store_true',
            help='Show all columns, and sentences in full. Default: the '
                 'columns that fit a terminal.')
    count = parser.add_mutually_exclusive_group()
    count.add_argument(
        '--limit', metavar='<rows>', type=rows, default=LIMIT_ROWS,
        help='Show at most so many rows, the newest or highest ranked. '
             f'Default: {LIMIT_ROWS}. Example: --limit 20')
    count.add_argument(
        '--all', dest='limit', action='store_const', const=None,
        help='Show all rows; they are fetched 1000 at a time.')
    parser.add_argument(
        '--marker', metavar='<marker>',
        help='Go on after the last row of an earlier listing, which ended '
             'with this marker. The filters have to be the same. Default: '
             'begin with the first row.')


def add_host(parser: argparse.ArgumentParser) -> None:
    """Add the filter by host."""
    parser.add_argument(
        '--host', metavar='<host>',
        help='Only on this host. Default: all. Example: --host compute-17')


NAMED = {'project': names.project, 'victim_project': names.project,
         'instance': names.instance, 'victim': names.workload,
         'antagonist': names.workload, 'workload': names.workload}
"""Filters that people type names for."""


def add_project(parser: argparse.ArgumentParser, help: str,
                name: str = 'project') -> None:
    """Add a filter by project.

    :param help: of what, before "of this project"
    """
    parser.add_argument(
        f'--{name}', metavar='<project>',
        help=f'{help} this project, by its name, or its id where there is no '
             'Keystone. Default: all.')


def rows(text: str) -> int:
    """A number of rows.

    :raises argparse.ArgumentTypeError: it is none.
    """
    if not text.isascii() or not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(
            f'{text!r} is not a number of rows, 1 or more')
    return int(text)


def take(app: shell.OpenStackShell, arguments: argparse.Namespace,
         noun: str, columns: Sequence[table.Column], *,
         long: Sequence[table.Column] = (),
         filters: Iterable[str] = (), shape: Callable[[Row], Row] = dict,
         **more: Any) -> table.Answer:
    """Fetch the rows of a listing, and return what a command returns.

    :param long: the columns with ``--long``
    :param filters: those arguments that are
    :param more: filters that are no arguments
    :param shape: adds cells to a row that are made of several fields
    :raises CommandError: the API refused, or could not be reached.
    """
    wanted = {name: getattr(arguments, name) for name in filters} | more
    wanted = {name: NAMED[name](app, value) if name in NAMED and value
              else value for name, value in wanted.items()}
    rows, marker = plugin.client_of(app).listing(
        noun, limit=arguments.limit, marker=arguments.marker, **wanted)
    if marker is not None:
        app.stderr.write(f'There are more rows: add --all, or --marker '
                         f'{printable(str(marker))}\n')
    elif not rows:
        from scavenger_openstack.osc import empty_listing
        with table.understood():
            why = empty_listing.explanation(
                plugin.client_of(app), noun, any(
                value not in (None, False) for name, value in wanted.items()
                if name not in ('in_force', 'now')),
                now=bool(wanted.get('now')), host=wanted.get('host'))
        app.stderr.write(f'{why}\n')
    shown = long if getattr(arguments, 'long', False) else columns
    return table.rows(arguments, shown, map(shape, rows))
