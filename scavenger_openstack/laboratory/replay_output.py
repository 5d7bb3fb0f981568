# SPDX-License-Identifier: Apache-2.0



"""What a replay decided, as lines for programs and for people.

The JSON form is a public interface; its page in the documentation is
``recordings``.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

from scavenger_openstack import amounts
from scavenger_openstack.decision.changes import IncidentChange
from scavenger_openstack.grounds import Ground
from scavenger_openstack.grounds import MOST
from scavenger_openstack.laboratory.replay import Step
from scavenger_openstack import text
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Mode
from scavenger_openstack.types import printable
from scavenger_openstack.types import Value
from scavenger_openstack.wire.json_fields import as_json

KNOB_WIDTH = max(map(len, Knob))
VALUE_WIDTH = 14


def documents(step: Step) -> Iterator[dict[str, Any]]:
    """A JSON object for each incident and each cap that changed."""
    facts, rates = _numbers(step)
    for change in step.changed.incidents:
        yield _incident(step, change, facts)
    wanted, would = step.before
    for key, cap in step.changed.wanted.items():
        yield _cap(step, Mode.ENFORCE, cap, cap or wanted[key], facts, rates)
    for name, cap in step.changed.would.items():
        yield _cap(step, Mode.OBSERVE, cap, cap or would[name], facts, rates)


def _numbers(step: Step) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Facts by controller, rates by workload."""
    if step.decided is None:
        return {}, {}
    return ({name: decision.facts
             for name, decision in step.decided.decisions.items()},
            {rated.workload.id: rated
             for rated in step.decided.rates.workloads})


def _cap(step: Step, mode: Mode, cap: Cap | None, named: Cap,
         facts: Mapping[str, Any], rates: Mapping[str, Any],
         ) -> dict[str, Any]:
    document: dict[str, Any] = {
        'type': 'cap', 'time_s': step.time_s, 'host': step.host,
        'controller': named.owner, 'mode': mode, 'workload': named.workload,
        'knob': named.knob, 'value': cap.value if cap else None,
        'reason': cap.reason if cap else
        f'no longer wanted (was {_number(named.value)})'}
    if named.workload in rates:
        document['rates'] = as_json(rates[named.workload])
        document['rates'].pop('workload', None)
    document['facts'] = {name: facts[name] for name in named.owner.split('+')
                         if name in facts}
    return document


def _incident(step: Step, change: IncidentChange, facts: Mapping[str, Any],
              ) -> dict[str, Any]:
    incident = change.incident
    return {
        'type': 'incident', 'time_s': step.time_s, 'host': step.host,
        'controller': change.controller, 'id': incident.id,
        'victim': incident.victim,
        'signal': incident.signal, 'value': incident.value,
        'threshold': incident.threshold, 'cause': incident.cause,
        'suspects': [{'workload': workload, 'score': score}
                     for workload, score in incident.suspects],
        'antagonists': list(incident.antagonists),
        'grounds': [as_json(ground) for ground in incident.grounds],
        'action': incident.action,
        'outcome': incident.outcome, 'since_s': incident.time_s,
        'ended': change.ended,
        'facts': {change.controller: facts.get(change.controller, {})}}


class Table:
    """Lines for people, in columns that are wide enough for all so far.

    :param several: there is more than one host, so say which
    """

    def __init__(self, several: bool = False) -> None:
        self._several = several
        self._widths = [12, 0, 9, 8, KNOB_WIDTH, VALUE_WIDTH]
        self._begun = False

    def lines(self, step: Step) -> Iterator[str]:
        rows = [self._row(document) for document in documents(step)]
        if rows and not self._begun:
            self._begun = True
            rows.insert(0, ('TIME_S', 'HOST' if self._several else '',
                            'CONTROLLER', 'WORKLOAD', 'KNOB', 'VALUE',
                            'REASON'))
        for row in rows:
            for column, width in enumerate(self._widths):
                self._widths[column] = max(width, text.width(row[column]))
        for row in rows:
            cells = [text.padded(cell, width, left=column not in (0, 5))
                     for column, (cell, width) in enumerate(
                         zip(row, (*self._widths, 0), strict=True))]
            if not self._several:
                del cells[1]
            yield '  '.join(cells).rstrip()

    def _row(self, document: Mapping[str, Any]) -> tuple[str, ...]:
        time = f'{document["time_s"]:.3f}'
        if document['type'] == 'incident':
            row = (time, document['host'], document['controller'],
                   document['victim'], 'incident', document['signal'],
                   _sentence(document))
        else:
            prefix = ('would: ' if document['mode'] == Mode.OBSERVE else '')
            row = (time, document['host'], document['controller'],
                   document['workload'], document['knob'],
                   _number(document['value']), prefix + document['reason'])
        return tuple(map(printable, row))


def _sentence(document: Mapping[str, Any]) -> str:
    numbers = (f'{_number(document["value"])}, threshold '
               f'{_number(document["threshold"])}')
    suspects = ', '.join(f'{suspect["workload"]} {suspect["score"]:.2f}'
                         for suspect in document['suspects'])
    antagonists = ', '.join(document['antagonists'])
    return '; '.join(part for part in (
        f'{document["cause"]}: {numbers}',
        f'suspects {suspects}' if suspects else '',
        f'antagonists {antagonists}' if antagonists else '',
        document['action'],
        'ended' if document['ended'] else document['outcome'],
        *(amounts.of_ground(Ground(**ground), document['victim'],
                            document['signal'])
          for ground in document['grounds'][:MOST])) if part)


def _number(value: Value | None) -> str:
    if value is None:
        return '-'
    return f'{value:.10g}' if isinstance(value, float) else str(value)
