# SPDX-License-Identifier: Apache-2.0

"""Any report and any answer, as hypothesis draws them."""

from __future__ import annotations

from typing import get_args

from hypothesis import strategies as st

from scavenger_openstack.tests.unit.examples import ENCODABLE
from scavenger_openstack.types import Knob
from scavenger_openstack.wire import fit
from scavenger_openstack.wire import report

ANY_TEXT = st.text(st.characters(), max_size=600)
"""Lone surrogates, too: names of files have them."""
ANY_NUMBER = st.floats() | st.integers(-2**70, 2**70).map(float)

names = ANY_TEXT.map(fit.name)
maybes = ANY_TEXT.map(fit.maybe_name)
sentences = st.text(st.characters(), max_size=3000).map(fit.sentence)
numbers = st.floats(allow_nan=False, allow_infinity=False)
amounts = st.floats(0, 1e300)
times = ANY_NUMBER.filter(lambda value: value == value).map(fit.time_s)
hosts = st.text('abcXYZ019_.-', min_size=1, max_size=255)
instances = ANY_TEXT.map(fit.instance) | st.uuids().map(str)
incident_ids = st.text('0123456789abcdef', min_size=32, max_size=32)
ids = ANY_TEXT.map(fit.id_)
projects = ANY_TEXT.map(fit.project)
counts = st.integers(0, 2 ** 53)
firsts = st.integers(1, 2 ** 53)
knobs = st.sampled_from([str(knob) for knob in Knob])
values = (ANY_NUMBER | st.sampled_from(['0-3', '1,5']) | ANY_TEXT).map(
    fit.value)
entry = {'sequence': firsts, 'time_s': times}

incidents = st.builds(
    report.Incident, **entry,
    id=incident_ids, begun_s=times,
    what=st.sampled_from(['began', 'changed', 'ended']),
    victim=names, signal=names, value=st.none() | numbers,
    threshold=st.none() | numbers, cause=maybes, controller=maybes,
    action=sentences, outcome=st.sampled_from(get_args(report.Outcome)),
    suspects=st.lists(st.builds(
        report.Suspect, workload=names, score=st.none() | numbers,
        antagonist=st.booleans()), max_size=3),
    grounds=st.lists(st.builds(
        report.Ground, workload=maybes,
        kind=st.sampled_from(get_args(report.GroundKind)),
        share=ANY_NUMBER.map(lambda number: fit.share(number, -1.0)),
        waited_s=ANY_NUMBER.map(fit.amount),
        window_s=ANY_NUMBER.map(fit.amount),
        threads=st.lists(ANY_TEXT.map(fit.thread), max_size=2),
        chance=ANY_NUMBER.map(fit.share),
        before=st.none() | numbers, after=st.none() | numbers), max_size=3),
    evidence=st.lists(st.builds(
        report.Series, workload=names, signal=names,
        times_s=st.lists(times, max_size=3),
        values=st.lists(st.none() | numbers, max_size=3)), max_size=3))
limits = st.builds(
    report.Limit, **entry, workload=names, knob=knobs,
    what=st.sampled_from(['set', 'changed', 'removed']), since_s=times,
    owner=names, value=values, original=values, lowest=values,
    highest=values, reason=sentences,
    why=sentences,
    incidents=st.lists(incident_ids, max_size=3))
kills = st.builds(report.Kill, **entry, workload=names, processes=counts,
                  owner=names, reason=sentences)
agent_events = st.builds(
    report.AgentEvent, **entry,
    what=st.sampled_from(['started', 'state', 'ended']), detail=sentences,
    pid=counts)
statistics = st.builds(
    report.Statistics, **entry, project=projects, application=names,
    signal=names, cpu_model=maybes, hour_s=times, n=firsts, mean=numbers,
    m2=amounts, least=numbers, most=numbers, cpu_cores=st.none() | amounts)
entries = incidents | limits | kills | agent_events | statistics
workloads = st.builds(
    report.Workload, id=names,
    priority=st.sampled_from(['foreground', 'background']),
    kind=st.sampled_from(['container', 'instance']), source=maybes,
    instance=instances, display_name=maybes, flavor=maybes, project=projects,
    application=maybes, vcpus=amounts,
    floor=st.dictionaries(knobs, amounts, max_size=3))
reports = st.builds(
    report.Report, host=hosts, boot_id=ids, run_id=ids, sent_s=times,
    facts=st.builds(
        report.Facts, version=maybes, enforcing=st.booleans(),
        stopped=sentences, grade=st.sampled_from(['', 'A', 'B', 'C']),
        modes=st.dictionaries(names, st.sampled_from(['off', 'enforce']),
                              max_size=2),
        capacity=st.dictionaries(st.sampled_from(get_args(report.Resource)),
                                 amounts, max_size=2),
        tick_cpu_share=st.none() | amounts, dropped=counts,
        refused=st.dictionaries(names, sentences, max_size=2)),
    workloads_digest=ids,
    workloads=st.none() | st.lists(workloads, max_size=2),
    entries=st.lists(entries, max_size=3), directives_digest=ids)
answers = st.builds(
    report.Answer, acknowledged=counts, workloads_digest=ids,
    directives=st.none() | st.builds(
        report.Directives, issued_s=times, digest=ids,
        protection=st.booleans(), protection_reason=sentences,
        modes=st.dictionaries(names, st.sampled_from(['off', 'observe']),
                              max_size=2),
        parameters=st.dictionaries(names, numbers | sentences, max_size=2),
        tags=st.lists(st.builds(
            report.Tag, instance=names,
            priority=st.sampled_from(['foreground', 'background']),
            floor=st.dictionaries(knobs, amounts, max_size=3),
            protect=st.booleans()), max_size=2),
        exempt=st.lists(names, max_size=2),
        overrides=st.lists(st.builds(
            report.Override, id=names, workload=names, knob=knobs,
            value=values, reason=sentences, expires_s=times,
            instance=maybes), max_size=2),
        specs=st.lists(st.builds(
            report.Spec, project=maybes, application=names,
            cpu_model=maybes, signal=names, mean=numbers, stddev=amounts,
            n=counts, cpu_cores=st.none() | amounts), max_size=2),
        governed=st.booleans()),
    budget=st.none() | st.builds(report.Budget, limits=counts,
                                 until_s=times))

scalars = (st.none() | st.booleans() | st.integers() | st.floats()
           | st.text(ENCODABLE, max_size=20))
