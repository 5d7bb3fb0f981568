# SPDX-License-Identifier: Apache-2.0

"""A slow Placement and a slow Nova, over HTTP, for the real clients.

Placement sleeps before each answer.  Nova does not: its answers take their
time on a clock of its own, so that hours are played in a minute.
"""

from __future__ import annotations

from collections.abc import Callable
import contextlib
import http.server
import json
import re
import threading
import time
from typing import Any
import urllib.parse
import uuid

import cloud
from keystoneauth1 import adapter
from keystoneauth1 import session
from keystoneauth1 import token_endpoint

PAGE_S = 5.0
"""Of 500 instances, with all their details."""
GROUPS_S = 10.0
"""Of a page of server groups: Nova loads all of them each time."""
ONE_S = 0.2


class Served:
    """An HTTP server on loopback; ``calls`` counts by method and path.

    :param answer: of method, path, query and body: status and JSON
    """

    def __init__(self, answer: Callable[..., tuple[int, Any]]) -> None:
        self.calls: dict[str, int] = {}
        lock = threading.Lock()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = 'HTTP/1.1'
            disable_nagle_algorithm = True

            def serve(self) -> None:
                size = int(self.headers.get('Content-Length') or 0)
                body = json.loads(self.rfile.read(size)) if size else None
                parts = urllib.parse.urlsplit(self.path)
                kind = f'{self.command} ' + re.sub(
                    r'/[0-9a-f-]{36}', '/ID', parts.path)
                with lock:
                    served.calls[kind] = served.calls.get(kind, 0) + 1
                status, value = answer(self.command, parts.path, dict(
                    urllib.parse.parse_qsl(parts.query)), body)
                data = (b'' if value is None else value
                        if isinstance(value, bytes)
                        else json.dumps(value).encode())
                self.send_response(status)
                self.send_header('Content-Type', 'application/json')
                self.send_header('Content-Length', str(len(data)))
                self.send_header('OpenStack-API-Version', 'compute 2.96')
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_PUT = do_POST = do_DELETE = serve

            def log_message(self, *words: Any) -> None:
                pass

        served = self
        self._server = http.server.ThreadingHTTPServer(('127.0.0.1', 0),
                                                       Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever,
                                        daemon=True, name='played')
        self._thread.start()
        self.url = f'http://127.0.0.1:{self._server.server_port}'

    @property
    def total(self) -> int:
        return sum(self.calls.values())

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def session(self) -> session.Session:
        return session.Session(auth=token_endpoint.Token(self.url, 'token'))


class Placement:
    """The providers of so many hosts.

    ``written_s`` says when the inventory of each was written last, by
    time.monotonic().
    """

    def __init__(self, hosts: int, call_s: float) -> None:
        self._call_s = call_s
        self._lock = threading.Lock()
        self._providers: dict[str, dict[str, Any]] = {}
        self.written_s: dict[str, float] = {}
        for number in range(hosts):
            self._add(cloud.host_name(number), None)
        self.served = Served(self._answer)

    def client(self) -> adapter.Adapter:
        return adapter.Adapter(self.served.session(),
                               service_type='placement', connect_retries=0)

    def _add(self, name: str, parent: str | None) -> dict[str, Any]:
        uuid_ = str(uuid.uuid4())
        provider = self._providers[uuid_] = {
            'uuid': uuid_, 'name': name, 'parent_provider_uuid': parent,
            'root_provider_uuid': parent or uuid_, 'generation': 0,
            'inventories': {}, 'traits': []}
        return provider

    def _answer(self, method: str, path: str, query: dict[str, str],
                body: Any) -> tuple[int, Any]:
        time.sleep(self._call_s)
        with self._lock:
            return self._answered(method, path.strip('/').split('/'), query,
                                  body)

    def _answered(self, method: str, path: list[str], query: dict[str, str],
                  body: Any) -> tuple[int, Any]:
        if path[0] != 'resource_providers':
            return 204, None
        if len(path) == 1 and method == 'POST':
            return 200, self._add(body['name'], body['parent_provider_uuid'])
        if len(path) == 1:
            return 200, {'resource_providers': [
                {name: provider[name] for name in (
                    'uuid', 'name', 'generation', 'parent_provider_uuid',
                    'root_provider_uuid')}
                for provider in self._providers.values() if all(
                    provider[column] == query[name] for name, column in (
                        ('name', 'name'), ('uuid', 'uuid'),
                        ('in_tree', 'root_provider_uuid'))
                    if name in query)]}
        provider = self._providers.get(path[1])
        if provider is None:
            return 404, {'errors': [{'code': 'placement.undefined'}]}
        if method == 'PUT':
            if body['resource_provider_generation'] != provider['generation']:
                return 409, {'errors': [{
                    'code': 'placement.concurrent_update'}]}
            provider[path[2]] = body[path[2]]
            provider['generation'] += 1
            if path[2] == 'inventories':
                self.written_s[provider['name']] = time.monotonic()
        if len(path) == 2:
            return 200, provider
        return 200, {'usages': {}, 'inventories': provider['inventories'],
                     'traits': provider['traits'],
                     'resource_provider_generation': provider['generation']}


class Nova:
    """The instances of a cloud, on a clock that its answers move on.

    ``lags_s`` says of each instance that was changed how long it took until
    a client had that.

    :param count: instances
    :param now: UNIX time in seconds
    :param every_s: an instance is changed so often
    """

    def __init__(self, count: int, now: float, every_s: float = 60.0
                 ) -> None:
        self.now = now
        self.lags_s: list[float] = []
        self.gone = 0       # the first ones are not there any more
        self._made_s = self._changed_s = now
        self._count = count
        self._every_s = every_s
        self.waiting: dict[int, float] = {}
        self._places: dict[str, int] = {
            cloud.instance(number): number for number in range(count)}
        self.served = Served(self._answer)

    def clock(self) -> float:
        return self.now

    def pass_s(self, seconds: float) -> None:
        """Let time pass, and instances change."""
        self.now += seconds
        while self._changed_s + self._every_s <= self.now:
            self._changed_s += self._every_s
            self.waiting.setdefault(
                self._count - 1 - len(self.lags_s) % (self._count // 2),
                self._changed_s)

    def _answer(self, method: str, path: str, query: dict[str, str],
                body: Any) -> tuple[int, Any]:
        parts = [part for part in path.split('/') if part]
        if parts[:1] == ['os-server-groups']:
            self.pass_s(GROUPS_S)
            return 200, {'server_groups': self._groups(query)}
        if parts == ['servers', 'detail']:
            numbers = self._page(query)
            self.pass_s(PAGE_S * max(0.1, len(numbers) / 500))
            return 200, {'servers': [
                self._server(number, 'deleted' in query or number < self.gone)
                for number in numbers]}
        if parts[:1] == ['servers']:
            self.pass_s(ONE_S)
            number = self._places.get(parts[1], -1)
            if number < self.gone:
                return 404, {'itemNotFound': {'code': 404, 'message': ''}}
            return 200, {'server': self._server(number, False)}
        version = {'id': 'v2.1', 'status': 'CURRENT', 'version': '2.96',
                   'min_version': '2.1',
                   'links': [{'rel': 'self', 'href': f'{self.served.url}/'}]}
        return 200, {'version': version, 'versions': [version]}

    def _groups(self, query: dict[str, str]) -> list[Any]:
        first, limit = int(query.get('offset', 0)), int(
            query.get('limit', 1000))
        return [{'id': str(uuid.UUID(int=group)), 'name': f'group-{group}',
                 'policy': 'affinity', 'rules': {}, 'project_id': 'p',
                 'user_id': 'u', 'members': [
                     cloud.instance(group * cloud.WORKLOADS + place)
                     for place in range(cloud.GROUPED)]}
                for group in range(
                    self._count // cloud.WORKLOADS)[first:first + limit]]

    def _page(self, query: dict[str, str]) -> list[int]:
        """The numbers of a page, the newest first; changes count as told."""
        if 'status' in query:
            return []
        if query.get('deleted') == 'True':
            numbers = range(self.gone - 1, -1, -1)
        elif 'changes-since' in query:
            if 'marker' in query:
                return []
            changed = sorted(self.waiting)
            self.lags_s += [self.now - self.waiting.pop(number)
                            for number in changed]
            return changed
        else:
            numbers = range(self._count - 1, self.gone - 1, -1)
        marker = self._places.get(query.get('marker', ''))
        first = 0 if marker is None else numbers[0] - marker + 1
        return list(numbers[first:first + int(query.get('limit', 1000))])

    def _server(self, number: int, deleted: bool) -> dict[str, Any]:
        background = cloud.priority(number) == 'background'
        return {
            'id': cloud.instance(number), 'name': f'vm-{number}',
            'tenant_id': cloud.project(number), 'user_id': 'u' * 32,
            'status': 'DELETED' if deleted else 'ACTIVE',
            'created': '2020-01-01T00:00:00Z', 'updated': '2020-01-01T00:00Z',
            'OS-EXT-SRV-ATTR:host': cloud.host_name(
                number // cloud.WORKLOADS),
            'OS-EXT-STS:task_state': None, 'metadata': {}, 'tags': [],
            'addresses': {'net': [{'addr': '10.0.0.1', 'version': 4}]},
            'flavor': {'vcpus': 2, 'ram': 4096, 'extra_specs': {
                'scavenger:priority': 'background' if background
                else 'foreground'}}}


@contextlib.contextmanager
def closing(service: Placement | Nova) -> Any:
    """The service, which is closed at the end."""
    try:
        yield service
    finally:
        service.served.close()
