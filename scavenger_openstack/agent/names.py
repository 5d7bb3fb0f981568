# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Names of VMs beside their UUIDs, in the log."""

from __future__ import annotations

from collections.abc import Iterable
import logging
import re

from scavenger_openstack.agent import status
from scavenger_openstack.types import Instance

MOST = 4096
"""So many are remembered: a VM that has ended still has lines."""
_UUID = re.compile('[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}')
_CHARS = 32


class Names(logging.Filter):
    """Puts the names of VMs into log lines, and keeps the control characters
    of tenants' names out of them."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[str, Instance] = {}

    def follow(self, instances: Iterable[Instance]) -> None:
        if len(self._known) > MOST:
            self._known = {}
        self._known.update((one.uuid, one) for one in instances)

    def beside(self, text: str) -> str:
        """The text, each UUID as ``instance-00000003 (web-1, UUID)`` unless
        the text has the name of the instance already."""
        return _UUID.sub(lambda found: self._named(found[0], text), text)

    def _named(self, uuid: str, text: str) -> str:
        one = self._known.get(uuid)
        if one is None or one.name in text:
            return uuid
        return f'{one.name} (' + (f'{one.display_name[:_CHARS]}, '
                                  if one.display_name else '') + f'{uuid})'

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = status.shown(self.beside(record.getMessage()))
        record.args = None
        return True


LOGGED = Names()
"""Of the process, as its log."""
