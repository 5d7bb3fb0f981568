# SPDX-License-Identifier: Apache-2.0

"""What a rule or a switch is for: an instance, a project, a host, ..."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

from osc_lib import exceptions
from osc_lib import shell

from scavenger_openstack.osc import names
from scavenger_openstack.osc import table

_HELP = {
    'cloud': 'All hosts.',
    'instance': 'One instance, by its name or UUID. Example: '
                '--instance batch-7',
    'project': 'All instances of a project, by its name, or its id where '
               'there is no Keystone. Example: --project lab',
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


def of(app: shell.OpenStackShell, arguments: argparse.Namespace
       ) -> dict[str, str]:
    """The fields ``scope`` and ``target`` of the API.

    :raises CommandError: there is no instance or project of that name.
    """
    scope, target = arguments.scope
    find = {'instance': names.instance, 'project': names.project}.get(scope)
    return {'scope': scope, 'target': find(app, target) if find else target}


def delete_each(delete: Callable[..., None], ids: Iterable[str], reason: str
                ) -> None:
    """Delete things; those that follow one that failed, too.

    :param delete: of the client, takes an id
    :raises CommandError: some were not deleted: a line for each.
    """
    from openstack import exceptions as sdk_exceptions
    failed = []
    for id_ in ids:
        try:
            delete(id_, reason=reason, ignore_missing=False)
        except (exceptions.CommandError,
                sdk_exceptions.SDKException) as exc:
            failed.append(str(exc))
    if failed:
        raise exceptions.CommandError('\n'.join(failed))


def warn_of_none(app: shell.OpenStackShell, rule: Mapping[str, Any]) -> None:
    """Print that a rule is for nothing that is there, if it is."""
    with table.understood():
        count = rule['workloads']
    if not count:
        app.stderr.write(
            f'This {rule["scope"]} has no workload now; the rule counts when '
            'an agent reports one.\n')


def _target(scope: str) -> Callable[[str], tuple[str, str]]:
    def target(text: str) -> tuple[str, str]:
        if not text:
            raise argparse.ArgumentTypeError('a name is needed')
        return scope, text
    return target
