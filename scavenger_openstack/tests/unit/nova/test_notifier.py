# SPDX-License-Identifier: Apache-2.0

"""The notification driver in oslo.messaging's own Notifier."""

from __future__ import annotations

import copy
import threading
import time
from typing import Any

import fixtures
import nova.conf
from oslo_config import cfg
import oslo_messaging
import testtools

from scavenger_openstack.nova import notifier
from scavenger_openstack.nova import options
from scavenger_openstack.nova import tags

INSTANCE = '11111111-2222-4333-8444-555555555555'
SPECS = {'scavenger:priority': 'background', 'hw:cpu_policy': 'shared',
         'scavenger:floor_cpu_cores': '0.5',
         'scavenger:application': 'render'}

VERSIONED = {'nova_object.name': 'InstanceCreatePayload',
             'nova_object.data': {
                 'uuid': INSTANCE, 'tenant_id': 'p1', 'host': 'hv1',
                 'metadata': {'scavenger:priority': 'foreground'},
                 'tags': ['scavenger:priority=foreground'],
                 'flavor': {'nova_object.data': {
                     'name': 'batch', 'extra_specs': SPECS}}}}
UNVERSIONED = {'instance_id': INSTANCE, 'tenant_id': 'p1', 'host': 'hv1',
               'instance_type': 'batch', 'metadata': {}}

TAG = {'instance': INSTANCE, 'project': 'p1', 'host': 'hv1',
       'priority': 'background', 'source': 'flavor', 'application': 'render',
       'protect': True, 'floor': {'cpu_cores': 0.5}}


def message(event: str = 'instance.create.end',
            publisher: str = 'nova-compute:hv1',
            payload: Any = VERSIONED) -> dict[str, Any]:
    return {'event_type': event, 'publisher_id': publisher,
            'payload': copy.deepcopy(payload), 'message_id': '1',
            'priority': 'INFO', 'timestamp': 'now'}


class Events(testtools.TestCase):

    def test_both_formats(self) -> None:
        versioned = tags.event(message())
        self.assertEqual(tags.Event(INSTANCE, 'p1', 'hv1', SPECS), versioned)
        self.assertEqual(
            tags.Event(INSTANCE, 'p1', 'hv1', None),
            tags.event(message('compute.instance.create.end', 'compute.hv1',
                               UNVERSIONED)))

    def test_when_an_instance_runs_again(self) -> None:
        for name in ('instance.create.start', 'instance.rebuild.end',
                     'instance.resize_finish.end',
                     'instance.resize_revert.end', 'instance.unshelve.end',
                     'instance.power_on.end',
                     'instance.live_migration_post_dest.end'):
            self.assertIsNotNone(tags.event(message(name)), name)
        for name in ('compute.instance.finish_resize.end',
                     'compute.instance.resize.revert.end',
                     'compute.instance.live_migration.post.dest.end',
                     'compute.instance.power_on.end'):
            self.assertIsNotNone(tags.event(message(
                name, 'compute.hv1', UNVERSIONED)), name)

    def test_an_instance_that_is_gone(self) -> None:
        """What was known of it is forgotten, without a question to Nova."""
        for one in (message('instance.delete.end'),
                    message('compute.instance.delete.end', 'compute.hv1',
                            UNVERSIONED)):
            found = tags.event(one)
            assert found is not None
            self.assertEqual({}, found.specs)
            self.assertEqual('default', tags.tag(found, {})['source'])

    def test_of_no_interest(self) -> None:
        for odd in (message('instance.create.error'),
                    message('xinstance.create.end'),
                    message('service.update'),
                    message(publisher='nova-api:controller'),
                    message(publisher='nova-conductor:controller'),
                    message(payload={'instance_id': '../../etc'}),
                    message(payload={'instance_id': 7})):
            self.assertIsNone(tags.event(odd), str(odd))

    def test_the_host_is_the_one_that_speaks(self) -> None:
        """Before an instance is built Nova has no host for it."""
        payload = copy.deepcopy(VERSIONED)
        payload['nova_object.data']['host'] = None  # type: ignore[index]
        found = tags.event(message(publisher='nova-compute:hv.example:2',
                                   payload=payload))
        assert found is not None
        self.assertEqual('hv.example:2', found.host)

    def test_only_the_flavor_decides(self) -> None:
        """Metadata and tags, which tenants write, say foreground here."""
        found = tags.event(message())
        assert found is not None and found.specs is not None
        self.assertEqual(TAG, tags.tag(found, found.specs))

    def test_a_flavor_that_says_nothing(self) -> None:
        found = tags.event(message())
        assert found is not None
        self.assertEqual(
            ('foreground', 'default', '', {}), tuple(
                tags.tag(found, {})[name] for name in
                ('priority', 'source', 'application', 'floor')))

    def test_what_nothing_is_limited_for(self) -> None:
        found = tags.event(message())
        assert found is not None
        self.assertIs(False, tags.tag(found, {
            'scavenger:protect': 'false'})['protect'])

    def test_what_is_wrong_is_said(self) -> None:
        found = tags.event(message())
        assert found is not None
        [text] = tags.warnings(found, {'scavenger:priority': 'b\x1b[2J'})
        self.assertIn(INSTANCE, text)
        self.assertNotIn('\x1b', text)


class Tagging(testtools.TestCase):
    """A :class:`.Tagger` whose sender does what a test wants."""

    def setUp(self) -> None:
        super().setUp()
        self.sent: list[dict[str, Any]] = []
        self.go = threading.Event()
        self.addCleanup(self.go.set)
        self.begun = threading.Event()
        self.tagger = notifier.Tagger(self.send, self.specs, 3)
        self.fault: Exception | None = None
        self.wait_s = 0.0

    def send(self, tag: dict[str, Any]) -> None:
        self.begun.set()
        if self.wait_s:
            self.go.wait(self.wait_s)
        if self.fault is not None:
            raise self.fault
        self.sent.append(tag)

    def specs(self, instance: str) -> dict[str, str]:
        if instance != INSTANCE:
            raise LookupError(instance)
        return SPECS

    def test_sent(self) -> None:
        self.tagger.take(message())
        self.tagger.wait()
        self.assertEqual(([TAG], 0), (self.sent, self.tagger.dropped))

    def test_the_old_format_asks_nova(self) -> None:
        old = message('compute.instance.create.end', 'compute.hv1',
                      UNVERSIONED)
        self.tagger.take(old)
        old['payload']['instance_id'] = INSTANCE.replace('1', '9')
        self.tagger.take(old)
        self.tagger.wait()
        self.assertEqual(([TAG], 1), (self.sent, self.tagger.dropped))

    def test_no_broker(self) -> None:
        self.fault = ConnectionError('refused')
        self.tagger.take(message())
        self.tagger.wait()
        self.fault = None
        self.tagger.take(message())
        self.tagger.wait()
        self.assertEqual(([TAG], 1), (self.sent, self.tagger.dropped))

    def test_a_broker_that_terminals_obey(self) -> None:
        log = self.useFixture(fixtures.FakeLogger(notifier.__name__))
        self.fault = ConnectionError('a\x1b[31m\u2028b')
        self.tagger.take(message())
        self.tagger.wait()
        self.assertIn(r'ConnectionError: a\x1b[31m\u2028b', log.output)

    def test_no_thread_can_be_started(self) -> None:
        """As by a limit of processes that is reached for a moment."""
        def fail(thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        with fixtures.MonkeyPatch('threading.Thread.start', fail):
            self.tagger.take(message())
        self.tagger.take(message())
        deadline = time.monotonic() + 30
        while not self.sent:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.001)
        self.assertEqual(([TAG], 1), (self.sent, self.tagger.dropped))

    def test_a_broker_that_hangs(self) -> None:
        """One is being sent, three wait, the others are dropped, and Nova
        waits for none of them."""
        self.wait_s = 30.0
        self.tagger.take(message())
        self.assertTrue(self.begun.wait(30))    # the thread has it
        worst = 0.0
        for _ in range(100):
            began = time.thread_time()
            self.tagger.take(message())
            worst = max(worst, time.thread_time() - began)
        self.assertEqual(97, self.tagger.dropped)
        self.assertLess(worst, 0.05)
        self.go.set()
        self.tagger.wait()
        self.assertEqual(4, len(self.sent))

    def test_anything_may_come(self) -> None:
        for odd in (None, 7, '', {}, {'event_type': None},
                    message(payload=None), message(payload={}),
                    message(publisher=None),    # type: ignore[arg-type]
                    message(payload={'nova_object.data': {}}),
                    message(payload={'nova_object.data': None})):
            self.tagger.take(odd)
        self.tagger.take(message())
        self.tagger.wait()
        self.assertEqual([TAG], self.sent)

    def test_extra_specs_of_any_kind(self) -> None:
        """Nova may not have them loaded; a flavor may have other types."""
        odd: tuple[Any, ...] = (None, {}, [], {'scavenger:priority': None})
        for specs in odd:
            payload = copy.deepcopy(VERSIONED)
            data: Any = payload['nova_object.data']
            data['flavor']['nova_object.data']['extra_specs'] = specs
            self.tagger.take(message(payload=payload))
            self.tagger.wait()
        self.assertEqual('background', self.sent[0]['priority'])


class Others:
    """What another program gets by the driver messagingv2."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def info(self, context: Any, publisher: str, event: str, payload: Any,
             metadata: Any) -> None:
        self.events.append(event)


def _raising(*_: Any) -> None:
    raise RuntimeError('a fault of a test')


class Driver(testtools.TestCase):
    """As Nova loads it, with a conductor on a broker in this process."""

    def setUp(self) -> None:
        super().setUp()
        self.conf = nova.conf.CONF
        self.conf([], project='nova', default_config_files=[])
        self.addCleanup(self.conf.reset)
        options.register(self.conf)
        url = 'fake://'
        self.conf.set_override('transport_url', url, options.SECTION)
        self.addCleanup(self.conf.clear_override, 'transport_url',
                        options.SECTION)
        notifier._shared = None
        self.addCleanup(setattr, notifier, '_shared', None)
        self.tags: list[dict[str, Any]] = []
        self.transport = oslo_messaging.get_rpc_transport(self.conf, url=url)
        server = oslo_messaging.get_rpc_server(
            self.transport, oslo_messaging.Target(
                exchange='openstack', topic=tags.TOPIC, server='one'),
            [self])
        server.start()
        self.addCleanup(server.wait)
        self.addCleanup(server.stop)

    target = oslo_messaging.Target(version='1.99')

    def tag(self, context: Any, tag: dict[str, Any]) -> None:
        self.tags.append(tag)

    def test_from_a_notification_to_the_conductor(self) -> None:
        notify = oslo_messaging.Notifier(
            oslo_messaging.get_notification_transport(self.conf, 'fake://'),
            publisher_id='nova-compute:hv1', driver='scavenger',
            topics=['versioned_notifications'])
        self.assertEqual(['scavenger'], notify._driver_mgr.names())
        notify.info({}, 'instance.create.end', VERSIONED)
        deadline = time.monotonic() + 30
        while not self.tags:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        self.assertEqual([TAG], self.tags)

    def test_beside_another_driver(self) -> None:
        """It gets every notification, also while our code raises."""
        transport = oslo_messaging.get_notification_transport(
            self.conf, 'fake://')
        self.conf.set_override('driver', ['messagingv2', 'scavenger'],
                               'oslo_messaging_notifications')
        self.addCleanup(self.conf.clear_override, 'driver',
                        'oslo_messaging_notifications')
        others = Others()
        listener = oslo_messaging.get_notification_listener(
            transport, [oslo_messaging.Target(
                topic='versioned_notifications')], [others])
        listener.start()
        self.addCleanup(listener.wait)
        self.addCleanup(listener.stop)
        notify = oslo_messaging.Notifier(
            transport, publisher_id='nova-compute:hv1',
            topics=['versioned_notifications'])
        self.assertEqual({'messagingv2', 'scavenger'},
                         set(notify._driver_mgr.names()))
        notify.info({}, 'instance.create.end', VERSIONED)
        self.useFixture(fixtures.FakeLogger('scavenger_openstack'))
        with fixtures.MonkeyPatch(
                'scavenger_openstack.nova.tags.event', _raising):
            notify.info({}, 'instance.delete.end', VERSIONED)
        deadline = time.monotonic() + 30
        while len(others.events) < 2 or not self.tags:
            self.assertLess(time.monotonic(), deadline, str(others.events))
            time.sleep(0.01)
        self.assertEqual(['instance.create.end', 'instance.delete.end'],
                         others.events)
        self.assertEqual([TAG], self.tags)

    def test_loaded_twice_it_is_one(self) -> None:
        """As with notification_format = both."""
        made: list[notifier.Tagger] = []

        class Tagger(notifier.Tagger):

            def __init__(self, *args: Any) -> None:
                super().__init__(*args)
                made.append(self)

        with fixtures.MonkeyPatch(
                'scavenger_openstack.nova.notifier.Tagger', Tagger):
            for _ in range(2):
                notifier.Driver(self.conf, [], None)
        self.assertEqual(1, len(made))
        self.assertIs(made[0], notifier.shared(self.conf))

    def test_a_password_is_not_logged(self) -> None:
        """What is wrong with a URL may be its password."""
        log = self.useFixture(fixtures.FakeLogger('scavenger_openstack'))
        for url in ('rabbit://nova:sec/ret@host', 'rabbit://nova:sec#ret@host',
                    'rabbit://nova:sec/ret@host:5672/vhost'):
            self.conf.set_override('transport_url', url, options.SECTION)
            tagger = notifier.Tagger(notifier.Sender(self.conf).send,
                                     lambda instance: SPECS, 1)
            tagger.take(message())
            tagger.wait()
        self.assertNotIn('sec', log.output)
        self.assertIn('transport_url cannot be read as a URL', log.output)

    def test_options_that_cannot_be(self) -> None:
        """Nova starts all the same."""
        conf = cfg.ConfigOpts()
        conf.register_opt(cfg.StrOpt('tag_queue'), options.SECTION)
        notifier.Driver(conf, [], None).notify({}, message(), 'INFO', None)
