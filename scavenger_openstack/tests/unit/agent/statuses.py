# SPDX-License-Identifier: Apache-2.0

"""A status as an agent writes it."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from scavenger_openstack.grounds import Ground
from scavenger_openstack.grounds import GroundKind
from scavenger_openstack.types import Action
from scavenger_openstack.types import Cap
from scavenger_openstack.types import format_cpus
from scavenger_openstack.types import Incident
from scavenger_openstack.types import Knob


def document(**differing: Any) -> dict[str, Any]:
    return {
        'time_s': 9.0, 'host': 'h', 'pid': 1, 'state': 'enforcing',
        'workloads': {}, 'controllers': {}, 'cpu_share': 0.001,
        'peak_rss_bytes': 2**20, 'counters': {}, 'caps': [], 'would': [],
        'unmet_bytes': {}, 'actions': [], 'incidents': [], 'problems': [],
        **differing}


TEXT = st.text(st.characters(), max_size=20)
NUMBER = st.floats(-2.0 ** 63, 2.0 ** 63) | st.integers(-2 ** 63, 2 ** 63)
AMOUNT = st.floats(0, 2.0 ** 63) | st.integers(0, 2 ** 63)

GROUNDS = st.builds(
    Ground, TEXT, st.sampled_from(GroundKind), st.none() | NUMBER,
    st.none() | AMOUNT, st.none() | AMOUNT,
    st.lists(TEXT, max_size=3).map(tuple), st.none() | NUMBER,
    st.none() | NUMBER, st.none() | NUMBER)
INCIDENTS = st.builds(
    Incident, id=TEXT, time_s=NUMBER, host=TEXT, victim=TEXT, signal=TEXT,
    value=st.none() | NUMBER, threshold=st.none() | NUMBER, cause=TEXT,
    suspects=st.lists(st.tuples(TEXT, NUMBER), max_size=3).map(tuple),
    antagonists=st.lists(TEXT, max_size=3).map(tuple), action=TEXT,
    outcome=TEXT, grounds=st.lists(GROUNDS, max_size=3).map(tuple))
ACTIONS = st.builds(Action, TEXT, TEXT, TEXT, TEXT)
CAPS = st.builds(
    Cap, TEXT, st.sampled_from([knob for knob in Knob
                                if knob is not Knob.CPU_SET]), AMOUNT,
    TEXT, TEXT) | st.builds(
        Cap, TEXT, st.just(Knob.CPU_SET),
        st.frozensets(st.integers(0, 70)).map(format_cpus), TEXT, TEXT)
"""All that the types allow."""
