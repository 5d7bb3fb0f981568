# SPDX-License-Identifier: Apache-2.0

"""The order of migrations, and which programs work with which tables.

Each file says its ``kind``.  One that expands runs before the programs of the
release before are replaced: it adds tables, indexes, and columns that may be
left out.  What it must not do (drop, rename, another type, NOT NULL, a unique
constraint on old columns) is in one that contracts, in the same release.

A revision is one number, such as '0012', or two, such as '0014_0013': tables
of version 14, for programs that know version 13.  A program whose migrations
end before 14 reads from that whether it works with them.  The second number
of one that expands is that of the revision before, and of one that contracts
the first number of the last that expands.
"""

from __future__ import annotations

from collections.abc import Sequence
import pathlib
import re
from typing import Literal
from typing import NamedTuple

from alembic import config as alembic_config
from alembic import script

from scavenger_openstack import errors

VERSIONS = pathlib.Path(__file__).parent / 'versions'
"""The migrations of this program."""

Kind = Literal['expand', 'contract']
"""Migrations that only add, run before programs are upgraded one by one, and
those that remove, run when none of the release before is left."""

COMMANDS: dict[Kind, str] = {
    kind: f'type "scavenger-manage db upgrade --{kind}"'
    for kind in ('expand', 'contract')}

_REVISION = re.compile(r'([0-9]{4})(?:_([0-9]{4}))?')


class Step(NamedTuple):
    """A migration: its revision, and the ``kind`` that its file says."""

    revision: str
    kind: Kind


def configuration(versions: pathlib.Path = VERSIONS) -> alembic_config.Config:
    """Return alembic's configuration.

    :param versions: the directory of the migrations
    """
    config = alembic_config.Config()
    for name, path in (('script_location', pathlib.Path(__file__).parent),
                       ('version_locations', versions)):
        config.set_main_option(name, str(path).replace('%', '%%'))
    config.set_main_option('path_separator', 'os')
    return config


def steps(versions: pathlib.Path = VERSIONS) -> list[Step]:
    """Return the migrations that this program knows, the first one first."""
    return [Step(revision.revision, revision.module.kind)
            for revision in script.ScriptDirectory.from_config(
                configuration(versions)).walk_revisions()][::-1]


def numbers(revision: str) -> tuple[int, int] | None:
    """Return the version that a revision makes, and the one that programs
    have to know; ``None`` for what is no revision."""
    match = _REVISION.fullmatch(revision)
    return (int(match[1]), int(match[2] or match[1])) if match else None


def needed(known: Sequence[Step]) -> Step:
    """Return the first migration with which a program works: the last that
    expands."""
    return [step for step in known if step.kind == 'expand'][-1]


def is_later(revision: str, known: Sequence[Step]) -> bool:
    """Return whether tables are of a later release with which a program works
    all the same.

    :param known: the migrations that the program knows
    """
    there, own = numbers(revision), numbers(needed(known).revision)
    last = numbers(known[-1].revision)
    return (there is not None and own is not None and last is not None
            and there[0] > last[0] and there[1] <= own[0])


def pending(revision: str | None, known: Sequence[Step]) -> list[Step]:
    """Return the migrations after a revision, ``None`` for an empty database.
    """
    after = [step.revision for step in known].index(revision) + 1 if (
        revision) else 0
    return list(known[after:])


def target(revision: str | None, known: Sequence[Step],
           kind: Kind | None = None) -> str:
    """Return the revision to which an upgrade leads.

    :param kind: only migrations of this kind, up to one of the other kind;
        an empty database gets all
    :raises SchemaError: one of the other kind has to be before these.
    """
    rest = pending(revision, known)
    if kind is None or revision is None or not rest:
        return known[-1].revision
    of_kind = []
    for step in rest:
        if step.kind != kind:
            break
        of_kind.append(step)
    if of_kind:
        return of_kind[-1].revision
    if kind == 'contract' or any(step.kind == kind for step in rest):
        raise errors.SchemaError(
            f'the tables have version {revision}, and {rest[0].revision} is '
            f'next: {COMMANDS[rest[0].kind]}' + (
                ', when no API and no conductor of the release before this '
                'version runs' if kind == 'expand' else ''))
    return revision
