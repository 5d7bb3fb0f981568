# SPDX-License-Identifier: Apache-2.0


"""Contention signals: numbers that rise when a workload is disturbed.

Each has a value, unknown where the workload does too little; a use, by which
a suspect may cause it; and the knob that takes that use away.  Source: DESIGN
2, 7.11; CPI2, section 4.1; PerfCloud, III-A and III-B.
"""

from __future__ import annotations

from collections.abc import Callable
import math
from typing import NamedTuple

from scavenger_openstack.types import Knob
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates

MIN_CORES = 0.25
"""CPU use in cores below which cpi and run_delay are not looked at: CPI2,
section 4.1 and table 2."""

MIN_OPS_PER_S = 5.0
"""Operations per second below which io_wait is not looked at: DESIGN 7.11."""

OBEYED = 1.3
"""A workload that uses more than so many times its limit is not held by it:
the detector observes, or the write failed.  Such a limit proves nothing; not
in a paper."""

LEAST_WAIT_S = 1e-5
"""The least io_wait that others are compared with: less is noise of the clock,
and of 0 there are no shares.  Not in a paper."""


class Signal(NamedTuple):
    """One contention signal.

    ``use`` is that of a suspect, and ``knob`` takes it away, for cpi2 and
    perfcloud; ``attribution`` has uses of its own.
    ``field`` of the rates is what the value comes from: while that is
    ``None``, the signal is ``None``.
    """

    name: str
    field: str
    value: Callable[[WorkloadRates], float | None]
    use: Callable[[WorkloadRates], float | None]
    knob: Knob


def number(value: float | None) -> float | None:
    """The value if it is one that can be reckoned with: finite, >= 0."""
    return value if value is not None and 0 <= value < math.inf else None


def _runs(rates: WorkloadRates) -> bool:
    cores = number(rates.cpu_cores)
    return cores is not None and cores >= MIN_CORES


def cpi(rates: WorkloadRates) -> float | None:
    """Cycles per instruction, ``None`` below 0.25 cores."""
    return number(rates.cpi) if _runs(rates) else None


def run_delay(rates: WorkloadRates) -> float | None:
    """Seconds waited per second run, ``None`` below 0.25 cores."""
    return number(rates.run_delay) if _runs(rates) else None


def io_wait(rates: WorkloadRates) -> float | None:
    """Seconds per disk operation, ``None`` below 5 operations per second.

    Where the number of operations is not known the gate is open.
    """
    ops = rates.io_ops_per_s
    if ops is not None and not ops >= MIN_OPS_PER_S:
        return None
    return number(rates.io_wait_s_per_op)


def cores(rates: WorkloadRates) -> float | None:
    return number(rates.cpu_cores)


def llc_misses(rates: WorkloadRates) -> float | None:
    return number(rates.llc_misses_per_s)


def io_bytes(rates: WorkloadRates) -> float | None:
    return number(rates.io_bytes_per_s)


def disk_limits(workload: Workload) -> int:
    """How many times the number of a limit on its disks it may use: that of a
    VM is a total, that of a container counts each direction and each device.
    """
    return 1 if workload.instance else 2 * max(1, len(workload.disks))


CPI = Signal('cpi', 'cpi', cpi, cores, Knob.CPU_CORES)
RUN_DELAY = Signal('run_delay', 'run_delay', run_delay, cores, Knob.CPU_CORES)
IO_WAIT = Signal('io_wait', 'io_wait_s_per_op', io_wait, io_bytes,
                 Knob.IO_BYTES_PER_S)
SIGNALS = {signal.name: signal for signal in (CPI, RUN_DELAY, IO_WAIT)}
"""By name.  "Adding a signal" in the documentation has the other places that
know signals by name."""

LINK_USE = 'link_use'
"""Used share of the link over which a workload sends: a signal of which only
direct evidence tells what causes it."""

LINK_FULL = 0.8
"""Used share of a link, over a second or more, from which what is sent waits:
within such a second there are times in which all of it is used.  Not in a
paper."""

LEAST_SENT_BYTES_PER_S = 1000.0
"""What sends less does not suffer from a full link.  Not in a paper."""

MEMORY_WAIT = 'memory_wait'
"""Share of the time in which some thread of a workload waits for memory: as
:data:`LINK_USE`, and known only while that is asked."""

KNOB_TO_LIMIT = {name: signal.knob for name, signal in SIGNALS.items()
                 } | {LINK_USE: Knob.EGRESS_BYTES_PER_S}
"""Contention signal of a victim -> the knob of its antagonist to limit."""
