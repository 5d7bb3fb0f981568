# SPDX-License-Identifier: Apache-2.0

"""The edge to python-novaclient: instances, their groups, host aggregates and
flavors."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import datetime
from typing import Any
from urllib import parse

from keystoneauth1 import exceptions as auth_exceptions
from novaclient import api_versions
from novaclient import client
from novaclient import exceptions

from scavenger_openstack.conductor.nova.protocol import Aggregate
from scavenger_openstack.conductor.nova.protocol import Flavor
from scavenger_openstack.conductor.nova.protocol import Group
from scavenger_openstack.conductor.nova.protocol import Page
from scavenger_openstack.conductor.nova.protocol import Server
from scavenger_openstack.conductor.nova import stacks
from scavenger_openstack import errors
from scavenger_openstack.types import printable

NEWEST = '2.96'
"""Of Nova 2024.1 and later; what is newer has not been tried."""

OLDEST = '2.47'
"""Of Pike: the first with the extra specs of an instance's flavor."""

FAULTS = (exceptions.ClientException, exceptions.UnsupportedVersion,
          auth_exceptions.ClientException)
"""What is raised where Nova refuses something, or does not answer."""

PAGE = 500

GROUPS = 1000
"""Nova loads all server groups for each page of them."""

MARKERS = 10
"""So many instances of a page Nova is asked to go on after, should the last
ones be deleted meanwhile."""

DELETED = frozenset(('DELETED', 'SOFT_DELETED'))

PREFIX = 'scavenger:'


class Nova:
    """The client of :class:`.protocol.Nova`; for one thread.

    :param session: of keystoneauth
    :param more: for novaclient, such as ``region_name``
    """

    def __init__(self, session: Any, **more: Any) -> None:
        self._make = lambda version: client.Client(version, session=session,
                                                   **more)
        self._client: Any = None

    def page(self, after: Sequence[str] = (), *,
             since_s: float | None = None, deleted: bool = False,
             status: str = '') -> Page:
        """Instances of all projects, the newest first.

        :param after: as of the page before
        :param since_s: only those that have changed since, with those that
            have been deleted
        :param deleted: only those that have been
        :param status: only those with it
        :raises Unreachable: Nova does not answer, or not so.
        """
        search: dict[str, Any] = {'all_tenants': 1}
        if since_s is not None:
            search['changes-since'] = datetime.datetime.fromtimestamp(
                since_s, datetime.UTC).strftime('%Y-%m-%dT%H:%M:%SZ')
        if deleted:
            search['deleted'] = True
        if status:
            search['status'] = status

        def ask(nova: Any) -> list[Server]:
            *markers, last = after or (None,)
            for marker in (last, *markers[::-1]):
                try:
                    return [_server(server) for server in nova.servers.list(
                        search_opts=search, marker=marker, limit=PAGE)]
                except exceptions.BadRequest as exc:
                    fault = exc     # perhaps the marker is gone
            raise fault

        servers = self._ask(ask)
        if servers:
            _next(after[-1] if after else None, servers[-1].id)
        return Page(
            # The host of an unknown one is not known either.
            [server for server in servers if not server.unknown],
            tuple(server.id for server in servers[-MARKERS:]))

    def server(self, instance: str) -> Server | None:
        """Return an instance, ``None`` when Nova has none of that id."""
        def ask(nova: Any) -> Any:
            try:
                return _server(nova.servers.get(_in_path(instance)))
            except exceptions.NotFound:
                return None

        answer: Server | None = self._ask(ask)
        return answer

    def act(self, instance: str, how: str) -> None:
        """Have Nova begin to live-migrate, pause, stop or shelve it.

        :raises Unreachable: Nova refuses it, or does not answer.
        """
        instance = _in_path(instance)
        self._ask(lambda nova: {
            'live-migrate': lambda: nova.servers.live_migrate(
                instance, None, 'auto'),
            'pause': lambda: nova.servers.pause(instance),
            'stop': lambda: nova.servers.stop(instance),
            'shelve': lambda: nova.servers.shelve(instance)}[how]())

    def groups(self) -> Iterator[list[Group]]:
        """Generate all server groups of all projects, in pages.

        :raises Unreachable: Nova does not answer, or not so.
        """
        offset = 0
        while page := self._ask(lambda nova, after=offset:
                                nova.server_groups.list(
                                    all_projects=True, limit=GROUPS,
                                    offset=after)):
            yield [_group(group) for group in page]
            offset += len(page)

    def group(self, id_: str) -> Group | None:
        """Return a server group, ``None`` when Nova has none of that id."""
        def ask(nova: Any) -> Any:
            try:
                return nova.server_groups.get(_in_path(id_))
            except exceptions.NotFound:
                return None

        answer = self._ask(ask)
        return None if answer is None else _group(answer)

    def services(self) -> list[str]:
        """The hosts that have a compute service.

        :raises Unreachable: Nova does not answer, or not so.
        """
        return [service.host for service in self._ask(
            lambda nova: nova.services.list(binary='nova-compute'))]

    def aggregates(self) -> list[Aggregate]:
        """Return all host aggregates.

        :raises Unreachable: Nova does not answer, or not so.
        """
        return self._ask(lambda nova: [
            _aggregate(aggregate) for aggregate in nova.aggregates.list()])

    def flavors(self) -> dict[str, Flavor]:
        """Return all flavors, by name.

        :raises Unreachable: Nova does not answer, or not so.
        """
        by_name: dict[str, Flavor] = {}
        marker = None
        while page := self._ask(lambda nova, after=marker: [
                (flavor, _specs(flavor)) for flavor in nova.flavors.list(
                    is_public=None, marker=after, limit=PAGE)]):
            for flavor, specs in page:
                by_name[flavor.name] = Flavor(
                    flavor.id, flavor.vcpus, flavor.ram, flavor.disk, specs)
            marker = _next(marker, page[-1][0].id)
        return by_name

    def make_flavor(self, name: str, wanted: Flavor, *, public: bool
                    ) -> None:
        """Make one; its id is Nova's choice.

        :raises Unreachable: Nova refuses it, or does not answer.
        """
        def make(nova: Any) -> None:
            made = nova.flavors.create(name, wanted.ram_mib, wanted.vcpus,
                                       wanted.disk_gib, is_public=public)
            try:
                made.set_keys(dict(wanted.specs))
            except Exception:
                # Without them it is foreground.
                with contextlib.suppress(*FAULTS):
                    made.delete()
                raise

        self._ask(make)

    def _ask(self, question: Any) -> Any:
        try:
            if self._client is None:
                self._client = self._connected()
            return question(self._client)
        except FAULTS as exc:
            self._client = None
            raise errors.Unreachable(printable(f'Nova: {exc}')) from exc
        except errors.MISREAD as exc:
            raise errors.Unreachable('Nova: an answer that is not understood: '
                                     f'{exc!r:.200}') from exc

    def _connected(self) -> Any:
        """Return a client of the newest microversion that both sides know."""
        newest = api_versions.APIVersion(NEWEST)
        version = min(newest, api_versions.discover_version(
            self._make(api_versions.APIVersion('2.1')),
            api_versions.APIVersion('2.latest')))
        if version < api_versions.APIVersion(OLDEST):
            raise errors.Unreachable(
                f'Nova: microversion {OLDEST} is needed, which has the extra '
                f'specs of flavors; it has {version.get_string()}')
        return self._make(version)


def _in_path(id_: str) -> str:
    """An id as a part of a path of Nova's API, whatever is in it."""
    return parse.quote(id_, safe='')


def _next(marker: str | None, last: str) -> str:
    """Where the next page begins.

    :raises Unreachable: it is the same page again, for ever.
    """
    if last == marker:
        raise errors.Unreachable('Nova: it lists the same page again')
    return last


def _specs(flavor: Any) -> dict[str, str]:
    """Return the extra specs of a flavor.

    Before microversion 2.61 the list does not have them, and Nova is asked
    for those of each flavor.
    """
    specs = flavor.to_dict().get('extra_specs')
    return dict(flavor.get_keys() if specs is None else specs)


def _server(server: Any) -> Server:
    """Return an instance from what novaclient has of it.

    :raises Unreachable: the extra specs of its flavor are missing, without
        which its priority is not known.
    """
    document = server.to_dict()
    flavor = document.get('flavor') or {}
    if flavor and 'extra_specs' not in flavor:
        raise errors.Unreachable(
            'Nova: it does not tell the extra specs of flavors: the user of '
            '[openstack] needs what its policy os_compute_api:servers:show:'
            'flavor-extra-specs asks for')
    metadata, tags = document.get('metadata') or {}, document.get('tags') or ()
    return Server(
        document['id'], document['tenant_id'],
        printable(document.get('OS-EXT-SRV-ATTR:host') or ''),
        document['status'] in DELETED,
        flavor.get('extra_specs') or {},
        tuple(sorted(name for name in (*metadata, *tags)
                     if name.startswith(PREFIX))),
        document['status'], bool(document.get('OS-EXT-STS:task_state')),
        stacks.name(metadata, tags), _time_s(document.get('created')),
        None if (groups := document.get('server_groups')) is None
        else tuple(groups))


def _time_s(text: str | None) -> float:
    """Return a time of Nova such as 2025-06-15T15:06:40Z as UNIX time."""
    return (datetime.datetime.fromisoformat(
        text.replace('Z', '+00:00')).timestamp() if text
            else 0.0)


def _group(group: Any) -> Group:
    return Group(group.id, group.name, tuple(group.members))


def _aggregate(aggregate: Any) -> Aggregate:
    """Return an aggregate from what novaclient has of it.

    To MariaDB a name is the same with blanks at its end.
    """
    document = aggregate.to_dict()
    return Aggregate(document['name'].rstrip(' '), tuple(
        host.rstrip(' ') for host in document.get('hosts') or ()),
        document.get('metadata') or {})
