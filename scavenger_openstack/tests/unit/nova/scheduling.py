# SPDX-License-Identifier: Apache-2.0

"""Objects of Nova, and an API on loopback, for tests of filter and weigher."""

from __future__ import annotations

import json
import math
import threading
import time
from typing import Any
import uuid
from wsgiref import simple_server

import fixtures
import nova.conf
from nova import objects
from nova.scheduler import host_manager
from nova.scheduler import weights as scheduler_weights
import testtools

from scavenger_openstack.nova import filters
from scavenger_openstack.nova import options
from scavenger_openstack.nova import placed
from scavenger_openstack.nova import summary
from scavenger_openstack.nova import weights

MIB = 2 ** 20

objects.register_all()


def told(name: str, **more: Any) -> dict[str, Any]:
    """A host as our API shows it."""
    return {'name': name, 'silent': False, 'enforcing': True,
            'incidents': 0, 'background_vcpus': 0.0,
            'headroom': {'cpu_cores': 4.0, 'memory_bytes': 4096.0 * MIB},
            'capacity': {'cpu_cores': 8.0}, **more}


class Api:
    """What stands in for our API: ``answer`` is a text, or a number for an
    error, or ``None`` for none at all."""

    def __init__(self) -> None:
        self.answer: str | int | None = json.dumps({'hosts': []})
        self.asked = self.spared = 0
        self.go = threading.Event()
        self._server = simple_server.make_server(
            '127.0.0.1', 0, self._answer, handler_class=_Quiet)
        self.url = f'http://127.0.0.1:{self._server.server_port}'
        threading.Thread(target=self._server.serve_forever, args=(0.02,),
                         daemon=True).start()

    def close(self) -> None:
        self.go.set()
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, environ: dict[str, Any], start: Any) -> list[bytes]:
        self.asked += 1
        if environ['PATH_INFO'] != summary.PATH:
            start('404 Not Found', [])
            return [b'']
        if self.answer is None:
            self.go.wait(20)
        if not isinstance(self.answer, str):
            start(f'{self.answer or 500} Fault', [
                ('x-openstack-request-id', f'req-{uuid.uuid4()}')])
            return [b'']
        etag = f'"{hash(self.answer)}"'
        if environ.get('HTTP_IF_NONE_MATCH') == etag:
            self.spared += 1
            start('304 NOT MODIFIED', [('ETag', etag)])
            return [b'']
        start('200 OK', [('Content-Type', 'application/json'),
                         ('ETag', etag)])
        return [self.answer.encode()]


class _Quiet(simple_server.WSGIRequestHandler):

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


def spec(background: bool = True, vcpus: int = 1, **hints: list[str]
         ) -> objects.RequestSpec:
    """What is to be scheduled."""
    return objects.RequestSpec(
        scheduler_hints=hints, flavor=objects.Flavor(
            vcpus=vcpus, memory_mb=512, extra_specs={
                'scavenger:priority': 'background'} if background else {}))


def states(*names: str) -> list[host_manager.HostState]:
    found = []
    for name in names:
        state = host_manager.HostState(name, name, None)
        state.aggregates = []
        found.append(state)
    return found


class SchedulingCase(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.api = Api()
        self.addCleanup(self.api.close)
        conf = nova.conf.CONF
        options.register(conf)
        for name, value in (('auth_type', 'none'),
                            ('summary_timeout_s', 30.0)):
            conf.set_override(name, value, options.SECTION)
            self.addCleanup(conf.clear_override, name, options.SECTION)
        conf.set_override('endpoint_override', self.api.url, options.SECTION)
        self.addCleanup(conf.clear_override, 'endpoint_override',
                        options.SECTION)
        self.later_s = 0.0
        self.summary = summary.Summary(
            summary.Reader(conf).read, interval_s=0.05, max_age_s=60.0,
            clock=lambda: time.monotonic() + self.later_s)
        # Its thread ends when nothing has asked for long.
        self.addCleanup(setattr, self, 'later_s', math.inf)
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.nova.summary.shared', lambda: self.summary))
        self.placed = placed.Placed(lambda: self.now_s)
        self.now_s = 1000.0
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.nova.placed.shared', lambda: self.placed))
        self.filter = filters.BackgroundFilter()
        self.weigher = weights.InterferenceWeigher()

    def say(self, *hosts: dict[str, Any], **more: Any) -> None:
        """Have the API answer that, and the summary read it."""
        self.api.answer = json.dumps({'hosts': hosts, **more})
        self.summary.refresh()

    def passing(self, wanted: objects.RequestSpec, *names: str) -> list[str]:
        return [one.host for one in self.filter.filter_all(
            states(*names), wanted)]

    def weighed(self, wanted: objects.RequestSpec, *names: str) -> list[str]:
        """The hosts as Nova sorts them with this weigher alone."""
        found = scheduler_weights.HostWeightHandler().get_weighed_objects(
            [self.weigher], states(*names), wanted)
        return [one.obj.host for one in found]
