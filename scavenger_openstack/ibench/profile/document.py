# SPDX-License-Identifier: Apache-2.0

"""The document of a profile, as a table and as a page, too."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import html
import platform
import time

from scavenger_openstack.algorithms.profiles import Estimate
from scavenger_openstack import amounts
from scavenger_openstack.ibench import catalogue
from scavenger_openstack.ibench.profile import curve
from scavenger_openstack.ibench.profile import measure
from scavenger_openstack.ibench.profile import signals
from scavenger_openstack.ibench.profile.work import Work
from scavenger_openstack.ibench import report
from scavenger_openstack.plot import heat
from scavenger_openstack.plot import page as html_page
from scavenger_openstack import text
from scavenger_openstack.wire import profile

SHOWN_BY_WAITS = ('integer', 'floating_point', 'vector')
"""SoIs whose harm is all in waits for CPUs, where no other thread shares the
core; that of the others takes instructions or a --qos to be seen."""

TITLES = ('SoI', 'name', 'tolerated', 'caused', 'not measured because')


def of_work(work: Work, scale: measure.Scale, signal: signals.Signal
            ) -> report.Document:
    """Return the document of what was measured, and add notes to it.

    It has no kind, target and project: what stores it names them.
    """
    tolerated: dict[str, Estimate] = {}
    caused: dict[str, Estimate] = {}
    is_blind = work.wish.qos is None and isinstance(
        signal, signals.CountedSignal) and not signal.counts_instructions
    unseen = []
    for soi, measured in work.measured.items():
        estimate = measure.tolerated(measured, scale)
        if is_blind and estimate.value == 1 \
                and soi.name not in SHOWN_BY_WAITS:
            unseen.append(soi.name)
        else:
            tolerated[soi.name] = estimate
        alone = work.probes[soi].alone
        if alone and measured.rates:
            caused[soi.name] = curve.caused(alone, measured.rates)
        elif soi.name in unseen:
            work.missing[soi.name] = 'no counter shows its harm here'
    work.notes += _notes(work, scale, unseen)
    return {'source': 'measured',
            'form': 'short' if work.wish.short else 'long',
            'measured_s': round(time.time(), 3), 'host': platform.node(),
            'qos': {'signal': work.qos.signal, 'alone': scale.alone,
                    'bound': scale.bound},
            'tolerated': profile.estimates_as_json(tolerated),
            'caused': profile.estimates_as_json(caused),
            'missing': work.missing}


def _notes(work: Work, scale: measure.Scale, unseen: Sequence[str]
           ) -> Iterator[str]:
    """Yield what an operator has to know of a document.

    :param unseen: SoIs whose harm the signal cannot show
    """
    if unseen:
        yield (
            f'{work.qos.signal} is made of waits for CPUs and disks here, as '
            'no instructions are counted. So it cannot show that these harm '
            f'nothing, and what is tolerated of them is left out: '
            f'{", ".join(unseen)}; name a --qos of a --meter')
    if scale.limit > curve.BOUND:
        yield (
            f'alone, {work.qos.signal} varies by more than its bound is away '
            f'({scale.noise:.1f} times that, as a standard deviation): only '
            'harm above twice the noise counts; give more --seconds')
    if not (work.wish.command or work.wish.meter):
        yield (
            'the workload was not stopped: the rate of a probe alone is that '
            'while it left the CPU to the probe, so "caused" has the '
            'contention for CPUs whole, and that for caches and memory only '
            'as far as the workload pauses')


def lines(document: report.Document, notes: Iterable[str]) -> list[str]:
    """Return the lines for a terminal."""
    return [_qos_line(document),
            *text.columns(TITLES, _rows(document), left=(0, 1, 4)),
            *(f'Note: {note}.' for note in notes)]


def page(document: report.Document, notes: Iterable[str], workload: str
         ) -> str:
    """Return the page.

    :param workload: its name
    """
    return heat.page(workload, document, [
        *(f'<p>{html.escape(line)}.</p>'
          for line in (_qos_line(document), *notes)),
        html_page.table(TITLES, _rows(document))])


def _qos_line(document: report.Document) -> str:
    qos = document['qos']
    return (f'QoS: {qos["signal"]} is {amounts.of_number(qos["alone"])} '
            f'alone and breaks at {amounts.of_number(qos["bound"])}')


def _rows(document: report.Document) -> list[Sequence[str]]:
    rows: list[Sequence[str]] = []
    for soi in catalogue.SOIS:
        estimates = [heat.estimate(document[part].get(soi.name))
                     for part in heat.COLUMNS]
        reason = document['missing'].get(soi.name, '')
        if reason or any(estimates):
            rows.append((soi.number, soi.name, *(
                '-' if estimate is None else heat.amount(estimate)
                for estimate in estimates), reason))
    return rows
