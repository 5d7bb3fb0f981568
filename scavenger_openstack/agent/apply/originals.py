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

"""What a lease gives back, when others change the world meanwhile.

The restore steps of a lease are the state before us.  That state does not
stand still: groups are born below a capped one and inherit the cap, somebody
else writes a capped knob, a cgroup is deleted and made again.  Each function
takes the steps that a lease holds, and the steps that describe the knob as
it stands ``now``, and says what the lease should hold.  Nothing is read or
written here; :class:`Seen` is what the actuator read.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

from scavenger_openstack.decision.arbitrate import Key
from scavenger_openstack.drivers import base
from scavenger_openstack.drivers.base import Step
from scavenger_openstack.types import format_cpus
from scavenger_openstack.types import parse_cpus
from scavenger_openstack.types import Value

DRIFT_SLACK = 0.001
"""Values closer than this share are one to the kernel, which rounds."""


class Written(NamedTuple):
    """What a knob held right after we wrote it: by that another program's
    write is told from our own.  It is never given back."""

    value: Value | None
    steps: Sequence[Step]


class Seen(NamedTuple):
    """What one look at some knobs found.

    ``originals`` is what each would hold without us, ``current`` what it
    holds.  A knob that could not be read is in neither: ``problems`` says
    why, and ``gone`` of one that is no longer what was limited.
    ``changes`` is what the driver says is new.
    """

    originals: Mapping[Key, Value | None] = {}
    current: Mapping[Key, Value | None] = {}
    gone: Mapping[Key, str] = {}
    problems: Sequence[str] = ()
    changes: base.Changes = base.Changes()


NOTHING_SEEN = Seen()


def same(a: Value | None, b: Value | None) -> bool:
    """Whether two values of a knob are the same but for rounding."""
    return a == b or (isinstance(a, int | float) and isinstance(b, int | float)
                      and abs(a - b) <= DRIFT_SLACK * max(abs(a), abs(b)))


def made_anew(steps: Sequence[Step], now: Sequence[Step]) -> bool:
    """Whether the leased object is gone and another has taken its place."""
    return _identity(steps) != _identity(now)


def of_newborn(steps: Sequence[Step], now: Sequence[Step]) -> list[Step]:
    """Originals of groups that were born below a capped one.

    For knobs that are one file in each group, parents first.  One that
    holds just what its parent holds now took the cap over, so its original
    is the parent's; any other value is its own.
    """
    known = {(_place(step), step.get('inode')) for step in steps}
    newborn = [step for step in now
               if (_place(step), step.get('inode')) not in known]
    if not newborn:
        return []
    before = {str(step['dir']): step['text'] for step in steps}
    present = {str(step['dir']): step['text'] for step in now}
    found: list[Step] = []
    for step in newborn:
        parent = str(step['dir']).rpartition('/')[0]
        text = step['text']
        if parent in before and text == present.get(parent):
            text = before[parent]
        before[str(step['dir'])] = text
        found.append({**step, 'text': text})
    return found


def within(steps: Sequence[Step], text: str) -> list[Step]:
    """CPU sets to give back after somebody else set the first to ``text``.

    What is below cannot hold more than that.
    """
    theirs = parse_cpus(text)
    below = [{**step, 'text': format_cpus(parse_cpus(step['text']) & theirs
                                          or theirs)}
             for step in steps[1:]]
    return [{**steps[0], 'text': text}, *below]


def after_drift(steps: Sequence[Step], ours: Sequence[Step],
                now: Sequence[Step]) -> list[Step]:
    """What to give back after somebody else wrote a part of a knob.

    A part that still holds what we wrote (``ours``) keeps its original; any
    other holds theirs.  The parts of a step with ``values`` are these, and of
    a line of ``io.max`` its limits.
    """
    written = {_place(step): step for step in ours}
    before = {_place(step): step for step in steps}
    found: list[Step] = []
    for step in now:
        mine = written.get(_place(step), {})
        old = before.get(_place(step), step)
        if step == mine:
            found.append(old)
        elif 'values' in step:
            found.append({**step, 'values': part_by_part(
                old['values'], mine.get('values', {}), step['values'])})
        elif step.get('file') == 'io.max':
            found.append({**step, 'text': ' '.join(
                '='.join(limit) for limit in part_by_part(
                    _limits(old), _limits(mine), _limits(step)).items())})
        else:
            found.append(step)
    return found


def part_by_part(before: Mapping[str, str], ours: Mapping[str, str],
                 now: Mapping[str, str]) -> dict[str, str]:
    """As :func:`after_drift`, for the parts of one step."""
    return {key: before.get(key, text) if text == ours.get(key) else text
            for key, text in now.items()}


def _limits(step: Step) -> dict[str, str]:
    """The limits in a line of ``io.max``."""
    return dict(word.partition('=')[::2]
                for word in str(step.get('text', '')).split())


def _place(step: Step) -> tuple[object, ...]:
    return (step.get('dir'), step.get('file'), step.get('device'),
            step.get('dev'), step.get('netns'))


def keys(steps: Sequence[Step]) -> set[str]:
    """What of a VM the steps give back: a limit, a disk, a vCPU."""
    return {key for step in steps for key in step.get('values', ())}


def _identity(steps: Sequence[Step]) -> object:
    """The object that the steps are about, however often it is renamed."""
    first = steps[0]
    return (first.get('inode')
            or (first.get('ifindex') and (first['ifindex'],
                                          first.get('also')))
            or (first.get('uuid'), first.get('pid'), first.get('started')))


def kin(one: str, two: str) -> bool:
    """Whether one cgroup lies below the other."""
    return one.startswith(f'{two}/') or two.startswith(f'{one}/')
