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

"""Warnings about what is in Nova, each logged once."""

from __future__ import annotations

from oslo_log import log

LOG = log.getLogger(__name__)

MOST = 10000


class Said:
    """Remembers what has been logged; for one thread."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def warn(self, text: str) -> None:
        if text not in self._said:
            if len(self._said) >= MOST:
                self._said.clear()
            self._said.add(text)
            LOG.warning('%s', text)
