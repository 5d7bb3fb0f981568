# SPDX-License-Identifier: Apache-2.0

"""Simulated and made-up traffic for the sensitivity study."""

from __future__ import annotations

import random

from traces import Group
from traces import of_points
from traces import Point

from scavenger_openstack.algorithms.scavenger.usage import foreground_rate
from scavenger_openstack.decision.rates import rates
from scavenger_openstack.simulator.driver import LINK
from scavenger_openstack.simulator.driver import Simulator
from scavenger_openstack.simulator.load import Phase
from scavenger_openstack.simulator.machine import Machine
from scavenger_openstack.simulator.machine import Tenant

LINK_BYTES_PER_S = 125e6
LINK_SHARE = 0.27
"""How full the foreground makes a link: as in Scavenger, section 6.3."""


def _tenant(rng: random.Random, number: int, bytes_per_s: float) -> Tenant:
    """A service that sends, of one of three characters."""
    period_s, share = rng.uniform(20, 300), rng.uniform(0.1, 0.5)
    low = rng.uniform(0.0, 0.3)
    phase = rng.choice((
        Phase(), Phase(shape='wave', period_s=4 * period_s,
                       depth=rng.uniform(0.2, 0.8)),
        Phase(shape='bursts', period_s=period_s, share=share, low=low,
              level=(1 - low * (1 - share)) / share,
              offset_s=rng.uniform(0, period_s))))
    requests_per_s = rng.uniform(5, 50)
    return Tenant(
        id=f'vm{number}', requests_per_s=requests_per_s, cpu_s=0.001,
        tx_bytes=bytes_per_s / requests_per_s, phases=(phase,),
        arrivals=rng.uniform(1, 10), load_noise=rng.uniform(0.1, 0.4))


def simulated_link(*, tenants: int, seconds: int, seed: int) -> list[Point]:
    """Bytes per second that a simulated host's foreground sends."""
    rng = random.Random(f'{tenants} {seed}')
    weights = [rng.lognormvariate(0, 0.7) for _ in range(tenants)]
    host = Simulator(
        Machine(cpus=32, link_bytes_per_s=LINK_BYTES_PER_S),
        [_tenant(rng, number, LINK_SHARE * LINK_BYTES_PER_S * weight
                 / sum(weights)) for number, weight in enumerate(weights)],
        seed=seed)
    points = []
    before = host.sample()
    for _ in range(seconds):
        host.advance(1.0)
        sample = host.sample()
        tick = rates(before, sample)
        sent = foreground_rate(tick.link_tx_bytes_per_s[LINK], 0.0)
        points.append((tick.time_s, sent or 0.0))
        before = sample
    return points


def simulated(*, tenants: int, seconds: int, hosts: int) -> Group:
    """Sending rates of simulated hosts, 1 s apart."""
    return Group(
        f'simulated-{tenants}',
        f'Network: {hosts} simulated hosts with {tenants} senders', 'host',
        f'{seconds} s each on a link of 1 Gbit/s of the project\'s '
        f'simulator: {tenants} services of unlike weight, steady, in waves '
        f'or in bursts, that send {100 * LINK_SHARE:.0f} % of the link on '
        f'average.',
        [of_points(f'host {seed}', LINK_BYTES_PER_S, simulated_link(
            tenants=tenants, seconds=seconds, seed=seed),
            resource=LINK, interval_s=1.0) for seed in range(hosts)],
        basis='simulated traffic')


def bursts(*, sources: int, seconds: int, seed: int, mean_s: float = 5.0,
           shape: float = 1.5) -> list[Point]:
    """Bytes per second of on/off sources with heavy-tailed times.

    Sums of such sources are bursty over many time scales, as measured
    traffic is.  Each is on a third of the time; on and off times are
    Pareto with ``shape`` and, when on, a mean of ``mean_s``.
    Source: Willinger, Taqqu, Sherman, Wilson, IEEE/ACM Transactions on
    Networking 5(1), 1997.
    """
    rng = random.Random(1000 * sources + seed)
    rate = 3 * LINK_SHARE * LINK_BYTES_PER_S / sources
    sent = [0.0] * (seconds + 1)
    least_s = mean_s * (shape - 1) / shape
    for _ in range(sources):
        on = rng.random() < 1 / 3
        now_s = -rng.random() * 2 * mean_s
        while now_s < seconds:
            length_s = min(rng.paretovariate(shape) * least_s
                           * (1 if on else 2), seconds)
            if on:
                begin_s = max(now_s, 0.0)
                end_s = min(now_s + length_s, float(seconds))
                second = int(begin_s)
                while begin_s < end_s:
                    until_s = min(second + 1.0, end_s)
                    sent[second] += rate * (until_s - begin_s)
                    begin_s, second = until_s, second + 1
            now_s += length_s
            on = not on
    return [(float(second), min(value, LINK_BYTES_PER_S))
            for second, value in enumerate(sent[:seconds])]


def heavy_tailed(*, sources: int, seconds: int, hosts: int) -> Group:
    """Sending rates of links with bursty senders, 1 s apart."""
    return Group(
        f'bursts-{sources}',
        f'Network: {hosts} links with {sources} heavy-tailed senders',
        'link',
        f'{seconds} s each on a link of 1 Gbit/s: the sum of {sources} '
        f'on/off senders with heavy-tailed times (Pareto, 1.5), '
        f'{100 * LINK_SHARE:.0f} % of the link on average. The hard case: '
        f'what the last seconds say about the next is little.',
        [of_points(f'link {seed}', LINK_BYTES_PER_S, bursts(
            sources=sources, seconds=seconds, seed=seed),
            resource=LINK, interval_s=1.0) for seed in range(hosts)],
        basis='made-up traffic')
