# SPDX-License-Identifier: Apache-2.0

"""Specs: what the signals of applications usually are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scavenger_openstack.algorithms.signals import SIGNALS
from scavenger_openstack.api.call import Call
from scavenger_openstack.api import schemas
from scavenger_openstack.db import statistics
from scavenger_openstack.text import iso

FILTERS = {'project': schemas.SHORT, 'application': schemas.NAME,
           'cpu_model': schemas.NAME, 'signal': schemas.one_of(SIGNALS)}

FIELDS = {
    'project': schemas.TEXT,
    'application': schemas.TEXT,
    'cpu_model': schemas.TEXT,
    'signal': schemas.TEXT,
    'mean': schemas.NUMBER,
    'stddev': schemas.NUMBER,
    'n': schemas.COUNT,
    'cpu_cores': schemas.MAYBE_NUMBER,
    'day': schemas.TEXT}


def list_(call: Call, connection: Any) -> dict[str, Any]:
    return call.page(
        statistics.specs_page(
            connection, **{name: call.name(name) for name in FILTERS},
            after=call.after_id(), limit=call.limit + 1),
        _shape)


def _shape(row: Mapping[str, Any]) -> dict[str, Any]:
    return schemas.shape(FIELDS, row, n=round(row['n']),
                         day=(iso(row['day_s']) or '')[:10])
