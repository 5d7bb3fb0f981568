# SPDX-License-Identifier: Apache-2.0

"""The names of VMs, which are shown beside their UUIDs."""

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
"""Most remembered names: a VM that has ended still has lines."""
ROWS = ('caps', 'would', 'incidents', 'actions')
"""The fields of a status whose rows have UUIDs."""
_UUID = re.compile(patterns.UUID)
_PLAIN = re.compile(r'[\w. -]+')
_CHARS = 32


class InstanceName(NamedTuple):
    """The name of an instance in libvirt, and that in Nova, '' if unknown,
    which a tenant chooses."""

    name: str
    display_name: str


class Names:
    """The names of VMs by UUID."""

    def __init__(self) -> None:
        self._names: dict[str, InstanceName] = {}
        self._followed: Iterable[Instance] = ()

    def learn(self, uuid: str, name: str, display_name: str) -> None:
        if len(self._names) >= MOST:
            self._names = {}
        self._names[uuid] = InstanceName(name, display_name)

    def follow(self, instances: Iterable[Instance]) -> None:
        """Add the names of these VMs.

        :param instances: the same object while nothing of them changes
        """
        if instances is not self._followed:
            self._followed = instances
            for instance in instances:
                self.learn(instance.uuid, instance.name, instance.display_name)

    def read(self, by_uuid: Mapping[str, Mapping[str, str]]) -> None:
        """Add names in the form of :meth:`of`."""
        for uuid, row in by_uuid.items():
            self.learn(uuid, *(row.get(field, '')
                               for field in InstanceName._fields))

    def of(self, document: object) -> dict[str, dict[str, str]]:
        """Return the names of all VMs whose UUIDs are in a document, by UUID,
        as JSON."""
        return {uuid: {field: fit.maybe_name(name) for field, name
                       in self._names[uuid]._asdict().items()}
                for uuid in dict.fromkeys(_UUID.findall(str(document)))
                if uuid in self._names}

    def beside(self, text: str) -> str:
        """Return the text with ``instance-00000003 (web-1, UUID)`` for each
        UUID, unless it has the name of the instance already.

        A name in Nova with other characters than letters, digits, spaces,
        ``.``, ``_`` and ``-`` is in quotes.
        """
        return _UUID.sub(lambda match: self._named(match[0], text), text)

    def _named(self, uuid: str, text: str) -> str:
        instance = self._names.get(uuid)
        if instance is None or instance.name in text:
            return uuid
        title = instance.display_name[:_CHARS].replace('\n', ' ')
        if title and not _PLAIN.fullmatch(title):
            # It could be mistaken for words of the line itself.
            title = json.dumps(title, ensure_ascii=False)
        return f'{instance.name} ({title}{", " if title else ""}{uuid})'


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
