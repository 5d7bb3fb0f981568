# SPDX-License-Identifier: Apache-2.0

"""What a demo measures, made up: turns, records, summaries."""

from __future__ import annotations

from typing import Any

from scavenger_openstack.demo.filling import result
from scavenger_openstack.demo.load import load
from scavenger_openstack.demo.who import play
from scavenger_openstack.demo.who import result as who_result

GIB = 2**30
SETTINGS = {'rounds': 2, 'more_rounds': 0, 'seconds': 10.0, 'seed': '1',
            'cpus': 2,
            'memory_bytes': 2 * GIB, 'link_bytes_per_s': 25e6,
            'memory_window_s': 5, 'network_window_s': 5}


def sample(at_s: float, **more: Any) -> dict[str, Any]:
    return {'at_s': at_s, 'cpu_s': at_s,
            'foreground_cpu_s': at_s / 2,
            'background_cpu_s': at_s / 2, 'cpu_set': 2, 'cpu_idle': False,
            'memory_bytes': GIB, 'foreground_bytes': GIB // 4,
            'background_bytes': GIB // 2, 'limit_bytes': None,
            'work_cpu_s': 1.5 * at_s, 'work_memory_gib_s': at_s,
            'work_network_bytes': 2e7 * at_s,
            'foreground_tx_bytes': 1e6 * at_s, **more}


def record(phase: str, number: int = 0, *, p99_s: float = 0.01,
           work: float = 1.0, transfer_s: float = 1.75,
           steps: list[load.Step] | None = None,
           other_cpus: float = 0.0, late_s: float = 0.0
           ) -> dict[str, Any]:
    """98 requests of 5 ms, two of ``p99_s``; 10 s of work."""
    samples = [sample(at_s / 5, work_cpu_s=work * at_s / 5,
                      work_memory_gib_s=work * at_s / 5,
                      work_network_bytes=work * 1e7 * at_s / 5)
               for at_s in range(51)]
    requests = [(i / 10, 0.005) for i in range(98)]
    return result.record(
        phase=phase, number=number,
        requests=[*requests, (9.8, p99_s), (9.9, p99_s)], unserved=0,
        steps=steps or [], files=[load.File(1.0, 1.0, transfer_s)],
        samples=samples, caps_set=0, kills=0, cpus=2,
        outside_late_s=[late_s, 500.0],
        memory_bytes=2 * GIB, other=other(other_cpus))


def other(cpus: float) -> dict[str, Any]:
    """Other load: one program."""
    return {'other_cpus': cpus, 'stolen_cpus': 0.0, 'disturbed': cpus > 0.15,
            'busy': [{'name': 'dpkg', 'pid': 77, 'cpus': cpus}]}


def turn(slower: float, other_cpus: float = 0.0) -> dict[str, Any]:
    """100 requests of 1 to 100 ms, ``slower`` times."""
    return {'begin_s': 0.0, 'run_delay': slower, 'background_cpu': 1.3,
            'others': other(other_cpus),
            'latencies': [slower * i / 1000 for i in range(1, 101)]}


def pairs(count: int = 12, *, slower: float = 1.0, disturbed: int = 0,
          scatter: float = 0.0) -> list[dict[str, Any]]:
    """Pairs of turns, the last ones ``disturbed``; every second one slower,
    the others faster by ``scatter``."""
    found: list[dict[str, Any]] = []
    for number in range(count):
        noise = 1 + scatter * (-1) ** number
        busy = 1.0 if number >= count - disturbed else 0.0
        found.append({
            'pair': number, 'disturbed': busy > 0, 'alone': turn(1.0, busy),
            'scavenger': turn(slower * noise, busy)})
    return found


def whole(turns: list[dict[str, Any]] | None = None, problem: str = '',
          **changes: dict[str, Any]) -> dict[str, Any]:
    """A summary in which all is well, but for ``changes`` per phase."""
    good: dict[str, dict[str, Any]] = {
        'alone': {'work': 0.0},
        'unmanaged': {'p99_s': 0.5},
        'static_half': {'p99_s': 0.02, 'work': 0.6},
        'scavenger': {'p99_s': 0.0105, 'work': 0.9}}
    for name, change in changes.items():
        good[name].update(change)
    records = [record(name, number, **how) for number in (0, 1)
               for name, how in good.items()]
    return result.summary(records, SETTINGS,
                          pairs() if turns is None else turns, problem)


HARM_MS = {who_result.ALONE: 2.0, who_result.DISTURBED: 10.0,
           who_result.LIMITED: 3.0}


def who(*, named_s: float = 20.0, seconds: float = 100.0,
           innocent: bool = False) -> dict[str, Any]:
    """An act in which all happens as it should.

    Both antagonists are named ``named_s`` after they began and limited
    while they work from then on; they then do a quarter of the work.
    """
    end_s = play.QUIET_S + seconds
    looks: list[dict[str, Any]] = []
    work = {job.group: 0.0 for job in play.JOBS}
    for step in range(int(end_s)):
        at_s = float(step)
        working = {job.group: job.works(at_s, end_s) for job in play.JOBS}
        caps, incidents = {}, []
        for job in play.JOBS:
            late = at_s >= play.QUIET_S + job.offset_s + named_s
            if job.victim and late:
                incidents.append({
                    'victim': job.victim, 'signal': job.signal,
                    'cause': job.cause, 'threshold': 0.2,
                    'outcome': 'confirmed', 'antagonists': [job.group]})
                if working[job.group]:
                    caps[job.group] = 0.5
            if not job.victim and innocent and late:
                caps[job.group] = 0.1
        looks.append({'at_s': at_s, 'working': working, 'caps': caps,
                      'incidents': incidents, 'work': dict(work)})
        for group in work:
            work[group] += working[group] * (0.25 if group in caps else 1)
    latencies = {}
    for job in play.JOBS:
        if job.victim:
            latencies[job.victim] = [
                (begin_s + 0.5, HARM_MS[state] / 1000) for begin_s, _, state
                in who_result.spans(looks, job)]
    return {'seconds': end_s, 'sample_s': 2.0, 'cpus': 2, 'looks': looks,
            'latencies': latencies, 'knobs_left': [],
            'problem': '', 'others': [],
            'signals': {job.group: [
                {'at_s': look['at_s'], 'run_delay': 0.1, 'io_wait': None,
                 'cores': float(look['working'][job.group]),
                 'io_bytes_per_s': 1e6} for look in looks]
                for job in play.JOBS} | {
                    job.victim: [{'at_s': 1.0, 'run_delay': 0.1,
                                  'io_wait': 0.001, 'cores': 0.2,
                                  'io_bytes_per_s': 1e5}]
                    for job in play.JOBS if job.victim}}
