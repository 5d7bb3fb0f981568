# SPDX-License-Identifier: Apache-2.0

"""A whole profile: what it needs on the host, each SoI, the document."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
import contextlib
import functools
import os

from scavenger_openstack import amounts
from scavenger_openstack import errors
from scavenger_openstack.ibench import arguments
from scavenger_openstack.ibench.catalogue import Kind
from scavenger_openstack.ibench.catalogue import Soi
from scavenger_openstack.ibench import consent
from scavenger_openstack.ibench import geometry
from scavenger_openstack.ibench.host import scratch
from scavenger_openstack.ibench.host import session
from scavenger_openstack.ibench.interrupt import Interrupt
from scavenger_openstack.ibench.profile import document
from scavenger_openstack.ibench.profile import injection
from scavenger_openstack.ibench.profile import load
from scavenger_openstack.ibench.profile import measure
from scavenger_openstack.ibench.profile import signals
from scavenger_openstack.ibench.profile.wish import choose_cpus
from scavenger_openstack.ibench.profile.wish import choose_qos
from scavenger_openstack.ibench.profile.wish import SHORT_S
from scavenger_openstack.ibench.profile.wish import Wish
from scavenger_openstack.ibench.profile.work import Probe
from scavenger_openstack.ibench.profile.work import Work
from scavenger_openstack.ibench.profile import workload as profiled_workload
from scavenger_openstack.ibench.profile.workload import Unfit
from scavenger_openstack.ibench.progress import Progress
from scavenger_openstack.ibench import report
from scavenger_openstack.ibench import run
from scavenger_openstack.types import format_cpus

MEMORY_BYTES = 1 << 30
STORAGE_BYTES = 64 << 20
"""What 100 % of memory and of storage is of, where no size is given: all of a
host takes long to fill, and disturbs whatever runs there."""
BETWEEN_CPUS = ('memory_', 'storage_', 'network_', 'llc_')
"""Resources that CPUs share."""
TURN_S = 1.0
CALIBRATIONS = 3
"""Of so many the fastest counts."""
MOST_ALONE = 3
"""Turns of an SoI without the workload: their median counts."""
START_S = 0.15
"""What a turn takes besides its time."""
LONGEST_REASON = 200


def make_profile(wish: Wish, interrupt: Interrupt,
                 show: Callable[[str], None] = print
                 ) -> tuple[report.Document, list[str]]:
    """Return the document of a profile, and notes for the operator.

    :param show: called with sentences about what follows
    :raises ConfigError: it cannot be on this host, or of this workload, or
        is not agreed to.
    :raises DriverError: what was made for it cannot be removed.
    :raises Interrupted: a signal came.
    """
    qos = choose_qos(wish)
    workload = (profiled_workload.of_cgroup(wish.cgroup)
                if wish.cgroup is not None
                else profiled_workload.of_instance(wish.instance)
                if wish.instance is not None else None)
    cpus = choose_cpus(wish, workload)
    with contextlib.ExitStack() as stack:
        host, notes = stack.enter_context(session.opened(
            interrupt=interrupt, parent=wish.parent, alone=True,
            favour=wish.command is not None))
        path = wish.path
        if path is None and any(soi.name.startswith('storage_')
                                for soi in wish.sois):
            path = str(stack.enter_context(scratch.made()))
        chosen = arguments.Surroundings(
            geometry=geometry.read_geometry(cpus.core[0], wish.geometry),
            memory=geometry.read_memory(
                wish.parent if os.geteuid() == 0 else None),
            cpus=cpus.core, path=path, address=wish.address, seed=wish.seed)
        work = Work(
            wish, host, cpus, chosen, qos, SHORT_S if wish.short
            else wish.seconds or TURN_S, show)
        work.notes += [*notes, *chosen.geometry.notes]
        _plan_probes(work)
        for probe in work.probes.values():      # each runs alone
            consent.check_room([(probe.start, measure.FULL)], chosen,
                               yes=wish.yes)
        _show_time(work)
        bar = Progress(len(work.probes))
        work.step = bar.show
        try:
            own_load = bool(wish.command or wish.meter)
            for soi, probe in work.probes.items():
                _measure_alone(work, soi, probe, own_load=own_load)
            signal = load.start_load(stack, work, workload)
            scale = _measure(work, signal, bar)
        finally:
            bar.end()
    return document.of_work(work, scale, signal), work.notes


def _plan_probes(work: Work) -> None:
    """Plan each SoI that can be here."""
    for soi in work.wish.sois:
        cpus = (work.cpus.beside if soi.name.startswith(BETWEEN_CPUS)
                else work.cpus.core)
        if soi.name == 'interconnect':
            cpus = tuple(dict.fromkeys((*cpus, *work.cpus.beside,
                                        *sorted(os.sched_getaffinity(0)))))
            cpus = cpus[:max(2, len(work.cpus.core))]
        try:
            if soi.name == 'network_bandwidth' and not work.wish.address:
                raise errors.ConfigError(
                    'the link of the workload is not known: name with '
                    '--address where "scavenger-ibench serve" runs behind it')
            work.probes[soi] = Probe(arguments.plan_start(
                soi, work.chosen._replace(
                    cpus=cpus, size_bytes=_size_of(work, soi),
                    # The kernels of capacities have one thread.
                    threads=None if soi.kind == Kind.CAPACITY
                    else len(cpus))),
                is_apart=not {*cpus} & {*work.cpus.workload})
        except errors.ConfigError as exc:
            work.missing[soi.name] = _reason(exc)


def _size_of(work: Work, soi: Soi) -> int | None:
    """Return the quantity of which 100 % is."""
    if soi.name == 'memory_capacity':
        return work.wish.size_bytes or min(MEMORY_BYTES, int(
            consent.SHARE * work.chosen.memory.available_bytes))
    if soi.name.startswith('storage_'):
        return work.wish.size_bytes or STORAGE_BYTES
    return None


def _show_time(work: Work) -> None:
    """Show how long a profile takes when no SoI breaks the QoS, and when all
    do."""
    turn_s = work.seconds + START_S
    alone_s = run.CALIBRATE_S * CALIBRATIONS
    if work.wish.command or work.wish.meter:
        alone_s += min(MOST_ALONE, work.wish.repeats) * turn_s
    sois = len(work.probes)
    least_s, most_s = (
        sois * (alone_s + turns * turn_s) for turns in measure.most_turns(
            work.wish.repeats, ramp=not work.wish.short))
    work.show(
        f'{amounts.counted(sois, "SoI")}, those of the core on the CPUs '
        f'{format_cpus(work.cpus.core)}, others on '
        f'{format_cpus(work.cpus.beside)}, turns of {work.seconds:.3g} s: '
        f'about {amounts.of_duration(least_s)}, '
        f'{amounts.of_duration(most_s)} where each of them breaks the QoS')


def _measure_alone(work: Work, soi: Soi, probe: Probe, *,
                   own_load: bool) -> None:
    """Measure an SoI alone: what a profile starts does not run yet.

    A workload that runs already is not stopped: of its time that counts in
    which it left the CPU to the kernel.
    """
    work.step(f'{soi.name} alone')
    wish = work.wish
    try:
        calibrated = run.calibrate(
            work.host, probe.start,
            seconds=SHORT_S if wish.short else run.CALIBRATE_S,
            times=1 if wish.short else CALIBRATIONS)
        probe.chunk_s = calibrated['chunk_s']
        if own_load:
            injector = _injector(work, probe, signals.Elapsed())
            rates = [injector.take(measure.FULL).rate for _
                     in range(min(MOST_ALONE, wish.repeats))]
            probe.alone = [rate for rate in rates if rate]
        elif soi.name not in ('memory_capacity', 'storage_capacity'):
            # These are calibrated over less than they hold at 100 %.
            probe.alone = [calibrated['operations_per_s']]
    except (errors.ConfigError, errors.DriverError) as exc:
        work.missing[soi.name] = _reason(exc)


def _measure(work: Work, signal: signals.Signal, bar: Progress
             ) -> measure.Scale:
    """Measure each SoI beside the workload."""
    wish = work.wish
    bar.skip_to(0)

    def take(injector: injection.Injector | None, name: str,
             percent: float | None) -> measure.Reading:
        work.step(f'{name} {percent:g} %' if percent is not None
                  else f'{name}: the workload alone')
        if injector is None:
            return measure.Reading(injection.alone(work.host, signal,
                                                   work.seconds))
        return injector.take(percent)

    try:
        first = measure.begin(functools.partial(take, None, ''), work.qos)
    except errors.DriverError as exc:
        raise Unfit(str(exc)) from exc
    if wish.seconds is None and not wish.short:
        bar.end()
        _lengthen_turns(work, first)
    for number, (soi, probe) in enumerate(work.probes.items()):
        bar.skip_to(number)
        if soi.name in work.missing:
            continue
        injector = _injector(work, probe, signal)
        try:
            work.measured[soi] = measure.measure_soi(
                functools.partial(take, injector, soi.name), work.qos,
                repeats=wish.repeats, ramp=not wish.short, alone=first)
        except Unfit:
            raise
        except (errors.ConfigError, errors.DriverError) as exc:
            work.missing[soi.name] = _reason(exc)
    if not work.measured:
        raise Unfit('no SoI could be measured: ' + '; '.join(
            f'{name}: {reason}' for name, reason in work.missing.items()))
    return measure.find_scale(work.qos, [first, *(
        measured.alone for measured in work.measured.values())])


def _lengthen_turns(work: Work, alone: Sequence[float]) -> None:
    """Make turns longer where the signal varies alone."""
    noise = measure.find_scale(work.qos, [alone]).noise
    work.seconds *= measure.longer(noise)
    if work.seconds > TURN_S:
        work.show(f'alone, {work.qos.signal} varies (by {noise:.1f} of what '
                  'its bound is away): turns are made longer')
        _show_time(work)


def _injector(work: Work, probe: Probe, signal: signals.Signal
              ) -> injection.Injector:
    return injection.Injector(work.host, probe.start, signal, work.seconds,
                              probe.chunk_s, probe.is_apart)


def _reason(exc: Exception) -> str:
    return ' '.join(str(exc).split())[:LONGEST_REASON]
