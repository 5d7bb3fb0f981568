# SPDX-License-Identifier: Apache-2.0

"""The SDK against the API in this process."""

from __future__ import annotations

import json
import pathlib
import runpy
import subprocess
import sys
from typing import Any

from openstack import exceptions
import testtools
from werkzeug import wrappers

from scavenger_openstack.api.routes import ROUTES
from scavenger_openstack import sdk
from scavenger_openstack.sdk.v1 import _proxy
from scavenger_openstack.sdk.v1 import resource
from scavenger_openstack.tests.unit.api import cloud
from scavenger_openstack.tests.unit.sdk import calls
from scavenger_openstack.tests.unit.sdk import connected

TOP = pathlib.Path(__file__).parents[4]


class WithApi(cloud.Api):

    def setUp(self) -> None:
        super().setUp()
        self.seen: list[dict[str, Any]] = []
        self.proxy = self.of('admin')

    def of(self, role: str) -> _proxy.Proxy:
        connection = self.connection(role)
        sdk.register(connection)
        made: _proxy.Proxy = connection.interference
        return made

    def connection(self, role: str) -> Any:
        application = self.client.application

        def called(environ: dict[str, Any], start: Any) -> Any:
            self.seen.append(environ)
            return application(environ, start)

        return connected.connect(called, headers=cloud.ROLES[role])


class Calls(WithApi):

    def test_each_url(self) -> None:
        """Each method of the API is called by a method of the proxy, which
        returns what the API has."""
        for name, words, options in calls.calls():
            answer = calls.call(self.proxy, name, words, options)
            if not name.startswith('delete'):
                self.assertIsInstance(answer, resource.Resource, name)
                self.assertNotEqual([], [
                    value for value in answer.to_dict().values()
                    if value is not None], name)
        self.assertEqual(list(ROUTES), sorted((calls.route_of(
            environ['REQUEST_METHOD'], environ['PATH_INFO'])
            for environ in self.seen), key=ROUTES.index))

    def test_samples(self) -> None:
        """Those of the reference are what the API answers today."""
        made = subprocess.run(
            [sys.executable, '-W', 'ignore', '-m', calls.__name__], cwd=TOP,
            capture_output=True, text=True, timeout=60, check=True)
        self.assertEqual(calls.SAMPLES.read_text(), made.stdout,
                         f'python -m {calls.__name__} > {calls.SAMPLES}')

    def test_values(self) -> None:
        host = self.proxy.get_host(cloud.HOST)
        self.assertEqual((cloud.HOST, cloud.HOST, True, 'enforce'),
                         (host.id, host.name, host.enforcing,
                          host.modes['scavenger']))
        override = self.proxy.set_override(
            *calls.CAP, value=None, reason='no limit',
            expires_at=cloud.at(calls.HOUR_S))
        self.assertEqual((cloud.BATCH, None),
                         (override.workload, override.value))
        self.assertEqual(
            [(cloud.BATCH, None)],
            [(row.workload, row['value']) for row in self.proxy.overrides()])

    def test_version(self) -> None:
        list(self.proxy.hosts())
        self.assertEqual(['interference 1.0'], [
            environ['HTTP_OPENSTACK_API_VERSION'] for environ in self.seen])

    def test_pages(self) -> None:
        every = [row.id for row in self.proxy.profiles()]
        self.assertEqual(3, len(every))
        for query, ids, requests in (
                ({}, every, 1), ({'limit': 1}, every, 3),
                ({'limit': 2}, every, 2), ({'max_items': 2}, every[:2], 1),
                ({'limit': 1, 'max_items': 2}, every[:2], 2)):
            self.seen.clear()
            self.assertEqual(ids, [row.id for row
                                   in self.proxy.profiles(**query)])
            self.assertEqual(requests, len(self.seen), str(query))

    def test_a_listing_is_fetched_as_it_is_read(self) -> None:
        rows = self.proxy.profiles(limit=1)
        next(rows)
        self.assertEqual(1, len(self.seen))

    def test_the_example(self) -> None:
        example = runpy.run_path(str(TOP / 'doc/source/reference/'
                                     'confirmed_incidents.py'))
        lines = example['confirmed_incidents'](self.connection('admin'))
        self.assertEqual([f'{cloud.HOST} {cloud.VICTIM}',
                          f'{cloud.SILENT} {cloud.NOISY}'], sorted(
                              line.partition(' ')[2] for line in lines))

    def test_a_filter_that_is_none(self) -> None:
        self.assertRaises(exceptions.InvalidResourceQuery, list,
                          self.proxy.hosts(colour='red'))
        self.assertEqual([], self.seen)


class Refused(WithApi):

    def test_details(self) -> None:
        error = self.assertRaises(
            exceptions.NotFoundException, self.proxy.get_host, 'host-two')
        self.assertRegex(str(error.details), '^Not Found: There is no host '
                         r'host-two; did you mean host-one\? \(request req-')
        self.assertIn(str(error.details), str(error))
        for kind, role, name, words, options in (
                (exceptions.ForbiddenException, 'reader', 'get_host',
                 (cloud.HOST,), {}),
                (exceptions.BadRequestException, 'admin', 'update_host',
                 (cloud.HOST,), {'modes': {'cpi2': 'enfroce'}, **calls.WHY}),
                (exceptions.ConflictException, 'admin', 'set_override',
                 (cloud.HOST, 'cpu_cores', cloud.VICTIM),
                 {'value': 1.0, 'expires_at': cloud.at(calls.HOUR_S),
                  **calls.WHY})):
            self.assertRaises(kind, getattr(self.of(role), name), *words,
                              **options)

    def test_what_is_not_there_is_deleted(self) -> None:
        self.proxy.delete_exemption('0' * 32, **calls.WHY)
        self.assertRaises(
            exceptions.NotFoundException, self.proxy.delete_exemption,
            '0' * 32, ignore_missing=False, **calls.WHY)

    def test_names_that_lead_elsewhere(self) -> None:
        for name in ('', '.', '..'):
            error = self.assertRaises(exceptions.InvalidRequest,
                                      self.proxy.get_host, name)
            self.assertEqual(f'"{name}" is not a name.', str(error))
        self.assertRaises(exceptions.NotFoundException,
                          self.proxy.get_host, '../hosts/host-one%41?x#')
        self.assertEqual(['/v1/hosts/../hosts/host-one%41?x#'],
                         [environ['PATH_INFO'] for environ in self.seen])

    def test_no_unicode(self) -> None:
        for ask in (lambda: self.proxy.get_host('\ud800'),
                    lambda: list(self.proxy.hosts(aggregate='\ud800')),
                    lambda: self.proxy.update_host('a', reason='\ud800'),
                    lambda: self.proxy.delete_profile('a', reason='\ud800')):
            self.assertRaises(exceptions.InvalidRequest, ask)
        self.assertEqual([], self.seen)


class Endpoints(testtools.TestCase):

    def test_with_and_without_the_version(self) -> None:
        seen = []

        @wrappers.Request.application
        def answer(request: wrappers.Request) -> wrappers.Response:
            seen.append(request.path)
            return wrappers.Response('{"host": {"name": "a"}}')

        for path in ('', '/', '/v1', '/v1/'):
            proxy = connected.proxy(_proxy.Proxy, answer,
                                    endpoint=connected.URL + path)
            self.assertEqual('a', proxy.get_host('a').name)
        self.assertEqual(['/v1/hosts/a'] * 4, seen)

    def test_the_hook(self) -> None:
        cloud_ = connected.connect(
            wrappers.Response('{"overview": {"overrides": 3}}'),
            vendor_hook='scavenger_openstack.sdk:register')
        self.assertEqual(
            3, cloud_.interference.get_overview()    # type: ignore
            .overrides)

    def test_a_page_of_which_nothing_is_left(self) -> None:
        """A ranking out of a cache may have a page of what was deleted."""
        pages = {None: {'antagonists': [], 'next': 'a'},
                 'a': {'antagonists': [{'workload': 'w'}], 'next': None}}

        @wrappers.Request.application
        def answer(request: wrappers.Request) -> wrappers.Response:
            return wrappers.Response(json.dumps(
                pages[request.args.get('marker')]))

        self.assertEqual(['w'], [
            row.workload for row in connected.proxy(
                _proxy.Proxy, answer).antagonists()])

    def test_another_service_answers(self) -> None:
        def proxy(body: str) -> _proxy.Proxy:
            return connected.proxy(_proxy.Proxy, wrappers.Response(body))

        for body in ('<html>', '[]', '{}', '{"host": []}', '',
                     '{"hosts": [1]}', '{"hosts": [], "next": "a"}'):
            error = self.assertRaises(exceptions.SDKException,
                                      proxy(body).get_host, 'a')
            self.assertIn(f'{connected.URL} did not answer like', str(error))
            self.assertRaises(exceptions.SDKException, list,
                              proxy(body).hosts())


class Explain(testtools.TestCase):

    def test_all_there_is(self) -> None:
        self.assertEqual(
            'Bad Request: 0.05 is below the floor of /batch/a (field value; '
            'allowed: at least 0.1; request req-1).',
            _proxy.explain('HTTP 400 BAD REQUEST', json.dumps({'error': {
                'code': 400, 'title': 'Bad Request',
                'detail': '0.05 is below the floor of /batch/a.',
                'field': 'value', 'allowed': 'at least 0.1',
                'request_id': 'req-1'}})))

    def test_less(self) -> None:
        for error, sentence in (
                ({'title': 'Not Found'}, 'Not Found.'),
                ({'message': 'No.', 'request_id': None}, 'HTTP 401: No.'),
                ({'title': 'T', 'detail': 'D', 'field': None,
                  'allowed': None}, 'T: D.'),
                ({'title': 'T', 'field': 'mode',
                  'allowed': ['off', 'observe']},
                 'T (field mode; allowed: off, observe).'),
                ({'title': 'T', 'allowed': {'minimum': 1}},
                 'T (allowed: {"minimum": 1}).'),
                ({'title': 'x\x1b[2J\n'}, 'x\\x1b[2J\\n.')):
            self.assertEqual(sentence, _proxy.explain(
                'HTTP 401', json.dumps({'error': error})))

    def test_not_from_the_api(self) -> None:
        for body in ('', '<html>\x1b', '[]', '{}', '{"error": "x"}',
                     '{"error": []}', 'null', '{"error": null}'):
            self.assertEqual('HTTP 502 Bad Gateway.',
                             _proxy.explain('HTTP 502 Bad Gateway', body))
