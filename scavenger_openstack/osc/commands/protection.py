# SPDX-License-Identifier: Apache-2.0

"""``openstack interference protection``: the kill switch."""

from __future__ import annotations

import argparse

from osc_lib.command import command

from scavenger_openstack.osc import http
from scavenger_openstack.osc import listing
from scavenger_openstack.osc import scope
from scavenger_openstack.osc import table

PATH = '/v1/protection'
SCOPES = ('cloud', 'aggregate', 'host')

COLUMNS = (
    table.Column('scope', 'Scope'),
    table.Column('target', 'Target'),
    table.Column('enabled', 'Enabled'),
    table.Column('changed_by', 'Changed by'),
    table.Column('changed_at', 'Changed (UTC)', table.time),
    table.Column('reason', 'Reason'))
SET = (
    *COLUMNS,
    table.Column('hosts', 'Hosts'),
    table.Column('silent', 'Silent Hosts'),
    table.Column('last_seen_at', 'Last Report (UTC)', table.time))


class ShowProtection(command.Lister):
    """Show where protection was switched off, or on again.

    A host sets limits only if protection is enabled for the cloud, for each
    of its aggregates, and for itself.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        listing.add_arguments(parser, long=False)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> table.Answer:
        return listing.take(self.app, parsed_args, 'protection', PATH,
                            COLUMNS)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    scope.add_arguments(parser, *SCOPES)
    scope.add_reason(parser, 'customer reports throttling',
                     'shown on the hosts and kept in the audit')


def _switch(on: command.ShowOne, arguments: argparse.Namespace,
            enabled: bool) -> table.Answer:
    answer = http.of(on.app).resource(
        'protection', 'PUT', PATH,
        {**scope.of(on.app, arguments), 'enabled': enabled,
         'reason': arguments.reason})
    with table.understood():
        if answer['silent']:
            from scavenger_openstack import amounts
            on.app.stderr.write(
                f'Silent: {answer["silent"]} of '
                f'{amounts.counted(answer["hosts"], "host")}; each follows '
                'when it reaches a conductor. The last report of all came at '
                f'{table.time(answer["last_seen_at"])} (UTC). On a host '
                'itself "scavenger-agent stop-all" works at once.\n')
    return table.record(arguments, SET, answer)


class DisableProtection(command.ShowOne):
    """The kill switch: remove all limits, and set none.

    The agents follow within one sync, some 10 s. On a host,
    "scavenger-agent stop-all" does the same without the control plane.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_arguments(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> table.Answer:
        return _switch(self, parsed_args, False)


class EnableProtection(command.ShowOne):
    """End what "protection disable" did."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_arguments(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> table.Answer:
        return _switch(self, parsed_args, True)
