# SPDX-License-Identifier: Apache-2.0

"""A profile that is being made."""

from __future__ import annotations

from collections.abc import Callable
import dataclasses

from scavenger_openstack.ibench import arguments
from scavenger_openstack.ibench.catalogue import Soi
from scavenger_openstack.ibench.profile import measure
from scavenger_openstack.ibench.profile import qos as qos_
from scavenger_openstack.ibench.profile import wish as wish_
from scavenger_openstack.ibench import run


@dataclasses.dataclass
class Probe:
    """An SoI that can be here.

    :ivar chunk_s: of its kernel alone
    :ivar alone: its rates without the workload, or while that left the CPU
    """

    start: arguments.Start
    chunk_s: float = 0.0
    alone: list[float] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Work:
    """A profile that is being made.

    :ivar seconds: the least length of a turn
    :ivar step: shows what is measured
    :ivar missing: why an SoI is in neither part, by its name
    """

    wish: wish_.Wish
    host: run.Host
    cpus: wish_.Cpus
    chosen: arguments.Surroundings
    qos: qos_.Qos
    seconds: float
    show: Callable[[str], None]
    step: Callable[[str], None] = print
    probes: dict[Soi, Probe] = dataclasses.field(default_factory=dict)
    missing: dict[str, str] = dataclasses.field(default_factory=dict)
    notes: list[str] = dataclasses.field(default_factory=list)
    measured: dict[Soi, measure.Measured] = dataclasses.field(
        default_factory=dict)
