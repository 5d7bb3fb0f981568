# SPDX-License-Identifier: Apache-2.0

"""What VMs are called, beside their UUIDs."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
import json
import re
from typing import Any
from typing import NamedTuple

from scavenger_openstack.types import Instance
from scavenger_openstack.wire import fit
from scavenger_openstack.wire import patterns

MOST = 4096
"""So many are remembered: a VM that has ended still has lines."""
ROWS = ('caps', 'would', 'incidents', 'actions')
"""What has UUIDs in a status."""
_UUID = re.compile(patterns.UUID)
_PLAIN = re.compile(r'[\w. -]+')
_CHARS = 32


class InstanceName(NamedTuple):
    """That of the instance in libvirt, and the one in Nova, '' if unknown,
    which a tenant chooses."""

    name: str
    display_name: str


class Names:
    """The names that are known."""

    def __init__(self) -> None:
        self._known: dict[str, InstanceName] = {}
        self._followed: Iterable[Instance] = ()

    def learn(self, uuid: str, name: str, display_name: str) -> None:
        if len(self._known) >= MOST:
            self._known = {}
        self._known[uuid] = InstanceName(name, display_name)

    def follow(self, instances: Iterable[Instance]) -> None:
        """Learn those.

        :param instances: the same object while nothing of them changes
        """
        if instances is not self._followed:
            self._followed = instances
            for instance in instances:
                self.learn(instance.uuid, instance.name, instance.display_name)

    def read(self, by_uuid: Mapping[str, Mapping[str, str]]) -> None:
        """Learn what :meth:`of` returned."""
        for uuid, row in by_uuid.items():
            self.learn(uuid, *(row.get(field, '')
                               for field in InstanceName._fields))

    def of(self, document: object) -> dict[str, dict[str, str]]:
        """Return the names of all VMs whose UUIDs it has, by UUID, as JSON.
        """
        return {uuid: {field: fit.maybe_name(name) for field, name
                       in self._known[uuid]._asdict().items()}
                for uuid in dict.fromkeys(_UUID.findall(str(document)))
                if uuid in self._known}

    def beside(self, text: str) -> str:
        """The text, each UUID as ``instance-00000003 (web-1, UUID)`` unless
        the text has the name of the instance already; a name in Nova of more
        than letters, digits, spaces, ``.``, ``_`` and ``-`` in quotes."""
        return _UUID.sub(lambda match: self._named(match[0], text), text)

    def _named(self, uuid: str, text: str) -> str:
        instance = self._known.get(uuid)
        if instance is None or instance.name in text:
            return uuid
        given = instance.display_name[:_CHARS].replace('\n', ' ')
        if given and not _PLAIN.fullmatch(given):
            # It could be taken for what the line itself says.
            given = json.dumps(given, ensure_ascii=False)
        return f'{instance.name} ({given}{", " if given else ""}{uuid})'


def of_status(document: Mapping[str, Any]) -> Names:
    """Return the names of the VMs in a status."""
    names = Names()
    for row in document.get('instances') or ():
        names.learn(row['uuid'], row['name'], row['display_name'])
    return names


def complete(document: Mapping[str, Any]) -> None:
    """Add ``names`` to each row of a status that has the UUID of a VM."""
    vm_names = of_status(document)
    for name in ROWS:
        for row in document.get(name) or ():
            if by_uuid := vm_names.of(row):
                row['names'] = by_uuid
