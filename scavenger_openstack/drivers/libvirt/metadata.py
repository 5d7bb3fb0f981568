# SPDX-License-Identifier: Apache-2.0

"""Our record in a domain: the values that knobs had before our caps.

A metadata element of the domain, so that it goes wherever the domain, and
with it the cap, goes: into a managed save, to another host (DESIGN 7.15).
Each knob has a namespace of its own, since libvirt keeps one element per
namespace: so the record of one knob comes and goes without a look at those
of the others.  It holds nothing but what :data:`GRAMMAR` allows: what can
write into a domain must not be able to have us set more than a knob back.
"""

from __future__ import annotations

from collections.abc import Mapping
import re
from typing import NamedTuple
from xml.etree import ElementTree

from scavenger_openstack.drivers.libvirt.safe_xml import shown
from scavenger_openstack.restore import grammar
from scavenger_openstack.types import Knob

KEY = 'scavenger'
"""The prefix under which it shows in the XML."""

MAX_VALUES = 4096
"""So many a record may hold: a disk takes up to 9."""

GRAMMAR: Mapping[Knob, re.Pattern[str]] = {
    Knob(knob): re.compile(pattern)
    for knob, pattern in grammar.DOMAIN.items()}
"""What each knob sets through libvirt, as ``key=value``."""

Values = Mapping[str, str]
"""What libvirt holds for one knob: key in :data:`GRAMMAR` -> text."""


def uri(knob: Knob) -> str:
    """The namespace of a knob's record."""
    return f'{grammar.NAMESPACE}/{knob}'


def build(knob: Knob, originals: Values) -> str:
    """The record of one knob as libvirt takes it: the same text for the
    same values.

    :raises ValueError: a value that :func:`find` would not take.
    """
    for key, value in originals.items():
        if not fits(knob, key, value):
            raise ValueError(f'{knob}: {shown(key)} = {shown(value)} is '
                             'nothing that a record may hold')
    if len(originals) > MAX_VALUES:
        raise ValueError(f'{len(originals)} values, at most {MAX_VALUES}')
    lines = [f'<original knob="{knob}" key="{key}" value="{value}"/>'
             for key, value in sorted(originals.items())]
    return f'<lease>{"".join(lines)}</lease>'


class Found(NamedTuple):
    """What is ours in a domain's XML.

    ``records``: one that cannot be read is there all the same, with no
    values: half of the way back is none.  ``problems`` are sentences for a
    log.
    """

    records: Mapping[Knob, Values]
    problems: tuple[str, ...]


NOTHING = Found({}, ())


def find(root: ElementTree.Element) -> Found:
    """The records in a domain's XML; whatever it is, only what fits comes
    out."""
    records: dict[Knob, Values] = {}
    problems: list[str] = []
    metadata = root.find('metadata')
    for element in () if metadata is None else metadata:
        knob = _TAGS.get(element.tag)
        if knob is not None:
            records[knob], wrong = _read(knob, element)
            problems += wrong
    return Found(records, tuple(problems)) if records else NOTHING


_TAGS = {f'{{{uri(knob)}}}lease': knob for knob in GRAMMAR}


def _read(knob: Knob, element: ElementTree.Element
          ) -> tuple[Values, list[str]]:
    values: dict[str, str] = {}
    problems = []
    if len(element) > MAX_VALUES:
        return {}, [f'the record of {knob} holds {len(element)} values, at '
                    f'most {MAX_VALUES}']
    for entry in element:
        name, key, value = (entry.get(attribute, '')
                            for attribute in ('knob', 'key', 'value'))
        if name == knob and key not in values and fits(knob, key, value):
            values[key] = value
        else:
            problems.append(f'the record of {knob} says {shown(name)}: '
                            f'{shown(key)} = {shown(value)}, which is '
                            'none that the agent writes')
    return {} if problems else values, problems[:8]


def fits(knob: Knob, key: str, value: str) -> bool:
    """Return whether a record may hold this."""
    pattern = GRAMMAR.get(knob)
    return (pattern is not None
            and pattern.fullmatch(f'{key}={value}') is not None)
