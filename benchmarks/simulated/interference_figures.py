# SPDX-License-Identifier: Apache-2.0

"""What the papers on interference published, on the simulated host."""

from __future__ import annotations

import statistics

from plant_runs import BACKGROUND
from plant_runs import deviation
from plant_runs import heading
from plant_runs import limited
from plant_runs import run
from plant_runs import say
from scavenger_openstack.simulator.driver import Simulator
from scavenger_openstack.simulator.load import Phase
from scavenger_openstack.simulator.machine import Machine
from scavenger_openstack.simulator.machine import Tenant
from scavenger_openstack.types import Knob

HOST = Machine(cpus=24, llc_bytes=30e6, memory_bytes_per_s=40e9,
               disk_service_s=0.004, disk_bytes_per_s=150e6)


def hadoop(**other: float) -> list[Tenant]:
    return [Tenant(id=f'hadoop-{n}', application='hadoop', vcpus=2,
                   requests_per_s=5, cpu_s=0.05, accesses=0.03,
                   footprint_bytes=8e6, load_noise=0.3, cpi_noise=0.2,
                   **other) for n in range(6)]  # type: ignore[arg-type]


def strange(name: str, **other: float | tuple[Phase, ...]) -> Tenant:
    return Tenant(id=name, vcpus=8, priority=BACKGROUND, **other)  # type: ignore[arg-type]


TURNS = (Phase(for_s=60, level=0.0), Phase(for_s=60, level=1.0))


def perfcloud_3() -> None:
    heading('PerfCloud, figures 1, 3 and 5: fio random read beside 6 VMs',
            'peak deviation of the iowait ratio x 8.2, below 10 ms alone; '
            'Terasort takes 1.7 times as long; fio correlates, sysbench '
            'oltp and cpu do not')
    disk = hadoop(io_ops=1.5, io_bytes=32768)
    fio = strange('fio', threads=0.2, queue_depth=4, phases=TURNS)
    oltp = strange('oltp', threads=1.5, queue_depth=0.05,
                   phases=(Phase(shape='bursts', period_s=140, share=0.5),))
    prime = strange('prime', threads=4, accesses=0.0001,
                    phases=(Phase(shape='bursts', period_s=90, share=0.5),))
    alone = run(HOST, disk)
    both = run(HOST, [*disk, fio, oltp, prime], seconds=600)
    quiet = deviation(alone.io_wait_s, 'hadoop')
    loud = deviation(both.io_wait_s, 'hadoop')
    say(f'peak deviation alone {1000 * max(quiet):.2f} ms, with fio '
        f'{1000 * max(loud):.2f} ms: x {max(loud) / max(quiet):.1f}',
        4 < max(loud) / max(quiet) < 16)
    always = run(HOST, [*disk, strange('fio', threads=0.2, queue_depth=4)])
    ratio = (always.results['hadoop-0'].mean_s
             / alone.results['hadoop-0'].mean_s)
    say(f'a task takes {ratio:.1f} times as long', 1.3 < ratio < 2.5)
    for depth in (0.5, 1, 2, 4, 8):
        one = run(HOST, [*disk, strange('fio', threads=0.2,
                                        queue_depth=depth)])
        say(f'depth {depth:3g}: mean deviation '
            f'{1000 * statistics.fmean(deviation(one.io_wait_s, "had")):.2f}'
            f' ms, fio {one.results["fio"].io_ops_per_s:.0f} op/s')
    for cap in (1.0, 0.5, 0.2, 0.1):
        rate = cap * 1 / 0.004
        one = run(HOST, [*disk, strange('fio', threads=0.2, queue_depth=4)],
                  set_=limited(Knob.IO_OPS_PER_S, rate, 'fio'))
        ratio = (one.results['hadoop-0'].mean_s
                 / alone.results['hadoop-0'].mean_s)
        say(f'fio capped at {100 * cap:.0f} % of its rate alone: x '
            f'{ratio:.2f}')
    for name in ('fio', 'oltp', 'prime'):
        other = both.io_bytes_per_s[name]
        r = (statistics.correlation(loud, other[:len(loud)])
             if max(other) > 0 else 0.0)
        say(f'correlation with {name}: {r:+.2f}',
            r > 0.8 if name == 'fio' else r < 0.5)


def perfcloud_4() -> None:
    heading('PerfCloud, figures 2, 4 and 6: two STREAM VMs',
            'peak deviation of CPI below 1 alone, well above with STREAM; '
            'correlation with the misses of both above 0.8, low for others; '
            'one STREAM alone has little effect')

    def stream(name: str, threads: float = 4, **other: object) -> Tenant:
        return strange(name, threads=threads, cpi=0.5, accesses=0.03,  # type: ignore[arg-type]
                       overlap=0.85, footprint_bytes=2e9, miss_least=0.8,
                       miss_most=0.9, **other)

    vms = hadoop()
    prime = strange('prime', threads=4, accesses=0.0001,
                    phases=(Phase(shape='bursts', period_s=90, share=0.5),))
    alone, one, two = (
        run(HOST, vms), run(HOST, [*vms, stream('s1', 2)]),
        run(HOST, [*vms, stream('s1'), stream('s2')]))
    turns = run(HOST, [*vms, stream('s1', phases=TURNS),
                       stream('s2', phases=TURNS), prime], seconds=600)
    slow = [x.results['hadoop-0'].mean_s / alone.results['hadoop-0'].mean_s
            for x in (one, two)]
    peaks = [max(deviation(x.cpi, 'hadoop')) for x in (alone, one, two)]
    say(f'peak deviation of CPI alone {peaks[0]:.2f}, small STREAM '
        f'{peaks[1]:.2f}, both {peaks[2]:.2f}',
        peaks[0] < 1 < peaks[2])
    say(f'slower: small STREAM x {slow[0]:.2f}, both x {slow[1]:.2f}',
        slow[0] < 1.1 and slow[1] > 1.2)
    noise = deviation(turns.cpi, 'hadoop')
    for name in ('s1', 's2', 'prime'):
        r = statistics.correlation(noise, turns.misses_per_s[name][
            :len(noise)])
        say(f'correlation with the misses of {name}: {r:+.2f}',
            r > 0.8 if name != 'prime' else r < 0.5)


def cpi2_3() -> None:
    heading('CPI2, figure 3: CPI and latency of a leaf over a day',
            'correlation 0.97; with I/O in the request it is poor')
    box = Machine(cpus=16)
    other = strange('stream', threads=6, cpi=0.5, accesses=0.03,
                    overlap=0.85, footprint_bytes=2e9, miss_least=0.8,
                    phases=(Phase(shape='wave', period_s=300, depth=0.9),))
    for label, cpu_s, ops in (('leaf', 0.01, 0.0),
                              ('root, mostly I/O', 0.002, 20.0)):
        leaf = Tenant(id='leaf', vcpus=4, requests_per_s=60, cpu_s=cpu_s,
                      accesses=0.01, footprint_bytes=10e6, io_ops=ops)
        found = run(box, [leaf, other, strange(
            'scan', queue_depth=2.0, phases=(
                Phase(shape='bursts', period_s=130),))], seconds=1200)
        size = min(len(found.cpi['leaf']), len(found.latency_s['leaf']))
        r = statistics.correlation(found.cpi['leaf'][:size],
                                   found.latency_s['leaf'][:size])
        say(f'{label}: correlation {r:.2f}', r < 0.5 if ops else r > 0.9)


def ibench_2() -> None:
    heading('iBench, figure 2: pressure over intensity',
            'almost linear for caches, memory bandwidth, network and disk')
    box = Machine(cpus=8, llc_bytes=8 * 2 ** 20, memory_bytes_per_s=20e9)
    levels = [n / 10 for n in range(1, 11)]
    for label, make, measure in (
            ('LLC bytes', lambda x: strange(
                'soi', threads=1, accesses=0.03, footprint_bytes=x * 8e6),
             lambda s: s.plant.guests[0].held[0]),
            ('memory bytes/s', lambda x: strange(
                'soi', threads=8 * x, cpi=0.5, accesses=0.02, overlap=0.9,
                footprint_bytes=4e9, miss_least=0.85, miss_most=0.85),
             lambda s: s.plant.guests[0].llc_misses),
            ('disk op/s', lambda x: strange('soi', queue_depth=x),
             lambda s: s.plant.guests[0].io_ops),
            ('link bytes/s', lambda x: strange(
                'soi', tx_bytes_per_s=x * 125e6),
             lambda s: s.plant.guests[0].tx_bytes)):
        values = []
        for x in levels:
            simulator = Simulator(box, [make(x)], seed=1)
            simulator.advance(60)
            values.append(measure(simulator))
        line = [values[-1] * x for x in levels]
        off = max(abs(v - w) for v, w in zip(values, line, strict=True)
                  ) / values[-1]
        say(f'{label}: {" ".join(f"{v / values[-1]:.2f}" for v in values)}'
            f'; off a straight line by {100 * off:.0f} %', off < 0.15)


def ibench_3() -> None:
    heading('iBench, figure 3: mcf beside the LLC source, memcached beside '
            'the network source',
            'performance falls where the miss ratio rises; goodput falls '
            'fast at high network intensity as its share of the link does, '
            'its cache is not touched')
    box = Machine(cpus=8, llc_bytes=8 * 2 ** 20, memory_bytes_per_s=20e9)
    mcf = Tenant(id='mcf', vcpus=1, threads=1, accesses=0.02,
                 footprint_bytes=6e6, miss_curve=1.0, load_noise=0.0)
    levels = [n / 5 for n in range(6)]
    runs = [run(box, [mcf, strange(
        'soi', threads=1, accesses=0.1, overlap=0.5,
        footprint_bytes=max(1.0, x * 8e6), miss_least=0.01,
        load_noise=0.0)]) for x in levels]
    work = [one.results['mcf'].cpu_work for one in runs]
    perf = [w / work[0] for w in work]
    miss = [statistics.fmean(one.misses_per_s['mcf'])
            * statistics.fmean(one.cpi['mcf']) for one in runs]
    rise = [m - miss[0] for m in miss]
    say('mcf, performance by intensity: '
        + ' '.join(f'{v:.2f}' for v in perf), perf[1] > 0.97 > perf[-1])
    say('extra misses per instruction, of the most: '
        + ' '.join(f'{v / (rise[-1] or 1):.2f}' for v in rise))
    cache = Tenant(id='memcached', vcpus=4, requests_per_s=40000,
                   cpu_s=0.00002, tx_bytes=1100, accesses=0.003,
                   footprint_bytes=2e6)
    net = [run(box, [cache, strange('soi', threads=0.2, accesses=0.0001,
                                    tx_bytes_per_s=x * 125e6)])
           for x in levels]
    good = [sum(1 for v in one.latency_s['memcached'] if v < 0.005)
            / len(one.latency_s['memcached']) for one in net]
    mean = [1000 * one.results['memcached'].mean_s for one in net]
    same = (statistics.fmean(net[-1].cpi['memcached'])
            / statistics.fmean(net[0].cpi['memcached']) - 1)
    say('memcached, intervals with a mean below 5 ms: '
        + ' '.join(f'{v:.2f}' for v in good) + '; mean ms '
        + ' '.join(f'{v:.2f}' for v in mean),
        good[0] > 0.95 and good[-1] < 0.5)
    say(f'its CPI changes by {100 * same:+.1f} %', abs(same) < 0.03)
