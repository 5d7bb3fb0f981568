# SPDX-License-Identifier: Apache-2.0


"""One seed of one scenario under every policy, as plain values."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

from scavenger_openstack.algorithms.perfiso import perfiso
from scavenger_openstack.laboratory import bench
from scavenger_openstack.laboratory import oracle
from scavenger_openstack.laboratory import papers
from scavenger_openstack.laboratory import score as scoring
from scavenger_openstack.simulator.scenario import Drawn
from scavenger_openstack.simulator.scenario import Scenario
from scavenger_openstack.types import Rates

ORACLE = 'oracle'

CONTROLLERS = (*[name for name in bench.POLICIES if name != 'alone'],
               ORACLE)
"""What can be compared.  Being alone is what all are compared with."""

HOUR_S = 3600.0


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """What one worker does in one go.

    :param number: its place among all tasks
    :param hours: instead of the scenario's duration; the plant then turns
        once per interval
    """

    number: int
    scenario: Scenario
    seed: int
    controllers: tuple[str, ...] = CONTROLLERS
    hours: float | None = None

    def drawn(self) -> Drawn:
        drawn = self.scenario.draw(self.seed)
        if self.hours is None:
            return drawn
        return drawn._replace(duration_s=self.hours * HOUR_S,
                              step_s=drawn.interval_s,
                              warmup_step_s=drawn.interval_s)


def record(task: Task) -> dict[str, Any]:
    """Run everything that ``task`` asks for.

    Returns ``scenario``, ``seed``, ``fast`` (whether the fast loop can
    act), ``scores`` (controller -> :class:`~.score.Score` as a mapping) and,
    if asked for, the oracle's ``allocation``.

    :raises ConfigError: this seed draws what cannot be.
    """
    quiet()
    drawn = task.drawn()
    fast = has_fast_loop(drawn)
    ticks: list[Rates] = []
    learns = any(bench.POLICIES[name].paper for name in task.controllers
                 if name != ORACLE)
    alone = bench.run(drawn, bench.POLICIES['alone'],
                      ticks=ticks if learns else None)
    unmanaged = bench.run(drawn, bench.POLICIES['none'])
    scores: dict[str, dict[str, Any]] = {}
    result: dict[str, Any] = {'scenario': task.scenario.name,
                              'seed': task.seed, 'fast': fast,
                              'scores': scores}
    tried: dict[bench.Allocation, scoring.Score] = {}
    for name in task.controllers:
        if name == ORACLE:
            best = oracle.Oracle(drawn, alone=alone,
                                 unmanaged=unmanaged).best(tried)
            scores[name] = best.score._asdict()
            result['allocation'] = best.allocation._asdict()
            continue
        policy = bench.POLICIES[name]
        outcome = unmanaged if name == 'none' else bench.run(
            drawn, policy, detector=papers.paper(
                policy.paper, drawn, ticks) if policy.paper else None)
        score = scoring.score(drawn, outcome, alone=alone,
                              unmanaged=unmanaged)
        scores[name] = score._asdict()
        if policy.allocation is not None:
            tried[policy.allocation] = score
    return result


def has_fast_loop(drawn: Drawn) -> bool:
    """Return whether blind isolation can act: it needs CPUs to keep idle."""
    return perfiso.buffer_cores(perfiso.Params(), drawn.machine.cpus) > 0


def quiet() -> None:
    """The agent's loop logs for an operator; there is none here."""
    logging.getLogger('scavenger_openstack').setLevel(logging.ERROR)
