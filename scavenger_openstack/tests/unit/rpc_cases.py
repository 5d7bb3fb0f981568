# SPDX-License-Identifier: Apache-2.0

"""Both ends of the call, over any broker."""

from __future__ import annotations

from collections.abc import Callable
import functools
import json
import pathlib
import threading
import time
from typing import Any
from typing import TYPE_CHECKING

import fixtures
from oslo_config import cfg
import testtools

from scavenger_openstack.agent.control_plane import sync
from scavenger_openstack.agent.events import store
from scavenger_openstack.conductor import service
from scavenger_openstack.db import connect
from scavenger_openstack.db import enrollment
from scavenger_openstack.db.resources import hosts
from scavenger_openstack.db import schema
from scavenger_openstack import errors
from scavenger_openstack import rpc
from scavenger_openstack.wire import proof
from scavenger_openstack.wire.report import MAX_REPORT_BYTES


if TYPE_CHECKING:
    _Base = testtools.TestCase
else:
    _Base = object


HOST = 'compute-7'


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
    answers: Callable[[bytes], bytes]
    signed_answers: rpc.SignedAnswer
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
            cls.conf, lambda report: cls.answers(report),
            lambda report, sender: cls.signed_answers(report, sender),
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
        self.fault: Exception | None = None
        type(self).answers = staticmethod(self.answer)
        self.client = self.new_client()

    def new_client(self) -> rpc.Client:
        client = rpc.Client(self.conf, timeout_s=self.timeout_s)
        self.addCleanup(client.close)
        return client

    def answer(self, report: bytes) -> bytes:
        self.reports.append(report)
        if self.fault is not None:
            raise self.fault
        return b'{"answer": "' + report + '", "é": 1}'.encode()

    def test_a_call(self) -> None:
        self.assertEqual('{"answer": "réport", "é": 1}'.encode(),
                         self.client.sync('réport'.encode()))
        self.client.close()
        self.client.sync(b'2')
        self.assertEqual(['réport'.encode(), b'2'], self.reports)

    def enrolled(self) -> tuple[service.Conductor, rpc.Client]:
        """A conductor that answers, and an agent with its token."""
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        engine = connect.engine(f'sqlite:///{directory}/database')
        self.addCleanup(engine.dispose)
        schema.upgrade(engine)
        with connect.writing(engine) as connection:
            token = enrollment.enroll(connection, HOST, now_s=0.0).token
        conductor = service.Conductor(engine)
        type(self).answers = staticmethod(conductor.answer)
        type(self).signed_answers = staticmethod(conductor.signed_answer)
        client = rpc.Client(self.conf, timeout_s=self.timeout_s,
                            identity=lambda: (HOST, token))
        self.addCleanup(client.close)
        return conductor, client

    def test_a_token(self) -> None:
        """It is needed, and never sent."""
        conductor, client = self.enrolled()
        agent = self.agent(client.sync)
        self.assertTrue(agent.turn(), self.log.output)
        self.assertTrue(agent.directives.digest)
        self.assertFalse(self.agent(self.client.sync).turn())
        self.assertRaises(errors.WireError, client.sync, b'{}')

    def test_answers_that_others_forge(self) -> None:
        """None is followed, and none has the agent leave out an entry."""
        conductor, client = self.enrolled()
        before: list[dict[str, str]] = []

        def keep(data: bytes, sender: proof.Proof) -> dict[str, str]:
            before.append(conductor.signed_answer(data, sender))
            return before[-1]

        type(self).signed_answers = staticmethod(keep)
        self.assertTrue(self.agent(client.sync).turn())
        self.assertRaises(errors.WireError, client.sync, b'{}')
        answer = before[0][proof.ANSWER]
        forged: list[Any] = [
            answer, *before, {'answer': answer}, {'answer': answer,
                                                  'proof': 1}, {}, None,
            {**before[0], 'answer': answer.replace('true', 'false')}]

        for message in forged:
            type(self).signed_answers = staticmethod(
                lambda data, sender, message=message: message)
            agent = self.agent(client.sync)
            self.assertFalse(agent.turn(), message)
            self.assertEqual('', agent.directives.digest)
            self.assertRaises(errors.Unreachable, client.sync, b'{}')

        def swap(data: bytes, sender: proof.Proof) -> dict[str, str]:
            """A refusal in place of the answer."""
            found = conductor.signed_answer(data, sender)
            return {'refusal': found['answer'], 'proof': found['proof']}

        type(self).signed_answers = staticmethod(swap)
        agent = self.agent(client.sync)
        self.assertFalse(agent.turn())
        self.assertEqual('', agent.directives.digest)
        self.assertRaises(errors.Unreachable, client.sync, b'{}')

    def test_calls_of_another_form(self) -> None:
        """A proof of which something is missing is none."""
        import oslo_messaging
        self.enrolled()
        transport = oslo_messaging.get_rpc_transport(self.conf)
        self.addCleanup(transport.cleanup)
        call = oslo_messaging.get_rpc_client(transport, oslo_messaging.Target(
            topic=rpc.TOPIC, version='1.0')).prepare(timeout=30.0).call
        good = {'host': HOST, 'nonce': '0', 'proof': '0'}
        for fields in ({'proof': ''}, {**good, 'host': 1},
                       {**good, 'host': 'x' * 257}, {**good, 'nonce': 'a\nb'},
                       {**good, 'more': ''}, {'token': 't0k'}, good):
            exc = self.assertRaises(
                (errors.ForeignReport, oslo_messaging.RemoteError), call, {},
                'sync', report='{}', **fields)
            self.assertEqual('ForeignReport', getattr(
                exc, 'exc_type', type(exc).__name__), str(fields))

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

    def test_another_major_version_of_what_is_no_host(self) -> None:
        """It is not named: what names look like stands in one place."""
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.rpc.VERSION', '2.0'))
        for name in ('n\xf6de', 'n\xf6de' * 64, 'n\xf6de;id'):
            self.assertRaises(errors.Unreachable, self.new_client().sync,
                              f'{{"host": "{name}"}}'.encode())
        self.assertNotIn('n\xf6de', self.log.output)

    def agent(self, call: Callable[[bytes], bytes]) -> sync.Sync:
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        return sync.make(call, directory / 'sync', store.Store(
            directory / 'history', 2 ** 20, 2 ** 20), host=HOST, boot_id='b',
            version='1', sync_s=10.0)

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
                 data: bytes) -> bytes:
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

        def answer(report: bytes) -> bytes:
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
