# SPDX-License-Identifier: Apache-2.0

"""Both ends of the call, over any broker."""

from __future__ import annotations

from collections.abc import Callable
import functools
import json
import pathlib
import threading
import time
from typing import TYPE_CHECKING

import fixtures
from oslo_config import cfg
import testtools

from scavenger_openstack.agent.control_plane import sync
from scavenger_openstack.conductor import service
from scavenger_openstack.db import connect
from scavenger_openstack.db.resources import hosts
from scavenger_openstack.db import schema
from scavenger_openstack import errors
from scavenger_openstack import rpc
from scavenger_openstack.wire.report import MAX_REPORT_BYTES


if TYPE_CHECKING:
    _Base = testtools.TestCase
else:
    _Base = object


def configuration(url: str) -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    rpc.register(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    conf.set_override('transport_url', url)
    return conf


class Mixin(_Base):
    """What goes over any transport; ``url`` names it."""

    timeout_s = 5.0
    conf: cfg.ConfigOpts
    server: rpc.Server
    answers: Callable[[bytes, str], bytes]
    tags: list[bytes] = []

    @classmethod
    def url(cls) -> str:
        raise NotImplementedError

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        cls.conf = configuration(cls.url())
        # Ending one takes a second.
        cls.server = rpc.Server(
            cls.conf, lambda report, token: cls.answers(report, token),
            'conductor-1', lambda tag: cls.tags.append(tag))
        cls.server.start()
        assert cls.server.wait(30.0)
        cls.addClassCleanup(cls.server.stop)

    def setUp(self) -> None:
        super().setUp()
        # Another test may have set the level of our own loggers.
        self.useFixture(fixtures.FakeLogger('scavenger_openstack'))
        self.log = self.useFixture(fixtures.FakeLogger())
        self.reports: list[bytes] = []
        self.tokens: list[str] = []
        self.fault: Exception | None = None
        type(self).answers = staticmethod(self.answer)
        self.client = self.new_client()

    def new_client(self) -> rpc.Client:
        client = rpc.Client(self.conf, timeout_s=self.timeout_s)
        self.addCleanup(client.close)
        return client

    def answer(self, report: bytes, token: str) -> bytes:
        self.reports.append(report)
        self.tokens.append(token)
        if self.fault is not None:
            raise self.fault
        return b'{"answer": "' + report + '", "é": 1}'.encode()

    def test_a_call(self) -> None:
        self.assertEqual('{"answer": "réport", "é": 1}'.encode(),
                         self.client.sync('réport'.encode()))
        self.client.close()
        self.client.sync(b'2')
        self.assertEqual(['réport'.encode(), b'2'], self.reports)

    def test_a_token(self) -> None:
        client = rpc.Client(self.conf, timeout_s=self.timeout_s,
                            token=lambda: 't0k')
        self.addCleanup(client.close)
        client.sync(b'{}')
        self.client.sync(b'{}')
        self.assertEqual(['t0k', ''], self.tokens)

    def test_a_tag(self) -> None:
        """As nova-compute casts it."""
        import oslo_messaging       # after rpc, which chooses its threads
        self.tags.clear()
        transport = oslo_messaging.get_rpc_transport(self.conf)
        self.addCleanup(transport.cleanup)
        oslo_messaging.get_rpc_client(transport, oslo_messaging.Target(
            topic=rpc.TOPIC, version='1.0')).cast({}, 'tag', tag={'é': 1})
        deadline = time.monotonic() + 30
        while not self.tags:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        self.assertEqual([{'é': 1}], [json.loads(tag) for tag in self.tags])

    def test_a_report_that_is_refused(self) -> None:
        self.fault = errors.WireError('$.host: too long')
        self.assertEqual('$.host: too long', str(self.assertRaises(
            errors.WireError, self.client.sync, b'{}')))
        self.fault = None
        self.client.sync(b'{}')
        self.assertNotIn('Traceback', self.log.output)

    def test_a_conductor_without_its_database(self) -> None:
        self.fault = errors.Unreachable('the conductor cannot store it now')
        self.assertEqual(
            'the conductor cannot store it now',
            str(self.assertRaises(errors.Unreachable, self.client.sync,
                                  b'{}')))

    def test_a_conductor_that_takes_no_more(self) -> None:
        self.fault = errors.Busy('no more')
        self.assertEqual('no more', str(self.assertRaises(
            errors.Busy, self.client.sync, b'{}')))
        self.assertNotIn('Traceback', self.log.output)

    def test_errors_of_types_that_an_agent_does_not_know(self) -> None:
        """They say nothing of its report: it sends it later."""
        for fault in (ZeroDivisionError('ours'), MemoryError()):
            self.fault = fault
            self.assertIn(str(fault) or type(fault).__name__, str(
                self.assertRaises(errors.Unreachable, self.client.sync,
                                  b'{}')))

    def test_the_longest_report(self) -> None:
        self.client.sync(b'x' * MAX_REPORT_BYTES)
        self.assertIn('refused; at most', str(self.assertRaises(
            errors.WireError, self.client.sync,
            b'x' * (MAX_REPORT_BYTES + 1))))
        self.assertEqual(1, len(self.reports))

    def test_minor_versions(self) -> None:
        for version in ('1.0', '1.1', '1.7'):
            self.useFixture(fixtures.MonkeyPatch(
                'scavenger_openstack.rpc.VERSION', version))
            self.new_client().sync(b'{}')
        self.assertEqual(3, len(self.reports))

    def test_another_major_version(self) -> None:
        """One clear line at both ends."""
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.rpc.VERSION', '2.0'))
        said = str(self.assertRaises(errors.Unreachable,
                                     self.new_client().sync, b'{}'))
        self.assertIn('upgrade the older', said)
        self.assertNotIn('\n', said)
        self.assertIn('RPC version 2.0', self.log.output)
        self.assertNotIn('Traceback', self.log.output)
        self.assertEqual([], self.reports)

    def agent(self, call: Callable[[bytes], bytes]) -> sync.Sync:
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        return sync.make(call, directory / 'sync', spool_bytes=2 ** 20,
                         host='compute-7', boot_id='b', version='1',
                         sync_s=10.0)

    def test_another_major_version_is_one_line_in_both_logs(self) -> None:
        """However often the agent tries again."""
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.rpc.VERSION', '2.0'))
        agent = self.agent(self.new_client().sync)
        self.assertEqual([False] * 3, [agent.turn() for _ in range(3)])
        ours, theirs = sorted(
            line for line in self.log.output.splitlines()
            if 'upgrade the older' in line)
        self.assertRegex(ours, 'refused a call of compute-7: .* version 2.0')
        self.assertIn('reports do not reach the conductor: this agent speaks '
                      'version ', theirs)

    def test_one_minor_version_older_and_newer(self) -> None:
        """An agent and a conductor, of which one knows more: each passes
        over what it does not know, and goes without what it does not get."""
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        engine = connect.engine(f'sqlite:///{directory}/database')
        self.addCleanup(engine.dispose)
        schema.upgrade(engine)
        conductor = service.Conductor(engine)

        def later(data: bytes) -> bytes:
            found = json.loads(data)
            for part in (found, found.get('facts'), found.get('directives')):
                if part is not None:
                    part['later'] = {'one': [1, None]}
            return json.dumps(found).encode()

        def earlier(data: bytes) -> bytes:
            return json.dumps({name: value for name, value
                               in json.loads(data).items() if name not in (
                                   'facts', 'workloads_digest')}).encode()

        def both(first: Callable[..., bytes], then: Callable[..., bytes],
                 data: bytes, token: str = '') -> bytes:
            return then(first(data))

        for version, tell, answer in (('1.1', later, earlier),
                                      ('1.0', earlier, later)):
            self.useFixture(fixtures.MonkeyPatch(
                'scavenger_openstack.rpc.VERSION', version))
            type(self).answers = staticmethod(functools.partial(
                both, conductor.answer, answer))
            agent = self.agent(functools.partial(
                both, tell, self.new_client().sync))
            self.assertTrue(agent.turn(), self.log.output)
            self.assertTrue(agent.directives.digest)
        with connect.reading(engine) as connection:
            self.assertEqual(['compute-7'], [
                row['name'] for row in hosts.reported(connection)])

    def test_several_at_once(self) -> None:
        gate = threading.Barrier(4)

        def answer(report: bytes, token: str) -> bytes:
            gate.wait(self.timeout_s)
            return report

        type(self).answers = staticmethod(answer)
        threads = [threading.Thread(target=self.new_client().sync,
                                    args=(b'%d' % number,))
                   for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertFalse(gate.broken)
