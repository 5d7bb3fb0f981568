# SPDX-License-Identifier: Apache-2.0

"""Why a run of a domain ended, as libvirt tells."""

from __future__ import annotations

from collections.abc import Mapping

MOST = 1024
"""So many domains are remembered."""
WHY: Mapping[str, str] = {
    'SHUTDOWN': 'the VM shut down', 'DESTROYED': 'the VM was powered off',
    'CRASHED': 'its QEMU crashed or was killed',
    'MIGRATED': 'the VM migrated to another host',
    'SAVED': 'the VM was saved to disk', 'FAILED': 'its QEMU failed',
    'FROM_SNAPSHOT': 'the VM went back to a snapshot'}
"""The details of libvirt's event ``STOPPED``."""
AGAIN = 'the VM was started again'


class Ends:
    """Remembers why each domain ended."""

    def __init__(self) -> None:
        self._last: dict[str, str] = {}
        self._before: dict[str, str] = {}
        self._running: set[str] = set()

    def tell(self, uuid: str, why: str) -> None:
        """Note that a run of a domain ended."""
        self._last[uuid] = why

    def begins(self, uuid: str) -> None:
        """Note that another run of a domain is there."""
        if len(self._last) + len(self._before) > MOST:
            self._last, self._before = {}, {}
        self._running.add(uuid)
        self._before[uuid] = self._last.pop(uuid, AGAIN)

    def over(self, uuid: str) -> None:
        """Note that a domain does not run any more."""
        self._running.discard(uuid)

    def why(self, uuid: str) -> str | None:
        """Return why the last run that ended did; ``None``: not known yet."""
        return (self.again(uuid) if uuid in self._running
                else self._last.get(uuid))

    def again(self, uuid: str) -> str:
        """Return why a domain that runs is not the run that it was."""
        why = self._last.get(uuid) or self._before.get(uuid, AGAIN)
        return why if why == AGAIN else f'{why}, and was started again'
