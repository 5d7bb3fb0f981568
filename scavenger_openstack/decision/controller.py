# SPDX-License-Identifier: Apache-2.0

"""What the core asks of a regulator or detector: all of it, of each."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Protocol
from typing import TypeGuard

from scavenger_openstack.algorithms.allowance import Budget
from scavenger_openstack.algorithms.cpi2.specs import Specs
from scavenger_openstack.types import Decision
from scavenger_openstack.types import Incident
from scavenger_openstack.types import Rates

REGULATOR = 'regulator'
"""``kind`` of a controller that gives idle capacity away."""

DETECTOR = 'detector'
"""``kind`` of a controller that names antagonists, and is a
:class:`Detector`."""

UNUSABLE = (ValueError, LookupError, TypeError, AttributeError,
            ArithmeticError, RecursionError)
"""What :meth:`Controller.load` may raise for a state that is damaged."""


class Tunable(Protocol):
    """Continues with other parameters while it runs, but for those that
    ``at_start`` names: they hold from when it was made."""

    at_start: frozenset[str]

    def tune(self, params: Any) -> None:
        """Continue with these ``Params``; what was learnt stays."""
        ...


class Controller(Tunable, Protocol):
    """A regulator or a detector, as ``kind`` says.

    ``params_type`` is the class of its ``Params``.  What is made is called
    as ``cls(params, interval_s=, host=, boot_id=)``.
    """

    name: str
    kind: str
    params_type: Any

    def step(self, now: float, rates: Rates) -> Decision:
        """All caps that are wanted now."""
        ...

    def state(self) -> dict[str, Any]:
        """What has to outlive the process, as JSON."""
        ...

    def load(self, state: Mapping[str, Any], now: float) -> None:
        """Take up what :meth:`state` said, as far as it is still true.

        It is ``observed`` where limits were not in force, and will be.
        """
        ...


class Detector(Controller, Protocol):
    """Names antagonists; its limits are on these."""

    def compare(self, specs: Specs, /) -> None:
        """Compare workloads with these specs of all hosts."""
        ...

    def allow(self, budget: Budget | None, /) -> None:
        """The new limits that the fleet governor lets this host set."""
        ...

    def evidence(self, incident: Incident) -> Sequence[Any]:
        """The series that an open incident was found in, if it has any."""
        ...


def is_detector(controller: Controller) -> TypeGuard[Detector]:
    return controller.kind == DETECTOR
