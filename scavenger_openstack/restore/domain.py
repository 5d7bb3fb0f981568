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


"""Restore steps on a VM that runs below libvirt, by ``virsh``.

A step names one knob of one run of a domain, and what libvirt held for it.
The run is known by its QEMU process: when that has ended, the cap has ended
too, or has left with the VM, and our record in the domain with it.

The record says in which definitions a cap may stand: Nova makes the live one
persistent when it migrates a VM.  It goes after the cap.  What was there
before is set again as long as the record is, whatever is read: a call of a
dead agent may still be on its way in libvirtd.  When the record is gone the
domain is looked at again: that call may have come in between.

So may one that was given up here.  One that sets what was there before, and
comes after a new cap, is somebody else's write to the agent, which says so.
One that takes the record away leaves a new cap with its lease, by which it is
lifted as well; the agent sees that the record is gone, and writes it again in
its next tick.  Until then such a cap would be for ever only if the VM left.
Standard library only.
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
from scavenger_openstack.restore.grammar import parse_cpus
from scavenger_openstack.restore.grammar import Refused
from scavenger_openstack.restore.grammar import RestoreError
from scavenger_openstack.restore.grammar import Step
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
"""URI, UUID and process of those that were late, and until when nobody asks
for them: those that libvirtd itself cannot look at."""

Ask = Callable[[str], str]
"""Has virsh carry out a command; what it says."""


def validate(step: Step) -> None:
    """Hold a step of kind ``domain`` against the closed set.

    :raises Refused: the step is not in it.
    """
    grammar.only(step, {'do', 'uri', 'uuid', 'pid', 'started', 'knob',
                        'values'})
    grammar.text(step, 'uri', grammar.URI)
    grammar.text(step, 'uuid', grammar.UUID)
    grammar.number(step, 'pid')
    grammar.number(step, 'started')
    grammar.text(step, 'knob', '|'.join(grammar.DOMAIN))
    pattern, values = grammar.DOMAIN[step['knob']], step.get('values')
    if not (isinstance(values, dict) and values):
        raise Refused(f'values {values!r:.99} are none')
    for key, value in values.items():
        if not (isinstance(value, str)
                and re.fullmatch(pattern, f'{key}={value}')):
            raise Refused(f'{key!r:.99} = {value!r:.99} is not allowed')
    if step['knob'] == 'cpu_cores' and len(values) != 2:
        raise Refused('a quota needs its period')


def lift(step: Step) -> bool:
    """Carry out a valid step; whether it changed a thing.

    A call that was given up waits on in libvirtd, which says so: who comes
    next does not wait for that domain again.

    :raises Gone: this run of the domain has ended, or left this host.
    :raises Refused: its process is not the QEMU of that domain.
    :raises RestoreError: it does not read back as the original.
    """
    who = (step['uri'], step['uuid'], step['pid'])
    try:
        _alive(step)
    except Gone:
        _LATE.pop(who, None)
        raise
    if time.monotonic() < _LATE.get(who, 0.0):
        raise _silent(step)
    pause_s, within_s = _LATER_S, _LATER_S if who in _LATE else _FIRST_S
    try:
        with virsh.SESSIONS.use(step['uri']) as session:
            # What nobody waits for in libvirtd, unless it holds the domain.
            control = session.ask(f'domcontrol {step["uuid"]}',
                                  within_s=_FIRST_S)
            pause_s = 0.0       # from now on libvirtd tells how it stands
            changed = _lift(step, control, functools.partial(
                session.ask, within_s=within_s))
    except virsh.Silent:
        _alive(step)
        _LATE[who] = time.monotonic() + pause_s
        raise _silent(step) from None
    except virsh.VirshError as exc:
        _alive(step)
        raise RestoreError(
            f'domain {step["uuid"]}: virsh -c {step["uri"]} says '
            f'{str(exc)!r:.199}: see that libvirtd runs') from None
    _LATE.pop(who, None)
    return changed


def _lift(step: Step, control: str, ask: Ask) -> bool:
    """Until nothing is left to do when it is looked at once more: a call of
    a dead agent may land between a look and the end of the record."""
    _ready(step, control, ask)
    for turn in range(_TURNS):
        if not _turn(step, ask, last=turn > 0):
            return turn > 0
    raise RestoreError(f'{step["knob"]} of domain {step["uuid"]}, or our '
                       'record of it, was set again each time that it was '
                       'restored: see what else sets it, and virsh metadata')


def _turn(step: Step, ask: Ask, *, last: bool) -> bool:
    """Whether there was anything to do, and it has to be looked at again."""
    uuid, uri = step['uuid'], f'{grammar.NAMESPACE}/{step["knob"]}'
    live, inactive = _live(step, ask), _xml(step, ask, ' --inactive')
    recorded = _record(live, step) is not None
    # One that is not persistent shows there what it is now.
    mend = (_record(inactive, step) is not None
            and uuid in ask('list --all --persistent --uuid').split())
    if not recorded and not mend and is_same(live, step):
        return False
    back = list(commands(step, live, '--live'))
    drop = [f'metadata {uuid} --uri {uri} --remove --live'] * recorded
    if mend:
        back += commands(step, inactive, '--config')
        drop.append(f'metadata {uuid} --uri {uri} --remove --config')
    for command in back:
        _alive(step)
        ask(command)
    # A guest gives memory back, or takes it, in its own time.
    own_time = step['knob'] == 'memory_bytes'
    if not own_time and not is_same(_live(step, ask), step):
        raise RestoreError(f'{step["knob"]} of domain {uuid} does not read '
                           'back as it was: see what else sets it')
    for command in drop:
        _alive(step)
        ask(command)
    return bool(drop) or not (own_time and last)


def _silent(step: Step) -> RestoreError:
    return RestoreError(
        f'domain {step["uuid"]}: its QEMU or libvirtd does not answer: see '
        f'virsh domcontrol {step["uuid"]}')


def _alive(step: Step) -> None:
    """:raises Gone: the process of the step is.
    :raises Refused: it is not the QEMU of that domain.
    :raises RestoreError: nobody can tell.
    """
    path = f'/proc/{step["pid"]}'
    try:
        # First, so that it is of no process that came later.
        with open(f'{path}/cmdline', 'rb') as file:
            line = file.read(_MOST_LINE)
        with open(f'{path}/stat', 'rb') as file:
            data = file.read(4096)
        fields = data[data.rindex(b')') + 2:].split()
        # Who is ending has no memory, and no command line, any more.
        if (int(fields[19]) == step['started'] and fields[20] != b'0'
                and fields[0] not in b'ZX'):
            if not line.endswith(b'\0'):
                raise RestoreError(f'{path}/cmdline cannot be read')
            if f'\0-uuid\0{step["uuid"]}\0'.encode() not in line:
                raise Refused(f'process {step["pid"]} is not the QEMU of '
                              f'domain {step["uuid"]}')
            return
    except (FileNotFoundError, ProcessLookupError):
        pass
    raise Gone(f'process {step["pid"]} of domain {step["uuid"]} has ended, '
               'or the domain left this host')


def _ready(step: Step, control: str, ask: Ask) -> None:
    """:raises RestoreError: libvirtd would keep us waiting."""
    uuid = step['uuid']
    busy = re.match(r'occupied \(([0-9.]+)s\)|error: internal',
                    control.strip())
    if busy and float(busy[1] or _LATER_S) > _FIRST_S / 2:
        raise _silent(step)
    job = re.search('^Job type: *(.*?) *$', ask(f'domjobinfo {uuid}'),
                    re.MULTILINE)
    if job is None or job[1] != 'None':
        raise RestoreError(f'domain {uuid} migrates or is being saved: its '
                           'limits cannot be set before that has ended')


def _live(step: Step, ask: Ask) -> ElementTree.Element:
    """The domain as it runs."""
    root = _xml(step, ask, '')
    # One that was paused when it was saved comes back as if it migrated.
    if step['knob'] == 'paused' and ask(
            f'domstate {step["uuid"]} --reason').strip() in (
                'paused (user)', 'paused (migrating)'):
        root.set('scavenger', 'paused')
    return root


def _xml(step: Step, ask: Ask, which: str) -> ElementTree.Element:
    try:
        return ElementTree.fromstring(ask(f'dumpxml {step["uuid"]}{which}'))
    except ElementTree.ParseError:
        raise RestoreError(f'virsh dumpxml {step["uuid"]} prints no XML: see '
                           'what it prints') from None


def _record(root: ElementTree.Element, step: Step
            ) -> ElementTree.Element | None:
    return root.find(f'metadata/{{{grammar.NAMESPACE}/{step["knob"]}}}lease')


def is_same(root: ElementTree.Element, step: Step) -> bool:
    if step['knob'] == 'cpu_set':
        return all(parse_cpus(now) == parse_cpus(wanted)
                   for _, now, wanted in _values(root, step))
    return all(now == (_quota(wanted) if key == 'vcpu_quota' else wanted)
               for key, now, wanted in _values(root, step))


def _quota(text: str) -> str:
    """A quota of a vCPU, ``-1`` for any that is none."""
    return text if 0 < int(text or 0) < grammar.FREE_QUOTA_US else '-1'


def _values(root: ElementTree.Element, step: Step
            ) -> Iterator[tuple[str, str, str]]:
    """Key, what the domain holds, what the step wants; not for disks and
    vCPUs that are no longer there, nor for pins that nobody has set."""
    knob = step['knob']
    pins = {f'vcpupin.{pin.get("vcpu")}': pin.get('cpuset', '')
            for pin in root.findall('cputune/vcpupin')}
    emulator = root.find('cputune/emulatorpin')
    if emulator is not None:
        pins['emulatorpin'] = emulator.get('cpuset', '')
    disks = {target.get('dev', ''): disk
             for disk in root.findall('devices/disk')
             if (target := disk.find('target')) is not None}
    for key, wanted in step['values'].items():
        if knob == 'cpu_cores':
            now = root.findtext(f'cputune/{key[5:]}', '').strip()
            if key == 'vcpu_period':
                now = now or _PERIOD
            else:
                now = _quota(now)
        elif knob == 'cpu_set':
            if key not in pins:
                continue
            now = pins[key]
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


def commands(step: Step, root: ElementTree.Element, where: str
              ) -> Iterator[str]:
    """What virsh has to do so that the domain holds what the step wants."""
    uuid, knob = step['uuid'], step['knob']
    values = {key: wanted for key, _, wanted in _values(root, step)}
    if knob == 'cpu_cores':
        yield (f'schedinfo {uuid} {where} '
               + ' '.join(f'{key}={value}' for key, value in values.items()))
    elif knob == 'cpu_set':
        for key, value in values.items():
            what, _, vcpu = key.partition('.')
            yield f'{what} {uuid} {vcpu} {value} {where}'
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
