# SPDX-License-Identifier: Apache-2.0

"""Notifications over a real broker, to the webhook that the docs show."""

from __future__ import annotations

import http.server
import json
import pathlib
import queue
import signal
import subprocess
import sys
import threading
import time
from typing import Any

from oslo_config import cfg

from scavenger_openstack.conductor import notifications as sending
from scavenger_openstack.conf import cloud as conf_cloud
from scavenger_openstack.db import connect
from scavenger_openstack.db.resources import notifications
from scavenger_openstack import errors
from scavenger_openstack import rpc
from scavenger_openstack.tests.functional.servers import databases
from scavenger_openstack.tests.functional.servers import process
from scavenger_openstack.tests.functional.servers import rabbitmq
from scavenger_openstack.tests.unit.conductor import cloud
from scavenger_openstack.tests.unit.conductor import notifying_cases

TOPIC = 'interference_notifications'

WEBHOOK = pathlib.Path(__file__).parents[3].joinpath(
    'doc', 'source', 'reference', 'notification_webhook.py')

WAIT_S = 60.0


class NotifyingOnMariaDb(notifying_cases.Notifying, databases.MariaDb):
    pass


class NotifyingOnPostgreSql(notifying_cases.Notifying, databases.PostgreSql):
    pass


def notifier(url: str) -> rpc.Notifier:
    conf = cfg.ConfigOpts()
    conf.register_opts(conf_cloud.SECTIONS['notifications'], 'notifications')
    rpc.register(conf)
    conf([])
    conf.set_override('transport_url', url)
    conf.set_override('topics', [TOPIC], 'notifications')
    return rpc.Notifier(conf, 'scavenger-conductor')


class OverBroker(cloud.Sqlite):

    def setUp(self) -> None:
        super().setUp()
        self.engine.update_execution_options(**{connect.NOTIFIES: True})

    def wait(self, **payload: Any) -> None:
        with self.engine.begin() as connection:
            notifications.add(connection, notifications.Event.SET, [payload],
                              cloud.NOW)

    def waiting(self) -> int:
        with self.engine.begin() as connection:
            return len(notifications.oldest(connection, 10))

    def test_to_a_webhook(self) -> None:
        try:
            broker = rabbitmq.shared()
        except process.Missing as exc:
            self.skipTest(str(exc))
        posted, address = self.site()
        webhook = subprocess.Popen(
            [sys.executable, WEBHOOK, broker.url, TOPIC, address])
        self.addCleanup(webhook.wait, WAIT_S)
        self.addCleanup(webhook.send_signal, signal.SIGTERM)
        bus = notifier(broker.url)
        self.addCleanup(bus.close)
        self.wait(workload='/batch/a\x1b[31m\u202e', value=0.5)
        sending.Sender(self.engine, bus).turn(lambda: None)
        self.assertEqual(0, self.waiting())
        body = posted.get(timeout=WAIT_S)
        self.assertEqual('interference.limit.set', body['event'])
        self.assertEqual({'version': '1.0', 'workload': '/batch/a\x1b[31m'
                          '\u202e', 'value': 0.5}, body['payload'])
        self.assertEqual('2025-06-15T15:06:40.000Z', body['time'])

    def test_no_broker(self) -> None:
        """What waits is kept, and the turn ends soon."""
        bus = notifier(
            f'rabbit://guest:guest@127.0.0.1:{process.free_port()}/')
        self.addCleanup(bus.close)
        self.wait()
        began_s = time.monotonic()
        self.assertRaises(errors.Unreachable, sending.Sender(
            self.engine, bus).turn, lambda: None)
        self.assertLess(time.monotonic() - began_s, 30.0)
        self.assertEqual(1, self.waiting())

    def site(self) -> tuple[queue.Queue[Any], str]:
        """What is posted, and where."""
        posted: queue.Queue[Any] = queue.Queue()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                posted.put(json.loads(self.rfile.read(
                    int(self.headers['Content-Length']))))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *line: Any) -> None:
                pass

        server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return posted, f'http://127.0.0.1:{server.server_port}/'


class TwoConductors(cloud.Sqlite):

    def test_one_of_them_sends(self) -> None:
        self.engine.update_execution_options(**{connect.NOTIFIES: True})
        bus = notifying_cases.Bus()
        one, other = (sending.make_leader(
            self.engine, bus, name, lambda: cloud.NOW)
            for name in ('one', 'other'))
        for _ in range(3):
            with self.engine.begin() as connection:
                notifications.add(connection, notifications.Event.SET, [{}],
                                  cloud.NOW)
            self.assertTrue(one.step())
            self.assertFalse(other.step())
        self.assertEqual(3, len(set(bus.messages)))
        one.stop()
        self.assertTrue(other.step())


