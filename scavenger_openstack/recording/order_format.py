# SPDX-License-Identifier: Apache-2.0

"""What operators ask for, in a line of a recording.

What they say of priorities and applications is in the sample already, and of
parameters in ``params``.
"""

from __future__ import annotations

from typing import Any

from scavenger_openstack.algorithms.allowance import Budget
from scavenger_openstack.algorithms.cpi2.specs import Spec
from scavenger_openstack.algorithms.cpi2.specs import Specs
from scavenger_openstack.decision.orders import Orders
from scavenger_openstack.decision.orders import Override
from scavenger_openstack.decision.orders import Overrides
from scavenger_openstack.wire import json_fields
from scavenger_openstack.wire.json_fields import array
from scavenger_openstack.wire.json_fields import as_json
from scavenger_openstack.wire.json_fields import Check
from scavenger_openstack.wire.json_fields import fields
from scavenger_openstack.wire.json_fields import number
from scavenger_openstack.wire.json_fields import quantity
from scavenger_openstack.wire.json_fields import text
from scavenger_openstack.wire.json_fields import whole

PARTS = ('modes', 'exempt', 'overrides', 'budget', 'specs')
"""Those that a decision depends on."""

KEY = ('project', 'application', 'cpu_model', 'signal')
"""What a spec is of."""


def changed(now: Orders, before: Orders) -> dict[str, Any]:
    """The parts that differ, as JSON."""
    if now is before:
        return {}
    return {part: _specs(now.specs) if part == 'specs'
            else as_json(getattr(now, part))
            for part in PARTS if getattr(now, part) != getattr(before, part)}


def _specs(specs: Specs) -> list[dict[str, Any]]:
    return [{**dict(zip(KEY, key, strict=True)), **spec._asdict()}
            for key, spec in specs.items()]


def read(value: Any, where: str, before: Orders) -> Orders:
    """Return the orders that :func:`changed` wrote.

    :raises ValueError: which field is wrong, and how.
    """
    checks: dict[str, Check] = {
        'modes': json_fields.by_name(json_fields.mode),
        'exempt': lambda v, w: frozenset(json_fields.texts(v, w)),
        'overrides': lambda v, w: Overrides(
            _override(item, f'{w}[{place}]: ')
            for place, item in enumerate(array(v, w))),
        'budget': json_fields.optional(_budget),
        'specs': lambda v, w: dict(
            _spec(item, f'{w}[{place}]: ')
            for place, item in enumerate(array(v, w)))}
    return before._replace(**fields(value, f'{where}: ', checks))


def _override(value: Any, where: str) -> Override:
    values = {'value': None, **fields(value, where, {
        'id': text, 'workload': text, 'instance': text,
        'knob': json_fields.knob, 'value': lambda v, w: v, 'reason': text,
        'until_s': number}, tuple(
            name for name in Override._fields if name != 'value'))}
    if values['value'] is not None:
        values['value'] = json_fields.knob_value(
            values['value'], f'{where}value', values['knob'])
    return Override(**values)


def _budget(value: Any, where: str) -> Budget:
    return Budget(**fields(value, f'{where}: ', {
        'limits': whole, 'until_s': number, 'lease': number},
        Budget._fields))


def _spec(value: Any, where: str) -> tuple[tuple[str, str, str, str], Spec]:
    values = fields(value, where, {
        **dict.fromkeys(KEY, text), 'mean': number, 'stddev': quantity,
        'samples': quantity, 'tasks': whole, 'source': text,
        'cpu_cores': json_fields.optional(quantity)},
        (*KEY, *Spec._fields))
    project, application, cpu_model, signal = (
        values.pop(name) for name in KEY)
    return (project, application, cpu_model, signal), Spec(**values)
