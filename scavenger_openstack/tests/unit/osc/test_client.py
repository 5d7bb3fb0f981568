# SPDX-License-Identifier: Apache-2.0

"""What commands read of an API that fails, and the pages they ask for."""

from __future__ import annotations

from collections.abc import Callable
import json
from typing import Any

from keystoneauth1 import http_basic
from keystoneauth1 import session
from openstack import connection
from openstack import exceptions as sdk_exceptions
from osc_lib import exceptions
import testtools
from werkzeug import wrappers

from scavenger_openstack.osc import client as osc_client
from scavenger_openstack.osc import scope
from scavenger_openstack import sdk
from scavenger_openstack.tests.unit.sdk import connected


class Client(testtools.TestCase):
    """Against an application that answers what the test says."""

    def client(self, answer: Callable[[wrappers.Request], wrappers.Response]
               ) -> osc_client.Client:
        return connected.proxy(osc_client.Client,
                               wrappers.Request.application(answer))

    def refused(self, answer: wrappers.Response) -> str:
        return str(self.assertRaises(
            exceptions.CommandError,
            self.client(lambda request: answer).get_host, 'a'))

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
            listed, marker = client.listing(
                'hosts', enforcing=True, aggregate=None, limit=limit)
            self.assertEqual(
                ([str(number) for number in range(rows)], following, pages),
                ([row['name'] for row in listed], marker, len(asked)))
        self.assertEqual({'enforcing': 'true', 'limit': '1000'}, asked[0])
        self.assertEqual('2499', client.listing(
            'hosts', limit=1, marker='2498')[1])

    def test_errors(self) -> None:
        self.assertEqual(
            'Service Unavailable: the database is away (request req-7).',
            self.refused(_json({'error': {
                'title': 'Service Unavailable',
                'detail': 'the database is away', 'request_id': 'req-7'}},
                503)))

    def test_a_proxy_answers(self) -> None:
        self.assertEqual('HTTP 502 BAD GATEWAY.', self.refused(
            wrappers.Response('<html>', status=502)))

    def test_nothing_listens(self) -> None:
        http = session.Session(auth=http_basic.HTTPBasicAuth(
            endpoint='http://127.0.0.1:1', username='a', password='b'))
        self.addCleanup(http.session.close)
        cloud = connection.Connection(session=http)
        sdk.register(cloud, osc_client.Client)
        error = self.assertRaises(
            exceptions.CommandError,
            cloud.interference.get_host, 'a')    # type: ignore[attr-defined]
        self.assertEqual('http://127.0.0.1:1 cannot be reached: '
                         'Connection refused.', str(error))

    def test_several_are_deleted(self) -> None:
        """Those that follow one that failed are deleted as well."""
        asked = []

        def answer(request: wrappers.Request) -> wrappers.Response:
            asked.append((request.method, request.path, dict(request.args)))
            if request.path.endswith('b'):
                return _json({'error': {'title': 'Not Found',
                                        'detail': 'There is no b.'}}, 404)
            return wrappers.Response(status=204)

        error = self.assertRaises(
            exceptions.CommandError, scope.delete_each,
            self.client(answer).delete_exemption, ['a', '..', 'b', 'c'],
            'moved')
        self.assertEqual('".." is not a name.\nNot Found: There is no b.',
                         str(error))
        self.assertEqual([
            ('DELETE', f'/v1/exemptions/{id}', {'reason': 'moved'})
            for id in 'abc'], asked)

    def test_another_service_answers(self) -> None:
        error = self.assertRaises(
            sdk_exceptions.SDKException,
            self.client(lambda request: wrappers.Response('<html>')).get_host,
            'a')
        self.assertEqual(
            f'{connected.URL} did not answer like the interference API; check '
            'the endpoint.', str(error))


def _json(body: Any, status: int = 200) -> wrappers.Response:
    return wrappers.Response(json.dumps(body), status,
                             mimetype='application/json')
