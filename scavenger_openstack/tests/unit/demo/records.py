# SPDX-License-Identifier: Apache-2.0

"""Records of acts, as :class:`scavenger_openstack.demo.play.Act` has them."""

from __future__ import annotations

from typing import Any

from scavenger_openstack.demo import play
from scavenger_openstack.demo import result

TREE = '/scavenger-demo-abcdef'
HOG_S, AGENT_S, LIMITED_S, END_S = 20.0, 45.0, 52.0, 90.0


def incident(*antagonists: str, **more: Any) -> dict[str, Any]:
    """One that the agent reports."""
    return {
        'id': 'a' * 32, 'time_s': 1030.0, 'host': 'compute-1',
        'victim': TREE + play.SERVICE, 'signal': 'run_delay', 'value': 0.9,
        'threshold': 0.6, 'cause': 'core',
        'suspects': [[TREE + play.HOG, 0.8]],
        'antagonists': [TREE + name for name in antagonists],
        'action': f'limit {TREE}{play.HOG}', 'outcome': 'confirmed',
        'grounds': [{'workload': TREE + play.HOG, 'kind': 'direct',
                     'share': 0.8, 'waited_s': 4.0, 'window_s': 2.0}], **more}


def record(*, alone_ms: float = 40.0, unmanaged_ms: float = 320.0,
           managed_ms: float = 50.0, others: float = 0.05,
           named: tuple[str, ...] = (play.HOG,),
           limited: tuple[str, ...] = (play.HOG,)) -> dict[str, Any]:
    """An act in which a request came each 20 ms and took so long."""
    def latency_ms(at_s: float) -> float:
        return (alone_ms if at_s < HOG_S else unmanaged_ms
                if at_s < LIMITED_S or not limited else managed_ms)

    samples: list[dict[str, Any]] = []
    for number in range(int(END_S / play.EVERY_S) + 1):
        at_s = number * play.EVERY_S
        hog_s = max(0.0, min(at_s, LIMITED_S) - HOG_S) + max(
            0.0, at_s - LIMITED_S) * 0.1
        samples.append({
            'at_s': at_s, 'busy_s': hog_s + at_s * (0.4 + others),
            'demo_s': hog_s + at_s * 0.4,
            'limits': dict.fromkeys(limited, 0.1) if at_s >= LIMITED_S
            else {},
            'cpu_s': {play.SERVICE: 0.4 * at_s, play.HOG: hog_s,
                      play.QUIET: 0.0}})
    return {
        'cpus': [0, 1], 'tree': TREE, 'host': 'compute-1', 'hog_s': HOG_S,
        'agent_s': AGENT_S, 'end_s': END_S,
        'managed_s': LIMITED_S + play.SETTLE_S if limited else None,
        'named': dict.fromkeys(named, HOG_S + 11.0),
        'limited_s': LIMITED_S if limited else None, 'status_s': 1090.0,
        'problems': [], 'incidents': [incident(*named)] if named else [],
        'samples': samples, 'latencies': [
            (number / 50, latency_ms(number / 50) / 1000)
            for number in range(int(50 * END_S))]}


def whole() -> dict[str, Any]:
    """A result, as it is stored."""
    return result.summary(record(), [])
