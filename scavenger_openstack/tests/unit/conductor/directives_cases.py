# SPDX-License-Identifier: Apache-2.0

"""What a host is told, on any database."""

from __future__ import annotations

import json
from typing import Any
from typing import get_args

import sqlalchemy

from scavenger_openstack.conductor import directives
from scavenger_openstack.conductor import service
from scavenger_openstack.conductor import specs
from scavenger_openstack.conductor import sync
from scavenger_openstack.db import claims
from scavenger_openstack.db import directives as rows
from scavenger_openstack.db import generation
from scavenger_openstack.db.resources import hosts
from scavenger_openstack.db import tables
from scavenger_openstack import errors
from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor.cloud import batch
from scavenger_openstack.tests.unit.conductor.cloud import HOST
from scavenger_openstack.tests.unit.conductor.cloud import NOW
from scavenger_openstack.tests.unit.conductor.cloud import report
from scavenger_openstack.tests.unit.conductor.cloud import vm
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import report as wire

WHO: dict[str, Any] = {'reason': 'because', 'created_by': 'admin',
                       'created_s': NOW}


class Directives(cloud.Mixin):

    def setUp(self) -> None:
        super().setUp()
        self.wishes = directives.Wishes()
        self.sync(report(workloads=[
            vm('web', 'p1', 'shop'), vm('db', 'p2', 'bank'),
            batch('/batch/a', application='shop')], digest='d1'))
        [self.host_id] = self.rows(tables.hosts, 'id')
        self.uuids = 0

    def answer(self, holds: str = '', now: float = NOW, host: str = HOST
               ) -> wire.Answer:
        answer = self.sync(report(digest='d1', holds=holds, host=host,
                                  sent_s=now), now,
                           wishes=self.wishes)
        # An agent would take it.
        codec.decode(codec.encode(answer), wire.Answer,
                     wire.MAX_ANSWER_BYTES)
        return answer

    def get(self, **more: Any) -> wire.Directives | None:
        return self.answer(**more).directives

    def got(self, **more: Any) -> wire.Directives:
        found = self.get(**more)
        assert found is not None
        return found

    def switch(self, scope: str, target: str, **more: Any) -> None:
        self.add(tables.switches, scope=scope, target=target, **{
            'protection': True, 'reason': 'a test', 'changed_by': 'admin',
            'changed_s': NOW, **more})
        self.changed()

    def rule(self, kind: str, scope: str, target: str, value: str = '',
             application: str = '') -> None:
        self.uuids += 1
        self.add(tables.rules, uuid=f'{self.uuids:032x}', kind=kind,
                 scope=scope, target=target, value=value,
                 application=application, **WHO)
        self.changed()

    def override(self, expires_s: float, **more: Any) -> None:
        self.uuids += 1
        self.add(tables.overrides, **{
            'host_id': self.host_id, 'uuid': f'{self.uuids:032x}',
            'workload': '/batch/a', 'knob': 'cpu_cores', 'value': 0.5,
            'expires_s': expires_s, **WHO, **more})
        self.changed()

    def aggregate(self, name: str, *hosts: str) -> None:
        for host in hosts or (HOST,):
            self.add(tables.aggregate_hosts, aggregate=name, host=host,
                     named=True, nova=False)
        self.changed()

    def test_nothing_wanted(self) -> None:
        found = self.got()
        self.assertEqual((True, '', [], [], [], [], False), (
            found.protection, found.protection_reason, found.tags,
            found.exempt, found.overrides, found.specs, found.governed))
        self.assertIsNone(self.answer().budget)
        self.assertEqual(NOW, found.issued_s)
        self.assertIsNone(self.get(holds=found.digest))
        self.assertIsNone(self.get(holds=found.digest, now=NOW + 500))
        self.assertEqual(found.digest, self.got(holds='other').digest)

    def followed_s(self) -> float:
        [facts] = self.rows(tables.hosts, 'facts')
        found: float = facts['followed_s']
        return found

    def followed(self) -> int:
        [facts] = self.rows(tables.hosts, 'facts')
        found: int = facts['followed']
        return found

    def test_up_to_when_a_host_has_got_all(self) -> None:
        """What is asked for after that is not known to be followed."""
        held = self.got().digest
        self.assertEqual(0.0, self.followed_s())
        for later in (10.0, 20.0):
            self.get(holds=held, now=NOW + later)
            self.assertEqual(NOW + later, self.followed_s())
        before = self.generation()
        self.assertEqual(before, self.followed())
        self.switch('cloud', '', protection=False)
        held = self.got(holds=held, now=NOW + 30.0).digest
        self.assertEqual(NOW + 20.0, self.followed_s())
        self.assertEqual(before, self.followed())
        self.get(holds=held, now=NOW + 40.0)
        self.assertEqual(NOW + 40.0, self.followed_s())
        self.assertEqual(before + 1, self.followed())

    def test_without_memory(self) -> None:
        """Another conductor process says the same."""
        found = self.got()
        self.wishes = directives.Wishes()
        self.assertIsNone(self.get(holds=found.digest))

    def test_protection(self) -> None:
        self.aggregate('racks')
        held = self.got().digest
        self.switch('aggregate', 'others', protection=False)
        self.switch('host', 'node-2', protection=False)
        self.assertIsNone(self.get(holds=held))
        self.switch('host', HOST)
        self.switch('aggregate', 'racks', protection=False)
        found = self.got(holds=held)
        self.assertFalse(found.protection)
        self.assertEqual('switched off for aggregate racks: a test',
                         found.protection_reason)
        self.switch('cloud', '', protection=False)
        self.assertEqual('switched off for the cloud: a test',
                         self.got().protection_reason)
        self.delete(tables.switches)
        self.changed()
        self.assertEqual(held, self.got(holds=found.digest).digest)

    def test_the_switch_of_a_host_by_another_name(self) -> None:
        """Nova has a domain in the name, or the agent has."""
        self.aggregate('racks', f'{HOST}.example.org', 'node-2')
        self.switch('aggregate', 'racks', protection=False)
        for host in (HOST, 'node-2.example.org'):
            for _ in range(2):      # it is new, then it is known
                found = self.got(host=host)
                self.assertEqual(
                    (False, 'switched off for aggregate racks: a test'),
                    (found.protection, found.protection_reason))
                self.wishes = directives.Wishes()
        self.assertTrue(self.got(host=f'{HOST}.a.org').protection)

    def test_the_switch_of_a_host_that_was_renamed(self) -> None:
        """The row of its old name is silent."""
        self.aggregate('racks', HOST)
        for scope, target in (('aggregate', 'racks'), ('host', HOST)):
            self.delete(tables.switches)
            self.switch(scope, target, protection=False)
            for now in (NOW, NOW + 600):
                self.wishes = directives.Wishes()
                host = f'{HOST}.example.org'
                self.assertFalse(self.got(
                    host=host, now=now, holds='x').protection)
                with self.engine.connect() as connection:
                    self.assertEqual(
                        (False, f'switched off for {scope} {target}: a test'),
                        rows.of_host(connection, host).protection(host))

    def test_the_switch_of_a_name_that_is_removed(self) -> None:
        """It stays as long as another host may be meant, and goes then."""
        renamed = f'{HOST}.example.org'
        self.get(host=renamed)
        self.switch('host', HOST, protection=False)
        for removed, there in ((HOST, [HOST]), (renamed, [])):
            with self.engine.begin() as connection:
                hosts.remove(connection, removed, actor='a', now_s=NOW)
            self.assertEqual(there, self.rows(tables.switches, 'target'))

    def test_without_a_trace_in_the_audit(self) -> None:
        """It is seen a few seconds later."""
        held = self.got().digest
        self.aggregate('racks')
        with self.engine.begin() as connection:
            connection.execute(tables.switches.insert().values(
                scope='cloud', target='', protection=False, reason='',
                changed_by='', changed_s=NOW))
        self.assertIsNotNone(self.get(holds=held,
                                      now=NOW + directives.RELOAD_S))

    def generation(self) -> int:
        with self.engine.begin() as connection:
            return generation.current(connection)

    def test_no_report_is_a_wish(self) -> None:
        """However often agents start, and whatever they report: else each
        conductor would read all rules again."""
        self.rule('priority', 'project', 'p1', 'background')
        held = self.got().digest
        before, reads = self.generation(), []

        def execute(connection: Any, cursor: Any, statement: str,
                    *more: Any) -> None:
            reads.extend(['rules'] * ('FROM rules' in statement))

        sqlalchemy.event.listen(self.engine, 'after_cursor_execute', execute)
        self.addCleanup(sqlalchemy.event.remove, self.engine,
                        'after_cursor_execute', execute)
        conductor = service.Conductor(self.engine, lambda: NOW,
                                      require_token=True)
        self.sync(report(cloud.incident(1, number=7), host='node-2'),
                  wishes=self.wishes)
        event = wire.AgentEvent(sequence=1, time_s=NOW, what='started')
        entries: list[wire.AnyEntry] = [
            cloud.incident(1, number=7), cloud.limit(1),
            wire.Kill(sequence=1, time_s=NOW, processes=2,
                      workload='/batch/a', owner='memory'),
            cloud.statistics(1, NOW, 5, 1.0, 0.1),
            wire.Profiling(sequence=1, time_s=NOW, id='x', what='began',
                           workload='web'),
            event, codec.replace(event, what='state'),
            codec.replace(event, what='ended')]
        # Others are made by a conductor that does not know a type.
        self.assertEqual({*get_args(wire.AnyEntry)} - {wire.OtherEntry},
                         set(map(type, entries)))
        for number, entry in enumerate(entries):
            found = report(entry, run=f'run-{number}', digest='d1',
                           holds=held)
            self.assertIsNone(self.sync(
                found, wishes=self.wishes).directives)
            self.assertRaises(errors.ForeignReport, conductor.answer,
                              codec.encode(found), 'node-3')
            self.assertRaises(errors.ForeignReport, conductor.answer,
                              codec.encode(found))
        self.assertEqual(
            {'agent.started', 'agent.state', 'agent.ended', 'kill',
             'report.refused'}, set(self.rows(tables.audit, 'action')))
        self.assertEqual([], reads)
        self.assertEqual(before, self.generation())

    def test_settings(self) -> None:
        held = self.got().digest
        settings = {'modes': {'attribution': 'enforce'},
                    'parameters': {'attribution.cap_s': 60.0}}
        with self.engine.begin() as connection:
            connection.execute(tables.hosts.update().values(
                settings=settings))
        found = self.got(holds=held)
        self.assertEqual(settings, {'modes': found.modes,
                                    'parameters': found.parameters})

    def test_settings_of_an_aggregate(self) -> None:
        """The host's own come first, then the first aggregate by name."""
        for name, modes, parameters in (
                ('a', {'attribution': 'observe'}, {'scavenger.memory_c': 3}),
                ('b', {'attribution': 'off', 'scavenger': 'off',
                       'perfiso': 'off'},
                 {'scavenger.memory_c': 4, 'scavenger.ipc_c': 4}),
                ('other', {'io_shares': 'off'}, {})):
            self.add(tables.aggregate_settings, aggregate=name,
                     settings={'modes': modes, 'parameters': parameters})
            self.aggregate(name, 'node-2' if name == 'other' else HOST)
        with self.engine.begin() as connection:
            connection.execute(tables.hosts.update().values(
                settings={'modes': {'scavenger': 'observe'}}))
        found = self.got()
        self.assertEqual(
            ({'attribution': 'observe', 'scavenger': 'observe',
              'perfiso': 'off'},
             {'scavenger.memory_c': 3, 'scavenger.ipc_c': 4}),
            (found.modes, found.parameters))
        self.assertEqual({'io_shares': 'off'}, self.got(host='node-2').modes)
        self.delete(tables.aggregate_hosts)
        self.changed()
        found = self.got()
        self.assertEqual(({'scavenger': 'observe'}, {}),
                         (found.modes, found.parameters))

    def test_priorities(self) -> None:
        """That of the instance, else of the project, else of an
        aggregate."""
        self.aggregate('racks')
        self.rule('priority', 'aggregate', 'racks', 'background')
        self.rule('priority', 'project', 'p1', 'background', 'spark')
        self.rule('priority', 'instance', 'u-elsewhere', 'background')
        self.assertEqual(
            [('u-db', 'background', '', 'aggregate'),
             ('u-web', 'background', 'spark', 'project')],
            [(tag.instance, tag.priority, tag.application, tag.source)
             for tag in self.got().tags])
        self.rule('priority', 'instance', 'u-web', 'foreground')
        self.assertEqual(['background', 'foreground'],
                         [tag.priority for tag in self.got().tags])

    def test_exemptions(self) -> None:
        self.rule('exemption', 'project', 'p1')
        self.rule('exemption', 'project', 'p3')
        self.rule('exemption', 'instance', 'u-db')
        self.assertEqual(['p1', 'u-db'], self.got().exempt)
        self.aggregate('racks')
        self.rule('exemption', 'aggregate', 'racks')
        self.assertEqual(
            ['p1', 'u-db', 'u-web'],
            self.got().exempt)

    def test_overrides(self) -> None:
        self.override(NOW + 60)
        self.override(NOW + 120, knob='cpu_set', value='0-1')
        self.override(NOW + 120, knob='io_ops_per_s', value=None)
        self.override(NOW - 1)
        self.override(NOW + 60, deleted_s=NOW)
        found = self.got()
        self.assertEqual(
            [('/batch/a', 'cpu_cores', 0.5, NOW + 60),
             ('/batch/a', 'cpu_set', '0-1', NOW + 120),
             ('/batch/a', 'io_ops_per_s', None, NOW + 120)],
            [(one.workload, one.knob, one.value, one.expires_s)
             for one in found.overrides])
        self.assertIsNone(self.get(holds=found.digest, now=NOW + 59))
        later = self.got(holds=found.digest, now=NOW + 60)
        self.assertEqual(['cpu_set', 'io_ops_per_s'],
                         [one.knob for one in later.overrides])

    def test_more_than_an_agent_takes(self) -> None:
        """It learns that there is more."""
        with self.engine.begin() as connection:
            connection.execute(tables.overrides.insert(), [{
                'host_id': self.host_id, 'uuid': f'{number:032x}',
                'workload': f'/batch/{number}', 'knob': 'cpu_cores',
                'value': 0.5, 'expires_s': NOW + 60, **WHO}
                for number in range(directives.MOST['overrides'] + 1)])
        self.changed()
        directives_ = self.got()
        self.assertEqual(
            (directives.MOST['overrides'], ['overrides']),
            (len(directives_.overrides), directives_.left_out))

    def test_more_than_an_answer_holds(self) -> None:
        """What is sent without a part says so, and has the kill switch."""
        self.switch('cloud', '', protection=False)
        with self.engine.begin() as connection:
            connection.execute(tables.hosts.update().values(
                settings={'parameters': {'cpi2.f': 'x' * 3000}}))
        self.override(NOW + 60)
        answer = self.sync(report(digest='d1'), wishes=self.wishes)
        whole = answer.directives
        assert whole is not None
        lines: list[str] = []

        def is_due(what: str) -> bool:
            lines.append(what)
            return True

        data = directives.encoded(answer, HOST, is_due)
        sent = codec.decode(data, wire.Answer, wire.MAX_ANSWER_BYTES
                            ).directives
        assert sent is not None
        self.assertEqual(
            (False, {}, 1, ['parameters'], whole.digest),
            (sent.protection, sent.parameters, len(sent.overrides),
             sent.left_out, sent.digest))
        self.assertEqual(['parameters'], lines)

    def test_overrides_of_another_host(self) -> None:
        self.override(NOW + 60)
        self.assertEqual([], self.got(host='node-2').overrides)

    def spec(self, **more: Any) -> None:
        self.add(tables.specs, **{
            'project': 'p1', 'application': 'shop', 'signal': 'cpi',
            'mean': 1.8, 'stddev': 0.16, 'n': 500, 'm2': 12.8, 'day_s': 0,
            'cpu_cores': 0.75, 'cpu_model': 'epyc', **more})

    def tasks(self, count: int) -> None:
        """So many VMs of the application are on another host."""
        self.sync(report(workloads=[
            *(vm(f'web-{number}', 'p1', 'shop') for number in range(count)),
            vm('other', 'p2', 'shop')], host='node-2', digest=f'd{count}'))

    def specs_made(self) -> None:
        """What a conductor leaves that has made specs."""
        with self.engine.begin() as connection:
            claims.count(connection, rows.SPECS_CHANGED)
            generation.count(connection)

    def test_specs(self) -> None:
        """Those that the host can use: of its applications and CPUs, and of
        enough samples."""
        self.tasks(4)
        self.spec()
        for other in ({'cpu_model': 'xeon'}, {'application': 'mail'},
                      {'project': 'p2'}, {'signal': 'io_wait', 'n': 499}):
            self.spec(**other)
        self.assertEqual([], self.got().specs)  # nothing says that they are
        self.specs_made()
        held = self.got()
        self.assertEqual([wire.Spec(
            project='p1', application='shop', cpu_model='epyc', signal='cpi',
            mean=1.8, stddev=0.16, n=500, cpu_cores=0.75)], held.specs)
        self.assertIsNone(self.get(holds=held.digest))
        self.spec(signal='run_delay')
        self.specs_made()
        self.assertEqual(2, len(self.got(holds=held.digest).specs))

    def test_specs_without_the_audit(self) -> None:
        """Its old rows are deleted; the specs are not."""
        self.tasks(4)
        self.sync(report(cloud.statistics(1, NOW, 300, 1.0, 0.1),
                         cloud.statistics(2, NOW + 3600, 300, 1.0, 0.1)),
                  NOW + 3600)
        list(specs.refresh(self.engine, NOW + 10800))
        self.delete(tables.audit)
        [spec] = self.got().specs
        self.assertEqual(('p1', 'shop', 1.0),
                         (spec.project, spec.application, spec.mean))

    def test_specs_of_few_tasks(self) -> None:
        """None below five on all hosts together: CPI2, section 3.1."""
        self.spec(n=10 ** 6)
        for count, there in ((0, 0), (3, 0), (4, 1), (30, 1), (3, 0)):
            self.tasks(count)
            self.specs_made()
            self.assertEqual(there, len(self.got().specs),
                             f'{count} on the other host')

    def test_specs_of_another_cpu(self) -> None:
        """A host whose CPUs are others gets others at once."""
        self.tasks(4)
        self.spec(cpu_model='xeon')
        self.specs_made()
        held = self.got()
        self.assertEqual([], held.specs)
        answer = self.sync(report(
            digest='d1', holds=held.digest, facts=wire.Facts(
                cpu_model='xeon')), wishes=self.wishes)
        assert answer.directives is not None
        self.assertEqual(['xeon'], [one.cpu_model
                                    for one in answer.directives.specs])

    def test_new_workloads(self) -> None:
        self.rule('priority', 'instance', 'u-new', 'background')
        held = self.got().digest
        answer = self.sync(report(workloads=[vm('new')], digest='d2',
                                  holds=held), wishes=self.wishes)
        assert answer.directives is not None
        self.assertEqual(['u-new'], [tag.instance
                                     for tag in answer.directives.tags])

    def test_budget(self) -> None:
        """Hosts of an aggregate share; each minute is new."""
        hosts = [HOST, 'node-2', 'node-3']
        for host in hosts[1:]:
            self.get(host=host)
        self.aggregate('racks', *hosts[:2])
        self.govern('cloud', '', 7)
        self.govern('aggregate', 'racks', 3)
        self.govern('host', 'node-3', 1)
        minute = NOW // 60 * 60
        for turn in range(6):
            begin = minute + 60 * turn
            found = {host: self.answer(host=host, now=begin + 10).budget
                     for host in hosts}
            limits = {host: budget.limits for host, budget in found.items()
                      if budget is not None}
            self.assertEqual({begin + 60}, {
                budget.until_s for budget in found.values()
                if budget is not None})
            self.assertLessEqual(limits[HOST] + limits['node-2'], 3)
            self.assertLessEqual(sum(limits.values()), 7)
            self.assertEqual(1, limits['node-3'])

    def test_a_budget_is_no_other_directives(self) -> None:
        """Else all of them are worked out and sent each minute."""
        free = self.got().digest
        self.govern('cloud', '', 7)
        found = self.got(holds=free)
        self.assertTrue(found.governed)
        reads: list[str] = []

        def execute(connection: Any, cursor: Any, statement: str,
                    *more: Any) -> None:
            reads.extend(['tags'] * ('SELECT flavor_tags.' in statement))

        sqlalchemy.event.listen(self.engine, 'after_cursor_execute', execute)
        self.addCleanup(sqlalchemy.event.remove, self.engine,
                        'after_cursor_execute', execute)
        self.get(holds=found.digest)
        del reads[:]
        for minute in range(1, 5):
            now = (NOW // 60 + minute) * 60
            answer = self.answer(holds=found.digest, now=now)
            self.assertIsNone(answer.directives)
            self.assertEqual(wire.Budget(limits=7, until_s=now + 60),
                             answer.budget)
        self.assertEqual([], reads)
        self.delete(tables.switches)
        self.changed()
        answer = self.answer(holds=found.digest, now=NOW + 600)
        assert answer.directives is not None
        self.assertEqual((None, free),
                         (answer.budget, answer.directives.digest))

    def govern(self, scope: str, target: str, limits: int) -> None:
        """A governor's number; Nova knows the hosts."""
        if not self.rows(tables.compute_services):
            self.add_services(HOST, 'node-2', 'node-3', 'node-9')
        self.switch(scope, target, caps_per_minute=limits)

    def limits(self, host: str = HOST, now: float = NOW) -> int | None:
        budget = self.answer(host=host, now=now).budget
        return None if budget is None else budget.limits

    def test_a_host_that_joins(self) -> None:
        """It has its part from the next minute on."""
        self.govern('cloud', '', 100)
        self.assertEqual([100, 0, 0, 100], [
            self.limits(), self.limits('node-9'),
            self.limits('node-9', NOW + directives.RELOAD_S),
            self.limits(now=NOW + directives.RELOAD_S)])
        self.assertEqual([50, 50], [
            self.limits(host, NOW + 60) for host in (HOST, 'node-9')])

    def test_a_host_that_comes_back(self) -> None:
        """After more than a day; meanwhile the others have its part."""
        self.govern('cloud', '', 100)
        self.got(host='node-2')
        later = NOW + directives.SEEN_S + 60
        self.assertEqual([100, 0, 100], [
            self.limits(now=later), self.limits('node-2', later + 1),
            self.limits(now=later + directives.RELOAD_S)])
        self.assertEqual([50, 50], [
            self.limits(host, later + 60) for host in (HOST, 'node-2')])

    def test_a_number_that_changes(self) -> None:
        """In the middle of a minute, whichever conductor is asked."""
        self.get(host='node-2')
        self.govern('cloud', '', 100)
        self.assertEqual(50, self.limits())
        with self.engine.begin() as connection:
            connection.execute(tables.switches.update().values(
                caps_per_minute=10))
        self.changed()
        for _ in range(2):
            self.assertEqual([50, 50, 5, 5], [
                self.limits(host, now) for now in (NOW, NOW + 60)
                for host in (HOST, 'node-2')])
            self.wishes = directives.Wishes()

    def test_a_number_that_is_removed(self) -> None:
        """It counts no more, at once where it was the last."""
        self.govern('cloud', '', 100)
        self.govern('host', 'node-2', 1)
        self.assertEqual([100, 0], [self.limits(), self.limits('node-2')])
        with self.engine.begin() as connection:
            connection.execute(tables.switches.update().where(
                tables.switches.c.scope == 'cloud').values(
                    caps_per_minute=None))
        self.changed()
        self.assertEqual([100, None, 1], [
            self.limits(), self.limits(now=NOW + 60),
            self.limits('node-2', NOW + 60)])
        self.delete(tables.switches)
        self.changed()
        self.assertIsNone(self.limits('node-2', NOW + 60))

    def test_a_host_that_leaves_an_aggregate(self) -> None:
        """Its part of the minute stays its own."""
        self.get(host='node-2')
        self.aggregate('racks', HOST, 'node-2')
        self.govern('aggregate', 'racks', 10)
        self.assertEqual(5, self.limits())
        with self.engine.begin() as connection:
            connection.execute(tables.aggregate_hosts.delete().where(
                tables.aggregate_hosts.c.host == HOST))
        self.changed()
        self.wishes = directives.Wishes()
        self.assertEqual([5, 5, None, 10], [
            self.limits(host, now) for now in (NOW, NOW + 60)
            for host in (HOST, 'node-2')])

    def test_a_division_that_is_not_stored(self) -> None:
        """The transaction fails, and another conductor divides."""
        self.govern('cloud', '', 100)
        with self.engine.connect() as connection:
            sync.sync(connection, report(), NOW, wishes=self.wishes)
            connection.rollback()
        self.sync(report(host='node-2'), wishes=directives.Wishes())
        self.assertEqual(50, self.limits())
        self.assertEqual(1, len(self.rows(tables.governor_minutes)))

    def test_old_minutes_are_deleted(self) -> None:
        self.govern('cloud', '', 100)
        for minute in range(rows.KEPT_MINUTES + 5):
            self.got(now=NOW + 60 * minute)
        self.assertEqual(rows.KEPT_MINUTES,
                         len(self.rows(tables.governor_minutes)))

    def test_minutes_whose_ids_have_gaps(self) -> None:
        """Those of a cluster of databases do."""
        ids = range(1, 100, rows.KEPT_MINUTES)
        for number in ids:
            self.add(tables.governor_minutes, id=number, minute=number,
                     shares={})
        self.govern('cloud', '', 100)
        self.got()
        self.assertEqual(len(ids) + 1,
                         len(self.rows(tables.governor_minutes)))

    def test_a_conductor_with_another_clock(self) -> None:
        """What it divides does not end what others have divided."""
        self.govern('cloud', '', 7)
        self.assertEqual(7, self.limits())
        for ahead_s in (3600.0, 32 * 86400.0, -3600.0):
            self.wishes = directives.Wishes()
            self.got(now=NOW + ahead_s)
        self.delete(tables.switches)
        self.switch('cloud', '', caps_per_minute=100)
        self.wishes = directives.Wishes()
        self.assertEqual(7, self.limits())

    def test_the_same_in_every_process(self) -> None:
        self.rule('priority', 'project', 'p1', 'background')
        self.override(NOW + 60)
        first = self.got()
        self.wishes = directives.Wishes()
        second = self.got()
        self.assertEqual(json.loads(codec.encode(first)),
                         json.loads(codec.encode(second)))
