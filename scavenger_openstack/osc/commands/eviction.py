# SPDX-License-Identifier: Apache-2.0

"""``openstack antagonist evict``: have Nova take an instance away."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from collections.abc import Sequence
import math
import time
from typing import Any
from typing import TypeVar

from osc_lib.command import command
from osc_lib import exceptions
from osc_lib import shell

from scavenger_openstack.osc import listing
from scavenger_openstack.osc import names
from scavenger_openstack.osc import plugin
from scavenger_openstack.osc import scope
from scavenger_openstack.osc import table

Asked = TypeVar('Asked', bound=dict[str, Any])

HOW = ('live-migrate', 'pause', 'stop', 'shelve')
AGAIN_S = 1.0
ENDED = ('done', 'failed', 'dry run')

COLUMNS = (
    table.Column('id', 'ID'),
    table.Column('instance', 'Instance'),
    table.Column('host', 'From'),
    table.Column('how', 'How'),
    table.Column('state', 'State'),
    table.Column('detail', 'Detail', table.short),
    table.Column('created_by', 'Created by'),
    table.Column('created_at', 'Created (UTC)', table.time),
    table.Column('reason', 'Reason', table.short))
LONG = (*(column for column in COLUMNS
          if column.field not in ('detail', 'reason')),
        table.Column('detail', 'Detail'), table.Column('reason', 'Reason'),
        table.Column('project', 'Project'),
        table.Column('changed_at', 'Changed (UTC)', table.time))


class EvictAntagonist(command.ShowOne):
    """Have Nova move, pause, stop or shelve a background instance.

    The limits on it go with it. Never a foreground instance. Who asked for
    it, and how it went, is kept in the audit.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('instance', metavar='<instance>',
                            help='The name or UUID of the instance.')
        parser.add_argument(
            '--how', choices=HOW, default=HOW[0],
            help='live-migrate: to a host that Nova chooses; pause: it keeps '
                 'its memory; stop: it is shut down; shelve: it is shut down '
                 'and leaves the host. Default: live-migrate.')
        scope.add_reason(parser, 'disturbs the shop')
        parser.add_argument('--dry-run', action='store_true',
                            help='Only say what would be done: with '
                                 'live-migrate to which hosts, or why to '
                                 'none.')
        parser.add_argument('--no-wait', action='store_true',
                            help='Do not wait until Nova has done it.')
        parser.add_argument(
            '--timeout', metavar='<seconds>', type=float, default=300.0,
            help='Wait so long at most; it goes on after that. Default: 300.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[Sequence[str], Sequence[Any]]:
        client = plugin.client_of(self.app)
        eviction = client.create_eviction(
            instance=names.instance(self.app, parsed_args.instance),
            how=parsed_args.how, reason=parsed_args.reason,
            dry_run=parsed_args.dry_run)
        if not parsed_args.no_wait:
            eviction = awaited(
                self.app, eviction, client.get_eviction,
                'see "openstack antagonist eviction list"',
                parsed_args.timeout)
        if eviction['state'] == 'failed':
            raise exceptions.CommandError(
                f'{parsed_args.instance} was not evicted: '
                f'{eviction["detail"]}')
        return table.record(parsed_args, LONG, _shape(eviction))


class ListEvictions(command.Lister):
    """List instances that Nova was asked to take away, and what came of
    it."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        listing.add_arguments(parser)
        parser.add_argument('--instance', metavar='<instance>',
                            help='Only of this instance, by its name or '
                                 'UUID.')
        parser.add_argument('--host', metavar='<host>',
                            help='Only from this host. Default: all.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[Sequence[str], Sequence[Any]]:
        return listing.take(
            self.app, parsed_args, 'evictions', COLUMNS, long=LONG,
            filters=('instance', 'host'), shape=_shape)


def awaited(app: shell.OpenStackShell, row: Asked,
            get: Callable[[str], Asked], how: str,
            timeout_s: float = math.inf) -> Asked:
    """Return what was asked for when it has ended, or after so long; print
    that it goes on when Ctrl-C ends the command.

    :param how: the command for that
    """
    deadline = time.monotonic() + timeout_s
    try:
        while row['state'] not in ENDED and time.monotonic() < deadline:
            time.sleep(AGAIN_S)
            row = get(row['id'])
    except KeyboardInterrupt:
        app.stderr.write(f'It goes on, with the id {row["id"]}: {how}.\n')
        raise
    return row


def _shape(row: listing.Row) -> listing.Row:
    return {**row, 'instance': table.beside(row, 'instance', 'name')}
