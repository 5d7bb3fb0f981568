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
dead agent may still be on its way in libvirtd.  Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
import re
import subprocess
from xml.etree import ElementTree

from scavenger_openstack.agent import steps_fields
from scavenger_openstack.agent.steps_fields import Gone
from scavenger_openstack.agent.steps_fields import Refused
from scavenger_openstack.agent.steps_fields import RestoreError
from scavenger_openstack.agent.steps_fields import Step

URI = r'qemu(?:\+unix)?:///system(?:\?socket=(?:/[A-Za-z0-9_.@-]+)+)?'
UUID = '[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}'
NAMESPACE = 'https://docs.scavenger-openstack.org/lease/1'
_N = '[0-9]{1,18}'
_CPUS = ('[0-9]{1,5}(?:-[0-9]{1,5})?'
         '(?:,[0-9]{1,5}(?:-[0-9]{1,5})?){0,999}')
_DISK = '[A-Za-z][A-Za-z0-9]{1,15}'
_LIMIT = rf'{_DISK}\.(?:total|read|write)_%s_sec(?:_max(?:_length)?)?={_N}'
GRAMMAR: Mapping[str, str] = {
    'cpu_cores': f'vcpu_quota=(?:-1|{_N})|vcpu_period={_N}',
    'cpu_set': rf'(?:vcpupin\.[0-9]{{1,4}}|emulatorpin)={_CPUS}',
    'memory_bytes': f'balloon_kib={_N}',
    'io_bytes_per_s': _LIMIT % 'bytes',
    'io_ops_per_s': _LIMIT % 'iops',
    'paused': 'state=(?:running|paused)'}
"""Knob -> pattern of ``key=value``."""

_PERIOD = '100000'
_TIMEOUT_S = 10.0
_ENVIRONMENT = {'PATH': '/usr/sbin:/usr/bin:/sbin:/bin', 'LC_ALL': 'C'}
_XML = re.compile('^<domain .*?^</domain>$', re.DOTALL | re.MULTILINE)


def validate(step: Step) -> None:
    """Hold a step of kind ``domain`` against the closed set.

    :raises Refused: the step is not in it.
    """
    steps_fields.only(step, {'do', 'uri', 'uuid', 'pid', 'started', 'knob',
                             'values'})
    steps_fields.text(step, 'uri', URI)
    steps_fields.text(step, 'uuid', UUID)
    steps_fields.number(step, 'pid')
    steps_fields.number(step, 'started')
    steps_fields.text(step, 'knob', '|'.join(GRAMMAR))
    values = step.get('values')
    if not (isinstance(values, dict) and values):
        raise Refused(f'values {values!r:.99} are none')
    for key, value in values.items():
        if not (isinstance(value, str)
                and re.fullmatch(GRAMMAR[step['knob']], f'{key}={value}')):
            raise Refused(f'{key!r:.99} = {value!r:.99} is not allowed')
    if step['knob'] == 'cpu_cores' and len(values) != 2:
        raise Refused('a quota needs its period')


def lift(step: Step) -> bool:
    """Carry out a valid step; whether it changed a thing.

    :raises Gone: this run of the domain has ended, or left this host.
    :raises RestoreError: it does not read back as the original.
    """
    _alive(step)
    live, inactive = _look(step)
    recorded = _record(live, step) is not None
    mend = inactive is not None and _record(inactive, step) is not None
    if not recorded and not mend and _same(live, step):
        return False
    uuid, uri = step['uuid'], f'{NAMESPACE}/{step["knob"]}'
    back = list(_commands(step, live, '--live'))
    drop = [f'metadata {uuid} --uri {uri} --remove --live'] * recorded
    if mend and inactive is not None:
        back += _commands(step, inactive, '--config')
        drop.append(f'metadata {uuid} --uri {uri} --remove --config')
    live, inactive = _look(step, *back)
    # A guest gives memory back, or takes it, in its own time.
    if step['knob'] != 'memory_bytes' and not _same(live, step):
        raise RestoreError(f'{step["knob"]} of domain {uuid} does not read '
                           'back as it was: see who else sets it')
    # virsh goes on after a command that failed, so this is another call.
    live, inactive = _look(step, *drop)
    if any(one is not None and _record(one, step) is not None
           for one in (live, inactive)):
        raise RestoreError(f'domain {uuid} keeps our record of '
                           f'{step["knob"]}: see virsh metadata')
    return True


def _alive(step: Step) -> None:
    """:raises Gone: the process of the step is."""
    try:
        with open(f'/proc/{step["pid"]}/stat', 'rb') as file:
            data = file.read(4096)
        fields = data[data.rindex(b')') + 2:].split()
        if int(fields[19]) == step['started'] and fields[0] not in b'ZX':
            return
    except (FileNotFoundError, ProcessLookupError):
        pass
    raise Gone(f'process {step["pid"]} of domain {step["uuid"]} has ended, '
               'or the domain left this host')


def _look(step: Step, *commands: str) -> tuple[ElementTree.Element,
                                               ElementTree.Element | None]:
    """The domain as it runs, and as it starts the next time.

    :param commands: for virsh, to be carried out before
    :raises RestoreError: virsh does not tell, or a job holds it.
    """
    uuid = step['uuid']
    # Not dominfo: libvirtd would look at all QEMU programs for that.
    text = _virsh(step, *commands, 'list --all --persistent --uuid',
                  f'domjobinfo {uuid}', f'domstate {uuid} --reason',
                  f'dumpxml {uuid}', f'dumpxml {uuid} --inactive')
    said = text.partition('<domain ')[0]
    job = re.search('^Job type: *(.*?) *$', said, re.MULTILINE)
    if job is None or job[1] != 'None':
        raise RestoreError(f'domain {uuid} migrates or is being saved: its '
                           'limits cannot be set before that has ended')
    found = _XML.findall(text)
    try:
        live, inactive = map(ElementTree.fromstring, found)
    except (ElementTree.ParseError, ValueError):
        raise RestoreError(f'virsh dumpxml {uuid} says nothing that can be '
                           'read: see what it says') from None
    # One that was paused when it was saved comes back as if it migrated.
    if re.search(r'^paused \((user|migrating)\)$', said, re.MULTILINE):
        live.set('scavenger', 'paused')
    persistent = re.search(f'^{uuid}$', said, re.MULTILINE)
    return live, inactive if persistent else None


def _record(root: ElementTree.Element, step: Step
            ) -> ElementTree.Element | None:
    return root.find(f'metadata/{{{NAMESPACE}/{step["knob"]}}}lease')


def _same(root: ElementTree.Element, step: Step) -> bool:
    if step['knob'] == 'cpu_set':
        return all(_cpus(now) == _cpus(wanted)
                   for _, now, wanted in _values(root, step))
    return all(now == wanted for _, now, wanted in _values(root, step))


def _cpus(text: str) -> set[int]:
    ranges = [part.split('-') for part in text.split(',') if part]
    return {cpu for ends in ranges
            for cpu in range(int(ends[0]), int(ends[-1]) + 1)}


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
            elif not now or int(now) <= 0:
                now = '-1'
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


def _commands(step: Step, root: ElementTree.Element, where: str
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


def _virsh(step: Step, *commands: str) -> str:
    """What virsh prints.

    :raises Gone: the domain has ended meanwhile.
    :raises RestoreError: it failed, or did not end in time.
    """
    try:
        done = subprocess.run(
            ['virsh', '-q', '-c', step['uri'], '; '.join(commands)],
            env=_ENVIRONMENT, errors='replace', stdin=subprocess.DEVNULL,
            capture_output=True, check=False, timeout=_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        _alive(step)
        raise RestoreError(
            f'domain {step["uuid"]}: virsh has not ended within '
            f'{_TIMEOUT_S:.0f} s: see whether its QEMU or libvirtd hangs'
        ) from None
    except OSError as exc:
        raise RestoreError(f'virsh cannot be run ({exc}): install '
                           'libvirt-clients') from None
    if done.returncode or 'error:' in done.stderr:
        _alive(step)
        said = ' '.join(done.stderr.split())
        raise RestoreError(f'domain {step["uuid"]}: virsh -c {step["uri"]} '
                           f'says {said!r:.199}: see that libvirtd runs')
    return done.stdout
