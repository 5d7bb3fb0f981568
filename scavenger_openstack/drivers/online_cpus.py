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

"""Which CPUs are online: that changes while the agent runs."""

from __future__ import annotations

import logging

from scavenger_openstack.types import parse_cpus

LOG = logging.getLogger(__name__)


class OnlineCpus:
    """The CPUs that were online at the last look.

    :ivar now: the first CPU until it is known better
    """

    def __init__(self, root_dir: str = '/') -> None:
        self._path = f'{root_dir.rstrip("/")}/sys/devices/system/cpu/online'
        self._text = ''
        self._said = False
        self.now: frozenset[int] = frozenset((0,))

    def look(self) -> bool:
        """Whether they have changed since the last look."""
        try:
            with open(self._path, encoding='ascii') as file:
                text = file.read()
            if text == self._text:
                return False
            self.now = parse_cpus(text) or self.now
        except (OSError, ValueError) as exc:
            if not self._said:
                LOG.warning('cannot tell which CPUs are online: %s; counting '
                            'on %s', exc, sorted(self.now))
            self._said = True
            return False
        self._text = text
        return True
