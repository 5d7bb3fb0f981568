# SPDX-License-Identifier: Apache-2.0

"""A whole validation: what it needs on the host, each SoI, all pairs."""

from __future__ import annotations

from collections.abc import Sequence
import contextlib
import dataclasses
import itertools
from typing import Any

from scavenger_openstack import errors
from scavenger_openstack.ibench import arguments
from scavenger_openstack.ibench.catalogue import Meter
from scavenger_openstack.ibench.catalogue import Soi
from scavenger_openstack.ibench import consent
from scavenger_openstack.ibench import geometry
from scavenger_openstack.ibench.host import scratch
from scavenger_openstack.ibench.host import session
from scavenger_openstack.ibench.progress import Progress
from scavenger_openstack.ibench import report
from scavenger_openstack.ibench import run
from scavenger_openstack.ibench.validation import measure

SIZE_BYTES = 256 << 20
"""What 100 % of memory and of storage is of, where no size is given: filling
all of a host would disturb what else runs there."""
PAIR_PERCENT = 40.0
"""Of each of two: together less than a core, which they share in turn."""


def validate_all(host: run.Host, chosen: arguments.Surroundings,
                 sois: Sequence[Soi], *, seconds: float, repeats: int,
                 pairs: bool, yes: bool) -> report.Document:
    """Validate SoIs, and each pair of them on one core.

    :param seconds: that each measurement takes
    :raises ConfigError: it cannot be on this host, or is not agreed to.
    :raises DriverError: what was made for it cannot be removed.
    :raises Interrupted: a signal came.
    """
    chosen = chosen._replace(size_bytes=chosen.size_bytes or SIZE_BYTES)
    with contextlib.ExitStack() as stack:
        bench = _make_bench(stack, host, chosen, sois, seconds=seconds,
                            repeats=repeats)
        starts = []
        for soi in sois:
            with contextlib.suppress(errors.ConfigError):
                starts.append((bench.plan(soi), 100.0))
        consent.check_room(starts, bench.chosen, yes=yes)
        couples = list(itertools.combinations(sois, 2)) if pairs else []
        bar = Progress(
            len(sois) * (len(measure.LEVELS) * repeats + 1) + len(couples))
        bench = dataclasses.replace(bench, step=bar.show_step)
        try:
            rows = [measure.validate_soi(bench, soi) for soi in sois]
            reached = _measure_pairs(bench, couples)
        finally:
            bar.end()
    return {'command': 'validate', 'sois': [report.of_row(row)
                                            for row in rows],
            'pairs': reached, 'pair_percent': PAIR_PERCENT,
            'seconds': seconds, 'repeats': repeats,
            'cpu': chosen.cpus[0], 'notes': list(chosen.geometry.notes)}


def _make_bench(stack: contextlib.ExitStack, host: run.Host,
                chosen: arguments.Surroundings, sois: Sequence[Soi], *,
                seconds: float, repeats: int) -> measure.Bench:
    """Make scratch and link where an SoI needs them."""
    meters = {soi.meter for soi in sois}
    facts: dict[str, Any] = {}
    if chosen.path is None and meters & {Meter.BLOCKS, Meter.STORAGE}:
        chosen = chosen._replace(path=str(stack.enter_context(
            scratch.made())))
    if Meter.LINK in meters:
        try:
            facts['link_host'], link = stack.enter_context(
                session.linked(host, chosen.cpus))
            facts['link_device'] = link.device
            chosen = chosen._replace(address=link.address)
        except (errors.ConfigError, errors.DriverError) as exc:
            facts['no_link'] = str(exc)
    return measure.Bench(
        host=host, chosen=chosen, seconds=seconds, repeats=repeats,
        probe_cpu=session.other_cpu(chosen.cpus),
        sibling_cpu=geometry.find_sibling(chosen.cpus[0]), **facts)


def _measure_pairs(bench: measure.Bench,
                   couples: Sequence[tuple[Soi, Soi]]
                   ) -> list[dict[str, Any]]:
    """What the two of each pair reach; a pair that cannot be is left out,
    for the reason that the row of its SoI has."""
    reached = []
    alone: dict[str, float] = {}
    for first, second in couples:
        bench.step(f'{first.name} beside {second.name}')
        with contextlib.suppress(errors.ConfigError):
            shares = measure.reached(bench, first, second, PAIR_PERCENT,
                                      alone)
            reached.append({'first': first.name, 'second': second.name,
                            'first_reached': shares[0],
                            'second_reached': shares[1]})
    return reached
