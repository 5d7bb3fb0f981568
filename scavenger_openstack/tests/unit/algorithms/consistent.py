# SPDX-License-Identifier: Apache-2.0

"""What holds for the incidents and limits of a detector at every instant."""

from __future__ import annotations

from collections.abc import Iterable

import testtools

from scavenger_openstack.types import Decision
from scavenger_openstack.types import Incident
from scavenger_openstack.types import LIMIT


class Incidents:
    """Compares each decision with those before.

    ``began`` and ``ended`` are when an incident was in a decision first, and
    when in none any more, by its id.
    """

    def __init__(self, case: testtools.TestCase) -> None:
        self._case = case
        self.began: dict[str, tuple[float, Incident]] = {}
        self.ended: dict[str, float] = {}

    def follow(self, now: float, decision: Decision) -> None:
        case = self._case
        present = {one.id: one for one in decision.incidents}
        case.assertEqual(len(present), len(decision.incidents))
        for incident in present.values():
            case.assertTrue(incident.victim, str(incident))
            case.assertNotIn(incident.id, self.ended, 'it began once more')
            _, first = self.began.setdefault(incident.id, (now, incident))
            case.assertEqual(first.time_s, incident.time_s)
            case.assertLessEqual(incident.time_s, now)
        for name in self.began.keys() - present.keys() - self.ended.keys():
            self.ended[name] = now
        for cap in decision.caps:
            case.assertIn(cap.workload, limited(decision.incidents), str(cap))

    def apart(self) -> None:
        """No two incidents of one victim and signal were at once."""
        spans: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for name, (_, incident) in self.began.items():
            spans.setdefault((incident.victim, incident.signal), []).append(
                (incident.time_s, self.ended.get(name, float('inf'))))
        for some in spans.values():
            some.sort()
            for (_, end_s), (begin_s, _) in zip(some, some[1:], strict=False):
                self._case.assertLessEqual(end_s, begin_s)


def limited(incidents: Iterable[Incident]) -> set[str]:
    """The antagonists that the actions of these say to be limited."""
    return {name for one in incidents if one.action.startswith(LIMIT)
            for name in one.action.removeprefix(LIMIT).split(', ')
            if name in (*one.antagonists, *(
                ground.workload for ground in one.grounds))}
