# SPDX-License-Identifier: Apache-2.0

"""Work that one of many processes does: a row says which.

Times and numbers that all processes see are rows, too, which none has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from scavenger_openstack.db import tables

_claims = tables.claims.c

def note(connection: sa.Connection, name: str, until_s: float) -> None:
    """Remember a time for all processes, as a claim that none has."""
    if not connection.execute(sa.update(tables.claims).where(
            _claims.name == name).values(expires_s=until_s)).rowcount:
        connection.execute(sa.insert(tables.claims).values(
            name=name, holder='', expires_s=until_s))


def noted(connection: sa.Connection, name: str) -> float | None:
    """Return the time that was noted; ``None`` before the first."""
    until_s: float | None = connection.execute(sa.select(
        _claims.expires_s).where(_claims.name == name)).scalar()
    return until_s


def count(connection: sa.Connection, name: str) -> None:
    """Raise a number that all processes see, as a claim that none has.

    No other transaction can before this one ends: a larger number is of what
    was written later.
    """
    more = sa.update(tables.claims).where(_claims.name == name).values(
        beat=_claims.beat + 1)
    if not connection.execute(more).rowcount:
        _add(connection, name, {'holder': '', 'expires_s': 0.0})
        connection.execute(more)


def counted(connection: sa.Connection, name: str) -> int:
    """Return the number that was counted, 0 before the first."""
    return connection.execute(sa.select(_claims.beat).where(
        _claims.name == name)).scalar() or 0


class Claim:
    """One process's part in a claim: it has it until it stops extending it.

    Another process has it when it was not extended for as long as it holds,
    by the time that passed here: the clocks of both may be set.

    :param holder: a name of this process that no other one has
    :param elapsed: seconds that only grow
    """

    def __init__(self, name: str, holder: str, elapsed: Callable[[], float]
                 ) -> None:
        self._name = name
        self._holder = holder
        self._elapsed = elapsed
        self._beat: int | None = None
        self._beat_s = 0.0

    def take(self, connection: sa.Connection, now: float, hold_s: float, *,
             by_clock: bool = False) -> bool:
        """Take the claim for so long; false while another process holds it.

        :param by_clock: the clock of the process that had it last is right:
            what has expired by it is free at once
        """
        row = connection.execute(sa.select(
            _claims.holder, _claims.beat, _claims.hold_s,
            _claims.expires_s).where(
                _claims.name == self._name)).first()
        values = self._values(now, hold_s)
        if row is None:
            return _add(connection, self._name, values)
        if row.beat != self._beat:
            self._beat, self._beat_s = row.beat, self._elapsed()
        is_free = (row.expires_s <= now if by_clock
                   else row.holder == self._holder
                   or self._elapsed() - self._beat_s >= row.hold_s)
        if not is_free:
            return False
        return bool(connection.execute(sa.update(tables.claims).where(
            _claims.name == self._name, _claims.beat == row.beat).values(
                values)).rowcount)

    def extend(self, connection: sa.Connection, now: float, hold_s: float
               ) -> bool:
        """Hold the claim for so long from now, 0 to give it up; false when it
        is another's."""
        return bool(connection.execute(sa.update(tables.claims).where(
            _claims.name == self._name, _claims.holder == self._holder
            ).values(self._values(now, hold_s))).rowcount)

    def _values(self, now: float, hold_s: float) -> dict[str, Any]:
        return {'holder': self._holder, 'expires_s': now + hold_s,
                'hold_s': hold_s, 'beat': _claims.beat + 1}


def _add(connection: sa.Connection, name: str, values: dict[str, Any]) -> bool:
    try:
        with connection.begin_nested():
            connection.execute(sa.insert(tables.claims).values(
                {**values, 'name': name, 'beat': 0}))
    except sa.exc.IntegrityError:      # another process was first
        return False
    return True
