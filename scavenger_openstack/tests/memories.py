# SPDX-License-Identifier: Apache-2.0

"""What an object of ours remembers, in containers within containers."""

from __future__ import annotations

import collections
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping

CONTAINERS = (dict, list, set, frozenset, tuple, collections.deque)


def containers(top: object, leave: Collection[str] = ()
               ) -> Iterator[tuple[str, Collection[object]]]:
    """Return the containers in reach of an object, with their places.

    :param leave: types and attributes (``Type.name``) that are not followed
    """
    known, todo = set(), [('', top)]
    while todo:
        place, value = todo.pop()
        kind = type(value)
        if id(value) in known or place in leave or kind.__name__ in leave:
            continue
        known.add(id(value))
        if isinstance(value, CONTAINERS):
            yield place, value
            inner = list(value.values()) if isinstance(
                value, Mapping) else list(value)
            todo += [(f'{place}[]', item) for item in inner]
        elif kind.__module__.startswith('scavenger_openstack'):
            names = {*getattr(value, '__dict__', ()), *(
                name for base in kind.__mro__
                for name in getattr(base, '__slots__', ()))}
            todo += [(f'{kind.__name__}.{name}', getattr(value, name))
                     for name in names if hasattr(value, name)]


def sizes(top: object, leave: Collection[str] = ()
          ) -> collections.Counter[str]:
    """Return how much is in the containers of each place."""
    counts: collections.Counter[str] = collections.Counter()
    for place, container in containers(top, leave):
        counts[place] += len(container)
    return counts


def places(top: object, name: str, leave: Collection[str] = ()) -> set[str]:
    """Return where a name is remembered, also as a part of a key."""
    return {place for place, container in containers(top, leave)
            if any(item == name or isinstance(item, tuple) and name in item
                   for item in list(container))}
