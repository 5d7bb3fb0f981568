# SPDX-License-Identifier: Apache-2.0

"""Times: UNIX seconds inside, ISO 8601 in UTC outside."""

from __future__ import annotations

from scavenger_openstack.text import iso as iso
from scavenger_openstack.text import time_s as seconds

__all__ = ('iso', 'seconds')
