# SPDX-License-Identifier: Apache-2.0

"""What it takes to restore domains by virsh.

Starts a libvirtd of its own with domains (root; see the tests), has an agent
limit every knob of one of them, and restores it by its restore action: the
median of some rounds, in wall-clock time.  'kept' is as it is done: the
virsh of the step before is used again.  'first' has to start one.  'three'
has three of them started for what one does now: the first looks, the second
changes and looks, the third drops our record and looks.

Then two knobs of many domains are limited, and restored one after the other as
scavenger-restore does; the last lines tell the same with some QEMUs stopped
(SIGSTOP), and once more when it is known that they do not answer.  Nothing
is asserted; numbers compare only within one run.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import logging
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any
from unittest import mock
from xml.etree import ElementTree

from scavenger_openstack.restore import actions
from scavenger_openstack.restore import messages
from scavenger_openstack.restore import restoration
from scavenger_openstack.restore import virsh
from scavenger_openstack.tests.functional import domain_guest
from scavenger_openstack.tests.functional import hypervisor
from scavenger_openstack.tests.functional import virtual_host
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Value

CAPS: Mapping[Knob, Value] = {
    Knob.CPU_CORES: 0.2, Knob.IO_BYTES_PER_S: 5_000_000,
    Knob.IO_OPS_PER_S: 200, Knob.PAUSED: 1}
MANY: Mapping[Knob, Value] = {
    Knob.CPU_CORES: 0.2, Knob.CPU_SET: '1'}
DISK: Mapping[Knob, Value] = {
    Knob.IO_BYTES_PER_S: 5_000_000, Knob.IO_OPS_PER_S: 200}


def domain(host: hypervisor.Hypervisor, name: str
           ) -> domain_guest.DomainGuest:
    """One with a disk, and nothing to run."""
    return virtual_host.tiny(
        name, machine='pc', paused=False, vcpus=2,
        disks=(domain_guest.Disk.make(host.disks / name, 2**20),))


def restore(step: Mapping[str, Any]) -> float:
    """Seconds."""
    began = time.perf_counter()
    if not actions.run(step, []):
        raise SystemExit('there was nothing to restore')
    return time.perf_counter() - began


@contextlib.contextmanager
def heard() -> Iterator[list[str]]:
    """What virsh is told meanwhile."""
    told: list[str] = []
    ask = virsh.Session.ask

    def listen(session: virsh.Session, command: str, *, within_s: float
               ) -> str:
        if command != 'echo':       # its first, when it is new
            told.append(command)
        return ask(session, command, within_s=within_s)

    with mock.patch.object(virsh.Session, 'ask', listen):
        yield told


def by_three(step: Mapping[str, Any], told: list[str]) -> float:
    """Seconds for the same changes by three virsh, with looks of those
    days."""
    uuid, uri = step['uuid'], step['uri']
    look = ['list --all --persistent --uuid', f'domjobinfo {uuid}',
            f'domstate {uuid} --reason', f'dumpxml {uuid}',
            f'dumpxml {uuid} --inactive']
    changes = [one for one in told if one.startswith('resume')
               or one.endswith('--live')]
    drop = [one for one in changes if one.startswith('metadata')]
    back = [one for one in changes if one not in drop]
    began = time.perf_counter()
    for commands in ([], back, drop):
        text = subprocess.run(
            ['virsh', '-q', '-c', uri, '; '.join([*commands, *look])],
            stdin=subprocess.DEVNULL, capture_output=True, check=True,
            text=True).stdout
        for one in re.findall('^<domain .*?^</domain>$', text,
                              re.DOTALL | re.MULTILINE):
            ElementTree.fromstring(one)
    return time.perf_counter() - began


def each_knob(host: hypervisor.Hypervisor, agent: virtual_host.Agent,
              rounds: int) -> None:
    guest = domain(host, 'one')
    host.start_all([guest])
    print(f'{"ms to restore one":20} {"kept":>7} {"first":>7} {"three":>7} '
          f'{"three/kept":>11} {"commands":>9}')
    for knob, value in CAPS.items():
        times: dict[str, list[float]] = {'kept': [], 'first': [], 'three': []}
        told: list[str] = []
        for _ in range(rounds):
            for way in times:
                agent.tick({guest.uuid: {knob: value}})
                step, = agent.leases.held()[guest.uuid, knob].original.actions
                if way == 'first':
                    virsh.SESSIONS.close()
                if way == 'three':
                    times[way].append(by_three(step, told))
                else:
                    if way == 'kept':   # it is there, whatever was before
                        with virsh.SESSIONS.use(host.uri):
                            pass
                    with heard() as told:
                        times[way].append(restore(step))
                agent.tick()
        kept, first, three = (statistics.median(one) * 1e3
                              for one in times.values())
        print(f'{knob:20} {kept:7.1f} {first:7.1f} {three:7.1f} '
              f'{three / kept:11.1f} {len(told):9}')


def many(host: hypervisor.Hypervisor, agent: virtual_host.Agent,
         state_dir: pathlib.Path, domains: int, hung: int) -> None:
    tiny = [virtual_host.tiny(f'tiny{number}') for number in range(domains)]
    disk = [domain(host, f'hung{number}') for number in range(hung)]
    host.start_all([*tiny, *disk])
    agent.tick({**{one.uuid: MANY for one in tiny},
                **{one.uuid: DISK for one in disk}})
    held = len(agent.leases.held())
    pids = [host.qemu_pid(one.name) for one in disk]
    copy = state_dir / 'copy'       # the agent goes on to hold its own
    shutil.copytree(state_dir / 'leases', copy / 'leases')
    fd = os.open(copy, os.O_RDONLY)
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        said: list[str] = []
        say = messages.Say(said.append)
        for what in ('at first', 'again', 'when they go on'):
            if what == 'when they go on':
                for pid in pids:
                    os.kill(pid, signal.SIGCONT)
            began = time.perf_counter()
            left = restoration.restore_all(fd, say, delete=True)
            took = time.perf_counter() - began
            print(f'{held - len(left)} of {held} are restored, {hung} '
                  f'QEMUs are stopped, {what}: {took:.2f} s')
            if not left:
                break
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        os.close(fd)
    agent.tick()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--rounds', type=int, default=9)
    parser.add_argument('--domains', type=int, default=50,
                        help='with two leases each')
    parser.add_argument('--hung', type=int, default=3)
    args = parser.parse_args()
    if why := hypervisor.unavailable():
        print(why, file=sys.stderr)
        return 2
    print(f'medians of {args.rounds} rounds; load '
          f'{os.getloadavg()[0]:.2f} on {os.cpu_count()} CPUs')
    logging.disable()       # what becomes of domains is no news here
    with tempfile.TemporaryDirectory() as directory, \
            hypervisor.Hypervisor() as host:
        state_dir = pathlib.Path(directory, 'state')
        agent = virtual_host.Agent(host, state_dir)
        try:
            each_knob(host, agent, args.rounds)
            many(host, agent, state_dir, args.domains, 0)
            shutil.rmtree(state_dir / 'copy')
            host.virsh('; '.join(
                f'destroy tiny{number}; undefine tiny{number}'
                for number in range(args.domains)))
            many(host, agent, state_dir, args.domains, args.hung)
        finally:
            agent.close()
            virsh.SESSIONS.close()
    return 0


if __name__ == '__main__':
    sys.exit(main())
