# SPDX-License-Identifier: Apache-2.0


"""Restore actions on a VM that runs below libvirt, by ``virsh``.

An action names one knob of one run of a domain, and what libvirt held for it.
The run is known by its QEMU process: when that has ended, the cap has ended
too, or has left with the VM, and our record in the domain with it.

The record says in which definitions a cap may stand: Nova makes the live one
persistent when it migrates a VM.  It goes after the cap.  What was there
before is set again as long as the record is, whatever is read: a call of a
dead agent may still be on its way in libvirtd.  When the record is gone the
domain is looked at again: that call may have come in between.

So may one that was given up here.  One that sets what was there before, and
comes after a new cap, is another program's write to the agent, which says so.
One that takes the record away leaves a new cap with its lease, by which the
knob is restored as well; the agent sees that the record is gone, and writes
it again in its next tick.  Until then such a cap would stay for ever only if
the VM left.  Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
import functools
import re
import time
from xml.etree import ElementTree

from scavenger_openstack.restore import grammar
from scavenger_openstack.restore.grammar import Gone
from scavenger_openstack.restore.grammar import Refused
from scavenger_openstack.restore.grammar import RestoreAction
from scavenger_openstack.restore.grammar import RestoreError
from scavenger_openstack.restore import virsh

_PERIOD = '100000'
_TURNS = 3
_MOST_LINE = 1 << 22
_FIRST_S = 1.0
"""So long a domain has for each answer.  One that hangs holds up those after
it for no longer: systemd gives 15 s for all."""
_LATER_S = 10.0
"""The same after it was late: by then it is the others' turn no more."""
_LATE: dict[tuple[str, str, int], float] = {}
"""URI, UUID and process of those that were late, and until when none asks
for them: those that libvirtd itself cannot look at."""

Ask = Callable[[str], str]
"""Has virsh carry out a command; what it says."""


def validate(action: RestoreAction) -> None:
    """Hold an action of kind ``domain`` against the closed set.

    :raises Refused: the action is not in it.
    """
    grammar.only(action, {'do', 'uri', 'uuid', 'pid', 'started', 'knob',
                          'values'})
    grammar.text(action, 'uri', grammar.URI)
    grammar.text(action, 'uuid', grammar.UUID)
    grammar.number(action, 'pid')
    grammar.number(action, 'started')
    grammar.text(action, 'knob', '|'.join(grammar.DOMAIN))
    pattern, values = grammar.DOMAIN[action['knob']], action.get('values')
    if not (isinstance(values, dict) and values):
        raise Refused(f'values {values!r:.99} are none')
    for key, value in values.items():
        if not (isinstance(value, str)
                and re.fullmatch(pattern, f'{key}={value}')):
            raise Refused(f'{key!r:.99} = {value!r:.99} is not allowed')
    if action['knob'] == 'cpu_cores' and len(values) != 2:
        raise Refused('a quota needs its period')


def restore(action: RestoreAction) -> bool:
    """Carry out a valid action; return whether it changed a thing.

    A call that was given up waits on in libvirtd, which says so: what comes
    next does not wait for that domain again.

    :raises Gone: this run of the domain has ended, or left this host.
    :raises Refused: its process is not the QEMU of that domain.
    :raises RestoreError: it does not read back as the original.
    """
    run = (action['uri'], action['uuid'], action['pid'])
    try:
        _alive(action)
    except Gone:
        _LATE.pop(run, None)
        raise
    if time.monotonic() < _LATE.get(run, 0.0):
        raise _silent(action)
    pause_s, within_s = _LATER_S, _LATER_S if run in _LATE else _FIRST_S
    try:
        with virsh.SESSIONS.use(action['uri']) as session:
            # What is not waited for in libvirtd, unless it holds the domain.
            control = session.ask(f'domcontrol {action["uuid"]}',
                                  within_s=_FIRST_S)
            pause_s = 0.0       # from now on libvirtd tells how it stands
            changed = _restore(action, control, functools.partial(
                session.ask, within_s=within_s))
    except virsh.Silent:
        _alive(action)
        _LATE[run] = time.monotonic() + pause_s
        raise _silent(action) from None
    except virsh.VirshError as exc:
        _alive(action)
        raise RestoreError(
            f'domain {action["uuid"]}: virsh -c {action["uri"]} says '
            f'{str(exc)!r:.199}: see that libvirtd runs') from None
    _LATE.pop(run, None)
    return changed


def _restore(action: RestoreAction, control: str, ask: Ask) -> bool:
    """Restore a domain until nothing is left to do when it is read once more:
    a call of a dead agent may land between a read and the end of the
    record."""
    _ready(action, control, ask)
    for turn in range(_TURNS):
        if not _turn(action, ask, last=turn > 0):
            return turn > 0
    raise RestoreError(f'{action["knob"]} of domain {action["uuid"]}, or our '
                       'record of it, was set again each time that it was '
                       'restored: see what else sets it, and virsh metadata')


def _turn(action: RestoreAction, ask: Ask, *, last: bool) -> bool:
    """Whether there was anything to do, and it has to be looked at again."""
    uuid, uri = action['uuid'], f'{grammar.NAMESPACE}/{action["knob"]}'
    live, inactive = _live(action, ask), _xml(action, ask, ' --inactive')
    recorded = _record(live, action) is not None
    # One that is not persistent shows there what it is now.
    mend = (_record(inactive, action) is not None
            and uuid in ask('list --all --persistent --uuid').split())
    if not recorded and not mend and is_same(live, action):
        return False
    back = list(commands(action, live, '--live'))
    drop = [f'metadata {uuid} --uri {uri} --remove --live'] * recorded
    if mend:
        back += commands(action, inactive, '--config')
        drop.append(f'metadata {uuid} --uri {uri} --remove --config')
    failed: virsh.VirshError | None = None
    for command in back:
        _alive(action)
        try:
            ask(command)
        except virsh.Silent:
            raise
        except virsh.VirshError as exc:     # of one disk: the others go on
            failed = failed or exc
    if failed is not None and not (is_same(_live(action, ask), action) and (
            not mend or is_same(_xml(action, ask, ' --inactive'), action))):
        raise failed
    # A guest gives memory back, or takes it, in its own time.
    own_time = action['knob'] == 'memory_bytes'
    if not own_time and not is_same(_live(action, ask), action):
        raise RestoreError(f'{action["knob"]} of domain {uuid} does not read '
                           'back as it was: see what else sets it')
    for command in drop:
        _alive(action)
        ask(command)
    return bool(drop) or not (own_time and last)


def _silent(action: RestoreAction) -> RestoreError:
    return RestoreError(
        f'domain {action["uuid"]}: its QEMU or libvirtd does not answer: see '
        f'virsh domcontrol {action["uuid"]}')


def _alive(action: RestoreAction) -> None:
    """:raises Gone: the process of the action is.
    :raises Refused: it is not the QEMU of that domain.
    :raises RestoreError: that cannot be told.
    """
    path = f'/proc/{action["pid"]}'
    try:
        # First, so that it is of no process that came later.
        with open(f'{path}/cmdline', 'rb') as file:
            line = file.read(_MOST_LINE)
        with open(f'{path}/stat', 'rb') as file:
            data = file.read(4096)
        fields = data[data.rindex(b')') + 2:].split()
        # What is ending has no memory, and no command line, any more.
        if (int(fields[19]) == action['started'] and fields[20] != b'0'
                and fields[0] not in b'ZX'):
            if not line.endswith(b'\0'):
                raise RestoreError(f'{path}/cmdline cannot be read')
            if f'\0-uuid\0{action["uuid"]}\0'.encode() not in line:
                raise Refused(f'process {action["pid"]} is not the QEMU of '
                              f'domain {action["uuid"]}')
            return
    except (FileNotFoundError, ProcessLookupError):
        pass
    raise Gone(f'process {action["pid"]} of domain {action["uuid"]} has '
               'ended, or the domain left this host')


def _ready(action: RestoreAction, control: str, ask: Ask) -> None:
    """:raises RestoreError: libvirtd would keep us waiting."""
    uuid = action['uuid']
    busy = re.match(r'occupied \(([0-9]+(?:\.[0-9]+)?)s\)|error: internal',
                    control.strip())
    if busy and float(busy[1] or _LATER_S) > _FIRST_S / 2:
        raise _silent(action)
    job = re.search('^Job type: *(.*?) *$', ask(f'domjobinfo {uuid}'),
                    re.MULTILINE)
    if job is None or job[1] != 'None':
        raise RestoreError(f'domain {uuid} migrates or is being saved: its '
                           'limits cannot be set before that has ended')


def _live(action: RestoreAction, ask: Ask) -> ElementTree.Element:
    """The domain as it runs."""
    root = _xml(action, ask, '')
    # One that was paused when it was saved comes back as if it migrated.
    if action['knob'] == 'paused' and ask(
            f'domstate {action["uuid"]} --reason').strip() in (
                'paused (user)', 'paused (migrating)'):
        root.set('scavenger', 'paused')
    return root


def _xml(action: RestoreAction, ask: Ask, which: str) -> ElementTree.Element:
    try:
        return ElementTree.fromstring(ask(f'dumpxml {action["uuid"]}{which}'))
    except ElementTree.ParseError:
        raise RestoreError(f'virsh dumpxml {action["uuid"]} prints no XML: '
                           'see what it prints') from None


def _record(root: ElementTree.Element, action: RestoreAction
            ) -> ElementTree.Element | None:
    return root.find(f'metadata/{{{grammar.NAMESPACE}/{action["knob"]}}}lease')


def is_same(root: ElementTree.Element, action: RestoreAction) -> bool:
    return all(now == (_quota(wanted) if key == 'vcpu_quota' else wanted)
               for key, now, wanted in _values(root, action))


def _quota(text: str) -> str:
    """A quota of a vCPU, ``-1`` for any that is none."""
    if not re.fullmatch('-?[0-9]{1,18}|', text):
        return text
    return text if 0 < int(text or 0) < grammar.FREE_QUOTA_US else '-1'


def _values(root: ElementTree.Element, action: RestoreAction
            ) -> Iterator[tuple[str, str, str]]:
    """Key, what the domain holds, what the action wants; not for disks
    that are no longer there."""
    knob = action['knob']
    disks = {target.get('dev', ''): disk
             for disk in root.findall('devices/disk')
             if (target := disk.find('target')) is not None}
    for key, wanted in action['values'].items():
        if knob == 'cpu_cores':
            now = root.findtext(f'cputune/{key[5:]}', '').strip()
            if key == 'vcpu_period':
                now = now or _PERIOD
            else:
                now = _quota(now)
        elif knob == 'memory_bytes':
            now = root.findtext('currentMemory', '').strip()
        elif knob == 'paused':
            now = root.get('scavenger', 'running')
        else:
            disk, _, limit = key.partition('.')
            if disk not in disks:
                continue
            now = disks[disk].findtext(f'iotune/{limit}', '0').strip()
        yield key, now, wanted


def commands(action: RestoreAction, root: ElementTree.Element, where: str
              ) -> Iterator[str]:
    """Return what virsh has to do so that the domain holds what the action
    wants."""
    uuid, knob = action['uuid'], action['knob']
    values = {key: wanted for key, _, wanted in _values(root, action)}
    if knob == 'cpu_cores':
        yield (f'schedinfo {uuid} {where} '
               + ' '.join(f'{key}={value}' for key, value in values.items()))
    elif knob == 'memory_bytes':
        yield f'setmem {uuid} {values["balloon_kib"]} {where}'
    elif knob == 'paused':
        if (where == '--live' and values['state'] == 'running'
                and root.get('scavenger')):
            yield f'resume {uuid}'
    else:
        disks: dict[str, list[str]] = {}
        for key, value in values.items():
            disk, _, limit = key.partition('.')
            disks.setdefault(disk, []).append(
                f'--{limit.replace("_", "-")} {value}')
        for disk, limits in disks.items():
            yield f'blkdeviotune {uuid} {disk} {" ".join(limits)} {where}'
