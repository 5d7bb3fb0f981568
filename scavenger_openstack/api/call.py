# SPDX-License-Identifier: Apache-2.0

"""One request, as the nouns see it: no framework, only values."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
from http import HTTPStatus
from typing import Any

from scavenger_openstack.api import cached
from scavenger_openstack.api import faults
from scavenger_openstack.api import markers
from scavenger_openstack.api import schemas
from scavenger_openstack.db.resources import audit
from scavenger_openstack.db.resources.rankings import Rankings
from scavenger_openstack.db.resources.residents import Residents
from scavenger_openstack.text import time_s
from scavenger_openstack.wire import fit


@dataclasses.dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: ids of user and project, and roles, as Keystone has them,
    and what the user is called.

    ``domain`` and ``system`` are set where the token is for a whole domain or
    for the system, instead of a project.
    """

    user: str
    project: str = ''
    roles: tuple[str, ...] = ()
    user_name: str = ''
    domain: str = ''
    system: str = ''

    @property
    def name(self) -> str:
        """For people."""
        return self.user_name or self.user


@dataclasses.dataclass(slots=True)
class Call:
    """A request whose path, query and body have passed their schemas.

    ``allows`` decides by policy; ``enforced`` is what it was asked;
    ``reader`` is what :meth:`only` has returned.
    """

    noun: str
    caller: Caller
    request_id: str
    now_s: float
    silent_s: float
    profile_hosts: int
    profile_seconds_per_day: float
    path: Mapping[str, str]
    query: Mapping[str, Any]
    body: Mapping[str, Any]
    allows: Callable[[str, Caller, Mapping[str, Any]], bool]
    rankings: Rankings
    summary: cached.Cache
    overview: cached.Cache
    week: cached.Cache
    residents: Residents
    enforced: list[str] = dataclasses.field(default_factory=list)
    reader: str | None = None

    def may(self, policy: str, **target: Any) -> bool:
        self.enforced.append(policy)
        return self.allows(policy, self.caller, target)

    def require(self, policy: str, **target: Any) -> None:
        """Refuse the request unless a policy allows it.

        :raises Fault: 403.
        """
        if not self.may(policy, **target):
            raise faults.Fault(HTTPStatus.FORBIDDEN,
                               f'The policy {policy} does not allow this.')

    def only(self, all_: str, own: str, hidden: Collection[str] = (),
             filters: Collection[str] = ()) -> str | None:
        """Return the one project whose things the caller may see; ``None`` for
        all.

        :param all_: the policy that allows those of all projects
        :param own: the one that allows those of the caller's
        :param hidden: of ``filters``, those by which a reader of a project
            would learn of others; its own project is what it sees anyway
        :raises Fault: 403, it may see none; 400, it asks by one of these.
        """
        if self.may(all_):
            return None
        self.require(own, project_id=self.caller.project or None)
        wrong = sorted(name for name, value in self.query.items()
                       if name in hidden
                       and (name, value) != ('project', self.caller.project))
        if wrong:
            raise faults.bad(
                f'{wrong[0]} cannot be asked for by readers of a project.',
                wrong[0], sorted(set(filters) - set(hidden)))
        self.reader = self.caller.project
        return self.reader

    @property
    def project(self) -> str | None:
        """Return the project whose things are listed; ``None`` for all."""
        return (self.query.get('project') if self.reader is None
                else self.reader)

    @property
    def limit(self) -> int:
        return self.query.get('limit', schemas.LIMIT_DEFAULT)

    def name(self, field: str) -> str | None:
        """Return what a host calls something, out of the query, as it reports
        it."""
        return fit.maybe_name(self.query.get(field)) or None

    def time_s(self, name: str) -> float | None:
        """A time that is in the query."""
        text = self.query.get(name)
        return None if text is None else time_s(text)

    def after_id(self) -> int | None:
        """The id of the last row of the page before.

        :raises Fault: 400, the marker is of another listing, or of none.
        """
        text = self.query.get('marker')
        return (None if text is None
                else markers.read(text, self.noun, [int])[0])

    def after_row(self, connection: Any, kinds: list[type],
                  find: Callable[..., int | None]) -> int | None:
        """Return the id of the last row of the page before, also for a reader
        of a project: its marker does not have the id, which tells how many
        rows there are.

        :param kinds: the types of what that marker has
        :param find: makes the id of connection, project and these
        :raises Fault: 400, also where that row is gone.
        """
        if self.reader is None:
            return self.after_id()
        text = self.query.get('marker')
        if text is None:
            return None
        id_ = find(connection, self.reader,
                   *markers.read(text, self.noun, kinds))
        if id_ is None:
            raise faults.bad('marker is of a row that is gone.', 'marker')
        return id_

    def page(self, rows: Sequence[Any], shape: Callable[[Any], Any],
             key: Callable[[Any], list[Any]] = lambda row: [row['id']],
             own: Callable[[Any], list[Any]] | None = None) -> dict[str, Any]:
        """The answer of a listing.

        :param rows: up to one more than are shown
        :param key: what the marker has to hold of the last one
        :param own: the same for a reader of a project, if it is another
        """
        if own is not None and self.reader is not None:
            key = own
        there = rows[:self.limit]
        more = len(rows) > len(there)
        return {self.noun: [shape(row) for row in there],
                'next': markers.write(self.noun, key(there[-1])) if more
                else None}

    def record(self, connection: Any, action: str, target: str, *,
               before: Any, after: Any, reason: str = '') -> None:
        """Write to the audit, in the transaction of the change itself."""
        audit.add(connection, time_s=self.now_s, actor=self.caller.user,
                  actor_name=self.caller.name, project=self.caller.project,
                  request_id=self.request_id, action=action, target=target,
                  before=before, after=after, reason=reason)
