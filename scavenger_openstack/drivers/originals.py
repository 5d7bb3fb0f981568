# SPDX-License-Identifier: Apache-2.0

"""What a lease restores, when others change the world meanwhile.

The restore actions of a lease are the state before us.  That state does not
stand still: groups are born below a capped one and inherit the cap, another
program writes a capped knob, a cgroup is deleted and made again.  Each
function takes the actions that a lease holds, and the actions that describe
the knob as it stands ``now``, and says what the lease should hold.
"""

from __future__ import annotations

from collections.abc import Sequence
import math
import os
from typing import NamedTuple

from scavenger_openstack import amounts
from scavenger_openstack.drivers import base
from scavenger_openstack.drivers.base import KnobState
from scavenger_openstack.drivers.base import RestoreAction
from scavenger_openstack.drivers.base import Setting
from scavenger_openstack.drivers.cgroup import cpuset_tree
from scavenger_openstack.drivers.cgroup import knobs
from scavenger_openstack import errors
from scavenger_openstack.restore import cpuset
from scavenger_openstack.restore import grammar
from scavenger_openstack.types import format_cpus
from scavenger_openstack.types import Knob
from scavenger_openstack.types import parse_cpus
from scavenger_openstack.types import Value

QUOTA, PERIOD = 'cpu.cfs_quota_us', 'cpu.cfs_period_us'

RESET_WEIGHTS = {'cpu.shares': '1024', 'cpu.weight': '100'}
"""What the kernel sets when a cgroup ceases to be idle."""

SHOWN = 3
"""So many groups are named in one line of the log."""

DRIFT_SLACK = 0.001
"""Values closer than this share are one to the kernel, which rounds."""


def same(a: Value | None, b: Value | None) -> bool:
    """Whether two values of a knob are the same but for rounding."""
    return a == b or (isinstance(a, int | float) and isinstance(b, int | float)
                      and abs(a - b) <= DRIFT_SLACK * max(abs(a), abs(b)))


class Followed(NamedTuple):
    """What others did to a knob with a lease.

    ``value`` is what it holds, ``state`` what there is to know of it from now
    on.  ``theirs``: another program wrote the knob itself.  ``message`` is
    for the log: what another program did, '' for nothing.
    """

    value: Value | None
    state: KnobState
    theirs: bool = False
    message: str = ''


def follow(driver: base.Knobs, workload: str, knob: Knob, state: KnobState
           ) -> Followed:
    """Read a knob with a lease, and compare it with what is known of it.

    Without ``state.ours`` no other program is looked for, only what was born
    below and what came.

    :raises WorkloadGone: the leased object is gone, or was made again.
    :raises DriverError: the knob cannot be read.
    """
    value, ours = driver.read(workload, knob, state), state.ours
    unchanged = ours is not None and same(value, ours.value)
    if ours is not None and unchanged and is_one_text(ours.actions):
        return Followed(value, state)
    now = driver.restore_actions(workload, knob, state)
    leased = state.original.actions
    if made_again(leased, now) or ours is None and keys(leased) != keys(now):
        raise errors.WorkloadGone(base.MADE_AGAIN)
    original, message = state.original, ''
    others = ours is not None and parts(now) != parts(ours.actions)
    below_only = ours is None or unchanged and is_tree(ours.actions)
    if below_only or others:
        original, message = _grown(original, now)
    if ours is None or below_only:
        return Followed(value, KnobState(original, ours), message=message)
    written = of_parts(ours.actions, now) if others else ours.actions
    holds = (ours if unchanged and now == ours.actions
             else Setting(value, now))
    if now == written:      # the value may differ: it is of so many vCPUs
        return Followed(value, KnobState(original, holds), message=message)
    restored = after_drift(original.actions, written, now)
    change = 'changed it ' + difference(
        knob, ours._replace(actions=written), holds)
    if restored == original.actions:        # a part of our limit
        return Followed(value, KnobState(original, holds), True,
                        f'{change}; the limit is set again')
    return Followed(
        value, KnobState(Setting(value_of(restored, value), restored), holds),
        True, f'{change}, which will be restored')


def _grown(original: Setting, now: Sequence[RestoreAction]
           ) -> tuple[Setting, str]:
    """The original with groups that were born below, sets that other programs
    set there, and disks that came; and what to log."""
    actions = below(original.actions, now)
    if actions == list(original.actions):
        return original, ''
    there = {action.get('dir') for action in now}
    actions = [action for action in actions if 'dir' not in action
               or action['dir'] in there or os.path.isdir(action['dir'])]
    changed = changed_below(original.actions, actions)
    return Setting(value_of(actions, original.value), actions), (
        f'changed it in {amounts.counted(len(changed), "group")} below, which '
        f'will be restored: {", ".join(changed[:SHOWN])}' if changed else '')


def made_again(actions: Sequence[RestoreAction],
              now: Sequence[RestoreAction]) -> bool:
    """Whether the leased object is gone and another has taken its place."""
    return _identity(actions) != _identity(now)


def is_tree(actions: Sequence[RestoreAction]) -> bool:
    """Whether the knob is the CPU set of a group and of groups below it."""
    return len(actions) > 1 and str(actions[1].get('dir')).startswith(
        f'{actions[0].get("dir")}/')


def is_one_text(actions: Sequence[RestoreAction]) -> bool:
    """Whether the value of the whole tells all: not of several disks, files
    or cgroups."""
    return (len(actions) == 1
            and actions[0].keys().isdisjoint(('device', 'values')))


def below(actions: Sequence[RestoreAction], now: Sequence[RestoreAction]
          ) -> list[RestoreAction]:
    """The originals of a knob whose first part is capped, parents first.

    A group born below that has just what its parent has took the cap over,
    so its original is the parent's; any other value is its own, and so is a
    CPU set below that is not the one of the lease.
    """
    found = {_action_key(action): action for action in actions}
    present = {_action_key(action): action for action in now}
    texts = {action.get('dir'): action.get('text') for action in actions}
    held = {action.get('dir'): action.get('text') for action in now}
    sets = is_tree(now) and now[0].get('file') == cpuset.FILE
    for name, action in present.items():
        old = found.get(name, {})
        if 'dir' not in action or (
                old.get('inode') == action.get('inode')
                and (not sets or old['text'] == action['text']
                     or action['dir'] == now[0]['dir'])):
            continue
        parent = str(action['dir']).rpartition('/')[0]
        text = action['text']
        if parent in texts and text == held.get(parent):
            text = texts[parent]
        texts[action['dir']] = text
        found[name] = {**action, 'text': text}
    every = list(found.values())
    return cpuset_tree.in_order(every) if is_tree(every) else every


def changed_below(actions: Sequence[RestoreAction],
                  later: Sequence[RestoreAction]) -> list[str]:
    """Those groups in both whose original is another one later."""
    texts = {_action_key(action): action.get('text') for action in actions}
    return [str(action['dir']) for name, action in {
        _action_key(action): action for action in later}.items()
        if texts.get(name, action.get('text')) != action.get('text')]


def within(actions: Sequence[RestoreAction], text: str) -> list[RestoreAction]:
    """CPU sets to restore after another program set the first to ``text``.

    What is below cannot hold more than that.
    """
    theirs = parse_cpus(text)
    below = [{**action, 'text': format_cpus(parse_cpus(action['text']) & theirs
                                            or theirs)}
             for action in actions[1:]]
    return [{**actions[0], 'text': text}, *below]


def after_drift(actions: Sequence[RestoreAction],
                ours: Sequence[RestoreAction],
                now: Sequence[RestoreAction]) -> list[RestoreAction]:
    """What to restore after another program wrote a part of a knob.

    A part that still holds what we wrote (``ours``) keeps its original; any
    other holds theirs.  The parts of an action with ``values`` are these, and
    of a line of ``io.max`` its limits.  A weight that the kernel reset keeps
    its original, too, and a quota its meaning in a period of theirs.
    """
    written = {_action_key(action): action for action in ours}
    before = {_action_key(action): action for action in actions}
    weights = {action.get('dir'): action for action in actions
               if action.get('file') in RESET_WEIGHTS}
    for action in now:
        if action.get('file') in RESET_WEIGHTS:
            weights.pop(action.get('dir'), None)
    found: list[RestoreAction] = []
    for action in now:
        mine = written.get(_action_key(action), {})
        old = before.get(_action_key(action), action)
        if action == mine:
            found.append(_in_period(old, actions, now))
        elif action.get('file') == 'cpu.max' and mine \
                and _split(action)[0] == _split(mine)[0]:
            found.append(_same_share(old, action))
        elif not mine and _is_reset(action):
            found.append(old)
        elif 'values' in action:
            found.append({**action, 'values': grammar.after_change(
                old['values'], action['values'], mine.get('values', {}))})
        elif action.get('file') == 'io.max':
            found.append({**action, 'text': ' '.join(
                '='.join(limit) for limit in grammar.after_change(
                    _limits(old), _limits(action), _limits(mine)).items())})
        else:
            found.append(action)
        if action.get('file') == 'cpu.idle' and action.get('dir') in weights:
            found.append(weights[action.get('dir')])    # one of several
    return found


def _is_reset(action: RestoreAction) -> bool:
    """Whether a weight is what the kernel sets when idle ends."""
    return action.get('text') == RESET_WEIGHTS.get(str(action.get('file')))


def _in_period(quota: RestoreAction, before: Sequence[RestoreAction],
               now: Sequence[RestoreAction]) -> RestoreAction:
    """A quota of version 1 by the period that there is now."""
    old, new = (_texts(actions).get(PERIOD) for actions in (before, now))
    if quota.get('file') != QUOTA or not old or not new:
        return quota
    return {**quota, 'text': _scaled(quota['text'], old, new)}


def _same_share(before: RestoreAction, now: RestoreAction) -> RestoreAction:
    """The same of version 2, which has both in one line."""
    (quota, old), (_, new) = _split(before), _split(now)
    return {**before, 'text': f'{_scaled(quota, old, new)} {new}'}


def _split(action: RestoreAction) -> tuple[str, str]:
    quota, _, period = str(action['text']).partition(' ')
    return quota, period


def _scaled(quota: str, old: str, new: str) -> str:
    """A quota of one period in another one."""
    return quota if quota in ('-1', 'max') else str(
        max(knobs.MIN_QUOTA_US, int(quota) * int(new) // int(old)))


def value_of(actions: Sequence[RestoreAction], current: Value | None
             ) -> Value | None:
    """The value of a knob that consists of several texts, as these actions
    restore it; ``current`` of any other."""
    texts = _texts(actions)
    quota, period = (texts.get(QUOTA), texts.get(PERIOD))
    if 'cpu.max' in texts:
        quota, period = _split(actions[0])
    if quota and period:
        return None if quota in ('-1', 'max') else int(quota) / int(period)
    if 'memory.high' in texts:
        limits = [_number(text) for text in texts.values()]
        return _limited(min(limits))
    if actions[0].get('do') == 'write' and 'device' in actions[0]:
        return _limited(max(_number(limit.rpartition('=')[2])
                            for action in actions
                            for limit in str(action['text']).split()))
    return current


def _texts(actions: Sequence[RestoreAction]) -> dict[str, str]:
    """By the names of files."""
    return {str(action.get('file')): str(action.get('text'))
            for action in actions}


def _number(text: str) -> float:
    """A limit; of disks, version 1 says 0 for none."""
    return math.inf if text in ('max', '0') else int(text)


def _limited(limit: float) -> Value | None:
    return None if limit == math.inf else limit


def difference(knob: Knob, before: Setting, now: Setting) -> str:
    """How another program changed what we wrote, for people.

    Where the value of the whole is the same, by the parts: a limit of a
    disk, a direction.
    """
    if not same(before.value, now.value):
        return (f'from {amounts.of_knob(knob, before.value)} to '
                f'{amounts.of_knob(knob, now.value)}')
    old, new = _parts(before.actions), _parts(now.actions)
    return 'in part: ' + '; '.join(
        f'{part} from {_amount(knob, old.get(part, ""))} to '
        f'{_amount(knob, new.get(part, ""))}'
        for part in {**old, **new} if old.get(part) != new.get(part))


def _parts(actions: Sequence[RestoreAction]) -> dict[str, str]:
    parts: dict[str, str] = {}
    for action in actions:
        if 'values' in action:
            parts.update(action['values'])
        elif action.get('file') == 'io.max':
            parts.update((f'{action["device"]} {limit}', text)
                         for limit, text in _limits(action).items())
        else:
            name = ' '.join(str(action[key]) for key in (
                'device', 'file', 'dev') if key in action)
            parts[name] = str(action.get('text', ''))
    return parts


def _amount(knob: Knob, text: str) -> str:
    """0 is how libvirt and version 1 of cgroups say that there is none."""
    if text in ('', '0', '-1', 'max'):
        return amounts.of_knob(knob, None)
    if knob is Knob.CPU_CORES and text.isdigit():   # a quota, or its period
        return f'{text} us'
    return amounts.of_knob(knob, float(text)) if text.isdigit() else text


def _limits(action: RestoreAction) -> dict[str, str]:
    """The limits in a line of ``io.max``."""
    return grammar.pairs(str(action.get('text', '')))


def _action_key(action: RestoreAction) -> tuple[object, ...]:
    return (action.get('dir'), action.get('file'), action.get('device'),
            action.get('dev'), action.get('netns'))


def parts(actions: Sequence[RestoreAction]) -> set[object]:
    """The cgroups and the disks whose limits the actions restore."""
    return {(action.get('dir'), action.get('device')) for action in actions}


def of_parts(ours: Sequence[RestoreAction], now: Sequence[RestoreAction]
             ) -> list[RestoreAction]:
    """What we wrote (``ours``) to the parts of ``now``; of those that came
    what they hold."""
    written = {_action_key(action): action for action in ours}
    return [written.get(_action_key(action), action) for action in now]


def keys(actions: Sequence[RestoreAction]) -> set[str]:
    """What of a VM the actions restore: a limit, a disk, a vCPU."""
    return {key for action in actions for key in action.get('values', ())}


def _identity(actions: Sequence[RestoreAction]) -> object:
    """The object that the actions are about, however often it is renamed."""
    first = actions[0]
    return (first.get('inode')
            or (first.get('ifindex') and (first['ifindex'],
                                          first.get('also')))
            or (first.get('uuid'), first.get('pid'), first.get('started')))


def kin(one: str, two: str) -> bool:
    """Whether one cgroup lies below the other."""
    return one.startswith(f'{two}/') or two.startswith(f'{one}/')
