# SPDX-License-Identifier: Apache-2.0

"""What a report changes, on any database."""

from __future__ import annotations

from typing import Any

import sqlalchemy

from scavenger_openstack.amounts import DAY_S
from scavenger_openstack.conductor import directives
from scavenger_openstack.conductor import workloads
from scavenger_openstack.db import eviction_policy
from scavenger_openstack.db import purge
from scavenger_openstack.db import reports
from scavenger_openstack.db.resources import caps
from scavenger_openstack.db.resources import hosts as db_hosts
from scavenger_openstack.db.resources import hours
from scavenger_openstack.db import tables
from scavenger_openstack import errors
from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor.cloud import batch
from scavenger_openstack.tests.unit.conductor.cloud import HOST
from scavenger_openstack.tests.unit.conductor.cloud import incident
from scavenger_openstack.tests.unit.conductor.cloud import limit
from scavenger_openstack.tests.unit.conductor.cloud import NOW
from scavenger_openstack.tests.unit.conductor.cloud import report
from scavenger_openstack.tests.unit.conductor.cloud import vm
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import report as wire

HOUR = reports.hour(NOW)


class Sync(cloud.Mixin):

    def listed(self) -> None:
        self.sync(report(workloads=[vm('web'), batch('/batch/a'),
                                    batch('/batch/b')], digest='d1'))

    def hours(self) -> list[tuple[Any, ...]]:
        return sorted(self.rows(
            tables.antagonist_hours, 'hour_s', 'workload', 'incidents',
            'interference_s', 'confirmed', 'refuted'))

    def test_a_host_that_is_new(self) -> None:
        answer = self.sync(report())
        self.assertEqual((0, ''), (answer.acknowledged,
                                   answer.workloads_digest))
        self.assertEqual(
            [(HOST, 'boot-1', '1.0', NOW, NOW)],
            self.rows(tables.hosts, 'name', 'boot_id', 'version',
                      'first_seen_s', 'last_seen_s'))
        [facts] = self.rows(tables.hosts, 'facts')
        self.assertEqual('epyc', facts['cpu_model'])
        self.sync(report(facts=wire.Facts(version='1.1')), NOW + 10)
        self.assertEqual(
            [('1.1', NOW, NOW + 10)],
            self.rows(tables.hosts, 'version', 'first_seen_s',
                      'last_seen_s'))

    def test_workloads_begin_change_and_end(self) -> None:
        self.sync(report(workloads=[vm('web'), batch('/batch/a')],
                         digest='d1'))
        answer = self.sync(report(
            workloads=[vm('web', application='shop'), vm('db')], digest='d2'),
            NOW + 10)
        self.assertEqual('d2', answer.workloads_digest)
        self.assertEqual(
            [('web', 'u-web', 'shop', NOW, None),
             ('/batch/a', '', '', NOW, NOW + 10),
             ('db', 'u-db', 'app-db', NOW + 10, None)],
            self.rows(tables.workloads, 'name', 'instance', 'application',
                      'since_s', 'until_s'))
        self.assertEqual(
            [{}, {'cpu_cores': 0.1}, {}],
            [floor for _, floor in self.rows(tables.workloads, 'name',
                                             'floor')])

    def test_another_vm_of_the_same_name(self) -> None:
        self.sync(report(workloads=[vm('web')], digest='d1'))
        other = wire.Workload(id='web', priority='foreground',
                              kind='instance', instance='u-2')
        self.sync(report(workloads=[other], digest='d2'), NOW + 10)
        self.assertEqual(
            [('u-web', NOW + 10), ('u-2', None)],
            self.rows(tables.workloads, 'instance', 'until_s'))

    def test_a_list_is_read_when_it_differs(self) -> None:
        self.listed()
        answer = self.sync(report(workloads=[], digest='d1'))
        self.assertEqual('d1', answer.workloads_digest)
        self.assertEqual([None] * 3, self.rows(tables.workloads, 'until_s'))
        answer = self.sync(report(digest='d2'))
        self.assertEqual('d1', answer.workloads_digest)     # "send it"

    def test_a_late_report_undoes_nothing(self) -> None:
        self.sync(report(workloads=[vm('web')], digest='d1'), NOW)
        self.sync(report(workloads=[vm('db')], digest='d2', sent_s=NOW + 10),
                  NOW + 10)
        late = report(incident(1), workloads=[vm('web')], digest='d1',
                      facts=wire.Facts(version='0.9'))
        answer = self.sync(late, NOW + 12)
        self.assertEqual((1, 'd2'), (answer.acknowledged,
                                     answer.workloads_digest))
        self.assertEqual([('web', NOW + 10), ('db', None)],
                         self.rows(tables.workloads, 'name', 'until_s'))
        self.assertEqual(['1.0'], self.rows(tables.hosts, 'version'))

    def test_an_incident(self) -> None:
        self.listed()
        answer = self.sync(report(incident(
            7, others=['/batch/b'], evidence=[wire.Series(
                workload='web', signal='run_delay', times_s=[1.0, 2.0],
                values=[0.5, None])])))
        self.assertEqual(7, answer.acknowledged)
        self.assertEqual(
            [('web', 'u-web', 'p1', 'cpu', 'open', NOW - 60, NOW, None)],
            self.rows(tables.incidents, 'victim', 'victim_instance',
                      'project', 'cause', 'outcome', 'begun_s', 'changed_s',
                      'ended_s'))
        self.assertEqual(
            [[{'workload': 'web', 'signal': 'run_delay',
               'times_s': [1.0, 2.0], 'values': [0.5, None]}]],
            self.rows(tables.incidents, 'evidence'))
        self.assertEqual(
            [('/batch/a', '', 0.9, True, NOW - 60),
             ('/batch/b', '', 0.1, False, NOW - 60)],
            self.rows(tables.suspects, 'workload', 'project', 'score',
                      'antagonist', 'begun_s'))
        self.assertEqual([(HOUR, '/batch/a', 1, 60.0, 0, 0)], self.hours())
        self.assertEqual(
            [('web', 'p1', 'cpu')],
            self.rows(tables.antagonist_hours, 'victim', 'victim_project',
                      'cause'))

    def disturbed(self) -> list[tuple[Any, ...]]:
        return sorted(self.rows(tables.victim_hours, 'hour_s', 'victim',
                                'project', 'incidents', 'interference_s'))

    def test_a_victim_counts_once(self) -> None:
        """However many are named, and if none is; it follows changes."""
        self.listed()
        self.sync(report(
            incident(1, antagonists=['/batch/a', '/batch/b']),
            incident(2, number=2, antagonists=[])))
        self.assertEqual([(HOUR, 'web', 'p1', 2, 120.0)], self.disturbed())
        end_s = HOUR + 3600 + 40
        self.sync(report(incident(3, end_s, 'ended', antagonists=[]),
                         sent_s=end_s), end_s)
        whole_s = HOUR + 3600 - NOW + 60
        self.assertEqual(
            [(HOUR, 'web', 'p1', 2, whole_s + 60),
             (HOUR + 3600, 'web', 'p1', 0, 40.0)], self.disturbed())
        # It turns out that nothing else was the cause.
        self.sync(report(incident(4, end_s + 1, 'ended', cause='own_limit',
                                  antagonists=[]), sent_s=end_s + 1),
                  end_s + 1)
        self.assertEqual([(HOUR, 'web', 'p1', 1, 60.0)], self.disturbed())

    def test_what_background_work_got(self) -> None:
        def used(cores: float, now: float) -> None:
            self.sync(report(facts=wire.Facts(used={
                'cpu': cores, 'memory': 2.0 ** 30}), sent_s=now), now)

        end_s = HOUR + 3600
        used(9.0, end_s - 30)           # since when is not known
        used(2.0, end_s - 20)
        used(4.0, end_s - 10)
        self.sync(report(facts=wire.Facts(), sent_s=end_s - 5), end_s - 5)
        [now] = self.rows(tables.hosts, 'background')
        self.assertEqual((HOUR, 60.0, 20 * 2.0 ** 30), tuple(
            now[name] for name in ('hour_s', 'core_s', 'byte_s')))
        used(1.0, end_s + 5)
        self.assertEqual(
            [(HOUR, 60.0)],
            self.rows(tables.background_hours, 'hour_s', 'core_s'))
        used(1.0, end_s + 3000)         # a gap of 50 minutes
        [now] = self.rows(tables.hosts, 'background')
        self.assertEqual((HOUR + 3600, 10.0 + hours.MOST_S),
                         (now['hour_s'], now['core_s']))

    def test_what_background_work_got_before_its_host_was_removed(self
                                                                  ) -> None:
        for at_s in (NOW, NOW + 10):
            self.sync(report(facts=wire.Facts(used={'cpu': 1.0}),
                             sent_s=at_s), at_s)
        with self.engine.begin() as connection:
            db_hosts.remove(connection, HOST, actor='a', now_s=NOW + 9000)
        self.assertEqual(
            [(HOUR, 10.0)],
            self.rows(tables.background_hours, 'hour_s', 'core_s'))
        self.sync(report(facts=wire.Facts(used={'cpu': 1.0}),
                         sent_s=NOW + 20), NOW + 20)
        [now] = self.rows(tables.hosts, 'background')
        self.assertEqual((HOUR, 10.0), (now['hour_s'], now['core_s']))

    def test_a_full_hour_and_a_conductor_whose_clock_is_ahead(self) -> None:
        """Of the hour before nothing is lost."""
        end_s = HOUR + 3600
        for at_s, ahead_s in ((-40, 0), (-30, 0), (-25, 30), (-20, 0),
                              (-10, 30), (10, 0)):
            self.sync(report(facts=wire.Facts(used={'cpu': 1.0}),
                             sent_s=end_s + at_s), end_s + at_s + ahead_s)
        self.assertEqual(
            [(HOUR, 10.0)],
            self.rows(tables.background_hours, 'hour_s', 'core_s'))
        [now] = self.rows(tables.hosts, 'background')
        self.assertEqual((end_s, 40.0), (now['hour_s'], now['core_s']))

    def test_an_entry_is_applied_once(self) -> None:
        self.listed()
        first = report(incident(1), wire.Kill(
            sequence=2, time_s=NOW, workload='/batch/a', processes=3,
            owner='scavenger', reason='memory'), limit(3),
            cloud.statistics(4, HOUR - 3600, 10, 1.0, 0.5, 'app-web'))
        for _ in range(3):
            self.assertEqual(3 + 1, self.sync(first).acknowledged)
        self.sync(report(*first.entries, incident(
            5, NOW + 30, 'ended', outcome='confirmed')), NOW + 30)
        self.assertEqual(5, self.sync(first).acknowledged)
        for table in (tables.incidents, tables.suspects, tables.caps,
                      tables.statistics):
            self.assertEqual(1, len(self.rows(table)), table.name)
        self.assertEqual(
            [('agent node-1', 'kill', '/batch/a', 'memory',
              {'host': HOST, 'owner': 'scavenger', 'processes': 3})],
            self.rows(tables.audit, 'actor', 'action', 'target', 'reason',
                      'after'))
        self.assertEqual([(HOUR, '/batch/a', 1, 90.0, 1, 0)], self.hours())

    def test_entries_of_two_runs(self) -> None:
        self.sync(report(incident(1), run='run-1'))
        self.sync(report(incident(1, number=2), run='run-2'))
        self.assertEqual(1, self.sync(report(run='run-1')).acknowledged)
        self.assertEqual(2, len(self.rows(tables.incidents)))

    def test_hours_of_an_incident_that_lasts(self) -> None:
        begun_s = HOUR - 100.0
        self.sync(report(incident(1, HOUR - 90.0, begun_s=begun_s)))
        self.sync(report(incident(
            2, HOUR + 3700.0, 'ended', begun_s=begun_s, outcome='refuted')),
            NOW + 3600)
        self.assertEqual([
            (HOUR - 3600, '/batch/a', 1, 100.0, 0, 1),
            (HOUR, '/batch/a', 0, 3600.0, 0, 0),
            (HOUR + 3600, '/batch/a', 0, 100.0, 0, 0)], self.hours())

    def test_hours_are_bounded(self) -> None:
        """Of one report; one entry alone is always taken."""
        def longest(number: int, kind: str = 'a') -> wire.Incident:
            return incident(number, begun_s=0.0, number=number, antagonists=[
                f'/batch/{kind}{one}' for one in range(64)])

        self.assertIn('send fewer entries', str(self.assertRaises(
            errors.WireError, self.sync,
            report(*map(longest, range(1, 41))))))
        self.assertEqual([], self.rows(tables.incidents))
        self.assertEqual(1, self.sync(report(longest(1))).acknowledged)
        again = codec.replace(longest(1, 'b'), sequence=2)
        self.assertEqual(2, self.sync(report(again)).acknowledged)
        self.assertEqual(170 * 64, len(self.hours()))

    def test_another_antagonist(self) -> None:
        """The sums follow what is known now."""
        self.listed()
        self.sync(report(incident(1)))
        self.sync(report(incident(2, NOW + 5, 'changed',
                                  antagonists=['/batch/b'])), NOW + 10)
        self.assertEqual([(HOUR, '/batch/b', 1, 65.0, 0, 0)], self.hours())
        self.assertEqual([('/batch/b', True, NOW - 60)], self.rows(
            tables.suspects, 'workload', 'antagonist', 'begun_s'))
        self.sync(report(incident(3, NOW + 6, 'changed', antagonists=[])),
                  NOW + 20)
        self.assertEqual([], self.hours())

    def test_an_incident_that_ended_tells_what_was_done(self) -> None:
        self.sync(report(incident(1, action='limit /batch/a')))
        for sequence, what, action in (
                (2, 'ended', 'limit /batch/a'), (3, 'changed', 'nothing now'),
                (4, 'ended', 'nothing now')):
            self.sync(report(incident(sequence, NOW + sequence, what,
                                      action='nothing now')), NOW + 10)
            self.assertEqual([action], self.rows(tables.incidents, 'action'))

    def test_one_that_has_ended_is_not_open(self) -> None:
        """Whatever its agent says, and where that was killed before it did."""
        for sequence, what, outcome, shown in (
                (1, 'began', 'ended', 'open'), (2, 'changed', 'open', 'open'),
                (3, 'ended', 'open', 'ended'), (4, 'changed', 'open', 'open'),
                (5, 'ended', 'unclear', 'unclear'),
                (6, 'changed', 'open', 'open')):
            self.sync(report(incident(sequence, NOW + sequence, what,
                                      outcome=outcome)), NOW + 10)
            [found] = self.rows(tables.incidents, 'outcome', 'ended_s')
            self.assertEqual((shown, NOW + sequence if what == 'ended'
                              else None), found)
        self.sync(report(wire.AgentEvent(sequence=1, time_s=NOW + 20,
                                         what='started'), run='run-2'),
                  NOW + 20)
        self.assertEqual([('ended', NOW + 20)], self.rows(
            tables.incidents, 'outcome', 'ended_s'))

    def test_an_earlier_run_that_is_told_late(self) -> None:
        """It adds its evidence, and nothing else."""
        series = wire.Series(workload='web', signal='cpi', times_s=[1.0],
                             values=[2.0])
        self.sync(report(incident(1, NOW + 5, 'ended', outcome='confirmed'),
                         run='run-2'))
        self.sync(report(incident(1, NOW, evidence=[series],
                                  antagonists=['/batch/b'])), NOW + 10)
        self.assertEqual(
            [('confirmed', NOW + 5, NOW + 5)],
            self.rows(tables.incidents, 'outcome', 'changed_s', 'ended_s'))
        self.assertEqual([(HOUR, '/batch/a', 1, 65.0, 1, 0)], self.hours())
        [evidence] = self.rows(tables.incidents, 'evidence')
        self.assertEqual('cpi', evidence[0]['signal'])

    def test_evidence_stays(self) -> None:
        series = wire.Series(workload='web', signal='cpi', times_s=[1.0],
                             values=[2.0])
        self.sync(report(incident(1, evidence=[series])))
        self.sync(report(incident(2, NOW + 5, 'changed')))
        [evidence] = self.rows(tables.incidents, 'evidence')
        self.assertEqual('cpi', evidence[0]['signal'])

    def test_evidence_of_the_begin_and_of_the_end(self) -> None:
        def series(begin: int, end: int, workload: str = 'web'
                   ) -> wire.Series:
            return wire.Series(
                workload=workload, signal='cpi',
                times_s=[float(at) for at in range(begin, end)],
                values=[float(at) for at in range(begin, end)])

        self.sync(report(incident(1, evidence=[series(100, 220)])))
        entry = incident(2, NOW + 5, 'ended', evidence=[
            series(200, 320), series(300, 302, '/batch/a')])
        self.sync(report(entry))
        self.sync(report(entry))
        [[web, noisy]] = self.rows(tables.incidents, 'evidence')
        self.assertEqual([float(at) for at in range(100, 320)],
                         web['times_s'])
        self.assertEqual(web['times_s'], web['values'])
        self.assertEqual(('/batch/a', [300.0, 301.0]),
                         (noisy['workload'], noisy['times_s']))
        # What is too long has its begin and its end.
        self.sync(report(incident(3, NOW + 6, 'ended',
                                  evidence=[series(400, 520)])))
        [[web, _]] = self.rows(tables.incidents, 'evidence')
        self.assertEqual([float(at) for at in (*range(100, 220),
                                               *range(400, 520))],
                         web['times_s'])

    def test_series_are_bounded(self) -> None:
        for number in range(1, 5):
            self.sync(report(incident(number, NOW + number, evidence=[
                wire.Series(workload=f'/{number}/{one}', signal='cpi',
                            times_s=[1.0], values=[1.0])
                for one in range(9)])))
        [evidence] = self.rows(tables.incidents, 'evidence')
        self.assertEqual(16, len(evidence))
        self.assertEqual('/1/0', evidence[0]['workload'])

    def test_the_strongest_kind_of_evidence(self) -> None:
        def kind(sequence: int, *kinds: Any, what: str = 'changed') -> str:
            self.sync(report(incident(sequence, NOW + sequence, what, grounds=[
                wire.Ground(kind=one) for one in kinds])))
            [found] = self.rows(tables.incidents, 'evidence_kind')
            return str(found)

        self.assertEqual('', kind(1))
        self.assertEqual('timing', kind(2, 'experiment', 'timing'))
        self.assertEqual('direct', kind(3, 'timing', 'direct', 'share'))
        self.assertEqual('direct', kind(4, what='ended'))

    def test_grounds_are_those_of_the_newest_entry(self) -> None:
        direct = wire.Ground(kind='direct', workload='/batch/a', share=0.86,
                             waited_s=1.9, window_s=2.0)
        of_host = wire.Ground(kind='direct', share=0.5, threads=['ksmd'])
        timing = wire.Ground(kind='timing', workload='/batch/a', share=0.9)

        def kinds() -> list[Any]:
            [grounds] = self.rows(tables.incidents, 'grounds')
            return grounds and [(one.get('workload'), one['kind'],
                                 one.get('share')) for one in grounds]

        self.sync(report(incident(1)))
        self.assertIsNone(kinds())
        self.sync(report(incident(2, NOW + 1, 'changed',
                                  grounds=[direct, of_host])))
        self.assertEqual([('/batch/a', 'direct', 0.86),
                          (None, 'direct', 0.5)], kinds())
        self.sync(report(incident(3, NOW + 2, 'changed', grounds=[timing])))
        of_timing = [('/batch/a', 'timing', 0.9)]
        self.assertEqual(of_timing, kinds())
        self.sync(report(incident(4, NOW - 9, 'changed', grounds=[direct]),
                         run='run-0'), NOW + 3)     # late
        self.assertEqual(of_timing, kinds())
        self.sync(report(incident(5, NOW + 4, 'ended')), NOW + 4)
        self.assertEqual(of_timing, kinds())    # why it was named
        self.sync(report(incident(6, NOW + 5, 'changed')), NOW + 5)
        self.assertIsNone(kinds())

    def test_an_antagonist_that_is_foreground(self) -> None:
        """It disturbed, and no limit on it was confirmed or refuted."""
        self.sync(report(workloads=[vm('web'), vm('db'), batch('/batch/a')],
                         digest='d1'))
        self.sync(report(incident(1, antagonists=['/batch/a', 'db'])))
        for sequence, (outcome, confirmed, refuted) in enumerate((
                ('confirmed', 1, 0), ('refuted', 0, 1),
                ('confirmed', 1, 0)), 2):
            self.sync(report(incident(
                sequence, NOW, 'changed', outcome=outcome,
                antagonists=['/batch/a', 'db'])))
            self.assertEqual(
                [(HOUR, '/batch/a', 1, 60.0, confirmed, refuted),
                 (HOUR, 'db', 1, 60.0, 0, 0)], sorted(self.hours()))
        self.assertEqual(
            [('/batch/a', True, False), ('db', True, True)],
            self.rows(tables.suspects, 'workload', 'antagonist',
                      'foreground'))
        # An operator makes it background: what it was named for stays.
        self.sync(report(workloads=[vm('web'), batch('db')], digest='d2'))
        self.sync(report(incident(9, NOW, 'ended', outcome='refuted',
                                  antagonists=['db'])))
        self.assertEqual([(HOUR, 'db', 1, 60.0, 0, 1)], self.hours())

    def test_an_incident_of_another_host(self) -> None:
        self.sync(report(incident(1)))
        with self.assertLogs('scavenger_openstack.conductor.sync') as logs:
            answer = self.sync(report(
                incident(1, NOW + 5, 'ended', antagonists=['/x']),
                incident(2, number=2), host='node-2'))
        self.assertEqual(2, answer.acknowledged)
        self.assertEqual([('open', None), ('open', None)], self.rows(
            tables.incidents, 'outcome', 'ended_s'))
        self.assertEqual([('agent node-2', 'report.refused', f'{1:032x}')],
                         self.rows(tables.audit, 'actor', 'action',
                                   'target'))
        self.assertIn('of another host', logs.output[0])

    def test_limits(self) -> None:
        self.listed()
        self.sync(report(limit(1), limit(2, knob='cpu_set', value='0-1')))
        self.sync(report(
            limit(3, NOW + 5, 'changed', value=0.25),
            limit(4, NOW + 9, 'removed', value=0.25, why='it is over')))
        self.assertEqual(
            [('cpu_cores', 0.25, 2.0, NOW, NOW + 9, NOW + 9, 'it is over'),
             ('cpu_set', '0-1', 2.0, NOW, NOW, None, '')],
            self.rows(tables.caps, 'knob', 'value', 'original', 'set_s',
                      'changed_s', 'removed_s', 'why'))

    def test_steps_of_a_limit(self) -> None:
        self.listed()
        self.sync(report(limit(1), limit(2, NOW + 5, 'changed', value=0.25)))
        again = limit(3, NOW + 7, 'changed', value=0.25, reason='another')
        self.sync(report(again, limit(4, NOW + 9, 'removed', value=1.0)))
        self.assertEqual(
            [[[NOW, 0.5], [NOW + 5, 0.25], [NOW + 9, 1.0]]],
            self.rows(tables.caps, 'steps'))

    def test_steps_are_bounded(self) -> None:
        self.sync(report(*(limit(
            number, NOW + number / 10, 'changed' if number > 1 else 'set',
            value=float(number)) for number in range(1, 201))), NOW + 20)
        [steps] = self.rows(tables.caps, 'steps')
        self.assertEqual(
            [1.0, *(float(number) for number in range(138, 201))],
            [value for _, value in steps])

    def test_a_limit_whose_end_was_not_told(self) -> None:
        self.sync(report(limit(1), limit(2, NOW + 20, since_s=NOW + 20)),
                  NOW + 20)
        self.assertEqual([(NOW, NOW + 20), (NOW + 20, None)],
                         self.rows(tables.caps, 'set_s', 'removed_s'))
        self.sync(report(limit(1, NOW + 10, since_s=NOW + 10), run='old'),
                  NOW + 30)
        self.assertEqual(
            [(NOW, NOW + 20), (NOW + 20, None), (NOW + 10, NOW + 20)],
            self.rows(tables.caps, 'set_s', 'removed_s'))

    def test_a_limit_that_others_take_over(self) -> None:
        """Who limited a workload, and for which incident, stays known."""
        self.listed()
        taken = limit(2, NOW + 10, 'changed', since_s=NOW + 10,
                      incidents=['i'])
        for _ in range(2):
            self.sync(report(
                limit(1, owner='leftover'), taken,
                limit(3, NOW + 15, 'changed', since_s=NOW + 10, value=0.25),
                limit(4, NOW + 20, 'changed', since_s=NOW + 20,
                      owner='leftover')), NOW + 21)
        self.assertEqual(
            [('leftover', '', NOW, NOW + 10), ('attribution', 'i', NOW + 10,
                                               NOW + 20),
             ('leftover', '', NOW + 20, None)],
            self.rows(tables.caps, 'owner', 'incidents', 'set_s',
                      'removed_s'))

    def test_a_limit_that_others_take_over_by_a_wrong_clock(self) -> None:
        """Then it is one row; its incident is that of its owner."""
        self.listed()
        ahead = NOW + 3600
        changes: tuple[dict[str, Any], ...] = (
            {'incidents': ['i']}, {}, {'owner': 'leftover'})
        for sequence, more in enumerate(changes, 1):
            self.sync(report(limit(
                sequence, ahead + sequence, 'changed' if sequence > 1
                else 'set', since_s=ahead + sequence, **more),
                sent_s=ahead + sequence), NOW + sequence)
            self.assertEqual(
                [('attribution', 'i') if sequence < 3 else ('leftover', '')],
                self.rows(tables.caps, 'owner', 'incidents'))

    def test_a_limit_that_answers_several_incidents(self) -> None:
        """It is known in each, also when some have ended; of too many the
        last ones are."""
        self.listed()
        one, two, *many = (f'{number:032x}' for number in range(40))
        self.sync(report(
            limit(1, incidents=[one]),
            limit(2, NOW + 5, 'changed', incidents=[one, two]),
            limit(3, NOW + 9, 'changed', incidents=[two])), NOW + 9)
        self.assertEqual([f'{one} {two}'], self.rows(tables.caps,
                                                     'incidents'))
        with self.engine.connect() as connection:
            host_id = connection.scalar(sqlalchemy.select(
                tables.hosts.c.id))
            assert host_id is not None
            self.assertEqual([1, 1, 0, 0], [
                len(caps.of_incident(connection, host_id, name, NOW, 9))
                for name in (one, two, many[0], one[:-1])])
        self.sync(report(limit(1, NOW + 20, 'changed', incidents=many[:32]),
                         run='run-2'), NOW + 20)
        [after] = self.rows(tables.caps, 'incidents')[-1:]
        self.assertEqual(many[:32], after.split())

    def test_an_agent_that_starts_again(self) -> None:
        self.sync(report(limit(1), incident(2)))
        self.sync(report(
            wire.AgentEvent(sequence=1, time_s=NOW + 10, what='started'),
            limit(2, NOW + 11, since_s=NOW + 11), run='run-2'), NOW + 12)
        self.assertEqual([NOW + 10, None],
                         self.rows(tables.caps, 'removed_s'))
        self.assertEqual([NOW + 10], self.rows(tables.incidents, 'ended_s'))
        self.assertEqual([('agent.started', HOST)], self.rows(
            tables.audit, 'action', 'target'))

    def test_a_clock_that_is_set_back_before_a_start(self) -> None:
        """What the earlier run did has ended all the same."""
        for number, back_s in enumerate((5, 50, 3600)):
            host = f'back-{back_s}'
            self.sync(report(limit(1), incident(2, number=number),
                             host=host))
            since_s = NOW + 2 - back_s
            self.sync(report(
                wire.AgentEvent(sequence=1, time_s=since_s, what='started'),
                limit(2, since_s + 1, since_s=since_s + 1),
                host=host, run='run-2', sent_s=since_s + 2), NOW + 4)
            # Its next reports end nothing of its own.
            self.sync(report(
                limit(3, since_s + 3, knob='cpu_set', value='0'),
                host=host, run='run-2', sent_s=since_s + 4), NOW + 6)
        self.assertEqual([NOW, None, None] * 3, self.rows(
            tables.caps, 'removed_s'))
        self.assertEqual([NOW] * 3, self.rows(tables.incidents, 'ended_s'))

    def test_a_clock_that_is_set_back_meanwhile(self) -> None:
        """What the agent says last is in force."""
        self.sync(report(wire.AgentEvent(sequence=1, time_s=NOW,
                                         what='started'), limit(2)))
        for number, what in enumerate(('set', 'removed', 'set')):
            time_s = NOW - 50 + number
            self.sync(report(limit(
                3 + number, time_s, what, since_s=NOW - 50 + number // 2),
                sent_s=time_s), NOW + 5 + number)
        self.assertEqual(
            [(NOW, NOW), (NOW - 50, NOW), (NOW - 49, None)],
            self.rows(tables.caps, 'set_s', 'removed_s'))

    def test_what_follows_is_later_whatever_the_clock_says(self) -> None:
        """An agent's clock, or the conductor's, is set while an incident and
        a limit last; nothing stays open, and no time is before another."""
        for number, step_s in enumerate((40, 60, 3600, 32 * 86400)):
            for agent_s, conductor_s in ((-step_s, 0), (step_s, 0),
                                         (0, -step_s), (0, step_s)):
                host = f'{number} {agent_s} {conductor_s}'
                uuid = abs(hash(host))
                self.sync(report(
                    incident(1, NOW - min(agent_s, 0), number=uuid,
                             begun_s=NOW - 60),
                    limit(2, NOW - min(agent_s, 0)),
                    host=host, sent_s=NOW - min(agent_s, 0)),
                    NOW - min(conductor_s, 0))
                now = NOW + 20 + max(conductor_s, 0)
                time_s = NOW + 20 + max(agent_s, 0)
                self.sync(report(
                    incident(3, time_s, 'ended', number=uuid,
                             begun_s=NOW - 60, outcome='confirmed'),
                    limit(4, time_s, 'removed'),
                    host=host, sent_s=time_s), now)
        for outcome, begun_s, ended_s in self.rows(
                tables.incidents, 'outcome', 'begun_s', 'ended_s'):
            self.assertEqual('confirmed', outcome)
            self.assertGreaterEqual(ended_s, begun_s)
        for set_s, removed_s in self.rows(tables.caps, 'set_s', 'removed_s'):
            self.assertGreaterEqual(removed_s, set_s)

    def test_limits_end_with_their_workload(self) -> None:
        self.listed()
        self.sync(report(limit(1)))
        self.sync(report(workloads=[vm('web')], digest='d2'), NOW + 30)
        self.assertEqual([(NOW + 30, 'the workload ended')],
                         self.rows(tables.caps, 'removed_s', 'why'))

    def test_a_clock_in_the_future(self) -> None:
        ahead = NOW + 3 * 86400
        with self.assertLogs('scavenger_openstack.conductor.sync') as logs:
            for sent in range(2):
                self.sync(report(
                    incident(1, ahead, begun_s=ahead - 60),
                    limit(2, ahead, since_s=ahead), sent_s=ahead + sent))
        self.assertEqual(1, len(logs.output))
        self.assertIn('its clock is 259200 s ahead', logs.output[0])
        self.sync(report(incident(3, ahead + 10, 'ended',
                                  begun_s=ahead - 60),
                         limit(4, ahead + 10, 'removed', since_s=ahead),
                         sent_s=ahead + 10), NOW + 10)
        self.assertEqual([(NOW - 60, NOW + 10, NOW + 10)], self.rows(
            tables.incidents, 'begun_s', 'changed_s', 'ended_s'))
        self.assertEqual([(NOW, NOW + 10)], self.rows(
            tables.caps, 'set_s', 'removed_s'))
        self.assertEqual([(HOUR, '/batch/a', 1, 70.0, 0, 0)], self.hours())
        [facts] = self.rows(tables.hosts, 'facts')
        self.assertEqual(259200, facts['clock_offset_s'])

    def test_a_clock_that_was_set_back(self) -> None:
        self.listed()
        self.sync(report(incident(1, 1000.0, begun_s=940.0), sent_s=1000.0,
                         workloads=[vm('web')], digest='d2'))
        self.assertEqual([(NOW - 60, NOW)], self.rows(
            tables.incidents, 'begun_s', 'changed_s'))
        self.assertEqual(['d2'], self.rows(tables.hosts, 'workloads_digest'))

    def test_a_conductor_whose_clock_is_far_behind(self) -> None:
        """The others would delete what it stores."""
        self.sync(report())
        answer = self.sync(report(
            incident(1, NOW + 9), incident(2, NOW + 9, 'ended'),
            limit(3, NOW + 9), wire.Kill(
                sequence=4, time_s=NOW + 9, workload='w', processes=1,
                owner='o'), sent_s=NOW + 10), NOW - 32 * DAY_S)
        self.assertEqual(NOW, answer.time_s)
        self.assertEqual([NOW], self.rows(tables.hosts, 'last_seen_s'))
        self.purged(NOW + 60)
        self.assertEqual([NOW + 9], self.rows(tables.incidents, 'ended_s'))
        self.assertEqual([NOW + 9], self.rows(tables.audit, 'time_s'))
        # A host whose clock is ahead proves nothing, nor does a conductor's.
        self.assertEqual(NOW + 20, self.sync(
            report(sent_s=NOW + 32 * DAY_S), NOW + 20).time_s)
        self.sync(report(), NOW + 32 * DAY_S)
        self.assertEqual(NOW + 30, self.sync(
            report(sent_s=NOW + 25), NOW + 30).time_s)

    def test_a_host_that_starts_with_a_clock_far_behind(self) -> None:
        """It has reported before it has heard of the conductor's time."""
        behind = NOW - 32 * DAY_S
        self.sync(report(
            incident(1, behind - 9, begun_s=behind - 69),
            incident(2, behind - 5, 'ended', begun_s=behind - 69),
            limit(3, NOW - 4, since_s=NOW - 4), sent_s=behind))
        self.purged(NOW + 60)
        self.assertEqual([(NOW - 69, NOW - 5)], self.rows(
            tables.incidents, 'begun_s', 'ended_s'))
        self.assertEqual([NOW - 4], self.rows(tables.caps, 'set_s'))

    def test_an_incident_that_began_in_the_future(self) -> None:
        """By the clocks of host and conductor, which were both ahead."""
        self.listed()
        ahead = NOW + 32 * DAY_S
        self.sync(report(incident(1, ahead, begun_s=ahead - 60),
                         sent_s=ahead), ahead)
        self.sync(report(incident(2, NOW + 10, 'ended', begun_s=ahead - 60),
                         sent_s=NOW + 10), NOW + 10)
        self.assertEqual([(NOW + 10, NOW + 10)], self.rows(
            tables.incidents, 'begun_s', 'ended_s'))
        self.assertEqual([NOW + 10], self.rows(tables.suspects, 'begun_s'))
        self.assertEqual([(HOUR, '/batch/a', 1, 0.0, 0, 0)], self.hours())

    def purged(self, now: float) -> None:
        """A conductor deletes what ended 30 days ago."""
        for _ in purge.steps(self.engine, now_s=now,
                             older_than_s=30 * DAY_S,
                             audit_older_than_s=30 * DAY_S):
            pass

    def test_a_report_each_second(self) -> None:
        """Without an entry it adds no row."""
        counted = tables.METADATA.sorted_tables
        before = []
        for second in range(60):
            self.sync(report(
                workloads=[vm('web'), batch('/batch/a')], digest='d1',
                sent_s=NOW + second, facts=wire.Facts(
                    headroom={'cpu': float(second)})), NOW + second)
            if not second:
                before = [len(self.rows(table)) for table in counted]
        self.assertEqual(before, [len(self.rows(table))
                                  for table in counted])
        self.assertEqual([NOW + 59], self.rows(tables.hosts, 'last_seen_s'))

    def test_two_machines_with_one_name(self) -> None:
        def speaks(boot_id: str, now: float) -> dict[str, Any]:
            self.sync(codec.replace(report(sent_s=now), boot_id=boot_id), now)
            [facts] = self.rows(tables.hosts, 'facts')
            return dict(facts)

        with self.assertNoLogs('scavenger_openstack.conductor.sync'):
            for number in range(3):     # it starts again and again
                speaks(f'boot-{number}', NOW + 10 * number)
                facts = speaks(f'boot-{number}', NOW + 10 * number + 5)
        self.assertNotIn('two_machines_s', facts)
        with self.assertLogs('scavenger_openstack.conductor.sync') as logs:
            for number in range(10):
                speaks(f'boot-{1 + number % 2}', NOW + 100 + number)
        self.assertEqual(1, len(logs.output))
        self.assertIn('node-1: two machines report by this name, of boots '
                      'boot-2 and boot-1', logs.output[0])
        self.assertEqual(NOW + 100, speaks('boot-2', NOW + 200)[
            'two_machines_s'])
        self.assertNotIn('two_machines_s', speaks('boot-2', NOW + 3701))

    def test_what_is_refused(self) -> None:
        self.assertIn(
            f'schema {wire.SCHEMA + 1}, this conductor takes {wire.SCHEMA}',
            str(self.assertRaises(errors.WireError, self.sync, report(
                schema=wire.SCHEMA + 1))))
        self.assertIn('node-2 sent a report in the name of node-1', str(
            self.assertRaises(errors.ForeignReport, self.sync, report(),
                              authenticated='node-2')))
        self.assertEqual([], self.rows(tables.hosts))
        self.sync(report(), authenticated=HOST)

    def test_texts_that_no_column_takes(self) -> None:
        long = 'x' * 255
        self.sync(report(
            incident(1, victim=long, signal=long, cause=long, outcome=long,
                     controller=long, antagonists=[long]),
            incident(2, NOW + 1, 'changed', cause=long, antagonists=[long],
                     victim=long),
            limit(3, workload=long, incidents=[long]),
            workloads=[wire.Workload(id=long, priority='background',
                                     instance=long, project=long,
                                     source=long)], digest='d1'))
        self.sync(report(workloads=[wire.Workload(
            id=long, priority='background', instance=long, project=long,
            source=long, vcpus=2.0)], digest='d2'))
        self.assertEqual([(2.0, None)], self.rows(
            tables.workloads, 'vcpus', 'until_s'))
        self.assertEqual(['x' * 64], self.rows(tables.antagonist_hours,
                                               'cause'))

    def test_amounts_that_cannot_be(self) -> None:
        """Sums over them still can: one host does not end what is done for
        all."""
        much = 1.7e308
        self.sync(report(
            workloads=[batch(name, instance=name, vcpus=much)
                       for name in ('a', 'b')], digest='d1',
            facts=wire.Facts(enforcing=True, used={'cpu': much},
                             headroom={'cpu': much, 'memory': 5.0})))
        with self.engine.begin() as connection:
            [host] = db_hosts.all_with_load(connection)
            self.assertEqual([], eviction_policy.short(connection, 0.5, NOW))
        self.assertEqual(2 * workloads.MOST_VCPUS, host['background_vcpus'])
        self.assertEqual(5.0, host['facts']['headroom']['memory'])
        self.assertTrue(host['facts']['used']['cpu'] < 1e20)

    def test_many_entries_at_once(self) -> None:
        names = [f'/batch/{number}' for number in range(30)]
        entries = [incident(number, number=number, victim=f'v{number % 7}',
                            antagonists=names[:20], others=names[20:])
                   for number in range(1, wire.MAX_ENTRIES + 1)]
        answer = self.sync(report(*entries, workloads=[
            batch(name) for name in names], digest='d1'))
        self.assertEqual(wire.MAX_ENTRIES, answer.acknowledged)
        self.assertEqual(wire.MAX_ENTRIES, len(self.rows(tables.incidents)))
        self.assertEqual(wire.MAX_ENTRIES * 30,
                         len(self.rows(tables.suspects)))
        self.assertEqual(wire.MAX_ENTRIES * 20,
                         sum(self.rows(tables.antagonist_hours,
                                       'incidents')))

    def test_few_statements(self) -> None:
        """What most reports cost."""
        self.listed()
        found: list[str] = []
        digest = self.sync(report(digest='d1')).directives
        assert digest is not None
        wishes = directives.Wishes()
        self.sync(report(digest='d1', holds=digest.digest), wishes=wishes)
        sqlalchemy.event.listen(
            self.engine, 'before_cursor_execute',
            lambda *arguments: found.append(arguments[2]))
        answer = self.sync(report(digest='d1', holds=digest.digest),
                           NOW + 5, wishes=wishes)
        self.assertIsNone(answer.directives)
        self.assertEqual(3, len(found), '\n'.join(found))

    def test_what_totals_cost(self) -> None:
        """Two statements where incidents add to hourly sums, else none."""
        self.listed()
        self.sync(report(incident(1)))
        found: list[str] = []
        sqlalchemy.event.listen(
            self.engine, 'before_cursor_execute',
            lambda *arguments: found.append(arguments[2]))
        for entry, statements in ((incident(2, NOW + 5, 'changed'), 2),
                                  (incident(3, NOW + 9, 'ended'), 2),
                                  (limit(4), 0),
                                  (incident(5, number=2, antagonists=()), 0)):
            found.clear()
            self.sync(report(entry), NOW + 9)
            self.assertEqual(statements, sum(
                'antagonist_totals' in one for one in found),
                '\n'.join(found))

    def test_hourly_sums_that_were_purged(self) -> None:
        """An incident that was in them goes on, with another antagonist."""
        self.listed()
        begun_s = NOW - 3 * 86400
        self.sync(report(incident(1, begun_s=begun_s)))
        with self.engine.begin() as connection:
            connection.execute(tables.antagonist_hours.delete().where(
                tables.antagonist_hours.c.hour_s < NOW - 2 * 86400))
        self.sync(report(incident(2, NOW + 5, 'changed', begun_s=begun_s,
                                  antagonists=('/batch/b',))), NOW + 5)
        self.assertEqual({'/batch/b'}, set(self.rows(
            tables.antagonist_hours, 'workload')))
        self.assertEqual(1, sum(self.rows(
            tables.antagonist_hours, 'incidents')))
