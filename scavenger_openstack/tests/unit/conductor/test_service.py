# SPDX-License-Identifier: Apache-2.0

"""The conductor as its callers see it: bytes in, bytes out."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import fixtures
from sqlalchemy import event
import testtools

from scavenger_openstack.conductor.admission import refusals
from scavenger_openstack.conductor import service
from scavenger_openstack.db import connect
from scavenger_openstack.db import schema
from scavenger_openstack.db import tables
from scavenger_openstack import errors
from scavenger_openstack.tests.unit.conductor.cloud import HOST
from scavenger_openstack.tests.unit.conductor.cloud import limit
from scavenger_openstack.tests.unit.conductor.cloud import report
from scavenger_openstack.tests.unit.conductor.service_cases import Service
from scavenger_openstack.wire import codec


FORKING = """
import os, sys
from scavenger_openstack.conductor import service
from scavenger_openstack.db import connect
engine = connect.engine(sys.argv[1])
conductor = service.Conductor(engine)
child = os.fork()
if child:
    os.waitpid(child, 0)
conductor.start()
print(conductor.advancing.turn(), flush=True)
os._exit(0)
"""


class OnSqlite(Service, testtools.TestCase):
    """A file: threads."""

    def setUp(self) -> None:
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'db')
        self.engine = connect.engine(f'sqlite:///{path}')
        schema.upgrade(self.engine)
        super().setUp()
        self.addCleanup(self.engine.dispose)

    def test_processes_of_one_that_was_made_before(self) -> None:
        """As those that a WSGI server forks: one does what one of all does.
        """
        done = subprocess.run(
            [sys.executable, '-c', FORKING, str(self.engine.url)],
            capture_output=True, text=True, timeout=60)
        self.assertEqual('0\nNone\n', done.stdout, done.stderr)

    def test_an_entry_that_cannot_be_stored(self) -> None:
        """For a reason that was not expected: it alone is left out."""
        with connect.writing(self.engine) as connection:
            connection.exec_driver_sql(
                'CREATE TRIGGER bad BEFORE INSERT ON caps WHEN '
                "NEW.workload = '/bad' BEGIN SELECT RAISE(ABORT, 'no'); END")
        good, bad = limit(1), limit(2, workload='/bad')
        whole = codec.encode(report(good, bad))
        for _ in range(service.TRIES - 1):
            self.assertRaises(errors.Unreachable, self.conductor.answer,
                              whole)
        self.assertIn('entries 1 to 2 of run run-1', self.refused(whole))
        # What the agent does then: fewer, one, none, the one again.
        self.assertEqual(1, self.answer(report(good)).acknowledged)
        for _ in range(2):
            self.assertEqual(
                'node-1: the conductor cannot store entry 2 (Limit) of run '
                'run-1: IntegrityError',
                self.refused(codec.encode(report(bad))))
            self.assertEqual(1, self.answer(report()).acknowledged)
        self.assertEqual(3, self.answer(report(limit(
            3, knob='cpu_set', value='0'))).acknowledged)
        self.assertEqual(2, len(self.rows(tables.caps)))
        self.assertEqual(
            [('agent node-1', 'report.refused', HOST)],
            self.rows(tables.audit, 'actor', 'action', 'target'))
        self.assertEqual(1, self.log.output.count('its report with'))
        # Another fault, much later, is tried again first.
        self.now += 2 * refusals.REPEAT_S
        self.assertRaises(errors.Unreachable, self.conductor.answer, whole
                          .replace(b'"sequence":2', b'"sequence":4'))

    def test_what_is_no_fault_of_the_report(self) -> None:
        """However often: of the database, of its tables, of this process."""
        whole = codec.encode(report(limit(1)))

        def later() -> None:
            for _ in range(2 * service.TRIES):
                self.assertRaises(errors.Unreachable, self.conductor.answer,
                                  whole)

        with connect.writing(self.engine) as connection:
            connection.exec_driver_sql(
                'CREATE TRIGGER bad BEFORE INSERT ON caps BEGIN SELECT '
                'abs(-9223372036854775807 - 1); END')
        later()
        with connect.writing(self.engine) as connection:
            connection.exec_driver_sql('DROP TRIGGER bad')
            connection.exec_driver_sql('ALTER TABLE caps RENAME value TO v')
        later()
        with connect.writing(self.engine) as connection:
            connection.exec_driver_sql('ALTER TABLE caps RENAME v TO value')
            connection.exec_driver_sql(
                'ALTER TABLE alembic_version RENAME TO gone')
            connection.exec_driver_sql(
                'CREATE TRIGGER bad BEFORE INSERT ON caps BEGIN SELECT '
                "RAISE(ABORT, 'of a newer version'); END")
        later()
        with connect.writing(self.engine) as connection:
            connection.exec_driver_sql(
                'ALTER TABLE gone RENAME TO alembic_version')
            connection.exec_driver_sql('DROP TRIGGER bad')
        for fault in (OSError(24, 'Too many open files'), MemoryError()):
            def fail(connection: object, fault: Exception = fault) -> None:
                raise fault

            event.listen(self.engine, 'begin', fail)
            later()
            event.remove(self.engine, 'begin', fail)
        self.assertNotIn('Traceback', self.log.output)
        self.assertEqual(1, self.answer(report(limit(1))).acknowledged)
