# SPDX-License-Identifier: Apache-2.0

"""Work that one of many processes does: a row says which, and until when.

What is due again after some time goes by the wall clock: :func:`take` and
:func:`extend`.  A process that does something without a break has a
:class:`Lead`, which no clock ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection
from sqlalchemy import exc
from sqlalchemy import insert
from sqlalchemy import or_
from sqlalchemy import select
from sqlalchemy import update

from scavenger_openstack.db import tables

_claims = tables.claims.c

SLACK_S = 60.0
"""So far the clocks of two processes may be apart."""


def take(connection: Connection, name: str, holder: str, now: float,
         until_s: float, careful: bool = False) -> bool:
    """Claim the work ``name`` until then; false while a claim holds.

    One that holds for longer than it was made for was made by a clock that
    was ahead, and does not.

    :param careful: it does all the same
    """
    over = [_claims.expires_s <= now]
    if not careful:
        over.append(_claims.expires_s > now + SLACK_S + _claims.hold_s)
    done = connection.execute(update(tables.claims).where(
        _claims.name == name, or_(*over)).values(_row(holder, now, until_s)))
    if done.rowcount:
        return True
    if connection.execute(select(_claims.name).where(
            _claims.name == name)).first() is not None:
        return False
    return _add(connection, name, _row(holder, now, until_s))


def extend(connection: Connection, name: str, holder: str, now: float,
           until_s: float) -> bool:
    """Hold a claim until then; false when it is another's by now."""
    return bool(connection.execute(update(tables.claims).where(
        _claims.name == name, _claims.holder == holder).values(
            _row(holder, now, until_s))).rowcount)


def note(connection: Connection, name: str, until_s: float) -> None:
    """Remember a time for all processes, as a claim that none has."""
    if not connection.execute(update(tables.claims).where(
            _claims.name == name).values(expires_s=until_s)).rowcount:
        connection.execute(insert(tables.claims).values(
            name=name, holder='', expires_s=until_s))


def noted(connection: Connection, name: str) -> float | None:
    """Return the time that was noted; ``None`` before the first."""
    until_s: float | None = connection.execute(select(
        _claims.expires_s).where(_claims.name == name)).scalar()
    return until_s


def count(connection: Connection, name: str) -> None:
    """Raise a number that all processes see, as a claim that none has.

    No other transaction can before this one ends: a larger number is of what
    was written later.
    """
    more = update(tables.claims).where(_claims.name == name).values(
        beat=_claims.beat + 1)
    if not connection.execute(more).rowcount:
        _add(connection, name, {'holder': '', 'expires_s': 0.0})
        connection.execute(more)


def counted(connection: Connection, name: str) -> int:
    """Return the number that was counted, 0 before the first."""
    return connection.execute(select(_claims.beat).where(
        _claims.name == name)).scalar() or 0


class Lead:
    """What one process knows of a claim that is extended all the time.

    Another one has it when it was not extended for as long as it holds, by
    the time that passed here: the clocks of both may be set.

    :param elapsed: seconds that only grow
    """

    def __init__(self, name: str, holder: str, elapsed: Callable[[], float]
                 ) -> None:
        self._name = name
        self._holder = holder
        self._elapsed = elapsed
        self._beat: int | None = None
        self._beat_s = 0.0

    def take(self, connection: Connection, now: float, hold_s: float) -> bool:
        """Take the claim for so long; false while another process holds it."""
        row = connection.execute(select(_claims.beat, _claims.hold_s).where(
            _claims.name == self._name)).first()
        values = _row(self._holder, now, now + hold_s)
        if row is None:
            return _add(connection, self._name, values)
        beat, holds_s = row
        if beat != self._beat:
            self._beat, self._beat_s = beat, self._elapsed()
        if self._elapsed() - self._beat_s < holds_s:
            return False
        return bool(connection.execute(update(tables.claims).where(
            _claims.name == self._name, _claims.beat == beat).values(values)
        ).rowcount)

    def extend(self, connection: Connection, now: float, hold_s: float
               ) -> bool:
        """Hold the claim for so long from now; false when it is another's."""
        return extend(connection, self._name, self._holder, now, now + hold_s)


def _row(holder: str, now: float, until_s: float) -> dict[str, Any]:
    return {'holder': holder, 'expires_s': until_s, 'hold_s': until_s - now,
            'beat': _claims.beat + 1}


def _add(connection: Connection, name: str, values: dict[str, Any]) -> bool:
    try:
        with connection.begin_nested():
            connection.execute(insert(tables.claims).values(
                {**values, 'name': name, 'beat': 0}))
    except exc.IntegrityError:      # another process was first
        return False
    return True
