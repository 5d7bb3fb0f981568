# SPDX-License-Identifier: Apache-2.0

"""Profiles that are estimated from reported incidents, on any database."""

from __future__ import annotations

from typing import Any

import fixtures

from scavenger_openstack.amounts import DAY_S
from scavenger_openstack.conductor.profiles import estimates
from scavenger_openstack.db import tables
from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor.cloud import batch
from scavenger_openstack.tests.unit.conductor.cloud import NOW
from scavenger_openstack.tests.unit.conductor.cloud import vm
from scavenger_openstack.wire import profile
from scavenger_openstack.wire import report as wire

HOG = '/batch/a'


def incident(number: int, **more: Any) -> wire.Incident:
    """Of ``web``, which waits 40 % of its time, half of it behind a hog that
    uses 2 of 4 CPUs."""
    return cloud.incident(number, **{
        'number': number, 'what': 'ended',
        'cause': 'core', 'value': 0.4, 'threshold': 0.2, 'grounds': [
            wire.Ground(kind='direct', workload=HOG, share=0.5, waited_s=1.0,
                        window_s=2.0)],
        'evidence': [
            wire.Series(workload='web', signal='run_delay',
                        times_s=[NOW - 60, NOW - 30], values=[0.1, 0.4]),
            wire.Series(workload=HOG, signal='cpu_cores',
                        times_s=[NOW - 60, NOW - 30], values=[1.0, 2.0])],
        **more})


class Estimates(cloud.Mixin):

    def report(self, *incidents: wire.Incident, now: float = NOW,
               **more: Any) -> None:
        self.sync(cloud.report(
            *incidents, workloads=[
                vm('web', application='shop', flavor='m1.small'),
                batch(HOG, project='p2', application='crunch')],
            digest='1', facts=wire.Facts(capacity={'cpu': 4.0}), **more),
            now)

    def refresh(self, now: float = NOW) -> int:
        return sum(estimates.refresh(self.engine, now))

    def documents(self) -> dict[tuple[str, str, str], Any]:
        return {(kind, target, project): document
                for kind, target, project, document in self.rows(
                    tables.profiles, 'kind', 'target', 'project',
                    'document')}

    def test_victim_and_antagonist(self) -> None:
        self.report(*map(incident, (1, 2, 3)))
        self.assertEqual(3, self.refresh())
        found = self.documents()
        self.assertEqual({
            ('application', 'shop', 'p1'), ('flavor', 'm1.small', ''),
            ('application', 'crunch', 'p2')}, set(found))
        self.assertEqual(
            {'integer': {'value': 0.5, 'low': 0.5, 'high': 0.5}},
            found['application', 'shop', 'p1']['tolerated'])
        crunch = profile.of_json(found['application', 'crunch', 'p2'])
        self.assertEqual({'integer': (0.2, 0.2, 0.2)}, crunch.caused)
        self.assertEqual({}, crunch.tolerated)
        self.assertEqual(('estimated', NOW, None), (
            crunch.source, crunch.measured_s, crunch.qos))
        self.assertEqual(1, self.rows(tables.audit, 'action').count(
            'profiles.estimate'))

    def test_what_has_not_changed_stays(self) -> None:
        self.report(*map(incident, (1, 2, 3)))
        self.refresh()
        before = self.rows(tables.profiles)
        self.assertEqual(0, self.refresh(NOW + 3600))
        self.assertEqual(before, self.rows(tables.profiles))

    def test_a_measured_profile_is_kept(self) -> None:
        self.report(*map(incident, (1, 2, 3)))
        document = {
            'kind': 'application', 'target': 'shop', 'project': 'p1',
            'source': 'measured', 'measured_s': 1.0, 'tolerated': {
                'integer': {'value': 0.9, 'low': 0.9, 'high': 0.9}}}
        self.add(tables.profiles, uuid='1' * 32, kind='application',
                 target='shop', project='p1', document=document,
                 created_by='admin', created_s=1.0)
        self.assertEqual(2, self.refresh())
        self.assertEqual(document,
                         self.documents()['application', 'shop', 'p1'])

    def test_a_profile_from_before_an_incident_is_stale(self) -> None:
        """Not one from after it, an estimate, or while it is open."""
        def stored(created_s: float, source: str = 'measured') -> None:
            self.delete(tables.profiles)
            self.add(tables.profiles, uuid='1' * 32, kind='application',
                     target='shop', project='p1', created_by='admin',
                     created_s=created_s, document={
                         'source': source, 'measured_s': 1.0})

        def stale_s() -> Any:
            for _ in estimates.refresh(self.engine, NOW):
                pass
            return dict(self.rows(tables.profiles, 'target', 'stale_s'))[
                'shop']

        self.report(cloud.incident(
            1, number=1, cause='core', victim='web', grounds=[
                wire.Ground(kind='direct', workload=HOG, share=0.5)]))
        stored(NOW - 3600)
        self.assertIsNone(stale_s())
        self.report(incident(2, time_s=NOW - 1), run='2')
        stored(NOW - 30)
        self.assertIsNone(stale_s())
        stored(NOW - 3600, 'estimated')
        self.assertIsNone(stale_s())
        stored(NOW - 3600)
        self.assertEqual(NOW - 1, stale_s())

    def test_grounds_with_more_fields(self) -> None:
        """As a conductor of a later release stores them."""
        self.report(*map(incident, (1, 2, 3)))
        with self.engine.begin() as connection:
            connection.execute(tables.incidents.update().values(grounds=[
                {'kind': 'direct', 'workload': HOG, 'share': 0.5,
                 'waited_s': 1.0, 'window_s': 2.0, 'weight': [1]}]))
        self.assertEqual(3, self.refresh())

    def test_so_many_profiles(self) -> None:
        """Those that are there are still made again."""
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.conductor.profiles.estimates'
            '.MOST_PROFILES', 2))
        self.report(*map(incident, (1, 2, 3)))
        self.assertEqual(2, self.refresh())
        there = set(self.documents())
        self.assertEqual(0, self.refresh())
        self.report(*(incident(number, value=0.8, grounds=[wire.Ground(
            kind='direct', workload=HOG, share=0.9, waited_s=1.0,
            window_s=2.0)]) for number in (4, 5, 6)), run='2')
        self.assertEqual(1, self.refresh())
        self.assertEqual(there, set(self.documents()))

    def test_what_does_not_count(self) -> None:
        """Few incidents, old ones, refuted ones, weak evidence."""
        for number, incidents in enumerate((
                [incident(1), incident(2)],
                [incident(one, outcome='refuted') for one in (3, 4, 5)],
                [incident(one, grounds=[wire.Ground(
                    kind='timing', workload=HOG, share=0.9)])
                 for one in (6, 7, 8)],
                [incident(one, grounds=[wire.Ground(
                    kind='rumour', workload=HOG, share=0.9)])
                 for one in (13, 14, 15)],
                [incident(one, cause='own_limit') for one in (9, 10, 11)])):
            self.report(*incidents, run=f'run-{number}')
            self.assertEqual(0, self.refresh())
        self.report(incident(12), run='run-9')
        self.assertEqual(0, self.refresh(
            NOW + estimates.DAYS * DAY_S))
        self.assertEqual(3, self.refresh())

    def test_some_in_each_transaction(self) -> None:
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.conductor.profiles.estimates.BATCH', 2))
        self.report(*map(incident, (1, 2, 3, 4, 5)))
        # Two of the transactions look for profiles that are stale.
        self.assertEqual([0, 0, 0, 0, 1, 1, 1],
                         list(estimates.refresh(self.engine, NOW)))

    def test_the_newest_are_read(self) -> None:
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.conductor.profiles.estimates'
            '.MOST_INCIDENTS', 3))
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.conductor.profiles.estimates.BATCH', 3))
        self.report(*map(incident, (1, 2, 3)), *(
            incident(number, value=0.8, begun_s=NOW - 600)
            for number in (4, 5, 6)))
        self.refresh()
        crunch = self.documents()['application', 'crunch', 'p2']
        self.assertEqual(0.2, crunch['caused']['integer']['high'])
