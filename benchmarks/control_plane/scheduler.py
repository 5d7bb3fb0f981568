# SPDX-License-Identifier: Apache-2.0

"""What filter and weigher cost nova-scheduler, for each request.

Beside Nova's own filters and weighers on the same hosts.  It needs Nova::

    PYTHONPATH=. ~/.cache/scavenger-openstack/stack-*/bin/python \\
        benchmarks/control_plane/scheduler.py [HOSTS]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
import random
import time
from typing import Any

TIMES = 50


def measure(count: int) -> None:
    import nova.conf
    from nova import objects
    from nova.scheduler.filters import compute_capabilities_filter
    from nova.scheduler import host_manager
    from nova.scheduler.weights import cpu
    from nova import weights as nova_weights

    from scavenger_openstack.algorithms import profiles
    from scavenger_openstack.nova import filters
    from scavenger_openstack.nova import options
    from scavenger_openstack.nova import summary
    from scavenger_openstack.nova import weights

    objects.register_all()
    nova.conf.CONF([], project='nova')
    options.register(nova.conf.CONF)
    hosts = {f'host-{number}': summary.Host(
        silent=False, free_cores=number % 8, free_bytes=2.0 ** 33, cores=8.0,
        incidents=number % 3, background_vcpus=number % 5)
        for number in range(count)}
    plain = summary.Hosts(hosts)
    drawn = random.Random(count)
    own = profiles.levels(*drawn_sides(drawn))
    profiled = summary.Hosts(
        {name: host._replace(residents=profiles.levels(*drawn_sides(drawn)))
         for name, host in hosts.items()}, {('flavor', 'm1', ''): own})
    now = [plain]
    known = summary.Summary(lambda: now[0], interval_s=3600, max_age_s=3600)

    def provide(found: summary.Hosts) -> None:
        """Have filter and weigher use it, with nothing kept of it."""
        now[0] = summary.Hosts(found, found.profiles)
        known.refresh()

    known.hosts()
    states = []
    for name in hosts:
        state = host_manager.HostState(name, name, None)
        state.aggregates = []
        state.vcpus_total, state.vcpus_used = 8, 4
        state.cpu_allocation_ratio = 1.0
        states.append(state)
    ours, weigher = filters.BackgroundFilter(), weights.InterferenceWeigher()
    ours._summary = weigher._summary = known
    weighed = [nova_weights.WeighedObject(state, 0.0) for state in states]
    theirs = compute_capabilities_filter.ComputeCapabilitiesFilter()
    for kind, specs in (('background', {'scavenger:priority': 'background'}),
                        ('foreground', {})):
        spec = objects.RequestSpec(
            scheduler_hints={}, flavor=objects.Flavor(
                vcpus=1, memory_mb=512, extra_specs=specs, name='m1',
                flavorid='1'))
        print(f'{kind}, {count} hosts, ms of CPU, the median of {TIMES}:')
        for name, call, found, first in (
                ('BackgroundFilter', lambda spec=spec: list(
                    ours.filter_all(states, spec)), plain, False),
                ('InterferenceWeigher', lambda spec=spec:
                    weigher.weigh_objects(weighed, spec), plain, False),
                ('  of a new summary', lambda spec=spec:
                    weigher.weigh_objects(weighed, spec), plain, True),
                ('  with a profile on each host', lambda spec=spec:
                    weigher.weigh_objects(weighed, spec), profiled, False),
                ('  of a new summary', lambda spec=spec:
                    weigher.weigh_objects(weighed, spec), profiled, True),
                ('Nova\'s ComputeCapabilitiesFilter', lambda spec=spec: list(
                    theirs.filter_all(states, spec)), plain, False),
                ('Nova\'s CPUWeigher', lambda spec=spec:
                    cpu.CPUWeigher().weigh_objects(weighed, spec),
                    plain, False)):
            provide(found)
            took_s = median(call, (lambda found=found: provide(found))
                            if first else lambda: None)
            print(f'  {name:34} {1000 * took_s:8.3f}')


def drawn_sides(drawn: random.Random) -> tuple[dict[str, float], ...]:
    """What is tolerated and caused of all SoIs, at random: the most that
    there is to compare."""
    from scavenger_openstack.wire.profile import SOI_NAMES
    return tuple({name: drawn.random() for name in SOI_NAMES}
                 for _ in range(2))


def median(call: Callable[[], Any], before: Callable[[], None]) -> float:
    took = []
    for _ in range(TIMES):
        before()
        began = time.thread_time()
        call()
        took.append(time.thread_time() - began)
    return sorted(took)[TIMES // 2]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('hosts', type=int, nargs='?', default=1000)
    measure(parser.parse_args().hosts)


if __name__ == '__main__':
    main()
