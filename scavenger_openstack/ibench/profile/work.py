# SPDX-License-Identifier: Apache-2.0

"""A profile that is being made."""

from __future__ import annotations

from collections.abc import Callable
import dataclasses

from scavenger_openstack.ibench import arguments
from scavenger_openstack.ibench.catalogue import Soi
from scavenger_openstack.ibench.profile import measure
from scavenger_openstack.ibench.profile.qos import Qos
from scavenger_openstack.ibench.profile.wish import Cpus
from scavenger_openstack.ibench.profile.wish import Wish
from scavenger_openstack.ibench import run


@dataclasses.dataclass
class Probe:
    """An SoI that can be here.

    :ivar is_apart: its kernel has CPUs that the workload does not use
    :ivar chunk_s: of its kernel alone
    :ivar alone: its rates without the workload, or while that left the CPU
    """

    start: arguments.Start
    is_apart: bool
    chunk_s: float = 0.0
    alone: list[float] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Work:
    """A profile that is being made.

    :ivar seconds: the least length of a turn
    :ivar step: shows what is measured
    :ivar missing: why an SoI is in neither part, by its name
    """

    wish: Wish
    host: run.Host
    cpus: Cpus
    chosen: arguments.Surroundings
    qos: Qos
    seconds: float
    show: Callable[[str], None]
    step: Callable[[str], None] = print
    probes: dict[Soi, Probe] = dataclasses.field(default_factory=dict)
    missing: dict[str, str] = dataclasses.field(default_factory=dict)
    notes: list[str] = dataclasses.field(default_factory=list)
    measured: dict[Soi, measure.Measured] = dataclasses.field(
        default_factory=dict)
