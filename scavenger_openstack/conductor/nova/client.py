# SPDX-License-Identifier: Apache-2.0

"""The edge to python-novaclient: instances, their groups, host aggregates and
flavors."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import datetime
from typing import Any
from typing import NamedTuple

from keystoneauth1 import exceptions as auth_exceptions
from novaclient import api_versions
from novaclient import client
from novaclient import exceptions

from scavenger_openstack.conductor.nova import stacks
from scavenger_openstack import errors

NEWEST = '2.96'
"""Of Nova 2024.1 and later; what is newer has not been tried."""

OLDEST = '2.47'
"""Of Pike: the first with the extra specs of an instance's flavor."""

FAULTS = (exceptions.ClientException, exceptions.UnsupportedVersion,
          auth_exceptions.ClientException)
"""What is raised where Nova refuses something, or does not answer."""

PAGE = 500
DELETED = frozenset(('DELETED', 'SOFT_DELETED'))
UNKNOWN = 'UNKNOWN'
"""The status of an instance whose cell does not answer."""

PREFIX = 'scavenger:'


class Server(NamedTuple):
    """An instance; ``host`` is '' while it has none.

    ``busy`` while Nova does something with it;
    ``specs`` are the extra specs of its flavor; ``strays`` the names of
    metadata and tags that look like them, which tenants write; ``stack`` the
    name of the stack or cluster that these say, or ''.
    """

    id: str
    project: str
    host: str
    deleted: bool
    specs: Mapping[str, str]
    strays: tuple[str, ...] = ()
    status: str = ''
    busy: bool = False
    stack: str = ''

    @property
    def unknown(self) -> bool:
        """Whether its cell does not answer: then only the flavor that it was
        made with is known, and no host."""
        return self.status == UNKNOWN


class Aggregate(NamedTuple):
    """A host aggregate."""

    name: str
    hosts: tuple[str, ...]
    metadata: Mapping[str, str]


class Flavor(NamedTuple):
    """A flavor; ``id`` '' for one that is to be made."""

    id: str
    vcpus: int
    ram_mib: int
    disk_gib: int
    specs: Mapping[str, str]


class Nova:
    """A client; for one thread.

    :param session: of keystoneauth
    :param more: for novaclient, such as ``region_name``
    """

    def __init__(self, session: Any, **more: Any) -> None:
        self._make = lambda version: client.Client(version, session=session,
                                                   **more)
        self._client: Any = None

    def servers(self, since_s: float | None) -> Iterator[Server]:
        """All instances of all projects.

        :param since_s: only those that have changed since, with those that
            have been deleted
        :raises Unreachable: Nova does not answer, or not so.
        """
        search: dict[str, Any] = {'all_tenants': 1}
        if since_s is not None:
            search['changes-since'] = datetime.datetime.fromtimestamp(
                since_s, datetime.UTC).strftime('%Y-%m-%dT%H:%M:%SZ')
        marker = None
        while page := self._ask(lambda nova, after=marker: [
                _server(one) for one in nova.servers.list(
                    search_opts=search, marker=after, limit=PAGE)]):
            for one in page:
                if not one.unknown:     # its host is not known either
                    yield one
            marker = _next(marker, page[-1].id)

    def server(self, instance: str) -> Server | None:
        """One of them, ``None`` when there is none."""
        def ask(nova: Any) -> Any:
            try:
                return _server(nova.servers.get(instance))
            except exceptions.NotFound:
                return None

        found: Server | None = self._ask(ask)
        return found

    def act(self, instance: str, how: str) -> None:
        """Have Nova begin to live-migrate, pause, stop or shelve it.

        :raises Unreachable: Nova refuses it, or does not answer.
        """
        self._ask(lambda nova: {
            'live-migrate': lambda: nova.servers.live_migrate(
                instance, None, 'auto'),
            'pause': lambda: nova.servers.pause(instance),
            'stop': lambda: nova.servers.stop(instance),
            'shelve': lambda: nova.servers.shelve(instance)}[how]())

    def groups(self) -> dict[str, str]:
        """The name of the server group of each instance that has one."""
        found: dict[str, str] = {}
        offset = 0
        while page := self._ask(lambda nova, after=offset:
                                nova.server_groups.list(
                                    all_projects=True, limit=PAGE,
                                    offset=after)):
            for group in page:
                found.update(dict.fromkeys(group.members, group.name))
            offset += len(page)
        return found

    def aggregates(self) -> list[Aggregate]:
        """All host aggregates.

        :raises Unreachable: Nova does not answer, or not so.
        """
        return self._ask(lambda nova: [
            _aggregate(one) for one in nova.aggregates.list()])

    def flavors(self) -> dict[str, Flavor]:
        """All flavors, by name.

        :raises Unreachable: Nova does not answer, or not so.
        """
        found: dict[str, Flavor] = {}
        marker = None
        while page := self._ask(lambda nova, after=marker: [
                (one, _specs(one)) for one in nova.flavors.list(
                    is_public=None, marker=after, limit=PAGE)]):
            for one, specs in page:
                found[one.name] = Flavor(one.id, one.vcpus, one.ram, one.disk,
                                         specs)
            marker = _next(marker, page[-1][0].id)
        return found

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
            raise errors.Unreachable(f'Nova: {exc}') from exc
        except errors.MISREAD as exc:
            raise errors.Unreachable('Nova: an answer that is not understood: '
                                     f'{exc!r:.200}') from exc

    def _connected(self) -> Any:
        """With the newest microversion that both sides know."""
        newest = api_versions.APIVersion(NEWEST)
        found = min(newest, api_versions.discover_version(
            self._make(api_versions.APIVersion('2.1')),
            api_versions.APIVersion('2.latest')))
        if found < api_versions.APIVersion(OLDEST):
            raise errors.Unreachable(
                f'Nova: microversion {OLDEST} is needed, which has the extra '
                f'specs of flavors; it has {found.get_string()}')
        return self._make(found)


def _next(marker: str | None, last: str) -> str:
    """Where the next page begins.

    :raises Unreachable: it would be the same again, for ever.
    """
    if last == marker:
        raise errors.Unreachable('Nova: it lists the same page again')
    return last


def _specs(one: Any) -> dict[str, str]:
    """The extra specs of a flavor.  Before microversion 2.61 the list does
    not have them, and Nova is asked for those of each."""
    found = one.to_dict().get('extra_specs')
    return dict(one.get_keys() if found is None else found)


def _server(one: Any) -> Server:
    """From what novaclient has of it.

    :raises Unreachable: the extra specs of its flavor are missing, without
        which nothing can be said of it.
    """
    found = one.to_dict()
    flavor = found.get('flavor') or {}
    if flavor and 'extra_specs' not in flavor:
        raise errors.Unreachable(
            'Nova: it does not tell the extra specs of flavors: the user of '
            '[openstack] needs what its policy os_compute_api:servers:show:'
            'flavor-extra-specs asks for')
    metadata, tags = found.get('metadata') or {}, found.get('tags') or ()
    return Server(
        found['id'], found['tenant_id'],
        found.get('OS-EXT-SRV-ATTR:host') or '',
        found['status'] in DELETED,
        flavor.get('extra_specs') or {},
        tuple(sorted(name for name in (*metadata, *tags)
                     if name.startswith(PREFIX))),
        found['status'], bool(found.get('OS-EXT-STS:task_state')),
        stacks.name(metadata, tags))


def _aggregate(one: Any) -> Aggregate:
    """Likewise.  To MariaDB a name is the same with blanks at its end."""
    found = one.to_dict()
    return Aggregate(found['name'].rstrip(' '), tuple(
        host.rstrip(' ') for host in found.get('hosts') or ()),
        found.get('metadata') or {})
