# SPDX-License-Identifier: Apache-2.0

"""The ``openstack`` commands against the real API."""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import fixtures
from sqlalchemy import event
from sqlalchemy import update
import testtools

from scavenger_openstack.db import claims
from scavenger_openstack.db import connect
from scavenger_openstack.db import evictions
from scavenger_openstack.db.resources import aggregates
from scavenger_openstack.db import tables
from scavenger_openstack.tests.functional import openstack_shell
from scavenger_openstack.tests.functional.openstack_shell import INCIDENT
from scavenger_openstack.tests.functional.openstack_shell import SCAN
from scavenger_openstack.tests.functional.openstack_shell import WEB


class Commands(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.plane = self.useFixture(openstack_shell.ControlPlane())

    def text(self, *words: str, err: str = '') -> str:
        """What a command prints.

        :param err: what is in its standard error, which else is empty
        """
        done = openstack_shell.openstack(*words)
        self.assertEqual(0, done.status, str(done))
        self.assertIn(err, done.err)
        self.assertEqual(bool(err), bool(done.err), str(done))
        return done.out

    def nothing(self, *words: str, err: str = 'No ') -> None:
        """A listing is empty, and says so to people."""
        self.assertEqual('[]\n', self.text(*words, '-f', 'json', err=err))

    def json(self, *words: str) -> Any:
        return json.loads(self.text(*words, '-f', 'json'))

    def cells(self, *words: str) -> list[list[str]]:
        """The cells of a table, its titles first."""
        return [[cell.strip() for cell in line.split('|')[1:-1]]
                for line in self.text(*words).splitlines()
                if line.startswith('|')]

    def test_antagonists(self) -> None:
        self.assertEqual(
            [['Antagonist', 'Host', 'Project', 'Incidents', 'Victims',
              'Interference', 'Causes', 'Disturbs Now', 'Limited Now'],
             ['/batch/steady', 'compute-1', '', '2', '1', '8.3 min', 'core',
              'no', 'no'],
             [SCAN, 'compute-1', '', '4', '2', '3 min', 'core', 'no',
              'yes']],
            self.cells('antagonist', 'list', '--earlier'))
        self.assertEqual(
            [[SCAN, 'compute-1', '', '4', '2', '3 min', 'core', 'no',
              'yes']],
            self.cells('antagonist', 'list')[1:])
        found = self.json('antagonist', 'list', '--sort', 'victims',
                          '--since', '3d', '--host', 'compute-1',
                          '--victim-project', 'p1', '--long')
        self.assertEqual([(SCAN, 180.0, 2, True, 2),
                          ('/batch/steady', 500.0, 1, False, 1)],
                         [(row['workload'], row['interference_s'],
                           row['victims'], row['limited'], row['confirmed'])
                          for row in found])
        for nothing in (('--project', 'p1'), ('--host', 'compute-2'),
                        ('--since', '2020-01-01', '--until', '2020-01-02')):
            self.nothing('antagonist', 'list', *nothing)

    def test_report(self) -> None:
        hour_s = int(time.time() // 3600 * 3600) - 7200
        with connect.writing(self.plane.engine) as connection:
            connection.execute(tables.victim_hours.insert().values(
                host_id=1, hour_s=hour_s, victim='web', project='=p1',
                application='shop', incidents=2, interference_s=5400.0))
            connection.execute(tables.background_hours.insert().values(
                host_id=1, hour_s=hour_s, core_s=7200.0,
                byte_s=3600.0 * 2 ** 30))
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'page')
        totals = ('2 incidents, 1.5 h of interference; background work got '
                  '2.0 core-h and 1.0 GiB-h')
        [[row]] = [json.loads(self.text(
            'interference', 'report', '-f', 'json', '--html', str(path),
            err=totals))]
        self.assertEqual(('=p1', 'shop', 1, 2, 5400.0), tuple(row.values()))
        self.assertIn('=p1', path.read_text())
        self.assertIn("\"'=p1\"", self.text(
            'interference', 'report', '-f', 'csv', err=totals))
        [row] = json.loads(self.text(
            'interference', 'report', '--by', 'host', '--since', '1d', '-f',
            'json', err=totals))
        self.assertEqual(('compute-1', 7200.0), (
            row['host'], row['background_core_s']))
        for words in (('--by', 'rack'), ('--html', '/nowhere/page'),
                      ('--since', 'noon'), ('--limit', '0')):
            self.assertNotEqual(0, openstack_shell.openstack(
                'interference', 'report', *words).status, words)

    def test_incidents(self) -> None:
        [titles, row] = self.cells('interference', 'incident', 'list')
        self.assertEqual([INCIDENT, '1.5 min', 'compute-1', 'core', SCAN,
                          'confirmed'],
                         [row[0], row[2], row[3], *row[5:]])
        self.assertEqual('web\\x1b[2J\\u202e\\n+----+', row[4])
        [found] = self.json(
            'interference', 'incident', 'list', '--long', '--host',
            'compute-1', '--project', 'p1', '--victim', WEB, '--antagonist',
            SCAN, '--cause', 'core', '--outcome', 'confirmed', '--since', '1h')
        self.assertEqual(
            (INCIDENT, WEB, openstack_shell.EVIL, 90.0, [SCAN]),
            (found['id'], found['victim'], found['victim_name'],
             found['duration_s'],
             [one['workload'] for one in found['antagonists']]))
        self.nothing('interference', 'incident', 'list', '--outcome',
                     'open')

    def test_an_incident_is_drawn(self) -> None:
        text = self.text('interference', 'incident', 'show', INCIDENT)
        self.assertRegex(text, r'\| Threshold +\| 0\.15 ')
        self.assertIn(f'{SCAN}: score 0.93, antagonist', text)
        drawn = text.rpartition('+\n')[2].splitlines()
        self.assertEqual('web\\x1b[2J\\u202e\\n+----+ (victim): '
                         'run_delay 0.05 to 0.43', drawn[0])
        self.assertIn(f'{SCAN} (antagonist, score 0.93): '
                      'cpu_cores 0.1 cores to 3.9 cores', drawn)
        self.assertIn('─ limited: cpu_cores 0.5 cores', drawn)
        self.assertEqual(1, sum('| begun ' in line for line in drawn))
        self.assertEqual(79, len(drawn[-2]))
        self.assertTrue(all(len(line) < 80 for line in drawn), drawn)
        narrow = self.text('interference', 'incident', 'show', INCIDENT,
                           '--max-width', '60')
        self.assertEqual(59, len(narrow.splitlines()[-2]))

    def test_why_an_incident_names_them(self) -> None:
        """One sentence each, printable, and the numbers as data."""
        victim = 'web\\x1b[2J\\u202e\\n+----+'
        text = self.text('interference', 'incident', 'show', INCIDENT,
                         '-c', 'grounds', '-c', 'suspects')
        for fact in (
                f'{SCAN} ran during 86 % of the 1.9 s that {victim} waited '
                'for a CPU (within 2 s)',
                f'the host itself (kworker, {victim}) ran during 5 %',
                'r = 0.93', 'probability of 0.001',
                'was 0.41 s waited per s of CPU time without a limit'):
            self.assertIn(fact, text)
        grounds = self.json('interference', 'incident', 'show',
                            INCIDENT)['grounds']
        self.assertEqual(
            [('direct', SCAN, 0.86, 1.9, None),
             ('direct', '', 0.05, 1.9, None),
             ('timing', SCAN, 0.93, None, 0.001),
             ('experiment', SCAN, None, None, None)],
            [tuple(one[field] for field in (
                'kind', 'workload', 'share', 'waited_s', 'chance'))
             for one in grounds])

    def test_an_antagonist_that_is_foreground(self) -> None:
        with connect.writing(self.plane.engine) as connection:
            connection.execute(update(tables.suspects).where(
                tables.suspects.c.workload == '/batch/steady').values(
                    antagonist=True, foreground=True))
            connection.execute(update(tables.workloads).where(
                tables.workloads.c.name == '/batch/steady').values(
                    priority='foreground'))
        self.assertIn(
            '/batch/steady: score 0.08, antagonist, foreground: never '
            'limited', self.text('interference', 'incident', 'show',
                                 INCIDENT))
        self.assertEqual(
            ['Limited Now', 'never: foreground', 'yes'],
            [row[-1] for row in self.cells('antagonist', 'list',
                                           '--earlier')])
        self.assertEqual([True, False], [
            row['foreground'] for row in self.json('antagonist', 'list',
                                                   '--long', '--earlier')])

    def test_what_a_project_sees_of_grounds(self) -> None:
        self.useFixture(openstack_shell.ControlPlane(
            'noauth', HTTP_X_ROLES='reader', HTTP_X_PROJECT_ID='p1',
            HTTP_X_USER_ID='u'))
        text = self.text('interference', 'incident', 'show', INCIDENT,
                         '-c', 'grounds')
        self.assertIn('another workload or the host itself ran during 90 % '
                      'of the 1.9 s', text)
        for hidden in (SCAN, 'kworker', '0.93'):
            self.assertNotIn(hidden, text)

    def test_an_incident_as_data(self) -> None:
        found = self.json('interference', 'incident', 'show', INCIDENT)
        self.assertEqual(3, len(found['evidence']))
        self.assertEqual([0.08, 0.08], found['evidence'][2]['values'][-2:])
        self.assertEqual(0.5, found['caps'][0]['value'])
        self.assertEqual('1.5 min\n', re.sub(
            '.*Duration *\\| (.*?) *\\|.*', r'\1', self.text(
                'interference', 'incident', 'show', INCIDENT, '-c',
                'duration_s'), flags=re.S) + '\n')

    def test_the_real_program_in_an_old_locale(self) -> None:
        """No character that such a terminal does not have, whatever tenants
        call their instances; a page is UTF-8 all the same."""
        with connect.writing(self.plane.engine) as connection:
            connection.execute(update(tables.workloads).values(
                display_name='ü中'))
            connection.execute(tables.victim_hours.insert().values(
                host_id=1, hour_s=int(time.time() // 3600 * 3600) - 7200,
                victim='web', project='ü中', incidents=2,
                interference_s=5400.0))
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'page')
        environ = {**os.environ, 'LC_ALL': 'C', 'PYTHONUTF8': '0',
                   'PYTHONCOERCECLOCALE': '0', 'PYTHONPATH': str(
                       pathlib.Path(__file__).parents[3])}
        for words, name in ((('incident', 'show', INCIDENT), b'^^^'),
                            (('report', '--html', str(path)), b'| 1.5 h')):
            done = subprocess.run(
                [sys.executable, '-m', 'openstackclient.shell',
                 'interference', *words], env=environ, timeout=120,
                capture_output=True)
            self.assertEqual(0, done.returncode, str(done))
            self.assertTrue(done.stdout.isascii(), done.stdout)
            self.assertIn(name, done.stdout)
            self.assertIn(rb'\xfc\u4e2d', done.stdout)
        self.assertIn('ü中', path.read_text('utf-8'))

    def test_caps(self) -> None:
        [titles, row] = self.cells('interference', 'cap', 'list')
        self.assertEqual(['compute-1', SCAN, 'cpu_cores', '0.5 cores',
                          'attribution'], row[:5])
        self.assertEqual('run_delay of web\\x1b[2J\\u202e\\n+----+ (6d2a6a52) '
                         'rises from ...', row[6])
        [found] = self.json('interference', 'cap', 'list', '--past',
                            '--knob', 'memory_bytes', '--long')
        self.assertEqual((2.0 ** 29, 2.0 ** 31,
                          'scavenger no longer needs it'),
                         (found['value'], found['original'], found['why']))
        [titles, row] = self.cells('interference', 'cap', 'list', '--past')
        self.assertEqual('512 MiB', row[3])
        self.assertEqual(['Removed (UTC)', 'Removed for'], titles[-2:])
        self.assertEqual('scavenger no longer needs it', row[-1])
        self.assertRegex(row[-2], '^20')

    def test_overrides(self) -> None:
        made = self.json(
            'interference', 'cap', 'set', 'compute-1', SCAN, 'cpu_cores',
            '1.5', '--expires', '2h', '--reason', 'backup runs late')
        self.assertEqual((SCAN, 1.5, 'admin'),
                         (made['workload'], made['value'],
                          made['created_by']))
        [titles, row] = self.cells('interference', 'cap', 'list',
                                   '--overrides')
        self.assertEqual(['compute-1', SCAN, 'cpu_cores', '1.5 cores'],
                         row[:4])
        self.assertEqual(('admin', 'not known', 'backup runs late'),
                         (*row[5:7], row[8]))
        self.assertIn('gets it with its next report', row[7])
        self.assertEqual(made['id'], self.json(
            'interference', 'cap', 'list', '--long')[0]['override'])
        self.assertEqual('', self.text(
            'interference', 'cap', 'unset', 'compute-1', SCAN, 'cpu_cores',
            '--reason', 'it is done'))
        self.nothing('interference', 'cap', 'list', '--overrides',
                     err='No override.')
        self.assertEqual('it is done', self.json(
            'interference', 'audit', 'list')[0]['reason'])

    def test_no_limit_is_an_override_too(self) -> None:
        text = self.text('interference', 'cap', 'set', 'compute-1', SCAN,
                         'cpu_cores', 'none', '--expires', '30m',
                         '--reason', 'let it run')
        self.assertRegex(text, r'\| Limit +\| no limit')
        [made] = self.json('interference', 'cap', 'list', '--overrides')
        self.assertIsNone(made['value'])

    def test_hosts(self) -> None:
        titles, *rows = self.cells('interference', 'host', 'list', '--long')
        one, two = sorted((dict(zip(titles, row, strict=True))
                           for row in rows), key=lambda row: row['Host'])
        self.assertEqual(
            ('yes', 'no', 'attribution=enforce', 'attribution 3/4 (75%)',
             'cpu 3.5 cores, memory 1,024 MiB'),
            (one['Enforcing'], one['Silent'], one['Modes'],
             one['Precision'], one['Headroom']))
        self.assertEqual(('no', 'yes', 'the stop file is there',
                          'attribution 0/0'),
                         (two['Enforcing'], two['Silent'], two['Stopped'],
                          two['Precision']))
        for option, names in (('--enforcing', ['compute-1']),
                              ('--not-enforcing', ['compute-2'])):
            self.assertEqual(names, [row['name'] for row in self.json(
                'interference', 'host', 'list', option)])

    def test_facts_have_units(self) -> None:
        self.assertEqual(
            [['Host', 'Missing'], ['compute-2', '-'], ['compute-1', 'disk']],
            self.cells('interference', 'host', 'list', '--long', '-c', 'Host',
                       '-c', 'Missing'))
        self.assertIn('disk: waits are not measured', self.text(
            'interference', 'incident', 'show', INCIDENT))
        shown = {row[0]: row[1] for row in self.cells(
            'interference', 'host', 'show', 'compute-1')}
        text = self.text('interference', 'host', 'show', 'compute-1')
        for words in ('cpu 8 cores', 'cpu 3.5 cores, memory 1,024 MiB',
                      'tick cpu: 1.23 % of one CPU',
                      'spool: 3 MiB', 'clock offset: 1.5 min',
                      'disk: waits are not measured',
                      'parameter cpi2.x: there is no such option'):
            self.assertIn(words, text)
        self.assertRegex(text, r'sent: 20\d\d-\d\d-\d\d [0-9:]+ \(UTC\)')
        self.assertEqual('-', shown['Follows up to (UTC)'])
        found = self.json('interference', 'host', 'show', 'compute-1')
        self.assertEqual(
            ({'memory_bytes': 2.0 ** 30, 'cpu_cores': 3.5},
             {'cpu_cores': 0.5}),
            (found['headroom'], found['used']))

    def test_what_is_not_followed(self) -> None:
        text = self.text('interference', 'host', 'set', 'compute-1',
                         '--mode', 'attribution=enforce', '--reason', 'try')
        self.assertIn('mode attribution: the file of this host says observe',
                      text)
        done = openstack_shell.openstack(
            'interference', 'cap', 'set', 'compute-1', SCAN, 'memory_bytes',
            '100MiB', '--expires', '2h', '--reason', 'x')
        self.assertEqual((1, ''), (done.status, done.out))
        self.assertIn('Conflict: compute-1 does not limit memory_bytes',
                      done.err)
        text = self.text(
            'interference', 'priority', 'set', '--instance',
            WEB.replace('6', '9'), 'background', '--reason', 'x',
            err='This instance has no workload now')
        self.assertIn('no host reports this instance now', text)

    def test_a_dry_run_of_an_eviction(self) -> None:
        with connect.writing(self.plane.engine) as connection:
            connection.execute(update(tables.workloads).where(
                tables.workloads.c.name == WEB).values(
                    priority='background'))
            claims.Claim(evictions.CLAIM, 'a conductor', time.monotonic
                         ).take(connection, time.time(), 900.0)
        found = self.json('antagonist', 'evict', WEB, '--dry-run', '--reason',
                          'x')
        self.assertIn('compute-2: its agent is silent', found['detail'])

    def test_an_eviction_that_is_not_waited_for(self) -> None:
        """Ctrl-C ends the command, which says that the rest goes on."""
        with connect.writing(self.plane.engine) as connection:
            connection.execute(update(tables.workloads).where(
                tables.workloads.c.instance == WEB).values(
                    priority='background'))
            claims.Claim(evictions.CLAIM, 'a conductor', time.monotonic
                         ).take(connection, time.time(), 60.0)
        waits = threading.Event()
        event.listen(
            self.plane.engine, 'before_cursor_execute',
            lambda connection, cursor, statement, *rest: waits.set()
            if 'evictions.uuid = ?' in statement else None)
        command = subprocess.Popen(
            [sys.executable, '-m', 'openstackclient.shell', 'antagonist',
             'evict', WEB, '--reason', 'x'], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env={
                **os.environ, 'PYTHONPATH': str(
                    pathlib.Path(__file__).parents[3])})
        self.addCleanup(command.wait)
        self.addCleanup(command.kill)
        self.assertTrue(waits.wait(60))
        command.send_signal(signal.SIGINT)
        out, err = command.communicate(timeout=60)
        self.assertEqual((130, ''), (command.returncode, out), err)
        with connect.reading(self.plane.engine) as connection:
            [row] = evictions.unfinished(connection)
        self.assertEqual(
            f'It goes on, with the id {row["uuid"]}: see "openstack '
            'antagonist eviction list".\n', err)

    def test_why_a_listing_is_empty(self) -> None:
        """Nothing happened, or nothing could be seen."""
        for words in (('interference', 'incident', 'list', '--outcome',
                       'open'), ('antagonist', 'list', '--project', 'p1')):
            for why in ('1 report now', 'no report from compute-2',
                        'no detector runs on compute-2',
                        'not all is measured or limited on 1 (disk 1)',
                        '"openstack interference host show compute-1"'):
                self.nothing(*words, err=why)
        self.nothing('interference', 'cap', 'list', '--host', 'compute-2',
                     err='Of 1 host: 0 report now; no report from compute-2; '
                         '0 may set limits; 1 may not, compute-2: the stop '
                         'file is there.')
        with connect.writing(self.plane.engine) as connection:
            for table in reversed(tables.METADATA.sorted_tables):
                connection.execute(table.delete())
        for more, first in (([], 'No antagonist now; add --earlier for '
                                 'those before.'),
                            (['--earlier'], 'No antagonist.')):
            self.nothing('antagonist', 'list', *more,
                         err=f'{first} No host has reported yet.')
        for noun, why in (
                ('host', 'Start scavenger-agent'),
                ('profile', 'scavenger-ibench profile'),
                *((noun, f'No {noun}.') for noun in (
                    'audit', 'exemption', 'priority', 'profiling')),
                *((noun, 'No host has reported yet.') for noun in (
                    'cap', 'incident', 'spec', 'workload'))):
            self.nothing('interference', noun, 'list', err=why.replace(
                'No audit', 'No change'))
        self.nothing('antagonist', 'eviction', 'list', err='No eviction.')
        self.nothing('interference', 'report', err='No host has reported yet')

    def test_settings_of_a_host(self) -> None:
        self.text('interference', 'host', 'set', 'compute-1', '--mode',
                  'attribution=observe', '--mode', 'scavenger=off',
                  '--parameter', 'scavenger.memory_c=3', '--reason', 'try')
        self.text('interference', 'host', 'set', 'compute-1', '--mode',
                  'scavenger=', '--reason', 'enough')
        found = self.json('interference', 'host', 'show', 'compute-1')
        self.assertEqual({'modes': {'attribution': 'observe'},
                          'parameters': {'scavenger.memory_c': 3}},
                         found['settings'])
        self.assertEqual('EPYC', found['facts']['cpu_model'])
        text = self.text('interference', 'host', 'show', 'compute-1')
        self.assertIn('attribution=observe; scavenger.memory_c=3', text)
        self.assertIn('cpu model: EPYC', text)
        # What is asked for is not what it does already.
        self.assertEqual({'attribution': 'enforce'}, found['modes'])
        self.assertIn('attribution=enforce at the last report; observe is '
                      'asked for', text)

    def test_settings_of_an_aggregate(self) -> None:
        with connect.writing(self.plane.engine) as connection:
            aggregates.put(connection, 'racks', ['compute-1', 'compute-2'],
                           now_s=0.0)
        self.text('interference', 'aggregate', 'set', 'racks', '--mode',
                  'attribution=observe', '--mode', 'scavenger=off',
                  '--parameter', 'scavenger.memory_c=3', '--reason', 'try')
        self.text('interference', 'aggregate', 'set', 'racks', '--mode',
                  'scavenger=', '--reason', 'enough')
        found = self.json('interference', 'aggregate', 'show', 'racks')
        self.assertEqual(
            {'name': 'racks', 'hosts': ['compute-1', 'compute-2'],
             'not_followed': {}, 'settings': {
                 'modes': {'attribution': 'observe'},
                 'parameters': {'scavenger.memory_c': 3},
                 'profiling': False}}, found)
        text = self.text('interference', 'aggregate', 'show', 'racks')
        self.assertIn('attribution=observe; scavenger.memory_c=3', text)
        self.assertIn('compute-1, compute-2', text)

    def test_workloads(self) -> None:
        titles, *rows = self.cells('interference', 'workload', 'list')
        self.assertEqual({(SCAN, 'background'), (WEB, 'foreground'),
                          ('/batch/steady', 'background')},
                         {(row[0], row[4]) for row in rows})
        [found] = self.json('interference', 'workload', 'list', '--long',
                            '--instance', WEB, '--project', 'p1',
                            '--priority', 'foreground', '--host',
                            'compute-1')
        self.assertEqual((openstack_shell.EVIL, 'm1.large'),
                         (found['name'], found['flavor']))
        self.nothing('interference', 'workload', 'list', '--gone')

    def test_names_of_tenants_reach_no_terminal(self) -> None:
        for formatter in ('table', 'value', 'csv'):
            text = self.text('interference', 'workload', 'list', '--long',
                             '-f', formatter)
            self.assertIn('x1b[2J', text)
            for char in '\x1b\u202e':
                self.assertNotIn(char, text)

    def test_priorities(self) -> None:
        for value in ('foreground', 'background'):
            made = self.json('interference', 'priority', 'set', '--project',
                             'p1', value, '--application', 'web', '--reason',
                             'batch')
            self.assertEqual(('project', 'p1', value, 'web'),
                             (made['scope'], made['target'], made['value'],
                              made['application']))
        self.text('interference', 'priority', 'set', '--instance', WEB,
                  'foreground', '--reason', 'x')
        [titles, *rows] = self.cells('interference', 'priority', 'list')
        self.assertEqual({('project', 'p1', 'background'), (
            'instance', f'web\\x1b[2J\\u202e\\n+----+ ({WEB})', 'foreground')},
                         {tuple(row[:3]) for row in rows})
        self.text('interference', 'priority', 'unset', '--project', 'p1',
                  '--reason', 'enough')
        [left] = self.json('interference', 'priority', 'list')
        self.assertEqual(WEB, left['target'])

    def test_exemptions(self) -> None:
        ids = [json.loads(self.text(
            'interference', 'exemption', 'create', '--project', project,
            '--reason', 'contract', '-f', 'json', err=err))['id']
               for project, err in (('p1', ''), ('p2', 'has no workload'))]
        self.assertEqual(set(ids), {row['id'] for row in self.json(
            'interference', 'exemption', 'list')})
        self.text('interference', 'exemption', 'delete', *ids, '--reason',
                  'it has ended')
        self.nothing('interference', 'exemption', 'list')

    def test_specs(self) -> None:
        [titles, row] = self.cells('interference', 'spec', 'list',
                                   '--application', 'web', '--signal', 'cpi')
        self.assertEqual(['p1', 'web', 'EPYC', 'cpi', '1.25', '0.2', '86400',
                          '0.75'], row[:8])

    def test_the_kill_switch(self) -> None:
        [on] = self.json('interference', 'protection', 'show')
        self.assertEqual(('cloud', True), (on['scope'], on['enabled']))
        silent = 'Silent: 1 of 2 hosts; '
        off = json.loads(self.text(
            'interference', 'protection', 'disable', '--cloud', '--reason',
            'customers complain', '-f', 'json', err=silent))
        self.assertEqual(('cloud', '', False, 'admin'),
                         (off['scope'], off['target'], off['enabled'],
                          off['changed_by']))
        self.text('interference', 'protection', 'disable', '--host',
                  'compute-1', '--reason', 'x')
        self.text('interference', 'protection', 'enable', '--cloud',
                  '--reason', 'solved', err=silent)
        self.assertEqual(
            {('cloud', True), ('host', False)},
            {(row['scope'], row['enabled']) for row in self.json(
                'interference', 'protection', 'show')})

    def test_the_governor(self) -> None:
        for text, value in (('20', 20), ('none', None), ('0', 0)):
            made = self.json('interference', 'governor', 'set', '--cloud',
                             text, '--reason', 'first week')
            self.assertEqual(value, made['caps_per_minute'])
        self.assertEqual([['Scope', 'Target', 'Limits per Minute'],
                          ['cloud', '', '0']],
                         self.cells('interference', 'governor', 'show'))

    def test_the_audit(self) -> None:
        self.text('interference', 'protection', 'disable', '--cloud',
                  '--reason', 'customers complain', err='Silent: ')
        [titles, row] = self.cells('interference', 'audit', 'list')
        self.assertEqual(['admin', 'protection.set', 'cloud', 'enabled=no',
                          'customers complain'], row[1:])
        [found] = self.json('interference', 'audit', 'list', '--long',
                            '--actor', 'admin', '--action', 'protection.set',
                            '--since', '1h')
        self.assertEqual(False, found['after']['enabled'])
        self.assertTrue(found['request_id'].startswith('req-'))
        self.nothing('interference', 'audit', 'list', '--actor', 'nobody')

    def test_pages(self) -> None:
        names: list[str] = []
        marker: list[str] = []
        for _ in range(3):
            done = openstack_shell.openstack(
                'interference', 'workload', 'list', '--limit', '1', '-f',
                'value', '-c', 'Workload', *marker)
            names.append(done.out.strip())
            told = re.fullmatch('There are more rows: add --all, or '
                                '--marker (.*)\n', done.err)
            marker = ['--marker', told[1]] if told else []
        self.assertEqual({SCAN, WEB, '/batch/steady'}, set(names))
        self.assertEqual([], marker)
        self.assertEqual(3, len(self.json('interference', 'workload', 'list',
                                          '--all')))

    def test_sorting(self) -> None:
        for column in ('Workload', 'id'):
            self.assertEqual(
                sorted([SCAN, WEB, '/batch/steady']),
                self.text('interference', 'workload', 'list', '-f', 'value',
                          '-c', 'id', '--sort-column', column).split())
