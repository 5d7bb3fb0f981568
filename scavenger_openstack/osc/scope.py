# SPDX-License-Identifier: Apache-2.0

"""What a rule or a switch is for: an instance, a project, a host, ..."""

from __future__ import annotations

import argparse
from collections.abc import Callable

_HELP = {
    'cloud': 'All hosts.',
    'instance': 'One instance, by its UUID. Example: '
                '--instance 6d2a6a52-7a3c-4a57-9c52-5d5f8e2b7a10',
    'project': 'All instances of a project, by its id. Example: '
               '--project 3f1c0b7c1c5e4f7d8d5c8c0a4a1e2b3d',
    'aggregate': 'All hosts of a host aggregate, by its name. Example: '
                 '--aggregate batch',
    'host': 'One host, by its name. Example: --host compute-17'}


def add_arguments(parser: argparse.ArgumentParser, *scopes: str) -> None:
    """Add one option for each scope, of which one has to be given."""
    group = parser.add_mutually_exclusive_group(required=True)
    for scope in scopes:
        if scope == 'cloud':
            group.add_argument('--cloud', dest='scope', action='store_const',
                               const=('cloud', ''), help=_HELP[scope])
        else:
            group.add_argument(f'--{scope}', dest='scope',
                               metavar=f'<{scope}>', type=_target(scope),
                               help=_HELP[scope])


def add_reason(parser: argparse.ArgumentParser, example: str,
               kept: str = 'kept in the audit') -> None:
    """Add the sentence that each change needs."""
    parser.add_argument(
        '--reason', metavar='<sentence>', required=True,
        help=f'Why; it is {kept}. Example: --reason "{example}"')


def of(arguments: argparse.Namespace) -> dict[str, str]:
    """The fields ``scope`` and ``target`` of the API."""
    scope, target = arguments.scope
    return {'scope': scope, 'target': target}


def _target(scope: str) -> Callable[[str], tuple[str, str]]:
    def target(text: str) -> tuple[str, str]:
        if not text:
            raise argparse.ArgumentTypeError('a name is needed')
        return scope, text
    return target
