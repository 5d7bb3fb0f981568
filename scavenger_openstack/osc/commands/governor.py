# SPDX-License-Identifier: Apache-2.0

"""``openstack interference governor``: how many new limits there may be."""

from __future__ import annotations

import argparse

from osc_lib.command import command

from scavenger_openstack.osc import http
from scavenger_openstack.osc import listing
from scavenger_openstack.osc import scope
from scavenger_openstack.osc import table

PATH = '/v1/governor'

COLUMNS = (
    table.Column('scope', 'Scope'),
    table.Column('target', 'Target'),
    table.Column('caps_per_minute', 'Limits per Minute'))


class ShowGovernor(command.Lister):
    """Show how many new limits detectors may set in a minute.

    Beyond that, incidents are recorded and nothing is limited. Regulators,
    which give idle capacity away, are not counted.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        listing.add_arguments(parser, long=False)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> table.Answer:
        return listing.take(self.app, parsed_args, 'governor', PATH, COLUMNS)


class SetGovernor(command.ShowOne):
    """Set how many new limits detectors may set in a minute."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        scope.add_arguments(parser, 'cloud', 'aggregate', 'host')
        parser.add_argument(
            'caps_per_minute', metavar='<limits-per-minute>', type=_count,
            help='New limits per minute on all hosts of the scope together; '
                 '0 for none at all, "none" for no bound of its own. Example: '
                 '20')
        scope.add_reason(parser, 'first week of enforcing')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> table.Answer:
        governor = http.of(self.app).resource(
            'governor', 'PUT', PATH,
            {**scope.of(self.app, parsed_args), 'reason': parsed_args.reason,
             'caps_per_minute': parsed_args.caps_per_minute})
        return table.record(parsed_args, COLUMNS, governor)


def _count(text: str) -> int | None:
    if text == 'none':
        return None
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(
            f'{text!r} is not a number, 0 or more, or none')
    return int(text)
