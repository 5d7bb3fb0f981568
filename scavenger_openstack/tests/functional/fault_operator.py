# SPDX-License-Identifier: Apache-2.0

"""An operator who sets and deletes overrides while schedules of faults go on.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
import random
import time
from typing import Any

from sqlalchemy import Engine
from werkzeug.test import Client
from werkzeug.test import TestResponse

from scavenger_openstack.api import app
from scavenger_openstack.tests.unit.api import cloud
from scavenger_openstack.tests.unit.conductor import schedules_cases
from scavenger_openstack.text import iso

KNOBS = ('cpu_cores', 'memory_bytes')
DELETED = 0.3
"""Of what the operator does, where there is an override."""
LASTS_S = 300 * 86400.0
PATIENCE_S = 90.0


class Operator:
    """Uses the API; what it asked for is there once, also after faults.

    :param hosts: their names
    """

    def __init__(self, engine: Engine, hosts: Sequence[str], seed: int
                 ) -> None:
        self.held: dict[str, dict[tuple[str, str], float]] = {
            host: {} for host in hosts}
        """Of each host: workload and knob to value."""
        self.audit: list[schedules_cases.Audit] = []
        self.counts = collections.Counter[str]()
        """How often each action was done."""
        self._choose = random.Random(f'operator {seed}')
        self._now = 0.0
        self._client = Client(app.create(
            engine, cloud.configuration(), 'noauth', lambda: self._now))

    def override(self, now: float) -> None:
        """Set one, maybe in the place of another, or delete one."""
        self._now = now
        host = self._choose.choice(sorted(self.held))
        held = self.held[host]
        if held and self._choose.random() < DELETED:
            workload, knob = self._choose.choice(sorted(held))
            del held[workload, knob]
            action = 'override.delete'
        else:
            workload = self._choose.choice(schedules_cases.BATCH)
            knob = self._choose.choice(KNOBS)
            held[workload, knob] = 1.0 + len(self.audit)
            action = 'override.set'
        until = time.monotonic() + PATIENCE_S
        while not self._done(host, workload, knob):
            if time.monotonic() > until:
                raise AssertionError(f'{action}: cannot be done')
            time.sleep(0.1)
        self.counts[action] += 1
        self.audit.append((now, action, f'{host}/{knob}/{workload}', 'ann'))

    def _done(self, host: str, workload: str, knob: str) -> bool:
        """Whether what is held is there now."""
        path = f'/v1/caps/{host}/{knob}/{workload}'
        value = self.held[host].get((workload, knob))
        if self._call('DELETE', path) if value is None else self._call(
                'PUT', path, json={
                    'value': value, 'reason': 'a test',
                    'expires_at': iso(self._now + LASTS_S)}):
            return True
        # It may have been stored when the answer failed.
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            found = self._call('GET', '/v1/caps/overrides', query_string={
                'host': host, 'workload': workload})
            if found is not None:
                document: Any = found.json
                return value == {
                    one['knob']: one['value']
                    for one in document['overrides']}.get(knob)
            time.sleep(0.1)
        return False

    def _call(self, method: str, path: str, **options: Any
              ) -> TestResponse | None:
        """The answer, ``None`` while the API has no database."""
        answer = self._client.open(
            path, method=method, headers=cloud.ROLES['admin'], **options)
        if answer.status_code not in (200, 204, 503):
            raise AssertionError(answer.text)
        return None if answer.status_code == 503 else answer
