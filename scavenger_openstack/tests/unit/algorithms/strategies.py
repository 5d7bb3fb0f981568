# SPDX-License-Identifier: Apache-2.0


"""What the property tests draw: numbers, workloads, hosts, curves, CPUs.

*Weird* numbers are what a broken counter or a damaged file could say.
Finite ones stay below 1e300: what is made of 64-bit counters cannot even
come near to that.

To make a strategy costs more than to draw from it: those that are always
the same are made once, and parts of a curve are drawn by plain functions.
"""

from __future__ import annotations

from collections.abc import Mapping
import math
from typing import Any
from typing import NamedTuple

from hypothesis import strategies as st

from scavenger_openstack.algorithms.scavenger.params import RESERVE_RULES
from scavenger_openstack.algorithms.scavenger.scavenger import Params
from scavenger_openstack.types import Cpu
from scavenger_openstack.types import Decision
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates
from scavenger_openstack.types import WorkloadSample

MIB = 2 ** 20
TOTAL = 10000 * MIB
LINK = 1_000_000.0
MEMORY = Knob.MEMORY_BYTES
EGRESS = Knob.EGRESS_BYTES_PER_S
CORES = Knob.CPU_CORES
SMALL = Params(memory_window_s=4.0, network_window_s=3.0, ipc_window_s=3.0,
               memory_peak_s=8.0, network_peak_s=6.0, network_wait_s=0.0)
"""Windows of 4 and 3 samples, at one per second."""

FLAT = {cpu: Cpu(cpu, 0, 0) for cpu in range(4)}

WEIRD = (None, math.nan, math.inf, -math.inf, -1.0, -1e300, 0, 0.0, 5e-324,
         2 ** 64, 1e300)


def weird(usual: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """The usual numbers, and what is none."""
    return st.one_of(usual, st.sampled_from(WEIRD))


def amounts(largest: float) -> st.SearchStrategy[float]:
    """Numbers from 0 to ``largest``, often equal ones."""
    return st.one_of(
        st.integers(0, 8).map(lambda eighth: largest * eighth / 8),
        st.floats(0.0, largest, allow_subnormal=False))


params = st.builds(
    Params,
    reserve_rule=st.sampled_from(RESERVE_RULES),
    memory_peak_s=st.sampled_from((2.0, 5.0, 9.0)),
    network_peak_s=st.sampled_from((2.0, 3.0, 7.0)),
    memory_c=amounts(6.0), network_c=amounts(6.0), ipc_c=amounts(6.0),
    memory_window_s=st.sampled_from((2.0, 4.0, 5.0)),
    network_window_s=st.sampled_from((2.0, 3.0, 5.0)),
    network_wait_s=st.sampled_from((0.0, 0.0005, 0.01)),
    ipc_window_s=st.sampled_from((2.0, 3.0, 5.0)),
    ipc_quota_increase_cores=st.floats(0.01, 2.0),
    ipc_quota_decrease_factor=st.floats(1.01, 8.0),
    min_headroom=amounts(0.2), ipc_strict=st.booleans(),
    blind_ticks=st.integers(0, 4))
"""Everything that can be tuned, but with windows of a few samples."""


class Look(NamedTuple):
    """What one tick of a curve sees; ``None`` where there is no signal."""

    foreground_bytes: int | None
    foreground_sent: float | None
    uses: tuple[WorkloadRates, ...]

    def rates(self, **rest: Any) -> Rates:
        """A host that looks like this."""
        background = [one for one in self.uses
                      if one.workload.priority is Priority.BACKGROUND]
        used = sum(one.memory_bytes or 0 for one in background)
        values: dict[str, Any] = {
            'topology': FLAT, 'memory_total_bytes': TOTAL,
            'memory_available_bytes':
                None if self.foreground_bytes is None
                else TOTAL - self.foreground_bytes - used,
            'links': {'eth0': LINK},
            'link_tx_bytes_per_s': {
                'eth0': None if self.foreground_sent is None
                else self.foreground_sent + sum(
                    one.net_tx_bytes_per_s or 0 for one in background
                    if one.workload.interfaces)},
            'link_of': {'v0': 'eth0', 'v1': 'eth0', 'v2': 'eth0'}}
        values.update(rest)
        return Rates(0.0, 1.0, self.uses, **values)


BOOLEANS = st.booleans()
FLOORS = {MEMORY: st.integers(0, 600 * MIB).map(float),
          EGRESS: st.integers(0, 90_000).map(float),
          CORES: st.floats(0.0, 0.5)}
VCPUS = st.sampled_from((0.5, 1.0, 1.0, 3.0, 16.0))
GROUPS = st.sampled_from(('', '/group'))
ALLOTMENTS = st.sampled_from((None, 500.0 * MIB, 3000.0 * MIB))


def workloads(draw: st.DrawFn, priority: Priority, most: int = 3,
              ) -> list[Workload]:
    """Draw up to ``most`` workloads; the background's floors are whole
    bytes, and it has no memory limit of its own."""
    found = []
    for place in range(draw(st.integers(0 if most > 1 else 1, most))):
        floor: dict[Knob, float] = {}
        if draw(BOOLEANS):
            floor = {knob: draw(values) for knob, values in FLOORS.items()}
        found.append(Workload(
            f'/{priority}/{place}', priority, floor=floor,
            vcpus=draw(VCPUS), group=draw(GROUPS),
            interfaces=(f'v{place}',) if draw(BOOLEANS) else (),
            memory_allotment_bytes=None if priority is Priority.BACKGROUND
            else draw(ALLOTMENTS)))
    return found


USED_BYTES = st.integers(0, 400 * MIB)
USED_SENT = amounts(60_000.0)
USED_CORES = st.sampled_from((0.0, 0.2, 1.0, 2.0))
CPIS = st.sampled_from((None, 0.5, 0.5, 0.5, 0.505, 0.52, 2.0))


def uses(draw: st.DrawFn, workload: Workload) -> WorkloadRates:
    """Draw what a workload may use; a few fit on the host together."""
    return WorkloadRates(
        workload, 1.0, memory_bytes=draw(USED_BYTES),
        net_tx_bytes_per_s=draw(USED_SENT), cpu_cores=draw(USED_CORES),
        cpi=draw(CPIS))


PRESENT = st.integers(0, 7)
FOREGROUND_BYTES = st.one_of(
    st.integers(0, 8500 * MIB), st.just(3000 * MIB), st.just(3100 * MIB))
FOREGROUND_SENT = amounts(0.8 * LINK)
GAPS = st.integers(0, 15)


@st.composite
def looks(draw: st.DrawFn, background: list[Workload],
          foreground: list[Workload], gaps: bool = False) -> Look:
    """One tick: some workloads are there, some are not."""
    seen = [uses(draw, one) for one in background + foreground
            if draw(PRESENT)]
    memory: int | None = draw(FOREGROUND_BYTES)
    sent: float | None = draw(FOREGROUND_SENT)
    if gaps:
        blind = draw(GAPS)
        memory = None if blind in (1, 3) else memory
        sent = None if blind in (2, 3) else sent
        if blind == 4 and seen:
            seen[0] = seen[0]._replace(memory_bytes=None,
                                       net_tx_bytes_per_s=None)
    return Look(memory, sent, tuple(seen))


@st.composite
def curves(draw: st.DrawFn, gaps: bool = False) -> list[Look]:
    """What happens on one host, tick by tick.

    With ``gaps`` signals are missing now and then.
    """
    background = workloads(draw, Priority.BACKGROUND)
    foreground = workloads(draw, Priority.FOREGROUND, 2)
    return draw(st.lists(looks(background, foreground, gaps),
                         min_size=5, max_size=14))


ANY = weird(amounts(1e10))
ANY_VCPUS = ANY.filter(lambda value: value is not None)
NAMES = st.lists(st.sampled_from('abcd'), max_size=4)
PRIORITIES = st.sampled_from(Priority)
INTERFACES = st.sampled_from(('', 'v', 'none'))
ALLOWED = st.sampled_from(
    (None, frozenset(), frozenset((0, 1)), frozenset((9,))))
TOPOLOGIES: st.SearchStrategy[dict[int, Cpu]] = st.sampled_from(({}, FLAT))
ANY_LINKS = st.dictionaries(st.sampled_from(('eth0', 'eth1')), ANY)


@st.composite
def weird_rates(draw: st.DrawFn) -> Rates:
    """A host of which any number may be weird."""
    found = []
    for name in draw(NAMES):
        workload = Workload(
            f'/{name}', draw(PRIORITIES), vcpus=draw(ANY_VCPUS),
            interfaces={'': (), 'v': (f'v{name}',), 'none': ('none',)}[
                draw(INTERFACES)],
            memory_allotment_bytes=draw(ANY), allowed_cpus=draw(ALLOWED))
        found.append(WorkloadRates(
            workload, *(draw(ANY) for _ in WorkloadRates._fields[1:])))
    return Rates(
        draw(ANY), draw(ANY), tuple(found), topology=draw(TOPOLOGIES),
        memory_total_bytes=draw(ANY), memory_available_bytes=draw(ANY),
        links={'eth0': draw(ANY)}, link_tx_bytes_per_s=draw(ANY_LINKS),
        link_of={'va': 'eth0', 'vb': 'eth1', 'vc': 'eth0'},
        memory_free_bytes=draw(ANY), refault_bytes_per_s=draw(ANY),
        memory_limit_ends=draw(st.booleans()))


@st.composite
def topologies(draw: st.DrawFn) -> dict[int, Cpu]:
    """Sockets, caches, cores and threads, numbered in either usual way."""
    nodes = draw(st.integers(1, 2))
    caches = draw(st.integers(1, 2))
    cores = draw(st.integers(1, 3))
    threads = draw(st.integers(1, 2))
    places = [Cpu(core, core // cores, core // cores // caches)
              for core in range(nodes * caches * cores)]
    if draw(st.booleans()):
        return dict(enumerate(places * threads))
    return dict(enumerate(
        place for place in places for _ in range(threads)))


def subsets(cpus: Mapping[int, Any], least: int = 0,
            ) -> st.SearchStrategy[frozenset[int]]:
    """Some of these CPUs, at least so many."""
    return st.frozensets(st.sampled_from(sorted(cpus)), min_size=least)


def caps(decision: Decision, knob: Knob) -> dict[str, float]:
    """Workload -> value of one knob; each may be there once."""
    found = [(cap.workload, float(cap.value)) for cap in decision.caps
             if cap.knob is knob]
    assert len(dict(found)) == len(found), found
    return dict(found)


def example_look() -> Rates:
    """One background and one foreground workload that do the same all the
    time, with every signal there."""
    return Look(3000 * MIB, 0.3 * LINK, (
        WorkloadRates(Workload('/batch/a', Priority.BACKGROUND,
                               interfaces=('v0',)), 1.0, cpu_cores=1.0,
                      net_tx_bytes_per_s=1000.0, memory_bytes=100 * MIB),
        WorkloadRates(Workload('vm', Priority.FOREGROUND), 1.0,
                      cpu_cores=1.0, cpi=0.5))).rates()


COUNTERS = tuple(name for name in WorkloadSample._fields if name not in (
    'workload', 'memory_bytes', 'page_cache_bytes', 'caps_in_force'))


@st.composite
def samples(draw: st.DrawFn, workload: Workload,
            number: st.SearchStrategy[Any]) -> WorkloadSample:
    """Counters of a workload; each may be anything that ``number`` is."""
    return WorkloadSample(workload, **{name: draw(number)
                                       for name in COUNTERS})
