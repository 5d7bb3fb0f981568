# SPDX-License-Identifier: Apache-2.0

"""What each line of the log goes through."""

from __future__ import annotations

import logging

from scavenger_openstack.agent import names
from scavenger_openstack.agent import status

NAMES = names.Names()
"""Of the process, as its log."""


class Filter(logging.Filter):
    """Puts the names of VMs into log lines, and keeps the control characters
    of tenants' names out of them."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = status.shown(NAMES.beside(record.getMessage()))
        record.args = None
        return True
