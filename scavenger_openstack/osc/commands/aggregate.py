# SPDX-License-Identifier: Apache-2.0

"""``openstack interference aggregate``: what is set for many hosts."""

from __future__ import annotations

import argparse

from osc_lib.command import command

from scavenger_openstack.osc.commands import host
from scavenger_openstack.osc import http
from scavenger_openstack.osc import table

SHOWN = (
    table.Column('name', 'Aggregate'),
    table.Column('hosts', 'Hosts'),
    table.Column('settings', 'Set Here', host.settings),
    table.Column('not_followed', 'Not Followed'))


class ShowAggregate(command.ShowOne):
    """Show the hosts of an aggregate, and what is set for them."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_aggregate(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> table.Answer:
        return table.record(parsed_args, SHOWN, http.of(self.app).resource(
            'aggregate', 'GET', _path(parsed_args)), host.shape)


class SetAggregate(command.ShowOne):
    """Set modes and parameters of all hosts of an aggregate.

    What is set for a host itself is above that; of several aggregates of a
    host the first by name counts. The agents follow within one sync, some
    10 s.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_aggregate(parser)
        host.add_changes(parser)
        parser.add_argument(
            '--profiling', action=argparse.BooleanOptionalAction,
            help='Allow that load is injected on these hosts to measure the '
                 'profile of a workload, or not. Default: as it is; at '
                 'first it is not allowed.')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> table.Answer:
        more = {} if parsed_args.profiling is None else {
            'profiling': parsed_args.profiling}
        return table.record(parsed_args, SHOWN, http.of(self.app).resource(
            'aggregate', 'PATCH', _path(parsed_args),
            host.changes(parsed_args, **more)), host.shape)


def _add_aggregate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        'aggregate', metavar='<aggregate>',
        help='The name of the aggregate, as "openstack aggregate list" or '
             '"scavenger-manage aggregate list" shows it. Example: batch')


def _path(parsed_args: argparse.Namespace) -> str:
    return http.path_of('aggregates', parsed_args.aggregate)
