# SPDX-License-Identifier: Apache-2.0

"""The ids of projects and instances that people call by their names.

With Keystone, it and Nova are asked; without, the workloads that the API has.
"""

from __future__ import annotations

from collections.abc import Callable
import re
from typing import Any

from keystoneauth1 import exceptions as auth_exceptions
from keystoneauth1 import identity
from osc_lib import exceptions
from osc_lib import shell

from scavenger_openstack.osc import plugin
from scavenger_openstack.osc.terminal import printable

_PROJECT = re.compile('[0-9a-f]{32}')


def project(app: shell.OpenStackShell, text: str) -> str:
    """The id of a project.

    :raises CommandError: Keystone knows none, or several, of that name.
    """
    if not text or _PROJECT.fullmatch(text) or not _has_keystone(app):
        return text
    return _id(text, 'project', lambda connection: (
        connection.identity.find_project(text, ignore_missing=True)), app)


def instance(app: shell.OpenStackShell, text: str) -> str:
    """The UUID of an instance.

    :raises CommandError: there is none, or there are several, of that name.
    """
    from scavenger_openstack.wire import fit
    if not text or fit.is_uuid(text):
        return text
    if _has_keystone(app):
        return _id(text, 'instance', lambda connection: _server(
            connection, text), app)
    rows, _ = plugin.client_of(app).listing('workloads')
    return _single(text, 'instance', sorted({
        row['instance'] for row in rows
        if row.get('name') == fit.name(text) and row.get('instance')}))


def workload(app: shell.OpenStackShell, text: str) -> str:
    """Return what the host of a workload calls it, as it is shown: of an
    instance its UUID.  Containers have a slash."""
    from scavenger_openstack.wire import fit
    try:
        return instance(app, text) if '/' not in text else fit.name(text)
    except Missing:
        return fit.maybe_name(text)


class Missing(exceptions.CommandError):
    """Nothing has that name."""


def _has_keystone(app: shell.OpenStackShell) -> bool:
    return isinstance(app.client_manager.session.auth,
                      identity.base.BaseIdentityPlugin)


def _id(text: str, noun: str, find: Callable[[Any], Any],
        app: shell.OpenStackShell) -> str:
    from openstack import exceptions as sdk_exceptions
    try:
        resource = find(app.client_manager.sdk_connection)
    except sdk_exceptions.DuplicateResource as exc:
        raise exceptions.CommandError(
            f'Several {noun}s are called {printable(text)}: give the id of '
            'one.') from exc
    except (sdk_exceptions.SDKException,
            auth_exceptions.ClientException) as exc:
        raise exceptions.CommandError(
            f'The {noun} {printable(text)} cannot be looked up by its name, '
            f'give its id: {printable(str(exc))}') from exc
    return _single(text, noun, [] if resource is None else [resource.id])


def _server(connection: Any, text: str) -> Any:
    """Return an instance of any project, or of the caller's where it may not
    see others; ``None`` for none."""
    from openstack import exceptions as sdk_exceptions
    try:
        return connection.compute.find_server(text, ignore_missing=True,
                                              all_projects=True)
    except sdk_exceptions.ForbiddenException:
        return connection.compute.find_server(text, ignore_missing=True)


def _single(text: str, noun: str, ids: list[str]) -> str:
    if not ids:
        raise Missing(f'There is no {noun} {printable(text)}; where it is '
                      'known by its id only, give that.')
    if len(ids) > 1:
        raise exceptions.CommandError(
            f'Several {noun}s are called {printable(text)}: give the id of '
            f'one: {", ".join(ids)}.')
    return ids[0]
