# SPDX-License-Identifier: Apache-2.0

"""The original of a knob with a lease, while others change the host.

The restore actions of a lease are the state before us.  That state may
change: groups are made below a limited one and inherit the limit, another
program writes a limited knob, a cgroup is deleted and made again.  Each
function takes the actions of a lease, and the actions that describe
the knob as it is ``now``, and returns those that the lease should have.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
import math
import os
from typing import NamedTuple

from scavenger_openstack import amounts
from scavenger_openstack.drivers import base
from scavenger_openstack.drivers.base import KnobState
from scavenger_openstack.drivers.base import RestoreAction
from scavenger_openstack.drivers.base import Setting
from scavenger_openstack.drivers.cgroup import available_cpus
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
"""The weights that the kernel sets when a cgroup ceases to be idle."""

SHOWN = 3
"""Number of groups that one line of the log names."""

DRIFT_SLACK = 0.001
"""Values closer than this share are the same for the kernel, which rounds."""


def same(a: Value | None, b: Value | None) -> bool:
    """Return whether two values of a knob are the same but for rounding."""
    return a == b or (isinstance(a, int | float) and isinstance(b, int | float)
                      and abs(a - b) <= DRIFT_SLACK * max(abs(a), abs(b)))


class Followed(NamedTuple):
    """The changes that others made to a knob with a lease.

    ``value`` is its value, ``state`` its state from now on.  ``theirs``:
    another program wrote the knob itself.  ``message`` is for the log: the
    change that another program made, '' for none.
    """

    value: Value | None
    state: KnobState
    theirs: bool = False
    message: str = ''


def follow(driver: base.Knobs, workload: str, knob: Knob, state: KnobState
           ) -> Followed:
    """Read a knob with a lease, and compare it with the state of the lease.

    Without ``state.ours`` the write of another program cannot be told from
    our own, so only new groups and disks are found.

    :raises WorkloadGone: the leased object is gone, or was made again.
    :raises DriverError: the knob cannot be read.
    """
    value, ours = driver.read(workload, knob, state), state.ours
    unchanged = ours is not None and same(value, ours.value)
    if ours is not None and unchanged and has_one_text(ours.actions):
        return Followed(value, state)
    now = driver.restore_actions(workload, knob, state)
    leased = state.original.actions
    if made_again(leased, now) or ours is None and keys(leased) != keys(now):
        raise errors.WorkloadGone(base.MADE_AGAIN)
    original, message = state.original, ''
    others = ours is not None and parts(now) != parts(ours.actions)
    below_only = ours is None or unchanged and is_tree(ours.actions)
    if below_only or others:
        original, message = _grown(workload, knob, original, now)
    if ours is None or below_only:
        return Followed(value, KnobState(original, ours), message=message)
    written = of_parts(ours.actions, now) if others else ours.actions
    current = (ours if unchanged and now == ours.actions
               else Setting(value, now))
    if now == written:      # the value may differ: it is of so many vCPUs
        return Followed(value, KnobState(original, current), message=message)
    restored = after_drift(original.actions, written, now)
    change = difference(knob, ours._replace(actions=written), current)
    if restored == original.actions:        # a part of our limit
        return Followed(value, KnobState(original, current), True, (
            f'{workload} {knob}: another program changed it {change}; the '
            'limit is set again'))
    return Followed(
        value,
        KnobState(Setting(value_of(restored, value), restored), current),
        True, (f'{workload} {knob}: another program changed it {change}, '
               'which will be restored'))


def _grown(workload: str, knob: Knob, original: Setting,
           now: Sequence[RestoreAction]) -> tuple[Setting, str]:
    """Return the original with new groups below, sets that other programs set
    there, and new disks; and the message for the log."""
    actions = below(original.actions, now)
    if actions == list(original.actions):
        return original, ''
    present = {action.get('dir') for action in now}
    actions = [action for action in actions if 'dir' not in action
               or action['dir'] in present or os.path.isdir(action['dir'])]
    changed = changed_below(original.actions, actions)
    return Setting(value_of(actions, original.value), actions), (
        f'{workload} {knob}: another program changed it in '
        f'{amounts.counted(len(changed), "group")} below, which will be '
        f'restored: {", ".join(changed[:SHOWN])}' if changed else '')


def made_again(actions: Sequence[RestoreAction],
              now: Sequence[RestoreAction]) -> bool:
    """Return whether the leased object is gone and another has taken its
    place."""
    return _identity(actions) != _identity(now)


def is_tree(actions: Sequence[RestoreAction]) -> bool:
    """Return whether the knob is the CPU set of a group and of groups below
    it."""
    return len(actions) > 1 and str(actions[1].get('dir')).startswith(
        f'{actions[0].get("dir")}/')


def has_one_text(actions: Sequence[RestoreAction]) -> bool:
    """Return whether the value of a knob describes all of it: not that of
    several disks, files or cgroups."""
    return (len(actions) == 1
            and actions[0].keys().isdisjoint(('device', 'values')))


def below(actions: Sequence[RestoreAction], now: Sequence[RestoreAction]
          ) -> list[RestoreAction]:
    """Return the originals of a knob whose first part is capped, parents
    first.

    A new group below that has the value of its parent inherited the cap,
    so its original is the parent's; any other value is its own, and so is a
    CPU set below that is not that of the lease.
    """
    originals = {_action_key(action): action for action in actions}
    present = {_action_key(action): action for action in now}
    texts = {action.get('dir'): action.get('text') for action in actions}
    current = {action.get('dir'): action.get('text') for action in now}
    sets = is_tree(now) and now[0].get('file') == cpuset.FILE
    for name, action in present.items():
        old = originals.get(name, {})
        if 'dir' not in action or (
                old.get('inode') == action.get('inode')
                and (not sets or old['text'] == action['text']
                     or action['dir'] == now[0]['dir'])):
            continue
        parent = str(action['dir']).rpartition('/')[0]
        text = action['text']
        if parent in texts and text == current.get(parent):
            text = texts[parent]
        texts[action['dir']] = text
        originals[name] = {**action, 'text': text}
    ordered = list(originals.values())
    return cpuset_tree.in_order(ordered) if is_tree(ordered) else ordered


def changed_below(actions: Sequence[RestoreAction],
                  later: Sequence[RestoreAction]) -> list[str]:
    """Return the groups in both whose original differs later."""
    texts = {_action_key(action): action.get('text') for action in actions}
    return [str(action['dir']) for name, action in {
        _action_key(action): action for action in later}.items()
        if texts.get(name, action.get('text')) != action.get('text')]


def within(actions: Sequence[RestoreAction],
           theirs: Mapping[int, frozenset[int]]) -> list[RestoreAction]:
    """Return the CPU sets to restore after another program set some of them:
    those below cannot have more CPUs.

    :param theirs: what it set, by the inode of the cgroup
    """
    above = {f'{action["dir"]}/': theirs[action['inode']]
             for action in actions if action['inode'] in theirs}
    after: list[RestoreAction] = []
    for action in actions:
        text = action['text']
        for directory, cpus in above.items():
            if f'{action["dir"]}/' == directory:
                text = format_cpus(cpus)
            elif action['dir'].startswith(directory):
                text = format_cpus(parse_cpus(text) & cpus or cpus)
        after.append({**action, 'text': text})
    return after


def cpus_of(actions: Sequence[RestoreAction]) -> frozenset[int]:
    """Return the CPUs of all sets that the actions restore."""
    return frozenset().union(*(available_cpus.parse(action['text'])
                               for action in actions))


def after_drift(actions: Sequence[RestoreAction],
                ours: Sequence[RestoreAction],
                now: Sequence[RestoreAction]) -> list[RestoreAction]:
    """Return the actions to restore after another program wrote a part of a
    knob.

    A part with the value that we wrote (``ours``) keeps its original; the
    original of any other is the value of the other program.  The parts of an
    action with ``values`` are these, and of a line of ``io.max`` its limits.
    A weight that the kernel reset keeps its original, too, and a quota keeps
    its share of the time when the period was changed.
    """
    written = {_action_key(action): action for action in ours}
    before = {_action_key(action): action for action in actions}
    weights = {action.get('dir'): action for action in actions
               if action.get('file') in RESET_WEIGHTS}
    for action in now:
        if action.get('file') in RESET_WEIGHTS:
            weights.pop(action.get('dir'), None)
    originals: list[RestoreAction] = []
    for action in now:
        our_action = written.get(_action_key(action), {})
        old = before.get(_action_key(action), action)
        if action == our_action:
            originals.append(_in_period(old, actions, now))
        elif action.get('file') == 'cpu.max' and our_action \
                and _split(action)[0] == _split(our_action)[0]:
            originals.append(_same_share(old, action))
        elif not our_action and _is_reset(action):
            originals.append(old)
        elif 'values' in action:
            originals.append({**action, 'values': grammar.after_change(
                old['values'], action['values'],
                our_action.get('values', {}))})
        elif action.get('file') == 'io.max':
            originals.append({**action, 'text': ' '.join(
                '='.join(limit) for limit in grammar.after_change(
                    _limits(old), _limits(action),
                    _limits(our_action)).items())})
        else:
            originals.append(action)
        if action.get('file') == 'cpu.idle' and action.get('dir') in weights:
            originals.append(weights[action.get('dir')])    # one of several
    return originals


def _is_reset(action: RestoreAction) -> bool:
    """Return whether a weight is that which the kernel sets when idle ends."""
    return action.get('text') == RESET_WEIGHTS.get(str(action.get('file')))


def _in_period(quota: RestoreAction, before: Sequence[RestoreAction],
               now: Sequence[RestoreAction]) -> RestoreAction:
    """Return a quota of version 1, scaled to the present period."""
    old, new = (_texts(actions).get(PERIOD) for actions in (before, now))
    if quota.get('file') != QUOTA or not old or not new:
        return quota
    return {**quota, 'text': _scaled(quota['text'], old, new)}


def _same_share(before: RestoreAction, now: RestoreAction) -> RestoreAction:
    """Return a quota of version 2, scaled to the present period."""
    (quota, old), (_, new) = _split(before), _split(now)
    return {**before, 'text': f'{_scaled(quota, old, new)} {new}'}


def _split(action: RestoreAction) -> tuple[str, str]:
    quota, _, period = str(action['text']).partition(' ')
    return quota, period


def _scaled(quota: str, old: str, new: str) -> str:
    """Return a quota of the ``old`` period as one of the ``new`` period."""
    return quota if quota in ('-1', 'max') else str(
        max(knobs.MIN_QUOTA_US, int(quota) * int(new) // int(old)))


def value_of(actions: Sequence[RestoreAction], current: Value | None
             ) -> Value | None:
    """Return the value of a knob of several texts, as these actions restore
    it; ``current`` for any other knob."""
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
    """Return the texts by the names of files."""
    return {str(action.get('file')): str(action.get('text'))
            for action in actions}


def _number(text: str) -> float:
    """Return a limit as a number; of disks, 0 is none in version 1."""
    return math.inf if text in ('max', '0') else int(text)


def _limited(limit: float) -> Value | None:
    return None if limit == math.inf else limit


def difference(knob: Knob, before: Setting, now: Setting) -> str:
    """Return how another program changed our limit, for people.

    Where the value of the whole is the same, the parts are compared: a limit
    of a disk, a direction.
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
    """Return an amount for people; libvirt and version 1 of cgroups write 0
    for no limit."""
    if text in ('', '0', '-1', 'max'):
        return amounts.of_knob(knob, None)
    if knob is Knob.CPU_CORES and text.isdigit():   # a quota, or its period
        return f'{text} us'
    return amounts.of_knob(knob, float(text)) if text.isdigit() else text


def _limits(action: RestoreAction) -> dict[str, str]:
    """Return the limits in a line of ``io.max``."""
    return grammar.pairs(str(action.get('text', '')))


def _action_key(action: RestoreAction) -> tuple[object, ...]:
    return (action.get('dir'), action.get('file'), action.get('device'),
            action.get('dev'), action.get('netns'))


def parts(actions: Sequence[RestoreAction]) -> set[object]:
    """Return the cgroups and the disks whose limits the actions restore."""
    return {(action.get('dir'), action.get('device')) for action in actions}


def of_parts(ours: Sequence[RestoreAction], now: Sequence[RestoreAction]
             ) -> list[RestoreAction]:
    """Return for each part of ``now`` the action that we wrote (``ours``); for
    a new part its own."""
    written = {_action_key(action): action for action in ours}
    return [written.get(_action_key(action), action) for action in now]


def keys(actions: Sequence[RestoreAction]) -> set[str]:
    """Return the parts of a VM that the actions restore: a limit, a disk, a
    vCPU."""
    return {key for action in actions for key in action.get('values', ())}


def _identity(actions: Sequence[RestoreAction]) -> object:
    """Return the identity of the object of the actions, which a new name does
    not change."""
    first = actions[0]
    return (first.get('inode')
            or (first.get('ifindex') and (first['ifindex'],
                                          first.get('also')))
            or (first.get('uuid'), first.get('pid'), first.get('started')))


def are_nested(path: str, other: str) -> bool:
    """Return whether one cgroup lies below the other."""
    return path.startswith(f'{other}/') or other.startswith(f'{path}/')
