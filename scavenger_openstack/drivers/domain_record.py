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


"""Our record in a domain: one metadata element for each knob.

Each knob has a namespace of its own, since libvirt keeps one element per
namespace: so the record of one knob comes and goes without a look at those
of the others.  What it holds, and what may be in it, is a matter of
:mod:`.domain_lease`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from scavenger_openstack.drivers import domain_lease
from scavenger_openstack.drivers import domain_markup
from scavenger_openstack.types import Knob

KEY = domain_lease.KEY

Values = Mapping[str, str]
"""What libvirt holds for one knob: key in the grammar -> text."""


def uri(knob: Knob) -> str:
    """The namespace of a knob's record."""
    return f'{domain_lease.NAMESPACE}/{knob}'


def build(knob: Knob, originals: Values) -> str:
    """The record of one knob as libvirt takes it.

    :raises ValueError: nothing that a record may hold.
    """
    return domain_lease.build({knob: originals})


class Found(NamedTuple):
    """What is ours in a domain's XML.

    ``records``: one that holds nothing of ours is there all the same, with
    no values: it has to be taken away.  ``pins`` are the CPU sets in force,
    by their keys in the grammar; ``None`` without a record, when all that is
    in force was there before us.
    """

    records: Mapping[Knob, Values]
    pins: Values | None
    problems: tuple[str, ...]


def find(text: str) -> Found:
    """The records in a domain's XML.

    :raises ValueError: this is no XML.
    """
    if domain_lease.NAMESPACE not in text:
        return Found({}, None, ())
    root = domain_markup.root(text)
    metadata = root.find('metadata')
    tags = {f'{{{uri(knob)}}}lease': knob for knob in domain_lease.GRAMMAR}
    records: dict[Knob, Values] = {}
    problems: tuple[str, ...] = ()
    for element in () if metadata is None else metadata:
        knob = tags.get(element.tag)
        if knob is not None:
            lease = domain_lease.read(element)
            records[knob] = lease.originals.get(knob, {})
            problems += lease.problems
    pins = {f'vcpupin.{pin.get("vcpu")}': pin.get('cpuset', '')
            for pin in root.findall('cputune/vcpupin')}
    emulator = root.find('cputune/emulatorpin')
    if emulator is not None:
        pins['emulatorpin'] = emulator.get('cpuset', '')
    return Found(records, pins, problems)
