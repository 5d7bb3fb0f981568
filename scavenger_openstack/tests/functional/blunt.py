# SPDX-License-Identifier: Apache-2.0


"""A detector that names whatever background work uses the CPU.

What shipped detectors need before they name a workload takes time and a CPU to
spare.  This one takes the first tick in which a real cgroup used some CPU, so
that tests can time what comes after.  ``plugin`` makes it an entry point.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import pathlib
from typing import Any

from scavenger_openstack.decision import controller
from scavenger_openstack.types import Decision
from scavenger_openstack.types import Incident
from scavenger_openstack.types import incident_id
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates

NAME = 'blunt'
LEAST_CORES = 0.001
"""Background work that uses less is not named."""


@dataclasses.dataclass(frozen=True)
class Params:
    """It has none."""


class Controller:
    """One incident of the first foreground workload, while there is one."""

    name = NAME
    kind = controller.DETECTOR
    params_type = Params
    at_start: frozenset[str] = frozenset()

    def __init__(self, params: Params, *, interval_s: float, host: str,
                 boot_id: str) -> None:
        self._host, self._boot_id = host, boot_id
        self._since_s: float | None = None

    def tune(self, params: object) -> None:
        """It has none."""

    def compare(self, specs: object, /) -> None:
        """It knows none."""

    def allow(self, budget: object, /) -> None:
        """It limits nothing."""

    def evidence(self, incident: Incident) -> Sequence[Any]:
        return ()

    def step(self, now: float, rates: Rates) -> Decision:
        victims = sorted(one.workload.id for one in rates.workloads
                         if one.workload.priority is Priority.FOREGROUND)
        users = {one.workload.id: one.cpu_cores for one in rates.workloads
                 if one.workload.priority is Priority.BACKGROUND
                 and one.cpu_cores and one.cpu_cores >= LEAST_CORES}
        if not victims or not users:
            self._since_s = None
            return Decision()
        if self._since_s is None:
            self._since_s = now
        return Decision(incidents=(Incident(
            id=incident_id(self._host, self._boot_id, victims[0],
                           'run_delay', self._since_s),
            time_s=self._since_s, host=self._host, victim=victims[0],
            signal='run_delay', value=sum(users.values()),
            threshold=LEAST_CORES, cause='core',
            suspects=tuple((name, 1.0) for name in users),
            antagonists=tuple(users)),))

    def state(self) -> dict[str, Any]:
        return {}

    def load(self, state: Mapping[str, Any], now: float) -> None:
        pass


def plugin(where: pathlib.Path) -> pathlib.Path:
    """A directory for ``PYTHONPATH`` with which it is an entry point.

    :param where: made now
    """
    about = where / 'scavenger_tests-0.dist-info'
    about.mkdir(parents=True)
    (about / 'METADATA').write_text(
        'Metadata-Version: 2.1\nName: scavenger-tests\nVersion: 0\n')
    (about / 'entry_points.txt').write_text(
        f'[scavenger.controllers]\n{NAME} = {__name__}:Controller\n')
    return where
