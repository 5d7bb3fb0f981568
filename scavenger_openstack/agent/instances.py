# SPDX-License-Identifier: Apache-2.0

"""The VMs of this host: their names, flavors, priorities and use.

The agent writes rows of plain JSON values; the commands that print them add
the limits and incidents of the same status (:func:`complete`).
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
"""Time after which the rows of the same VMs are made again."""
COLUMNS = 100
OWN_LIMIT = 'own_limit'
"""The cause of an incident of a VM that reached its own quota."""
USE = ('cpu_cores', 'memory_bytes', 'io_bytes_per_s', 'io_ops_per_s',
       'net_tx_bytes_per_s', 'net_rx_bytes_per_s')


class InstanceRows:
    """The rows of one agent, made every :data:`EVERY_S` or after a change."""

    def __init__(self) -> None:
        self._made_s = 0.0
        self._instances: Sequence[Instance] = ()
        self._json = b'[]'

    def encoded(self, now: float, instances: Sequence[Instance],
                rates: Rates | None) -> bytes:
        """Return the rows in JSON.

        :param now: CLOCK_BOOTTIME in seconds
        :param instances: the same object while nothing of them changes
        """
        if instances is not self._instances or now - self._made_s >= EVERY_S:
            self._made_s, self._instances = now, instances
            self._json = json.dumps(rows(instances, rates),
                                    separators=(',', ':')).encode()
        return self._json


def rows(instances: Sequence[Instance], rates: Rates | None
         ) -> list[dict[str, Any]]:
    """Return a row for each VM, ordered by name, with its use."""
    uses = {rated.workload.id: rated
            for rated in (rates.workloads if rates else ())
            } if instances else {}
    return [{**_tagged(instance, uses.get(instance.uuid))._asdict(),
             **{name: value for name in USE if (value := getattr(
                 uses.get(instance.uuid), name, None)) is not None}}
            for instance in sorted(instances,
                                   key=lambda instance: instance.name)]


def _tagged(instance: Instance, use: WorkloadRates | None) -> Instance:
    """Return the VM with the priority that the control plane has set."""
    if use is None or use.workload.source != tags.SOURCE:
        return instance
    return instance._replace(priority=use.workload.priority,
                             source=tags.SOURCE)


def complete(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a status, with the ``limits`` in force of each VM, by
    knob, and ``suffers``, the incidents of which it is the victim."""
    limits: dict[str, dict[str, Any]] = {}
    for cap in document.get('caps', ()):
        limits.setdefault(cap['workload'], {})[cap['knob']] = cap['value']
    return [{**row, 'limits': limits.get(row['uuid'], {}), 'suffers': [
        incident for incident in document.get('incidents', ())
        if incident['victim'] == row['uuid']]}
        for row in document.get('instances', ())]


def table(document: Mapping[str, Any]) -> list[str]:
    """Return the lines of a status about VMs, for people."""
    rows = complete(document)
    stale = bool(document.get('stale'))
    if not rows:
        return []
    heads = text.columns((), [
        (row['name'], text.cut(printable(row['display_name'] or '-'), 24),
         text.cut(printable(row['flavor'] or '-'), 20),
         f'{row["priority"]} ({row["source"]})') for row in rows],
        left=range(4))
    vm_names = names.of_status(document)
    lines = ['VMs (instance, name, flavor, priority and where it is from):']
    for head, row in zip(heads, rows, strict=True):
        lines.append(f'  {head}')
        for line in (f'{row["uuid"]}  {_limits(row, stale)}', _use(row),
                     *(vm_names.beside(_suffers(incident))
                       for incident in row['suffers']),
                     *row['ignored']):
            lines += text.wrap(printable(line), COLUMNS, ' ' * 6, ' ' * 8)
    return lines


def _use(row: Mapping[str, Any]) -> str:
    cores, memory, disk, ops, sends, receives = map(row.get, USE)
    return 'uses ' + ', '.join((
        f'{_formatted(cores, "{:.2f}")} of {row["vcpus"]} cores',
        ('unknown' if memory is None else f'{memory / 2 ** 20:,.0f}')
        + f' of {amounts.of_bytes(row["memory_allotment_bytes"])}',
        'disk ' + ('unknown' if disk is None else
                   amounts.of_bytes_per_s(disk))
        + (f' ({ops:.0f} operations/s)' if ops is not None else ''),
        *(f'{act} ' + ('unknown' if rate is None else
                       amounts.of_bytes_per_s(rate))
          for act, rate in (('sends', sends), ('receives', receives)))))


def _formatted(value: float | None, form: str) -> str:
    return 'unknown' if value is None else form.format(value)


def _limits(row: Mapping[str, Any], stale: bool) -> str:
    limits = [
        KNOBS[Knob(knob)].words.format(amounts.of_knob(Knob(knob), value))
        for knob, value in row['limits'].items()]
    title = 'limits at the last tick' if stale else 'limits'
    return f'{title}: ' + ', '.join(limits) if limits else 'no limits'


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
