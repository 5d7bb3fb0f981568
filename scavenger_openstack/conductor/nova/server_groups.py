# SPDX-License-Identifier: Apache-2.0

"""The server groups of instances.

Nova loads all groups for each page of them, and asks each cell's database for
the members of each: so they are read once with the list of all instances, and
then Nova tells of each new instance alone which group it is in.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
import itertools

from scavenger_openstack.conductor.nova import protocol
from scavenger_openstack.conductor.nova.protocol import Server

CLOCKS_S = 120.0
"""So far apart the clocks of Nova and ours may be."""


class Groups:
    """Remembers the names of the groups of instances; for one thread."""

    def __init__(self, nova: protocol.Nova) -> None:
        self._nova = nova
        self._names: dict[str, str] = {}
        self._of: dict[str, str] = {}
        self._expected: dict[str, None] = {}
        self._read_s = 0.0

    def read(self, now: float, still: Callable[[], None]) -> None:
        """Read all of them.

        :raises Unreachable: Nova does not answer; what was known stays.
        """
        names: dict[str, str] = {}
        members: dict[str, str] = {}
        for page in self._nova.groups():
            still()
            for group in page:
                names[group.id] = group.name
                members.update(dict.fromkeys(group.members, group.name))
        self._names, self._of, self._read_s = names, members, now
        self._expected = {}

    def of(self, instance: str) -> str:
        """The name of its group, '' without one."""
        return self._of.get(instance, '')

    def expect(self, servers: Iterable[Server]) -> None:
        """Note those of which Nova has to be asked for the group: they were
        made after all groups were read."""
        for server in servers:
            if server.deleted:
                self.remove(server.id)
            elif server.id not in self._of and (
                    server.created_s > self._read_s - CLOCKS_S):
                self._expected[server.id] = None

    def expected(self, most: int) -> list[str]:
        """Return instances of which Nova has to be asked for the group, the
        first ones first."""
        return list(itertools.islice(self._expected, most))

    def add(self, server: Server) -> None:
        """Take what Nova tells of one instance.

        :raises Unreachable: Nova does not tell its group.
        """
        if server.id not in self._of:
            self._of[server.id] = next(filter(None, map(
                self._name, server.groups or ())), '')
        self._expected.pop(server.id, None)

    def remove(self, instance: str) -> None:
        """Forget an instance that is gone."""
        self._of.pop(instance, None)
        self._expected.pop(instance, None)

    def _name(self, id_: str) -> str:
        """The name of a group that may have been made since."""
        if id_ not in self._names:
            group = self._nova.group(id_)
            self._names[id_] = group.name if group else ''
            if group:
                self._of.update(dict.fromkeys(group.members, group.name))
        return self._names[id_]
