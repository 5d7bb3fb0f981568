# SPDX-License-Identifier: Apache-2.0

"""What is made of Nova's answers, read by python-novaclient over HTTP."""

from __future__ import annotations

import http.server
import json
import threading
from typing import Any

from keystoneauth1 import session
from keystoneauth1 import token_endpoint
import testtools

from scavenger_openstack import errors

NEWEST = '2.100'
"""That the Nova of these tests has."""

SERVER = {
    'id': '66666666-7777-4888-8999-aaaaaaaaaaaa', 'tenant_id': 'p1',
    'status': 'ACTIVE', 'OS-EXT-SRV-ATTR:host': 'node-1',
    'OS-EXT-STS:task_state': None, 'flavor': {'extra_specs': {'a': 'b'}},
    'metadata': {'metering.stack': 'id-1', 'scavenger:priority': 'background'},
    'tags': ['openshiftClusterID=prod', 'scavenger:x']}


class Nova(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        try:
            from scavenger_openstack.conductor.nova import client
        except ImportError as exc:
            self.skipTest(str(exc))
        self.answers: dict[str, Any] = {}
        self.versions: list[str | None] = []
        self.asked: list[str] = []
        server = http.server.ThreadingHTTPServer(('127.0.0.1', 0),
                                                 self.handler())
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, args=(0.02,),
                         daemon=True).start()
        url = f'http://127.0.0.1:{server.server_port}/v2.1'
        self.answers['/v2.1'] = {'version': {
            'id': 'v2.1', 'status': 'CURRENT', 'version': NEWEST,
            'min_version': '2.1', 'links': [{'rel': 'self', 'href': url}]}}
        self.nova = client.Nova(session.Session(
            auth=token_endpoint.Token(url, 'token')))

    def handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        answers, versions, asked = self.answers, self.versions, self.asked

        class Handler(http.server.BaseHTTPRequestHandler):

            def do_GET(self) -> None:
                path, _, query = self.path.partition('?')
                self.answer(path.rstrip('/') + (
                    '?marker' if 'marker=' in query else ''))

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers['Content-Length']))
                self.answer(f'POST {self.path}')

            def do_DELETE(self) -> None:
                self.answer(f'DELETE {self.path}')

            def answer(self, what: str) -> None:
                asked.append(what)
                found = answers.get(what)
                versions.append(self.headers.get('OpenStack-API-Version'))
                data = json.dumps(found or {}).encode()
                self.send_response(404 if found is None else 200)
                self.send_header('Content-Type', 'application/json')
                self.send_header('Content-Length', str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler

    def test_aggregates(self) -> None:
        self.answers['/v2.1/os-aggregates'] = {'aggregates': [
            {'id': 1, 'name': 'rack ', 'hosts': ['node-2', 'node-1'],
             'metadata': {'scavenger:priority': 'background'}},
            {'id': 2, 'name': 'empty', 'hosts': [], 'metadata': {}}]}
        self.assertEqual(
            [('rack', ('node-2', 'node-1'),
              {'scavenger:priority': 'background'}), ('empty', (), {})],
            self.nova.aggregates())
        self.assertEqual('compute 2.96', self.versions[-1])

    def test_no_answer(self) -> None:
        self.assertRaises(errors.Unreachable, self.nova.aggregates)

    def test_a_server(self) -> None:
        self.answers[f'/v2.1/servers/{SERVER["id"]}'] = {'server': SERVER}
        found = self.nova.server(str(SERVER['id']))
        assert found is not None
        self.assertEqual(
            ('node-1', 'id-1', ('scavenger:priority', 'scavenger:x')),
            (found.host, found.stack, found.strays))

    def servers(self, *found: dict[str, Any]) -> list[Any]:
        """On one page, as a list."""
        self.answers['/v2.1/servers/detail'] = {'servers': list(found)}
        self.answers['/v2.1/servers/detail?marker'] = {'servers': []}
        return list(self.nova.servers(None))

    def test_a_cell_that_does_not_answer(self) -> None:
        """Nova knows no more of its instances than this, alone or in a
        list; the list that is asked for has none of them."""
        away = {'id': SERVER['id'], 'tenant_id': 'p1', 'status': 'UNKNOWN',
                'created': '2025-06-15T15:06:40Z', 'links': []}
        self.assertEqual([], self.servers(away))
        self.answers[f'/v2.1/servers/{SERVER["id"]}'] = {'server': {
            **away, 'flavor': {'vcpus': 1, 'extra_specs': {'a': 'b'}},
            'OS-EXT-STS:power_state': 0}}
        found = self.nova.server(str(SERVER['id']))
        assert found is not None
        self.assertEqual((True, ''), (found.unknown, found.host))

    def test_extra_specs_that_are_not_shown(self) -> None:
        """To a user that may not see them all would be foreground."""
        self.assertRaises(errors.Unreachable, self.servers, {
            **SERVER, 'flavor': {'vcpus': 1, 'original_name': 'hog'}})

    def test_a_flavor_that_nova_has_lost(self) -> None:
        [found] = self.servers({**SERVER, 'flavor': {}})
        self.assertEqual({}, found.specs)

    def test_answers_of_something_else(self) -> None:
        for answer in ({'servers': 5}, {'servers': [5]},
                       {'servers': [{'x': 1}]}, {'servers': [
                           {**SERVER, 'flavor': 5}]}):
            self.answers['/v2.1/servers/detail'] = answer
            self.assertRaises(errors.Unreachable, list,
                              self.nova.servers(None))
        for row in ({'x': 1}, {'name': 5}, 5):
            self.answers['/v2.1/os-aggregates'] = {'aggregates': [row]}
            self.assertRaises(errors.Unreachable, self.nova.aggregates)

    def test_a_page_that_comes_again(self) -> None:
        """For ever."""
        self.answers['/v2.1/servers/detail'] = {'servers': [SERVER]}
        self.answers['/v2.1/servers/detail?marker'] = {'servers': [SERVER]}
        self.assertRaises(errors.Unreachable, list, self.nova.servers(None))

    def test_flavors(self) -> None:
        """All pages of them."""
        one = {'vcpus': 1, 'ram': 128, 'disk': 1}
        self.answers['/v2.1/flavors/detail'] = {'flavors': [
            {**one, 'id': '1', 'name': 'a', 'extra_specs': {}}]}
        self.answers['/v2.1/flavors/detail?marker'] = {'flavors': []}
        self.assertEqual({'a': {}}, {
            name: found.specs for name, found in self.nova.flavors().items()})
        self.assertIn('/v2.1/flavors/detail?marker', self.asked)

    def test_a_flavor_whose_specs_are_refused(self) -> None:
        """It is deleted; what was refused is told, also where that is."""
        from scavenger_openstack.conductor.nova import client
        self.answers['POST /v2.1/flavors'] = {'flavor': {
            'id': '7', 'name': 'a', 'vcpus': 1, 'ram': 128, 'disk': 1}}
        for deleted in (None, 'yes'):
            self.answers['DELETE /v2.1/flavors/7'] = deleted
            exc = self.assertRaises(
                errors.Unreachable, self.nova.make_flavor, 'a',
                client.Flavor('', 1, 128, 1, {'x': 'y'}), public=False)
            self.assertIn('DELETE /v2.1/flavors/7', self.asked)
            self.assertEqual('POST', getattr(exc.__cause__, 'method', None))
