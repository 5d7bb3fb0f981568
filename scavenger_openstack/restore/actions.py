# SPDX-License-Identifier: Apache-2.0

"""The actions that a lease may hold: a closed set, standard library only.

A lease file must not be a way to write as root.  So an action is either the
write of a known text to a known file of a cgroup (:mod:`.cgroup`), or
a call of a known program with arguments from a template, or the removal of
one known directory (:data:`PROGRAMS`).
Anything else is refused before anything is carried out.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple
import zlib

from scavenger_openstack.restore import cgroup
from scavenger_openstack.restore.cgroup import Held
from scavenger_openstack.restore import domain
from scavenger_openstack.restore.grammar import Gone
from scavenger_openstack.restore.grammar import Refused
from scavenger_openstack.restore.grammar import RestoreAction
from scavenger_openstack.restore.grammar import RestoreError
from scavenger_openstack.restore import network
from scavenger_openstack.restore import resctrl

__all__ = ['check', 'Gone', 'Program', 'Refused', 'RestoreError', 'run',
           'RestoreAction', 'validate']


class Program(NamedTuple):
    """A kind of action that writes no file.

    ``validate`` raises :class:`Refused`; ``run`` returns whether it changed
    a thing, and raises :class:`Gone` or :class:`RestoreError`.  ``prepare``
    begins what takes a while, so that many actions wait for it together; it
    raises what ``run`` does.
    """

    validate: Callable[[RestoreAction], None]
    run: Callable[[RestoreAction], bool]
    prepare: Callable[[RestoreAction], None] | None = None


PROGRAMS: Mapping[str, Program] = {
    'tc': Program(network.validate, network.delete_bucket),
    'tap': Program(network.validate, network.free_tap,
                   network.open_bucket),
    'domain': Program(domain.validate, domain.restore),
    'resctrl': Program(resctrl.validate, resctrl.remove_group)}
"""What ``do`` says -> that kind of action."""

CLOSED_SET = zlib.crc32(repr((
    sorted(PROGRAMS), [(kind, sorted(files.items()))
                       for kind, files in sorted(cgroup.FILES.items())])
).encode())
"""Differs where the files, their texts or the kinds of programs do, so that
an agent sees that a watcher which has not been started again since an upgrade
may refuse its leases.  The arguments of programs are not in it."""


def check(action: Any) -> None:
    """Hold one action against the closed set, whatever is mounted now.

    :raises Refused: the action is not in it.
    """
    kind = action.get('do') if isinstance(action, dict) else None
    if isinstance(kind, str) and kind in PROGRAMS:
        PROGRAMS[kind].validate(action)
    elif kind == 'write':
        cgroup.check(action)
    else:
        raise Refused(f'{action!r:.99} is no known action')


def validate(action: Any, mounts: Sequence[cgroup.Mount]) -> None:
    """Hold one action against the closed set and the cgroup mounts.

    :raises Refused: the action is not in the set, or no cgroup is meant.
    """
    check(action)
    if action['do'] == 'write':
        cgroup.validate(action, mounts)


def run(action: RestoreAction, mounts: Sequence[cgroup.Mount], *,
        named: Collection[int] = frozenset(), capped: str = '',
        remember: Callable[[str], object] = str,
        held: Held = frozenset) -> bool:
    """Carry out one valid action and read it back; return whether it changed a
    thing.

    What ``named``, ``capped``, ``remember`` and ``held`` are for:
    :func:`.cgroup.run`.

    :raises Gone: the action's object is no longer there.
    :raises RestoreError: it does not read back as the original, or its
        cgroup mount is missing now.
    :raises Refused: the path leads somewhere else.
    """
    if action['do'] in PROGRAMS:
        return PROGRAMS[action['do']].run(action)
    return cgroup.run(action, mounts, named=named, capped=capped,
                      remember=remember, held=held)
