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

"""How late a background VM's QEMU answers on a full host.

Starts a libvirtd of its own with two guests under TCG (root): a foreground
one and a background one, each with a busy vCPU per CPU of this machine.  For
each way to hold the background back, set on the cgroups below its machine's,
prints how long ``blockStats`` of it took (median and worst, in ms), and how
much of the CPUs each guest got.  The ways are played in turn, round after
round.

    python benchmarks/agent/qemu_answers.py [--rounds 3] [--seconds 10]
        [--ways off,idle,weight,light,quota,light+quota]

*off*: nothing is limited.  *idle*: cpu.idle on the machine's cgroup.
*weight*: the smallest weight there.  *light*: a tenth of the weight.
*quota*: 0.1 cores for all vCPUs, the emulator is free.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import statistics
import sys
import time
from typing import Any

from running_agent import guarded
from running_agent import say

from scavenger_openstack.tests.functional import domain_guest
from scavenger_openstack.tests.functional import hypervisor
from scavenger_openstack.tests.functional import virtual_host
from scavenger_openstack.text import columns

WAYS = 'off,idle,weight,light,quota,light+quota'
FLOOR_CORES = 0.1
EVERY_S = 0.1
SETTLE_S = 1.0
PERIOD_US = 100_000


class Bench:
    """Two busy guests."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        cpus = os.cpu_count() or 1
        self.host = stack.enter_context(hypervisor.Hypervisor())
        guests = [
            domain_guest.DomainGuest(name='front', vcpus=cpus),
            virtual_host.background(
                'back', vcpus=cpus, disks=(
                    domain_guest.Disk.make(self.host.disks / 'a'),))]
        for guest in guests:
            console = self.host.define_and_start(guest)
            console.keep_time()
            console.tell(f'cpu {cpus}')
        self.domain: Any = self.host.connect().lookupByName('back')
        self.vcpus = cpus

    def machine(self, name: str) -> pathlib.Path:
        """The machine's cgroup, of the CPU controller."""
        found = [path for path in
                 self.host.tree.path('cpu', '/machine').iterdir()
                 if path.is_dir() and name in path.name]
        assert len(found) == 1, found
        return found[0]

    def limit(self, way: str) -> None:
        top = self.machine('back')
        vcpus = sorted(top.rglob('vcpu*'))
        assert len(vcpus) == self.vcpus, vcpus
        (top / 'cpu.idle').write_text('1' if 'idle' in way else '0')
        (top / 'cpu.shares').write_text(
            '2' if 'weight' in way else '102' if 'light' in way else '1024'
        ) if 'idle' not in way else None
        quota = (round(PERIOD_US * FLOOR_CORES / self.vcpus)
                 if 'quota' in way else -1)
        for path in vcpus:
            (path / 'cpu.cfs_period_us').write_text(str(PERIOD_US))
            (path / 'cpu.cfs_quota_us').write_text(str(quota))

    def cpu_s(self, name: str) -> float:
        path = self.host.tree.path('cpuacct', '/machine')
        return int((path / self.machine(name).name
                    / 'cpuacct.usage').read_text()) / 1e9

    def play(self, way: str, seconds: float
             ) -> tuple[list[float], float, float]:
        """Answers in s; CPUs of the foreground and of the background."""
        self.limit(way)
        time.sleep(SETTLE_S)
        front, back = self.cpu_s('front'), self.cpu_s('back')
        began_s = time.monotonic()
        took_s = []
        while (asked_s := time.monotonic()) < began_s + seconds:
            self.domain.blockStats('vda')
            took_s.append(time.monotonic() - asked_s)
            time.sleep(max(0.0, asked_s + EVERY_S - time.monotonic()))
        spent_s = time.monotonic() - began_s
        return (took_s, (self.cpu_s('front') - front) / spent_s,
                (self.cpu_s('back') - back) / spent_s)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--seconds', type=float, default=10)
    parser.add_argument('--ways', default=WAYS)
    args = parser.parse_args()
    found: dict[str, list[tuple[list[float], float, float]]] = {}
    with contextlib.ExitStack() as stack:
        bench = Bench(stack)
        for number in range(args.rounds):
            for way in args.ways.split(','):
                say(f'round {number + 1}: {way}')
                found.setdefault(way, []).append(
                    bench.play(way, args.seconds))
        bench.limit('off')
    body = []
    for way, rounds in found.items():
        took_s = [one for answers, _, _ in rounds for one in answers]
        body.append((
            way, str(len(took_s)), f'{1e3 * statistics.median(took_s):.1f}',
            f'{1e3 * max(took_s):.0f}',
            f'{statistics.mean(front for _, front, _ in rounds):.2f}',
            f'{statistics.mean(back for _, _, back in rounds):.2f}'))
    print('\n'.join(columns(
        ('way', 'answers', 'median ms', 'worst ms', 'foreground CPUs',
         'background CPUs'), body)))
    return 0


if __name__ == '__main__':
    sys.exit(guarded(main))
