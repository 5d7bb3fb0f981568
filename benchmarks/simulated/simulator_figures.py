# SPDX-License-Identifier: Apache-2.0

"""The simulated host beside what the papers published.

Each part sets up what a figure was made with, as far as the paper says, and
prints numbers of the plant beside the paper's statement.  Shapes are meant
to match, absolute numbers are not: the papers' applications and machines
are not described well enough for that.  ``NOT`` marks what does not match.
Nothing is asserted; tenants and machines are guesses of ours.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import statistics

from plant_runs import BACKGROUND
from plant_runs import heading
from plant_runs import limited
from plant_runs import nothing
from plant_runs import rising
from plant_runs import run
from plant_runs import say
from plant_runs import Set
from interference_figures import cpi2_3
from interference_figures import ibench_2
from interference_figures import ibench_3
from interference_figures import perfcloud_3
from interference_figures import perfcloud_4
from scavenger_openstack.algorithms.perfiso import perfiso
from scavenger_openstack.algorithms.scavenger import scavenger
from scavenger_openstack.laboratory.agent_parts import SimulatedIsolation
from scavenger_openstack.laboratory import bench
from scavenger_openstack.laboratory import presets
from scavenger_openstack.simulator.driver import GROUP
from scavenger_openstack.simulator.driver import Simulator
from scavenger_openstack.simulator.load import Phase
from scavenger_openstack.simulator.machine import Machine
from scavenger_openstack.simulator.machine import Tenant
from scavenger_openstack.simulator.scenario import Drawn
from scavenger_openstack.types import format_cpus
from scavenger_openstack.types import Knob

# Scavenger -----------------------------------------------------------------

LAB = Machine(cpus=4, llc_bytes=8 * 2 ** 20, memory_bytes_per_s=15e9)

CLOUD = {
    'data caching': Tenant(id='fg', vcpus=1, requests_per_s=200,
                           cpu_s=0.001, accesses=0.004,
                           footprint_bytes=5e6, tx_bytes=1000),
    'web search': Tenant(id='fg', vcpus=1, requests_per_s=20, cpu_s=0.012,
                         accesses=0.006, footprint_bytes=7e6),
    'web serving': Tenant(id='fg', vcpus=1, requests_per_s=15, cpu_s=0.016,
                          accesses=0.012, footprint_bytes=6e6),
    'data serving': Tenant(id='fg', vcpus=1, requests_per_s=80,
                           cpu_s=0.003, accesses=0.015,
                           footprint_bytes=8e6),
    'media streaming': Tenant(id='fg', vcpus=1, requests_per_s=8,
                              cpu_s=0.002, accesses=0.010,
                              footprint_bytes=6e6, tx_bytes=4e6),
}
"""Five stand-ins, one CPU each, that differ in how they use the cache."""


def dcopy(level: float = 1.0) -> Tenant:
    """Copies through the cache on three CPUs, resting in between."""
    return Tenant(id='bg', priority=BACKGROUND, vcpus=3, threads=3,
                  pinned=frozenset((1, 2, 3)), cpi=0.7, accesses=0.03,
                  overlap=0.6, footprint_bytes=24e6, miss_least=0.3,
                  miss_most=0.9, load_noise=0.02,
                  phases=(Phase(level=level),))


def pin(tenant: Tenant, *cpus: int) -> Tenant:
    return dataclasses.replace(tenant, pinned=frozenset(cpus))


def scavenger_4() -> None:
    heading('Scavenger, figure 4: dCopy on 3 of 4 CPUs, more and more',
            'IPC and performance degrade together for all workloads but '
            'media streaming, whose IPC falls and whose performance stays')
    levels = (0.0, 0.25, 0.5, 0.75, 1.0)
    for name, tenant in CLOUD.items():
        fg = pin(tenant, 0)
        runs = [run(LAB, [fg, dcopy(level)]) for level in levels]
        alone = run(LAB, [fg])
        ipc = [100 * (1 - statistics.fmean(alone.cpi['fg'])
                      / statistics.fmean(one.cpi['fg'])) for one in runs]
        slow = [100 * (one.results['fg'].mean_s
                       / alone.results['fg'].mean_s - 1) for one in runs]
        stays = name == 'media streaming'
        say(f'{name:15s} IPC lost % {" ".join(f"{v:5.1f}" for v in ipc)}'
            f'   slower % {" ".join(f"{v:6.1f}" for v in slow)}',
            rising(ipc[1:]) and ipc[-1] > 5 and (
                slow[-1] < 10 if stays else rising(slow[1:])))


def scavenger_7() -> None:
    heading('Scavenger, figures 7 and 8: dCopy under processor regulation',
            'a larger c gives more background CPU and more IPC degradation; '
            'caching and search are less sensitive than serving')
    for name in ('data caching', 'web search', 'web serving',
                 'data serving'):
        fg = pin(CLOUD[name], 0)
        drawn = Drawn(name, 1, LAB, (fg, dcopy()), 600, 60, 1, 1, 1)
        alone = bench.run(drawn, bench.Policy(background=False))
        cells, lost, cores = [], [], []
        for c in (0.5, 1.0, 2.0):
            policy = bench.Policy(
                preset=presets.DEFAULTS, only=('scavenger',),
                params={'scavenger': scavenger.Params(
                    ipc_c=c, use_cpu_idle=False)})
            outcome = bench.run(drawn, policy)
            speed = [one.tenants['fg'].mean_s for one in (alone, outcome)]
            lost.append(100 * (speed[1] / speed[0] - 1))
            cores.append(outcome.tenants['bg'].cpu_work)
            cells.append(f'c={c:g}: {lost[-1]:5.1f} % slower, '
                         f'{cores[-1]:4.2f} cores of work')
        say(f'{name:12s} {"; ".join(cells)}',
            lost[0] <= lost[-1] + 1 and cores[0] <= cores[-1] + 0.02)


def scavenger_12() -> None:
    heading('Scavenger, figure 12a: p95 under dCopy and stress-ng, '
            'unmanaged, cores apart',
            'dCopy: median +193 %; stress-ng: negligible')
    stress = Tenant(id='bg', priority=BACKGROUND, vcpus=3, threads=3,
                    pinned=frozenset((1, 2, 3)), accesses=0.0002,
                    footprint_bytes=3e5)
    for label, bg, fits in (('dCopy', dcopy(), lambda v: 50 < v < 600),
                            ('stress-ng', stress, lambda v: v < 5)):
        slow = []
        for tenant in CLOUD.values():
            if tenant.tx_bytes > 1e6:
                continue
            fg = pin(tenant, 0)
            pair = [run(LAB, tenants).results['fg']
                    for tenants in ([fg], [fg, bg])]
            slow.append(100 * (pair[1].p99_s / pair[0].p99_s - 1))
        say(f'{label}: p99 of four workloads '
            f'{" ".join(f"{v:+.0f} %" for v in sorted(slow))}, median '
            f'{statistics.median(slow):+.0f} %',
            fits(statistics.median(slow)))


# PerfIso -------------------------------------------------------------------

BOX = Machine(cpus=48, threads_per_core=2, llc_bytes=60e6,
              memory_bytes_per_s=100e9)


def index(rate: float) -> Tenant:
    return Tenant(id='index', vcpus=48, requests_per_s=rate, cpu_s=0.004,
                  arrivals=8, accesses=0.002, footprint_bytes=20e6,
                  load_noise=0.0)


def bully(threads: int) -> Tenant:
    return Tenant(id='bully', priority=BACKGROUND, vcpus=threads,
                  threads=threads, weight=threads, accesses=0.0002,
                  footprint_bytes=1e6, load_noise=0.0)


def boxed(rate: float, threads: int = 48, *, set_: Set = nothing,
          buffer: int = 0) -> tuple[float, float]:
    """p99 in ms and CPU work of the bully, in steps of 1 ms."""
    tenants = [index(rate)] + ([bully(threads)] if threads else [])
    simulator = Simulator(BOX, tenants, seed=1, step_s=0.001)
    set_(simulator)
    each = None
    if buffer:
        each = SimulatedIsolation(simulator, perfiso.Params(
            buffer_cores=buffer)).each()
    simulator.advance(1, each)
    simulator.plant.reset_truth()
    simulator.advance(6, each)
    found = {guest.spec.id: guest.truth.result()
             for guest in simulator.plant.guests}
    return (1000 * found['index'].p99_s,
            found['bully'].cpu_work if threads else 0.0)


def perfiso_4_to_8() -> None:
    heading('PerfIso, figures 4 to 8: IndexServe beside a bully, 48 CPUs',
            '24 threads: p99 + up to 42 %; 48 threads: x 29; 8 buffer '
            'cores: within 1 ms; 8 fixed cores: protects, too; 5 % of the '
            'cycles: does not. Work of the bully, of unrestricted: blind '
            '62 % and 25 %, fixed cores 45 % and 30 %, cycles 9 % and 9 %')
    for rate in (2000, 4000):
        alone, _ = boxed(rate, 0)
        mid, _ = boxed(rate, 24)
        high, whole = boxed(rate)
        say(f'{rate} QPS: p99 alone {alone:.1f} ms; 24 threads '
            f'{mid:.1f} (+{100 * (mid / alone - 1):.0f} %)',
            0.05 < mid / alone - 1 < 0.6)
        say(f'48 threads {high:.1f} ms (x {high / alone:.1f})',
            high / alone > 10)
        for label, blind, set_, fits in (
                ('blind, 4 buffer cores', 4, nothing, None),
                ('blind, 8 buffer cores', 8, nothing, True),
                ('8 fixed cores', 0, limited(
                    Knob.CPU_SET, format_cpus(range(40, 48)), GROUP), True),
                ('24 fixed cores', 0, limited(
                    Knob.CPU_SET, format_cpus(range(24, 48)), GROUP), None),
                ('5 % of the cycles', 0, limited(
                    Knob.CPU_CORES, 0.05 * 48), False),
                ('45 % of the cycles', 0, limited(
                    Knob.CPU_CORES, 0.45 * 48), False)):
            p99, work = boxed(rate, set_=set_, buffer=blind)
            say(f'{label}: p99 {p99 - alone:+.1f} ms, '
                f'{100 * work / whole:.0f} % of the work',
                None if fits is None else (p99 - alone < 1.5) is fits)


FIGURES: Mapping[str, Callable[[], None]] = {
    function.__name__: function for function in (
        scavenger_4, scavenger_7, scavenger_12, perfiso_4_to_8, perfcloud_3,
        perfcloud_4, cpi2_3, ibench_2, ibench_3)}


def main() -> None:
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('figure', nargs='*', choices=[*FIGURES, []],
                        help='default: all of them')
    for name in parser.parse_args().figure or FIGURES:
        FIGURES[name]()


if __name__ == '__main__':
    main()
