# SPDX-License-Identifier: Apache-2.0

"""What is seen from outside while a phase plays, five times a second."""

from __future__ import annotations

import time
from typing import Any

from scavenger_openstack.demo.load import load
from scavenger_openstack.demo import product
from scavenger_openstack.demo.stage import stage as stage_

EVERY_S = 0.2


class Watch:
    """Samples of one phase; times are seconds after its warm-up."""

    def __init__(self, stage: stage_.Stage, start_s: float,
                 iterations_per_ms: float,
                 status: product.Status | None) -> None:
        self._stage = stage
        self._start_s = start_s
        self._iterations_per_ms = iterations_per_ms
        self._status = status
        self._facts: dict[str, Any] = {}
        self._caps: set[tuple[str, str]] = set()
        self.samples: list[dict[str, Any]] = []

    @property
    def caps_set(self) -> int:
        """How many knobs the product held at one time or another."""
        return len(self._caps)

    def look(self) -> dict[str, Any]:
        """Take one sample; totals only ever grow."""
        tree, stage = self._stage.tree, self._stage
        held = load.read_integers(stage.directory / 'hoard.out')
        moved = load.read_integers(stage.directory / 'sink.out')
        units = sum(load.read_integers(stage.directory / 'hog.out'))
        sample = {
            'at_s': time.monotonic() - self._start_s,
            'cpu_s': tree.cpu_s(''),
            'foreground_cpu_s': tree.cpu_s('/foreground'),
            'background_cpu_s': tree.cpu_s('/background'),
            'cpu_set': len(tree.cpus(stage_.CPU)),
            'cpu_idle': tree.cpu_idle('/background'),
            'memory_bytes': tree.memory_bytes(''),
            'foreground_bytes': tree.memory_bytes('/foreground'),
            'background_bytes': tree.memory_bytes('/background'),
            'limit_bytes': tree.memory_limit_bytes(stage_.MEMORY),
            'work_cpu_s': (units * load.UNIT_ITERATIONS
                           / self._iterations_per_ms / 1000),
            'work_memory_gib_s': held[0] / 1024 / 1000 if held else 0.0,
            'work_network_bytes': moved[1] if moved else 0,
            'foreground_tx_bytes': moved[0] if moved else 0,
            **self._product()}
        self.samples.append(sample)
        return sample

    def _product(self) -> dict[str, Any]:
        if self._status is None:
            return {}
        if self._status.look():
            facts = self._status.facts()
            memory = facts.get('memory') or {}
            link = (facts.get('network') or {}).get(
                self._stage.uplink.link) or {}
            egress = [cap.get('value') for cap in self._status.caps()
                      if cap.get('knob') == 'egress_bytes_per_s']
            self._facts = {
                'memory_upper_bytes': memory.get('upper'),
                'memory_violations': memory.get('violations'),
                'learning': memory.get('learning'),
                'link_upper_bytes_per_s': link.get('upper'),
                'egress_cap_bytes_per_s': egress[0] if egress else None,
                'caps': len(self._status.caps()),
                'kills': self._status.counter('kills'),
                'refusals': self._status.counter('refusals')}
            self._caps.update((str(cap.get('workload')),
                               str(cap.get('knob')))
                              for cap in self._status.caps())
        return self._facts
