# SPDX-License-Identifier: Apache-2.0

"""What is made of Nova's answers, read by python-novaclient over HTTP."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
from typing import Any
from urllib import parse

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
        self.requests: list[str] = []
        self.gone: set[str] = set()
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

    def queries(self, path: str) -> list[dict[str, list[str]]]:
        """Of the requests for it."""
        return [parse.parse_qs(query) for found, _, query in (
            one.partition('?') for one in self.requests) if found == path]

    def handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        answers, versions, asked = self.answers, self.versions, self.asked
        requests, gone = self.requests, self.gone

        class Handler(http.server.BaseHTTPRequestHandler):

            def do_GET(self) -> None:
                requests.append(self.path)
                path, _, query = self.path.partition('?')
                marker = parse.parse_qs(query).get('marker', [''])[0]
                if marker in gone:
                    self.send_response(400)
                    self.send_header('Content-Length', '0')
                    self.end_headers()
                    return
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

    def test_an_id_is_one_part_of_a_path(self) -> None:
        for ask in (self.nova.server, self.nova.group,
                    lambda id_: self.nova.act(id_, 'stop')):
            with contextlib.suppress(errors.Unreachable):
                ask('../os-aggregates/1?x=#')
        self.assertEqual(3, sum('..%2Fos-aggregates%2F1%3Fx%3D%23' in path
                                for path in self.asked))

    def test_a_host_that_terminals_obey(self) -> None:
        self.answers[f'/v2.1/servers/{SERVER["id"]}'] = {'server': {
            **SERVER, 'OS-EXT-SRV-ATTR:host': 'node\nERROR\x1b[31m'}}
        server = self.nova.server(str(SERVER['id']))
        assert server is not None
        self.assertTrue(server.host.isprintable())

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
        return list(self.nova.page().servers)

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

    def test_what_lists_are_asked_for(self) -> None:
        self.servers()
        self.nova.page(since_s=1_750_000_000.0)
        self.nova.page(since_s=1_750_000_000.0, deleted=True)
        self.nova.page(status='MIGRATING')
        rest = {'all_tenants': ['1'], 'limit': ['500']}
        since = {'changes-since': ['2025-06-15T15:06:40Z']}
        self.assertEqual([rest, {**rest, **since}, {
            **rest, **since, 'deleted': ['True']}, {
            **rest, 'status': ['MIGRATING']}],
            self.queries('/v2.1/servers/detail'))

    def test_the_last_instance_of_a_page_was_deleted(self) -> None:
        """Nova knows it no more as the place to go on at."""
        names = [f'{number:08d}' for number in range(3)]
        self.servers(*({**SERVER, 'id': name} for name in names))
        page = self.nova.page()
        self.assertEqual(tuple(names), page.after)
        self.answers['/v2.1/servers/detail?marker'] = {'servers': []}
        self.gone.update(names[1:])
        self.assertEqual(([], ()), self.nova.page(page.after))
        self.assertEqual([None, [names[2]], [names[1]], [names[0]]], [
            query.get('marker') for query in self.queries(
                '/v2.1/servers/detail')[1:]])
        self.gone.add(names[0])
        self.assertRaises(errors.Unreachable, self.nova.page, page.after)

    def test_the_server_groups_of_one(self) -> None:
        path = f'/v2.1/servers/{SERVER["id"]}'
        for groups in (None, [], ['g1']):
            self.answers[path] = {'server': SERVER if groups is None else {
                **SERVER, 'server_groups': groups,
                'created': '2025-06-15T15:06:40Z'}}
            found = self.nova.server(str(SERVER['id']))
            assert found is not None
            self.assertEqual(
                (None, 0.0) if groups is None else (tuple(groups),
                                                    1_750_000_000.0),
                (found.groups, found.created_s))
        self.assertIsNone(self.nova.group('g1'))
        self.answers['/v2.1/os-server-groups/g1'] = {'server_group': {
            'id': 'g1', 'name': 'shop', 'members': ['i1']}}
        self.assertEqual(('g1', 'shop', ('i1',)), self.nova.group('g1'))

    def test_compute_services(self) -> None:
        self.answers['/v2.1/os-services'] = {'services': [
            {'id': 1, 'host': 'node-1', 'binary': 'nova-compute'}]}
        self.assertEqual(['node-1'], self.nova.services())
        self.assertEqual([{'binary': ['nova-compute']}],
                         self.queries('/v2.1/os-services'))

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
            self.assertRaises(errors.Unreachable, self.nova.page)
        for row in ({'x': 1}, {'name': 5}, 5):
            self.answers['/v2.1/os-aggregates'] = {'aggregates': [row]}
            self.assertRaises(errors.Unreachable, self.nova.aggregates)

    def test_a_page_that_comes_again(self) -> None:
        """For ever."""
        self.answers['/v2.1/servers/detail'] = {'servers': [SERVER]}
        self.answers['/v2.1/servers/detail?marker'] = {'servers': [SERVER]}
        page = self.nova.page()
        self.assertRaises(errors.Unreachable, self.nova.page, page.after)

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
