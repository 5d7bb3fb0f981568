# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Our record in a domain: the values that knobs had before our caps.

A metadata element of the domain, so that it goes wherever the domain, and
with it the cap, goes: into a managed save, to another host (DESIGN 7.15).
It holds nothing but what :data:`GRAMMAR` allows: whoever can write into a
domain must not be able to have us set more than a knob back.
"""

from __future__ import annotations

from collections.abc import Mapping
import re
from typing import NamedTuple
from xml.etree import ElementTree

from scavenger_openstack.drivers import domain_markup
from scavenger_openstack.drivers.domain_markup import shown
from scavenger_openstack.types import Knob

NAMESPACE = 'https://docs.scavenger-openstack.org/lease/1'
"""Of our element; libvirt keeps one element per namespace and domain."""

KEY = 'scavenger'
"""The prefix under which it shows in the XML."""

MAX_VALUES = 4096
"""So many a record may hold: 16 vCPUs take 17, a disk takes up to 19."""

_N = '[0-9]{1,18}'
_IO = rf'{domain_markup.DISK}\.(total|read|write)'
GRAMMAR: Mapping[Knob, re.Pattern[str]] = {
    knob: re.compile(grammar) for knob, grammar in {
        Knob.CPU_CORES: f'vcpu_quota=(-1|{_N})|vcpu_period={_N}',
        Knob.CPU_SET: r'(vcpupin\.[0-9]{1,4}|emulatorpin)='
                      + domain_markup.CPUS,
        Knob.MEMORY_BYTES: f'(balloon|hard_limit)_kib={_N}',
        Knob.IO_BYTES_PER_S: f'{_IO}_bytes_sec(_max(_length)?)?={_N}',
        Knob.IO_OPS_PER_S: f'{_IO}_iops_sec(_max(_length)?)?={_N}'
                           rf'|{domain_markup.DISK}\.size_iops_sec={_N}',
        Knob.PAUSED: 'state=(running|paused)'}.items()}
"""What each knob sets through libvirt, as ``key=value``."""

Originals = Mapping[Knob, Mapping[str, str]]
"""Knob -> key in :data:`GRAMMAR` -> its text before our cap."""


class Lease(NamedTuple):
    """What a record says; ``problems`` are sentences for a log.

    A knob with anything wrong is left out whole: half of the way back is
    none.
    """

    originals: Originals
    problems: tuple[str, ...] = ()


def build(originals: Originals) -> str:
    """The record as libvirt takes it for :data:`NAMESPACE`: the same text
    for the same values.

    :raises ValueError: a value that :func:`parse` would not take.
    """
    lines = []
    for knob, values in originals.items():
        for key, value in values.items():
            if not fits(knob, key, value):
                raise ValueError(f'{knob}: {shown(key)} = {shown(value)} is '
                                 'nothing that a record may hold')
            lines.append(f'<original knob="{knob}" key="{key}" '
                         f'value="{value}"/>')
    if len(lines) > MAX_VALUES:
        raise ValueError(f'{len(lines)} values, at most {MAX_VALUES}')
    return f'<lease>{"".join(sorted(lines))}</lease>'


def parse(text: str) -> Lease:
    """Read a record; whatever it is, only what fits comes out."""
    try:
        return read(domain_markup.root(text))
    except ValueError as exc:
        return Lease({}, (f'the record of caps cannot be read: {exc}',))


def read(element: ElementTree.Element) -> Lease:
    """As :func:`parse`, inside of a domain's XML."""
    originals: dict[Knob, dict[str, str]] = {}
    problems = []
    bad = set()
    if len(element) > MAX_VALUES:
        return Lease({}, (f'the record of caps holds {len(element)} values, '
                          f'at most {MAX_VALUES}',))
    for one in element:
        name, key, value = (one.get(attribute, '')
                            for attribute in ('knob', 'key', 'value'))
        knob = Knob(name) if name in GRAMMAR else None
        known = originals.setdefault(knob, {}) if knob else {}
        if knob and key not in known and fits(knob, key, value):
            known[key] = value
            continue
        bad.add(name)
        problems.append(f'the record of caps says {shown(name)}: '
                        f'{shown(key)} = {shown(value)}, which is nothing '
                        'of ours')
    return Lease({knob: values for knob, values in originals.items()
                  if knob not in bad}, tuple(problems[:8]))


def find(metadata: ElementTree.Element | None) -> Lease | None:
    """All that a domain's ``metadata`` holds of ours: under
    :data:`NAMESPACE`, and what is about one knob under that with a slash and
    the knob."""
    originals: dict[Knob, Mapping[str, str]] = {}
    problems: tuple[str, ...] = ()
    there = False
    for element in () if metadata is None else metadata:
        uri, _, name = element.tag.lstrip('{').partition('}')
        if name != 'lease' or not uri.startswith(NAMESPACE):
            continue
        knob = uri[len(NAMESPACE):].lstrip('/')
        if knob and knob not in GRAMMAR:
            continue
        there = True
        lease = read(element)
        originals.update((one, values)
                         for one, values in lease.originals.items()
                         if knob in ('', one))
        problems += lease.problems
    return Lease(originals, problems) if there else None


def fits(knob: Knob, key: str, value: str) -> bool:
    """Whether a record may hold this."""
    grammar = GRAMMAR.get(knob)
    return (grammar is not None
            and grammar.fullmatch(f'{key}={value}') is not None
            and (knob is not Knob.CPU_SET or domain_markup.is_cpus(value)))
