# SPDX-License-Identifier: Apache-2.0

"""The VMs of this host, as their operator knows them, and what they use.

The agent writes rows of plain JSON values; what shows them adds the limits
and incidents of the same status (:func:`complete`).
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
import json
from typing import Any

from scavenger_openstack.agent import names
from scavenger_openstack import amounts
from scavenger_openstack.decision import tags
from scavenger_openstack.knobs import KNOBS
from scavenger_openstack import text
from scavenger_openstack.types import Instance
from scavenger_openstack.types import Knob
from scavenger_openstack.types import printable
from scavenger_openstack.types import Rates
from scavenger_openstack.types import THE_HOST
from scavenger_openstack.types import WorkloadRates

EVERY_S = 5.0
"""How often the rows are made again while there are the same VMs."""
COLUMNS = 100
OWN_LIMIT = 'own_limit'
"""The cause of a victim that its own quota holds back."""
USE = ('cpu_cores', 'memory_bytes', 'io_bytes_per_s', 'io_ops_per_s',
       'net_tx_bytes_per_s')


class InstanceRows:
    """The rows of one agent, made now and then."""

    def __init__(self) -> None:
        self._made_s = 0.0
        self._of: Sequence[Instance] = ()
        self._json = b'[]'

    def look(self, now: float, instances: Sequence[Instance],
             rates: Rates | None) -> bytes:
        """The rows in JSON.

        :param now: CLOCK_BOOTTIME in seconds
        :param instances: the same object while nothing of them changes
        """
        if instances is not self._of or now - self._made_s >= EVERY_S:
            self._made_s, self._of = now, instances
            self._json = json.dumps(rows(instances, rates),
                                    separators=(',', ':')).encode()
        return self._json


def rows(instances: Sequence[Instance], rates: Rates | None
         ) -> list[dict[str, Any]]:
    """One for each VM, by its name; of what it uses, what is known."""
    uses = {one.workload.id: one for one in (rates.workloads if rates else ())
            } if instances else {}
    return [{**_tagged(instance, uses.get(instance.uuid))._asdict(),
             **{name: value for name in USE if (value := getattr(
                 uses.get(instance.uuid), name, None)) is not None}}
            for instance in sorted(instances, key=lambda one: one.name)]


def _tagged(one: Instance, use: WorkloadRates | None) -> Instance:
    """The VM with the priority that an operator of the control plane gave."""
    if use is None or use.workload.source != tags.SOURCE:
        return one
    return one._replace(priority=use.workload.priority, source=tags.SOURCE)


def complete(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows of a status, with the ``limits`` in force of each VM, knob ->
    value, and the incidents of which it is the victim, ``suffers``."""
    limits: dict[str, dict[str, Any]] = {}
    for cap in document.get('caps', ()):
        limits.setdefault(cap['workload'], {})[cap['knob']] = cap['value']
    return [{**row, 'limits': limits.get(row['uuid'], {}), 'suffers': [
        one for one in document.get('incidents', ())
        if one['victim'] == row['uuid']]}
        for row in document.get('instances', ())]


def table(document: Mapping[str, Any]) -> list[str]:
    """The lines of a status about VMs, for people."""
    found = complete(document)
    stale = bool(document.get('stale'))
    if not found:
        return []
    heads = text.columns((), [
        (row['name'], text.cut(printable(row['display_name'] or '-'), 24),
         text.cut(printable(row['flavor'] or '-'), 20),
         f'{row["priority"]} ({row["source"]})') for row in found],
        left=range(4))
    known = names.of_status(document)
    lines = ['VMs (instance, name, flavor, priority and where it is from):']
    for head, row in zip(heads, found, strict=True):
        lines.append(f'  {head}')
        for line in (f'{row["uuid"]}  {_limits(row, stale)}', _use(row),
                     *(known.beside(_suffers(one)) for one in row['suffers']),
                     *row['ignored']):
            lines += text.wrap(printable(line), COLUMNS, ' ' * 6, ' ' * 8)
    return lines


def _use(row: Mapping[str, Any]) -> str:
    cores, memory, disk, ops, sends = map(row.get, USE)
    return 'uses ' + ', '.join((
        f'{_known(cores, "{:.2f}")} of {row["vcpus"]} cores',
        ('unknown' if memory is None else f'{memory / 2 ** 20:,.0f}')
        + f' of {amounts.of_bytes(row["memory_allotment_bytes"])}',
        'disk ' + ('unknown' if disk is None else
                   amounts.of_bytes_per_s(disk))
        + (f' ({ops:.0f} operations/s)' if ops is not None else ''),
        'sends ' + ('unknown' if sends is None else
                    amounts.of_bytes_per_s(sends))))


def _known(value: float | None, form: str) -> str:
    return 'unknown' if value is None else form.format(value)


def _limits(row: Mapping[str, Any], stale: bool) -> str:
    found = [KNOBS[Knob(knob)].words.format(amounts.of_knob(Knob(knob), value))
             for knob, value in row['limits'].items()]
    title = 'limits at the last tick' if stale else 'limits'
    return f'{title}: ' + ', '.join(found) if found else 'no limits'


def _suffers(incident: Mapping[str, Any]) -> str:
    by = incident.get('antagonists') or [
        'the host itself' for ground in incident.get('grounds') or ()
        if ground['workload'] == THE_HOST][:1]
    earlier = incident.get('named_earlier')
    value, threshold = (
        'unknown' if number is None else amounts.of_number(number)
        for number in (incident.get('value'), incident.get('threshold')))
    return (f'SUFFERS from {incident["cause"]}: {incident["signal"]} {value}, '
            f'threshold {threshold}; ' + (
                f'nothing disturbs it now; earlier {", ".join(earlier)} did'
                if earlier and not incident.get('antagonists') else
                f'caused by {", ".join(by)}' if by else
                'its own quota is the cause, so nothing is limited for it'
                if incident['cause'] == OWN_LIMIT else
                'no cause is proven, so nothing is limited for it'))
