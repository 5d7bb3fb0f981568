# SPDX-License-Identifier: Apache-2.0

"""What it costs the agent to move the CPU sets of VMs.

Makes cgroups as libvirt does (root), each part of a VM with a sleeping
process, and prints CPU time per VM: of one move by the fast loop, between two
sets of which one has a CPU more, with the check and the leasing around it;
and of a tick in which nothing has changed.  The work of the kernel counts.
Nothing is asserted; numbers compare only within one run.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import signal
import statistics
import sys
import tempfile
import time

from scavenger_openstack.agent.lease import leases
from scavenger_openstack.drivers.kernel.cgroup_mounts import Mount
from scavenger_openstack.drivers.qemu import cpuset
from scavenger_openstack.drivers.qemu import domain_cgroup
from scavenger_openstack.tests.functional import base
from scavenger_openstack.types import Knob
from scavenger_openstack.types import parse_cpus


def sleep_in(path: pathlib.Path) -> int:
    """Start a process that sleeps in a cgroup."""
    pid = os.fork()
    if not pid:
        (path / 'cgroup.procs').write_text('0')
        signal.pause()
    return pid


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--vms', type=int, default=20)
    parser.add_argument('--vcpus', type=int, default=4)
    parser.add_argument('--rounds', type=int, default=20)
    args = parser.parse_args()
    pids: list[int] = []
    with base.CgroupTree() as tree, tempfile.TemporaryDirectory() as state:
        held = leases.Leases(pathlib.Path(state), 600)
        held.open()
        try:
            measure(tree, held, args, pids)
        finally:
            held.close()
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
    return 0


def measure(tree: base.CgroupTree, held: leases.Leases,
            args: argparse.Namespace, pids: list[int]) -> None:
    assert tree.version
    above = Mount(str(tree.path('cpuset', '/machine')), tree.version)
    sets: dict[str, cpuset.CpuSet] = {}
    for number in range(args.vms):
        name = f'qemu-{number}-vm.libvirt-qemu'
        for part in ('emulator', *(f'vcpu{cpu}'
                                   for cpu in range(args.vcpus))):
            tree.make(f'/machine/{name}/{part}')
            pids.append(sleep_in(tree.path('cpuset',
                                           f'/machine/{name}/{part}')))
        vm = sets[name] = cpuset.CpuSet(
            name, domain_cgroup.DomainCgroup(
                name, {'cpuset': above},
                {'cpuset': f'{above.path}/{name}'}))
        vm.begin()
        held.hold(name, Knob.CPU_SET, vm.actions(), None)
        vm.refresh(held.held()[name, Knob.CPU_SET].original.actions)
    cpus = parse_cpus(tree.get('cpus', '/machine'))
    fewer = cpus - {max(cpus)}
    moves, ticks = [], []
    for number in range(2 * args.rounds):
        began = time.thread_time()
        for name, vm in sets.items():
            with held.writing(name, Knob.CPU_SET):
                vm.set(cpus if number % 2 else fewer)
        moves.append(time.thread_time() - began)
        began = time.thread_time()
        for name, vm in sets.items():
            if vm.unleased() is not None:
                raise RuntimeError(f'{name}: another program changed it')
        ticks.append(time.thread_time() - began)
    print(f'cgroup v{tree.version}, {args.vms} VMs with {args.vcpus} vCPUs, '
          f'us per VM: {1e6 * statistics.median(moves) / args.vms:.0f} '
          f'for a move, {1e6 * statistics.median(ticks) / args.vms:.0f} for '
          'a tick')


if __name__ == '__main__':
    sys.exit(main())
