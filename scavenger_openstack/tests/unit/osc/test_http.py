# SPDX-License-Identifier: Apache-2.0

"""Errors of the API as one sentence, and what is asked of a real server."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
import json
import threading
from typing import Any

from keystoneauth1 import http_basic
from keystoneauth1 import session
from osc_lib import exceptions
import testtools
from werkzeug import serving
from werkzeug import wrappers

from scavenger_openstack.osc import http

Application = Callable[[wrappers.Request], wrappers.Response]


class Explain(testtools.TestCase):

    def test_all_there_is(self) -> None:
        self.assertEqual(
            'Bad Request: 0.05 is below the floor of /batch/a (field value; '
            'allowed: at least 0.1; request req-1).',
            http.explain('HTTP 400 BAD REQUEST', json.dumps({'error': {
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
            self.assertEqual(sentence, http.explain(
                'HTTP 401', json.dumps({'error': error})))

    def test_not_from_the_api(self) -> None:
        for body in ('', '<html>\x1b', '[]', '{}', '{"error": "x"}',
                     '{"error": []}', 'null', '{"error": null}'):
            self.assertEqual('HTTP 502 Bad Gateway.',
                             http.explain('HTTP 502 Bad Gateway', body))


class Paths(testtools.TestCase):

    def test_names_are_quoted(self) -> None:
        self.assertEqual(
            '/v1/caps/a%20b/cpu_cores/%2Fbatch%2Fx%3Fy%23',
            http.path_of('caps', 'a b', 'cpu_cores', '/batch/x?y#'))

    def test_names_that_lead_elsewhere(self) -> None:
        for name in ('', '.', '..'):
            error = self.assertRaises(exceptions.CommandError, http.path_of,
                                      'hosts', name)
            self.assertEqual(f'"{name}" is not a name.', str(error))


class Requests(testtools.TestCase):
    """Against a server that answers what the test says."""

    def client(self, answer: Application, path: str = '') -> http.Client:
        server = serving.make_server(
            '127.0.0.1', 0, wrappers.Request.application(answer),
            threaded=True, request_handler=_Quiet)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        self.addCleanup(thread.join, 10)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        thread.start()
        connection = session.Session(auth=http_basic.HTTPBasicAuth(
            username='admin', password='secret'))
        self.addCleanup(connection.session.close)
        return http.Client(connection,
                           f'http://127.0.0.1:{server.port}{path}')

    def refused(self, client: http.Client, method: str = 'GET') -> str:
        return str(self.assertRaises(exceptions.CommandError, client.resource,
                                     'host', method, '/v1/hosts/a'))

    def test_what_is_asked(self) -> None:
        seen = []

        def answer(request: wrappers.Request) -> wrappers.Response:
            seen.append((request.method, request.full_path, request.json,
                         request.authorization.parameters
                         if request.authorization else None))
            return _json({'host': {'name': 'a'}})

        for path in ('', '/', '/v1', '/v1/'):
            self.assertEqual(
                {'name': 'a'}, self.client(answer, path).resource(
                    'host', 'PATCH', '/v1/hosts/a', {'modes': {}}))
        self.assertEqual(
            [('PATCH', '/v1/hosts/a?', {'modes': {}},
              {'username': 'admin', 'password': 'secret'})] * 4, seen)

    def test_pages(self) -> None:
        asked = []

        def answer(request: wrappers.Request) -> wrappers.Response:
            asked.append(dict(request.args))
            begin = int(request.args.get('marker', 0))
            end = min(begin + int(request.args['limit']), 2500)
            return _json({'hosts': [{'name': i} for i in range(begin, end)],
                          'next': str(end) if end < 2500 else None})

        client = self.client(answer)
        for limit, rows, following, pages in (
                (None, 2500, None, 3), (1, 1, '1', 1), (1000, 1000, '1000', 1),
                (1500, 1500, '1500', 2), (2500, 2500, None, 3)):
            asked.clear()
            found, marker = client.listing(
                'hosts', '/v1/hosts', {'enforcing': True, 'aggregate': None},
                limit=limit)
            self.assertEqual(
                (list(range(rows)), following, pages),
                ([row['name'] for row in found], marker, len(asked)))
        self.assertEqual({'enforcing': 'true', 'limit': '1000'}, asked[0])
        self.assertEqual('2499', client.listing(
            'hosts', '/v1/hosts', {}, limit=1, marker='2498')[1])

    def test_nothing_to_return(self) -> None:
        client = self.client(lambda request: wrappers.Response(status=204))
        self.assertEqual({}, client.request('DELETE', '/v1/exemptions/x'))

    def test_errors(self) -> None:
        client = self.client(lambda request: _json({'error': {
            'title': 'Service Unavailable', 'detail': 'the database is away',
            'request_id': 'req-7'}}, 503))
        self.assertEqual('Service Unavailable: the database is away '
                         '(request req-7).', self.refused(client))

    def test_a_proxy_answers(self) -> None:
        client = self.client(lambda request: wrappers.Response(
            '<html>', status=502))
        self.assertEqual('HTTP 502 BAD GATEWAY.', self.refused(client))

    def test_another_service_answers(self) -> None:
        for body in ('<html>', '[]', '{}', '{"host": []}', ''):
            client = self.client(_always(body))
            self.assertEqual(
                f'{client.url} did not answer like the interference API; '
                'check the endpoint.', self.refused(client))

    def test_nothing_listens(self) -> None:
        client = self.client(lambda request: _json({}))
        client.url = 'http://127.0.0.1:1'
        self.assertEqual('http://127.0.0.1:1 cannot be reached: '
                         'Connection refused.', self.refused(client))


def _always(body: str) -> Application:
    return lambda request: wrappers.Response(body)


def _json(body: Any, status: int = 200) -> wrappers.Response:
    return wrappers.Response(json.dumps(body), status,
                             mimetype='application/json')


class _Quiet(serving.WSGIRequestHandler):

    def log(self, type: str, message: str, *args: Iterable[Any]) -> None:
        """Nothing: the test says what was asked."""
