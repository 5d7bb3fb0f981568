# SPDX-License-Identifier: Apache-2.0

"""A profile as a table and as a page."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence
import html

from scavenger_openstack import amounts
from scavenger_openstack.ibench import catalogue
from scavenger_openstack.ibench import report
from scavenger_openstack.plot import heat
from scavenger_openstack.plot import page as page_
from scavenger_openstack import text

TITLES = ('SoI', 'name', 'tolerated', 'caused', 'not measured because')


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
    return page_.page(
        'scavenger-ibench: profile', '', [
            f'<h1>Interference profile of {html.escape(workload)}</h1>',
            f'<p>{html.escape(_qos_line(document))}.</p>',
            *(f'<p>{html.escape(note)}.</p>' for note in notes),
            "<div class='card'>",
            heat.svg(workload, heat.rows(document)), '</div>',
            page_.table(TITLES, _rows(document))])


def _qos_line(document: report.Document) -> str:
    qos = document['qos']
    return (f'QoS: {qos["signal"]} is {amounts.of_number(qos["alone"])} '
            f'alone and breaks at {amounts.of_number(qos["bound"])}')


def _rows(document: report.Document) -> list[Sequence[str]]:
    rows = []
    for soi in catalogue.SOIS:
        estimates = [document[part].get(soi.name)
                     for part in ('tolerated', 'caused')]
        reason = document['missing'].get(soi.name, '')
        if reason or any(estimates):
            rows.append((soi.number, soi.name, *(
                '-' if estimate is None else heat.amount(
                    (estimate['value'], estimate['low'], estimate['high']))
                for estimate in estimates), reason))
    return rows
