# SPDX-License-Identifier: Apache-2.0

"""What a client of Nova answers, without the packages that one takes."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple
from typing import Protocol

UNKNOWN = 'UNKNOWN'
"""The status of an instance whose cell does not answer."""


class Server(NamedTuple):
    """An instance; ``host`` is '' while it has none.

    ``busy`` while Nova does something with it;
    ``specs`` are the extra specs of its flavor; ``strays`` the names of
    metadata and tags that look like them, which tenants write; ``stack`` the
    name of the stack or cluster that these say, or ''; ``groups`` the ids of
    its server groups, ``None`` in a list and before Nova 19 (Stein).
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
    created_s: float = 0.0
    groups: tuple[str, ...] | None = None

    @property
    def unknown(self) -> bool:
        """Whether the cell of the instance does not answer: then only the
        flavor that it was made with is known, and no host."""
        return self.status == UNKNOWN


class Page(NamedTuple):
    """Some of the instances; ``after`` is where the next page begins, empty
    when this is the last one."""

    servers: list[Server]
    after: tuple[str, ...]


class Group(NamedTuple):
    """A server group with the ids of its instances."""

    id: str
    name: str
    members: tuple[str, ...]


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


class Nova(Protocol):
    """A client; :class:`.client.Nova` says what each method does."""

    def page(self, after: Sequence[str] = (), *,
             since_s: float | None = None, deleted: bool = False,
             status: str = '') -> Page: ...

    def server(self, instance: str) -> Server | None: ...

    def act(self, instance: str, how: str) -> None: ...

    def groups(self) -> Iterator[list[Group]]: ...

    def group(self, id_: str) -> Group | None: ...

    def services(self) -> list[str]: ...

    def aggregates(self) -> list[Aggregate]: ...
