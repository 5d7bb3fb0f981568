# SPDX-License-Identifier: Apache-2.0

"""What the ``openstack`` commands say of bad input: one clear line each."""

from __future__ import annotations

import json
import pathlib
import socket

import fixtures
from keystoneauth1 import fixture as keystone
import testtools
from werkzeug import wrappers

from scavenger_openstack.tests.functional import openstack_shell
from scavenger_openstack.tests.functional.openstack_shell import INCIDENT
from scavenger_openstack.tests.functional.openstack_shell import SCAN
from scavenger_openstack.tests.functional.openstack_shell import WEB

REQUEST = r'request req-[0-9a-f-]{36}'


class Refused(testtools.TestCase):

    def refused(self, pattern: str, *words: str) -> None:
        """Exit code 1, and one line on the standard error."""
        done = openstack_shell.openstack(*words)
        self.assertEqual((1, ''), (done.status, done.out), str(done))
        self.assertEqual(1, done.err.count('\n'), done.err)
        self.assertRegex(done.err, f'^{pattern}\n$')

    def misused(self, pattern: str, *words: str) -> None:
        """Exit code 2, and the error after the usage."""
        done = openstack_shell.openstack(*words)
        self.assertEqual((2, ''), (done.status, done.out), str(done))
        self.assertRegex(done.err.splitlines()[-1], pattern)


class ByTheApi(Refused):

    def setUp(self) -> None:
        super().setUp()
        self.plane = self.useFixture(openstack_shell.ControlPlane())

    def set_cap(self, pattern: str, *, host: str = 'compute-1',
                workload: str = SCAN, value: str = '0.5',
                expires: str = '2h', reason: str = 'test') -> None:
        self.refused(pattern, 'interference', 'cap', 'set', host, workload,
                     'cpu_cores', value, '--expires', expires, '--reason',
                     reason)
        self.assertEqual('[]\n', openstack_shell.openstack(
            'interference', 'cap', 'list', '--overrides', '-f', 'json').out)

    def test_overrides(self) -> None:
        self.set_cap('Not Found: There is no host compute-9; did you mean '
                     rf'compute-[12]\? \({REQUEST}\)\.', host='compute-9')
        self.set_cap('Not Found: There is no workload on host compute-1 that '
                     'is called /batch/scam; did you mean /batch/scan. '
                     rf'\({REQUEST}\)\.', workload='/batch/scam')
        self.set_cap(rf'Conflict: {WEB} is foreground, which is never '
                     rf'limited \(field workload; {REQUEST}\)\.',
                     workload=WEB)
        self.set_cap(r'Bad Request: 0\.05 is below the floor of cpu_cores, '
                     r'which is 0\.1 \(field value; allowed: a number from '
                     rf'0\.1, or null; {REQUEST}\)\.', value='0.05')
        self.set_cap(r'Bad Request: expires_at is in the past, .*'
                     r'\(field expires_at; allowed: from .* to .*; '
                     rf'{REQUEST}\)\.', expires='2020-01-01')
        self.set_cap(r'Bad Request: reason is "", and has to be a string of '
                     r'1 .*\(field reason; allowed: .*\)\.', reason='')
        self.refused('Not Found: There is no override of cpu_cores on host '
                     f'compute-1 for {SCAN} .*',
                     'interference', 'cap', 'unset', 'compute-1', SCAN,
                     'cpu_cores', '--reason', 'x')

    def test_aggregates(self) -> None:
        self.refused(rf'Not Found: There is no aggregate racks \({REQUEST}\)'
                     r'\.', 'interference', 'aggregate', 'show', 'racks')
        self.refused('Nothing to set: give --mode or --parameter.',
                     'interference', 'aggregate', 'set', 'racks', '--reason',
                     'x')

    def test_hosts(self) -> None:
        self.refused('Not Found: There is no host compute-9; did you mean '
                     rf'compute-[12]\? \({REQUEST}\)\.',
                     'interference', 'host', 'show', 'compute-9')
        change = 'interference', 'host', 'set', 'compute-1', '--reason', 'x'
        self.refused(r'Bad Request: There is no field modes\.nobody \(field '
                     r'modes\.nobody; allowed: .*attribution.*; .*\)\.',
                     *change, '--mode', 'nobody=off')
        self.refused('Bad Request: modes.attribution is "enfroce", and has '
                     'to be off, observe, enforce or null; did you mean '
                     r'enforce\? \(field modes\.attribution; .*\)\.',
                     *change, '--mode', 'attribution=enfroce')
        self.refused('Bad Request: parameters.scavenger.memory_c is "many", '
                     r'and has to be a number.*\(field parameters\.scavenger'
                     r'\.memory_c; allowed: number.*\)\.', *change,
                     '--parameter', 'scavenger.memory_c=many')
        self.refused('Bad Request: There is no host compute-9; did you '
                     r'mean compute-[12]\? \(field host; .*\)\.',
                     'interference', 'incident', 'list', '--host',
                     'compute-9')
        self.refused('Nothing to set: give --mode or --parameter.', *change)

    def test_a_parameter_that_is_none(self) -> None:
        """The one that was meant is proposed, and not all are listed."""
        done = openstack_shell.openstack(
            'interference', 'host', 'set', 'compute-1', '--parameter',
            'scavenger.memory_d=3', '--reason', 'x')
        self.assertIn('There is no field parameters.scavenger.memory_d; did '
                      'you mean scavenger.memory_c?', done.err)
        self.assertIn(' more; request', done.err)
        self.assertLess(len(done.err), 600)

    def test_filters(self) -> None:
        """What nothing ever has is a mistake, not an empty listing."""
        for words, pattern in (
                (('interference', 'incident', 'list', '--cause', 'cor'),
                 'cause is "cor", and has to be core, .* or eviction; did you '
                 'mean core. .*'),
                (('interference', 'incident', 'list', '--outcome', 'foo'),
                 'outcome is "foo", and has to be open, .*'),
                (('interference', 'audit', 'list', '--action',
                  'overide.set'),
                 r'action is "overide\.set", .*; did you mean override\.set\?'
                 '.*'),
                (('interference', 'spec', 'list', '--signal', 'cpu'),
                 'signal is "cpu", and has to be .*cpi.*'),
                (('antagonist', 'eviction', 'list', '--host', 'compute-9'),
                 'There is no host compute-9.*')):
            self.refused(f'Bad Request: {pattern}', *words)

    def test_names_that_lead_elsewhere(self) -> None:
        self.refused(r'"\.\." is not a name\.', 'interference', 'host',
                     'show', '..')
        self.refused('.*Not Found.*', 'interference', 'exemption', 'delete',
                     '../protection', '--reason', 'x')
        self.refused(r'Not Found: There is no host compute-1\\x1b\[2J; .*',
                     'interference', 'host', 'show', 'compute-1\x1b[2J')

    def test_rules(self) -> None:
        self.refused('Bad Request: No host is in an aggregate nowhere .*',
                     'interference', 'priority', 'set', '--aggregate',
                     'nowhere', 'background', '--reason', 'x')
        self.refused('There is no instance web; where it is known by its id '
                     'only, give that.', 'interference', 'exemption',
                     'create', '--instance', 'web', '--reason', 'x')
        self.refused('No priority is set for the project p9.', 'interference',
                     'priority', 'unset', '--project', 'p9', '--reason', 'x')
        self.refused('Bad Request: There is no host compute-9; .*',
                     'interference', 'protection', 'disable', '--host',
                     'compute-9', '--reason', 'x')

    def test_markers(self) -> None:
        self.refused(r'Bad Request: marker is not of this listing \(field '
                     r'marker; .*\)\.', 'interference', 'cap', 'list',
                     '--marker', 'bm9uc2Vuc2U')

    def test_no_such_incident(self) -> None:
        self.refused(f'Not Found: There is no incident {INCIDENT[::-1]} '
                     f'.{REQUEST}..', 'interference', 'incident', 'show',
                     INCIDENT[::-1])

    def test_a_wrong_password(self) -> None:
        self.useFixture(fixtures.EnvironmentVariable('OS_PASSWORD', 'wrong'))
        self.refused(rf'Unauthorized: .*\({REQUEST}\)\.', 'antagonist',
                     'list')

    def test_the_database_is_away(self) -> None:
        self.plane.engine.dispose()
        for path in self.plane.top.glob('database*'):
            path.unlink()
        self.plane.database.write_text('no database' * 999)
        self.refused(rf'Service Unavailable: .*\({REQUEST}\)\.',
                     'antagonist', 'list')

    def test_what_the_parser_refuses(self) -> None:
        command = ['interference', 'cap', 'set', 'compute-1', SCAN]
        end = ['--expires', '2h', '--reason', 'x']
        self.misused("invalid choice: 'paused' .*cpu_cores", *command,
                     'paused', '1', *end)
        self.misused('required: --expires', *command, 'cpu_cores', '1',
                     '--reason', 'x')
        self.misused('required: --reason', *command, 'cpu_cores', '1',
                     '--expires', '2h')
        self.misused("--expires: 'soon' is neither a duration such as 30m, "
                     '2h or 3d nor an ISO 8601 time', *command, 'cpu_cores',
                     '1', '--expires', 'soon', '--reason', 'x')
        self.misused("--limit: '0' is not a number of rows", 'antagonist',
                     'list', '--limit', '0')
        self.misused('one of the arguments --cloud --aggregate --host is '
                     'required', 'interference', 'protection', 'disable',
                     '--reason', 'x')
        self.misused('not allowed with argument', 'interference',
                     'exemption', 'create', '--project', 'a', '--instance',
                     WEB, '--reason', 'x')
        self.misused("'off' is not NAME=VALUE", 'interference', 'host', 'set',
                     'compute-1', '--mode', 'off')

    def test_values_that_no_knob_holds(self) -> None:
        self.set_cap("'fast' is not a value of cpu_cores, such as 0.5 or "
                     'none.', value='fast')

    def test_filters_of_the_other_listing(self) -> None:
        self.refused('--knob is for listings without --overrides.',
                     'interference', 'cap', 'list', '--overrides', '--knob',
                     'cpu_cores')
        self.refused('--workload is for listings with --overrides.',
                     'interference', 'cap', 'list', '--workload', SCAN)


class AReader(Refused):
    """Of one project: it sees what its own instances suffer from."""

    def see(self, project: str) -> None:
        self.useFixture(openstack_shell.ControlPlane(
            'noauth', HTTP_X_ROLES='reader', HTTP_X_PROJECT_ID=project,
            HTTP_X_USER_ID='u'))

    def test_the_other_side_is_anonymous(self) -> None:
        self.see('p1')
        done = openstack_shell.openstack('interference', 'incident', 'list',
                                         '-c', 'Host', '-c', 'Antagonists')
        self.assertIn('| -    | another workload |', done.out)
        done = openstack_shell.openstack('interference', 'incident', 'show',
                                         INCIDENT)
        self.assertEqual((0, ''), (done.status, done.err))
        self.assertIn('| another workload: score 0.93, antagonist', done.out)
        self.assertIn('(victim): run_delay 0.05 to 0.43\n', done.out)
        for secret in (SCAN, '/batch', 'compute-1', 'limit'):
            self.assertNotIn(secret, done.out)

    def test_what_it_may_not(self) -> None:
        self.see('p1')
        for words in (('antagonist', 'list'),
                      ('interference', 'host', 'list'),
                      ('interference', 'protection', 'disable', '--cloud',
                       '--reason', 'x')):
            self.refused(rf'Forbidden: .*\({REQUEST}\)\.', *words)

    def test_of_another_project(self) -> None:
        self.see('p2')
        self.refused(f'Not Found: There is no incident {INCIDENT} '
                     f'.{REQUEST}..', 'interference', 'incident', 'show',
                     INCIDENT)


class NotThere(Refused):

    def setUp(self) -> None:
        super().setUp()
        self.top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)

    def test_no_server(self) -> None:
        with socket.socket() as sock:       # it is bound, and not listening
            sock.bind(('127.0.0.1', 0))
            url = f'http://127.0.0.1:{sock.getsockname()[1]}'
            for auth in ('http_basic', 'none'):
                self.useFixture(openstack_shell.Environment(
                    self.top, OS_AUTH_TYPE=auth, OS_ENDPOINT=url,
                    OS_USERNAME='a', OS_PASSWORD='b'))
                self.refused(f'{url} cannot be reached: Connection refused.',
                             'antagonist', 'list')

    def test_no_endpoint(self) -> None:
        self.useFixture(openstack_shell.Environment(
            self.top, OS_AUTH_TYPE='http_basic', OS_USERNAME='a',
            OS_PASSWORD='b'))
        self.refused('There is no public endpoint of the service '
                     '"interference": .* --os-endpoint.', 'antagonist',
                     'list')


class WithKeystone(Refused):
    """Keystone is played by its answers; all else is real."""

    def setUp(self) -> None:
        super().setUp()
        self.plane = self.useFixture(openstack_shell.ControlPlane('noauth'))
        self.token = keystone.V3Token(project_id='p')
        self.answers: dict[str, dict[str, list[dict[str, str]]]] = {}
        self.is_admin = True
        self.keystone_url = self.useFixture(openstack_shell.Server(
            wrappers.Request.application(self.answer))).url
        self.useFixture(openstack_shell.Environment(
            self.plane.top, OS_AUTH_TYPE='v3password',
            OS_AUTH_URL=f'{self.keystone_url}/v3', OS_USERNAME='a',
            OS_PASSWORD='b', OS_PROJECT_NAME='p', OS_USER_DOMAIN_ID='d',
            OS_PROJECT_DOMAIN_ID='d', OS_REGION_NAME='here'))

    def answer(self, request: wrappers.Request) -> wrappers.Response:
        if 'all_tenants' in request.args and not self.is_admin:
            return wrappers.Response('{}', 403, mimetype='application/json')
        found = self.answers.get(request.path.rpartition('/')[2]
                                 if request.method == 'GET' else '')
        if found is not None:
            name = request.args.get('name', '').strip('^$')
            return wrappers.Response(json.dumps({
                noun: [one for one in rows if one['name'] == name]
                for noun, rows in found.items()}),
                mimetype='application/json')
        if request.method == 'GET' and '/v3' not in request.path[-4:]:
            return wrappers.Response('{}', 404, mimetype='application/json')
        return wrappers.Response(json.dumps(self.token), headers={
            'X-Subject-Token': 'token'}, mimetype='application/json')

    def test_the_catalog_has_no_such_service(self) -> None:
        for service in (None, 'compute'):
            if service:
                self.token.add_service(service).add_standard_endpoints(
                    public='http://127.0.0.1:1', region='here')
            self.refused('There is no public endpoint of the service '
                         '"interference" in region here: .*', 'interference',
                         'host', 'list')

    def test_names_of_projects_and_instances(self) -> None:
        """Keystone and Nova know their ids."""
        lab, web = 'a' * 32, WEB
        self.answers = {
            'projects': {'projects': [
                {'id': lab, 'name': 'lab'}, {'id': 'b' * 32, 'name': 'two'},
                {'id': 'c' * 32, 'name': 'two'}]},
            'detail': {'servers': [{'id': web, 'name': 'web-1'}]},
            'servers': {'servers': [{'id': web, 'name': 'web-1'}]}}
        for service, url in (('interference', self.plane.url),
                             ('compute', f'{self.keystone_url}/v2.1'),
                             ('identity', f'{self.keystone_url}/v3')):
            self.token.add_service(service).add_standard_endpoints(
                public=url, region='here')
        for scope, name, target in (('project', 'lab', lab),
                                    ('project', lab, lab),
                                    ('instance', 'web-1', web),
                                    ('instance', web, web)):
            done = openstack_shell.openstack(
                'interference', 'exemption', 'create', f'--{scope}', name,
                '--reason', 'x', '-f', 'value', '-c', 'target')
            self.assertEqual((0, f'{target}\n'), (done.status, done.out),
                             done.err)
        for self.is_admin in (True, False):
            done = openstack_shell.openstack(
                'interference', 'workload', 'list', '--instance', 'web-1',
                '-f', 'value', '-c', 'id')
            self.assertEqual((0, f'{web}\n', ''), done)
        done = openstack_shell.openstack(
            'interference', 'incident', 'list', '--victim', 'web-1', '-f',
            'value', '-c', 'id')
        self.assertEqual((0, f'{INCIDENT}\n', ''), done)
        listing = 'interference', 'workload', 'list'
        self.refused('Several projects are called two: .*', *listing,
                     '--project', 'two')
        self.refused('There is no project three; .*', *listing, '--project',
                     'three')
        self.refused('There is no instance db-1; .*', *listing, '--instance',
                     'db-1')

    def test_the_catalog_has_it(self) -> None:
        for path in ('', '/', '/v1'):
            self.token = keystone.V3Token(project_id='p')
            self.token.add_service('interference').add_standard_endpoints(
                public=f'{self.plane.url}{path}', region='here')
            done = openstack_shell.openstack('interference', 'host', 'list',
                                             '-f', 'value', '-c', 'name')
            self.assertEqual((0, {'compute-1', 'compute-2'}, ''),
                             (done.status, set(done.out.split()), done.err))
