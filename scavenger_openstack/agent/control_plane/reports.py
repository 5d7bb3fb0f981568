# SPDX-License-Identifier: Apache-2.0

"""The parts of a report: workloads and facts; and its encoding."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import hashlib
from typing import Any
from typing import get_args
from typing import NamedTuple

from scavenger_openstack.agent import capacity
from scavenger_openstack.agent.events import tick_events
from scavenger_openstack.algorithms.perfiso import perfiso
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Instance
from scavenger_openstack.types import Mode
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Resource
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import fit
from scavenger_openstack.wire import report

MOST_WORKLOADS = 2000
MOST_SUFFERING = 20

Amounts = dict[str, float]


class LastTick(NamedTuple):
    """References to the results of one tick; nothing is copied.

    ``document`` is the status without limits and VMs; the VMs are
    ``instances``.  ``refused`` has the reason of each override that does not
    count.
    """

    sample: HostSample | None
    document: Mapping[str, Any]
    instances: Sequence[Instance] = ()
    refused: Mapping[str, str] = {}


class Waits(NamedTuple):
    """The entries that are not reported: their bytes, the number dropped for
    want of room, seconds that the oldest has waited, and the number set aside
    because the conductor did not accept them."""

    bytes: int
    dropped: int
    waiting_s: float
    set_aside: int


def workloads(sample: HostSample, instances: Iterable[Instance]
              ) -> list[report.Workload]:
    """Return all workloads; the background last, if there are too many."""
    by_uuid = {instance.uuid: instance for instance in instances}
    listed = []
    for workload in sorted(
            (measured.workload for measured in sample.workloads),
            key=lambda workload: (workload.priority is Priority.BACKGROUND,
                                  workload.id)):
        instance = by_uuid.get(workload.instance)
        listed.append(report.Workload(
            id=fit.name(workload.id), priority=workload.priority.value,
            kind='instance' if workload.instance else 'container',
            source=fit.maybe_name(workload.source),
            instance=fit.instance(workload.instance),
            display_name=fit.maybe_name(instance and instance.display_name),
            flavor=fit.maybe_name(instance and instance.flavor),
            project=fit.project(workload.project),
            application=fit.maybe_name(workload.application),
            vcpus=fit.amount(workload.vcpus) or 0.0,
            floor={knob.value: value for knob, value in fit.amounts(
                workload.floor).items()}))
    return listed[:MOST_WORKLOADS]


def digest(workloads: Sequence[report.Workload]) -> str:
    """Return a digest that differs where the workloads do."""
    checksum = hashlib.sha256()
    for workload in workloads:
        checksum.update(codec.encode(workload))
    return checksum.hexdigest()[:32]


def facts(tick: LastTick, rates: Rates | None, *, version: str,
          idle_cores: float | None, waits: Waits,
          refused: Mapping[str, str]) -> report.Facts:
    """Return the present facts about the host and its agent.

    :param rates: since the report before, ``None`` if not known
    :param idle_cores: CPU time that was not used, in that time
    :param refused: parts of the directives that are not followed
    """
    document = tick.document
    modes = {name: str(controller['mode'])
             for name, controller in document.get('controllers', {}).items()}
    modes[perfiso.Controller.name] = str(
        document.get('isolation', {}).get('mode', Mode.OFF))
    state = document.get('state', '')
    running = state == tick_events.RUNNING
    all_refused = {**refused, **tick.refused}
    letter = (document.get('grade') or {}).get('letter', '')
    return report.Facts(
        version=fit.maybe_name(version),
        enforcing=running and Mode.ENFORCE in modes.values(),
        stopped='' if running else fit.sentence(
            state.removeprefix(tick_events.STOPPED)),
        grade=letter if letter in ('A', 'B', 'C') else '',
        cpu_model=fit.maybe_name(
            tick.sample.cpu_model if tick.sample else None),
        modes={fit.name(name): Mode(mode).value
               for name, mode in modes.items()},
        own_modes={fit.name(name): Mode(mode).value
                   for name, mode in document.get('own_modes', {}).items()},
        limited=document.get('limited'),
        missing=[fit.sentence(sentence) for sentence in document.get(
            'missing', ())[:report.MAX_MISSING]],
        capacity=_amounts(capacity.capacity(tick.sample)),
        headroom=_amounts(capacity.headroom(
            document.get('controllers', {}), rates, idle_cores)),
        used=_amounts(capacity.used(rates)),
        precision={fit.name(name): report.Precision(**{
            word: int(tried.get(word, 0))
            for word in ('confirmed', 'refuted', 'unclear')})
            for name, controller in document.get('controllers', {}).items()
            if isinstance(tried := controller.get('facts', {}).get('tried'),
                          dict)},
        tick_cpu_share=fit.amount(document.get('cpu_share')),
        spool_bytes=waits.bytes, dropped=waits.dropped,
        waiting_s=round(waits.waiting_s, 1), set_aside=waits.set_aside,
        suffering={
            fit.name(name): fit.sentence(why)
            for controller in document.get('controllers', {}).values()
            for name, why in list(controller.get('facts', {}).get(
                'suffering', {}).items())[:MOST_SUFFERING]},
        remembered={
            fit.name(name): round(age_s)
            for controller in document.get('controllers', {}).values()
            for name, age_s in list(controller.get('facts', {}).get(
                'remembered', {}).items())[:MOST_SUFFERING]},
        refused={fit.name(order): fit.sentence(why) for order, why in list(
            all_refused.items())[:report.MAX_REFUSED]})


def encoded(message: report.Report, their_digest: str) -> bytes:
    """Return the JSON of a report.

    If it is too long its workloads wait for a report without entries; where
    they alone are too many, some are reported, without a digest.

    :param their_digest: of the workloads that the conductor has
    """
    data = codec.encode(message)
    if len(data) > report.MAX_REPORT_BYTES and message.entries:
        message = codec.replace(message, workloads=None,
                                workloads_digest=their_digest)
        data = codec.encode(message)
    while len(data) > report.MAX_REPORT_BYTES and message.workloads:
        message = codec.replace(
            message, workloads=message.workloads[:len(message.workloads) // 2],
            workloads_digest='')
        data = codec.encode(message)
    return data


def _amounts(by_resource: Mapping[Resource, float]) -> Amounts:
    return {name: value for name in get_args(report.Resource)
            if (value := fit.amount(by_resource.get(Resource(name))))
            is not None}
