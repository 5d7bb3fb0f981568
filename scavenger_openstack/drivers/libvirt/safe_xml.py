# SPDX-License-Identifier: Apache-2.0

"""Reading XML of libvirt's with tenants' words in it: bounded, no entities.

Everything here says :class:`ValueError` for what it does not take.
"""

from __future__ import annotations

from collections.abc import Iterator
import re
from xml.etree import ElementTree

from scavenger_openstack.restore import grammar
from scavenger_openstack.types import MAX_CPU
from scavenger_openstack.types import parse_cpus

MAX_CHARS = 1 << 22
"""No domain needs more; 500 disks take a tenth of it."""

_COUNT = re.compile('[0-9]{1,18}')
_CPUS = re.compile(grammar.CPUS)
_SHOWN_CHARS = 80


class _Tree(ElementTree.TreeBuilder):
    """Entities can only be made in a DTD, which libvirt never writes."""

    def doctype(self, *_: object) -> None:
        raise ValueError('it has a DTD')


def root(text: str) -> ElementTree.Element:
    """:raises ValueError: not XML, or more than we care to read."""
    if len(text) > MAX_CHARS:
        raise ValueError(f'{len(text)} characters, at most {MAX_CHARS}')
    parser = ElementTree.XMLParser(target=_Tree())
    try:
        return ElementTree.XML(text, parser)
    except ElementTree.ParseError as exc:
        raise ValueError(str(exc)) from None
    except UnicodeEncodeError:
        raise ValueError('it has an invalid surrogate') from None


def some(parent: ElementTree.Element | None, most: int
         ) -> Iterator[ElementTree.Element]:
    """The first children; without a parent none."""
    return iter(() if parent is None else parent[:most])


def shown(text: str) -> str:
    """Return a text on one line for a log, whatever a tenant wrote."""
    return repr(text if len(text) <= _SHOWN_CHARS
                else f'{text[:_SHOWN_CHARS]}...')


def count(text: str | None) -> int:
    """:raises ValueError: not a count."""
    text = (text or '').strip()
    if not _COUNT.fullmatch(text):
        raise ValueError(f'{shown(text)} is not a count')
    return int(text)


def cpu_count(text: str) -> int:
    """Return how many CPUs a list names, without the set of them.

    :raises ValueError: not a list of CPUs.
    """
    if not (_CPUS.fullmatch(text) and all(
            low <= high <= MAX_CPU for low, high in _ranges(text))):
        raise ValueError(f'{shown(text)} is not a list of CPUs')
    return sum(high - low + 1 for low, high in _ranges(text))


def _ranges(text: str) -> Iterator[tuple[int, int]]:
    for part in text.split(','):
        low, _, high = part.partition('-')
        yield int(low), int(high or low)


def cpus(text: str | None) -> frozenset[int] | None:
    """:raises ValueError: not a list of CPUs or nodes."""
    if text is None:
        return None
    if not _CPUS.fullmatch(text):
        raise ValueError(f'{shown(text)} is not a list of CPUs')
    return parse_cpus(text)
