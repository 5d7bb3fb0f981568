# SPDX-License-Identifier: Apache-2.0

"""Warnings about what is in Nova, each logged once."""

from __future__ import annotations

from oslo_log import log

from scavenger_openstack.types import printable

LOG = log.getLogger(__name__)

MOST = 10000


class Said:
    """Remembers what has been logged; for one thread."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def warn(self, text: str) -> None:
        text = printable(text)
        if text not in self._said:
            if len(self._said) >= MOST:
                self._said.clear()
            self._said.add(text)
            LOG.warning('%s', text)
