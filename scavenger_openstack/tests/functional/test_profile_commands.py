# SPDX-License-Identifier: Apache-2.0

"""``openstack interference profile`` against the real API."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import fixtures
import testtools
from testtools import matchers

from scavenger_openstack.db import connect
from scavenger_openstack.db.resources import profiles
from scavenger_openstack.tests.functional import openstack_shell
from scavenger_openstack.tests.functional.openstack_shell import EVIL
from scavenger_openstack.wire import profile as wire_profile

PROFILE: dict[str, Any] = {
    'kind': 'application', 'target': 'web', 'project': 'p1',
    'source': 'measured', 'form': 'long', 'measured_s': 1764460800.0,
    'host': 'compute-1',
    'qos': {'signal': 'p99_s', 'alone': 0.0011, 'bound': 0.0012},
    'tolerated': {
        'memory_capacity': {'value': 0.9, 'low': 0.8, 'high': 1.0},
        'llc_capacity': {'value': 0.12, 'low': 0.1, 'high': 0.15}},
    'caused': {'memory_capacity': {'value': 0.3, 'low': 0.25, 'high': 0.5},
               'llc_capacity': {'value': 0.05, 'low': 0.0, 'high': 0.1}},
    'missing': {'prefetcher': 'this host has one CPU'}}


class Profiles(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.plane = self.useFixture(openstack_shell.ControlPlane())
        self.top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)

    def run_(self, *words: str, status: int = 0
             ) -> openstack_shell.Result:
        done = openstack_shell.openstack('interference', 'profile', *words)
        self.assertEqual(status, done.status, str(done))
        return done

    def json(self, *words: str) -> Any:
        return json.loads(self.run_(*words, '-f', 'json').out)

    def create(self, *words: str, **changes: Any) -> Any:
        return self.json('create', '--file', self.file(**changes), *words)

    def file(self, **changes: Any) -> str:
        path = self.top / 'profile.json'
        path.write_text(json.dumps({**PROFILE, **changes}))
        return str(path)

    def test_a_profile_is_stored_listed_shown_and_deleted(self) -> None:
        made = self.create('--reason', 'new release')
        self.assertEqual(PROFILE, {name: made[name] for name in PROFILE})
        self.assertEqual(made, self.json('show', made['id']))
        [row] = self.json('list')
        self.assertEqual({name: made[name] for name in row}, row)
        titles, line = (
            [cell.strip() for cell in line.split('|')[1:-1]]
            for line in self.run_('list').out.splitlines()
            if line.startswith('|'))
        self.assertEqual(
            {'Kind': 'application', 'Target': 'web', 'Project': 'p1',
             'Source': 'measured', 'Measured (UTC)': '2025-11-30 00:00:00',
             'Tolerates Least': 'llc_capacity 12 %',
             'Causes Most': 'memory_capacity 30 %', 'ID': made['id']},
            dict(zip(titles, line, strict=True)))
        shown = self.run_('show', made['id']).out
        for words in ('llc_capacity: 12 % (10 to 15 %)',
                      'p99_s 0.0011 alone, breaks at 0.0012',
                      'prefetcher: this host has one CPU'):
            self.assertIn(words, shown)
        self.run_('delete', made['id'], '--reason', 'old')
        done = self.run_('list', '-f', 'json')
        self.assertEqual('[]\n', done.out)
        self.assertThat(done.err, matchers.StartsWith('No profile.'))
        actions = json.loads(openstack_shell.openstack(
            'interference', 'audit', 'list', '-f', 'json').out)
        self.assertEqual([('profile.delete', 'old'),
                          ('profile.set', 'new release')],
                         [(row['action'], row['reason'])
                          for row in actions[:2]])

    def test_options_in_place_of_the_file(self) -> None:
        options: tuple[tuple[tuple[str, ...], Any], ...] = (
                (('--flavor', 'm1.large', '--project', ''),
                 ('flavor', 'm1.large', '')),
                (('--image', 'x', '--project', 'p2'), ('image', 'x', 'p2')),
                (('--application', 'db'), ('application', 'db', 'p1')))
        for words, identity in options:
            made = self.create(*words)
            self.assertEqual(identity, (made['kind'], made['target'],
                                        made['project']))
        filters: tuple[tuple[tuple[str, ...], list[str]], ...] = (
                ((), ['db', 'x', 'm1.large']),
                (('--flavor', 'm1.large'), ['m1.large']),
                (('--application', 'x'), []), (('--project', 'p2'), ['x']))
        for words, targets in filters:
            self.assertEqual(targets, [
                row['target'] for row in self.json('list', *words)])
        # A file without them.
        path = self.top / 'part.json'
        path.write_text(json.dumps({
            name: value for name, value in PROFILE.items()
            if name not in ('kind', 'target', 'project')}))
        made = self.json('create', '--file', str(path), '--application',
                         'web')
        self.assertEqual(('application', 'web', ''), (
            made['kind'], made['target'], made['project']))

    def test_a_page(self) -> None:
        made = self.create('--application', 'a<b>')
        path = self.top / 'page.html'
        self.run_('show', made['id'], '--page', str(path))
        page = path.read_text()
        self.assertIn('<svg', page)
        self.assertIn('a&lt;b&gt;', page)
        self.assertNotIn('a<b>', page)
        self.assertNotIn('<script', page)
        self.assertIn('12 %', page)
        done = self.run_('show', made['id'], '--page', '/nowhere/page',
                         status=1)
        self.assertIn('/nowhere/page cannot be written', done.err)

    def test_files_that_are_refused(self) -> None:
        """With a sentence, and without a request."""
        self.plane.engine.dispose()
        broken = self.top / 'broken.json'
        for data, words in (
                (b'{', 'not JSON'), (b'\xff', 'not JSON'), (b'[]', 'profile'),
                (json.dumps(PROFILE).replace('0.12', 'NaN').encode(),
                 'tolerated.llc_capacity.value'),
                (json.dumps(PROFILE).replace('0.12', '0.2').encode(),
                 'tolerated.llc_capacity'),
                (json.dumps(PROFILE).replace('llc', 'disk').encode(),
                 'disk_capacity'),
                (b'{' * wire_profile.MAX_PROFILE_BYTES + b'{', 'bytes')):
            broken.write_bytes(data)
            done = self.run_('create', '--file', str(broken), status=1)
            self.assertIn(words, done.err)
            self.assertEqual(1, len(done.err.splitlines()), done.err)
        for words in (str(self.top), str(self.top / 'nothing'), 'a\0b'):
            done = self.run_('create', '--file', words, status=1)
            self.assertIn('cannot be read', done.err)
        done = self.run_('create', '--file', self.file(), '--application',
                         EVIL, status=1)
        self.assertIn('target', done.err)
        self.assertNotIn('\x1b', done.err)

    def test_what_is_written_wrongly(self) -> None:
        file = self.file()
        for words in (('create',), ('create', '--file', file, '--flavor', 'a',
                                    '--image', 'b'),
                      ('create', '--file', file, '--application', ''),
                      ('show',), ('delete', 'x'), ('list', '--kind', 'x')):
            self.run_(*words, status=2)

    def test_an_estimate_in_place_of_a_measurement(self) -> None:
        self.create()
        done = self.run_('create', '--file', self.file(source='estimated'),
                         status=1)
        self.assertIn('no estimate replaces', done.err)

    def test_a_profile_that_is_not_there(self) -> None:
        for words in (('show', 'x'), ('delete', 'x', '--reason', 'y'),
                      ('show', '..'), ('show', '')):
            done = self.run_(*words, status=1)
            self.assertEqual(1, len(done.err.splitlines()), done.err)


class OfAProject(testtools.TestCase):

    def test_what_its_reader_sees_and_may_not(self) -> None:
        """No host, and nothing of who stored it."""
        plane = self.useFixture(openstack_shell.ControlPlane(
            'noauth', HTTP_X_ROLES='reader', HTTP_X_PROJECT_ID='p1'))
        with connect.writing(plane.engine) as connection:
            change = profiles.set_profile(
                connection, wire_profile.of_json(PROFILE),
                created_by='operator', now_s=0.0)
        assert change is not None
        id_ = change.after['uuid']
        for words in (('list', '--long'), ('show', id_)):
            done = openstack_shell.openstack('interference', 'profile',
                                             *words)
            self.assertEqual((0, ''), (done.status, done.err))
            self.assertIn('llc_capacity', done.out)
            for hidden in ('compute-1', 'one CPU', 'operator'):
                self.assertNotIn(hidden, done.out)
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'p')
        path.write_text(json.dumps(PROFILE))
        for refused in (('create', '--file', str(path)),
                        ('delete', id_, '--reason', 'x')):
            done = openstack_shell.openstack('interference', 'profile',
                                             *refused)
            self.assertEqual(1, done.status)
            self.assertIn('Forbidden', done.err)
