# SPDX-License-Identifier: Apache-2.0

"""``openstack interference audit``: what was changed, and by which user."""

from __future__ import annotations

import argparse

from osc_lib.command import command

from scavenger_openstack.osc import listing
from scavenger_openstack.osc import table
from scavenger_openstack.osc import times

COLUMNS = (
    table.Column('at', 'Time (UTC)', table.time),
    table.Column('actor', 'By'),
    table.Column('action', 'Action'),
    table.Column('target', 'Target'),
    table.Column('after', 'Now', table.short),
    table.Column('reason', 'Reason', table.short))
LONG = (
    table.Column('id', 'ID'),
    table.Column('at', 'Time (UTC)', table.time),
    table.Column('actor_name', 'By'),
    table.Column('actor', 'User ID'),
    table.Column('by_agent', 'By an Agent'),
    table.Column('project', 'Project'),
    table.Column('action', 'Action'),
    table.Column('target', 'Target'),
    table.Column('before', 'Before'),
    table.Column('after', 'After'),
    table.Column('reason', 'Reason'),
    table.Column('request_id', 'Request'))

SHOWN_ELSEWHERE = (
    'id', 'scope', 'target', 'host', 'workload', 'instance', 'knob', 'reason',
    'created_at', 'created_by', 'changed_at', 'changed_by')
"""Fields that the target, or another column, says already."""


class ListAudit(command.Lister):
    """List what operators and agents changed, the newest first."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        listing.add_arguments(parser)
        parser.add_argument(
            '--action', metavar='<action>',
            help='Only this action, as the listing shows it. Default: all. '
                 'Example: --action override.set')
        parser.add_argument(
            '--target', metavar='<target>',
            help='Only on this target, as the listing shows it. Default: '
                 'all.')
        parser.add_argument(
            '--actor', metavar='<user>',
            help='Only what this user changed, by its name or id. Default: '
                 'all. Example: --actor admin')
        parser.add_argument(
            '--without-agents', dest='by_agent', action='store_const',
            const=False, default=None,
            help='Leave out what agents caused: their starts, kills, and '
                 'reports that were refused. Default: all.')
        parser.add_argument(
            '--since', metavar='<time>', type=times.since,
            help=f'Only from this time on: {times.HOW}. A duration means '
                 'that long ago. Default: all that is kept. Example: '
                 '--since 3d')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> table.Answer:
        return listing.take(
            self.app, parsed_args, 'audit', '/v1/audit', COLUMNS, long=LONG,
            shape=dict if parsed_args.long else _shape,
            filters=('action', 'target', 'actor', 'by_agent', 'since'))


def _shape(row: listing.Row) -> listing.Row:
    """Return a row that shows, of what is set, only what is new."""
    row = {**row, 'actor': table.named(row, 'actor', 'actor_name')}
    before, after = row.get('before') or {}, row.get('after')
    if not isinstance(after, dict) or not isinstance(before, dict):
        return row
    changed = {name: value for name, value in after.items()
               if name not in SHOWN_ELSEWHERE and value != before.get(name)}
    return {**row, 'after': table.Cell(after, table.short(changed))}
