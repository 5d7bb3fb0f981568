# SPDX-License-Identifier: Apache-2.0

"""A number that is another one when what operators want is, or what Nova says
in their place: conductors then read it again.

Whatever writes to the audit raises it, but for what agents do.
"""

from __future__ import annotations

from sqlalchemy import Connection

from scavenger_openstack.db import claims

NAME = 'generation'
"""The number in :mod:`.claims`."""


def count(connection: Connection) -> int:
    """Something may be another when this transaction has ended; the number
    that only those see who see it."""
    claims.count(connection, NAME)
    return current(connection)


def current(connection: Connection) -> int:
    """The number, 0 before the first change."""
    return claims.counted(connection, NAME)
