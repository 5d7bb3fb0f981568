# SPDX-License-Identifier: Apache-2.0

"""What the user of a hypervisor may do at the broker, with the permissions
that the documentation sets."""

from __future__ import annotations

from collections.abc import Callable
import functools
import pathlib
import queue
import re
import shlex
from typing import Any
from typing import ClassVar

import testtools

from scavenger_openstack import rpc
from scavenger_openstack.tests.functional.servers import process
from scavenger_openstack.tests.functional.servers import rabbitmq
from scavenger_openstack.tests.unit import rpc_cases

SOURCE = pathlib.Path(__file__).parents[3] / 'doc/source'
AGENT, CONDUCTOR, NOVA = 'compute-1', 'scavenger', 'nova'
VHOST = 'scavenger'


def commands() -> list[list[str]]:
    """The words of each line that begins with rabbitmqctl."""
    return [shlex.split(line) for name in ('install/cloud.rst',
                                           'install/ten-hosts.rst',
                                           'explain/nova.rst')
            for line in re.findall(r'(?m)^ +(?:# )?rabbitmqctl (.*)$',
                                   (SOURCE / name).read_text())]


class Rights(testtools.TestCase):

    broker: rabbitmq.RabbitMq
    server: rpc.Server
    tags: ClassVar[list[bytes]] = []

    @classmethod
    def setUpClass(cls) -> None:
        super().setUpClass()
        try:
            cls.broker = rabbitmq.shared()
        except process.Missing as exc:
            raise cls.skipException(str(exc)) from exc
        cls.broker.control('add_user', NOVA, 'PASSWORD')
        for words in commands():
            cls.broker.control(*words)
        cls.server = rpc.Server(
            rpc_cases.configuration(cls.url(CONDUCTOR)),
            lambda report: report, lambda report, sender: {}, 'conductor-1',
            lambda tag: cls.tags.append(tag))
        cls.server.start()
        assert cls.server.wait(30.0)
        cls.addClassCleanup(cls.server.stop)

    @classmethod
    def url(cls, user: str) -> str:
        return cls.broker.url.replace('guest:guest',
                                      f'{user}:PASSWORD') + VHOST

    def test_a_call(self) -> None:
        client = rpc.Client(rpc_cases.configuration(self.url(AGENT)),
                            timeout_s=10.0)
        self.addCleanup(client.close)
        self.assertEqual(b'{}', client.sync(b'{}'))

    def test_a_tag(self) -> None:
        """Of nova-compute; the call after it is taken after it."""
        import oslo_messaging
        transport = oslo_messaging.get_rpc_transport(
            rpc_cases.configuration(self.url(NOVA)))
        self.addCleanup(transport.cleanup)
        oslo_messaging.get_rpc_client(transport, oslo_messaging.Target(
            topic=rpc.TOPIC, version='1.0')).cast({}, 'tag', tag={})
        self.test_a_call()
        self.assertEqual([b'{}'], self.tags)

    def test_what_is_refused(self) -> None:
        """To read the reports of others, and to answer them."""
        import amqp

        def refused(act: Callable[[Any], Any]) -> None:
            connection = amqp.Connection(
                f'127.0.0.1:{self.broker.port}', AGENT, 'PASSWORD',
                virtual_host=VHOST)
            connection.connect()
            try:
                channel = connection.channel()
                channel.queue_declare('reply_1', auto_delete=True)
                self.assertRaises(amqp.AccessRefused, act, channel)
            finally:
                connection.collect()

        def publish(channel: Any, exchange: str, key: str) -> None:
            channel.confirm_select()
            channel.basic_publish_confirm(amqp.Message('{}'), exchange, key)

        refused(lambda channel: channel.basic_consume(rpc.TOPIC))
        refused(lambda channel: channel.basic_get(rpc.TOPIC))
        refused(lambda channel: channel.queue_purge(rpc.TOPIC))
        refused(lambda channel: channel.queue_delete(rpc.TOPIC))
        refused(lambda channel: channel.queue_declare(rpc.TOPIC + '.x'))
        refused(lambda channel: channel.queue_bind(
            'reply_1', 'openstack', rpc.TOPIC))
        for exchange, key in (('', 'reply_2'), ('', rpc.TOPIC),
                              (f'{rpc.TOPIC}_fanout', '')):
            refused(functools.partial(publish, exchange=exchange, key=key))

    def test_a_conductor_of_its_own(self) -> None:
        """It cannot take the calls of the others."""
        why: queue.SimpleQueue[str] = queue.SimpleQueue()
        server = rpc.Server(
            rpc_cases.configuration(self.url(AGENT)), lambda report: report,
            lambda report, sender: {}, 'conductor-2', failed=why.put)
        self.addCleanup(server.stop)
        server.start()
        self.assertIn('ACCESS_REFUSED', why.get(timeout=30.0))
        self.assertFalse(server.wait(0.0))
