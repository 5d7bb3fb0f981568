#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0

"""Posts each notification to a web address, as JSON.

    notification_webhook.py TRANSPORT_URL TOPIC ADDRESS

A message that the address does not take goes back to the queue.
"""

import json
import sys
import urllib.request

from oslo_config import cfg
import oslo_messaging


class Webhook:

    filter_rule = oslo_messaging.NotificationFilter(
        event_type=r'^interference\.')

    def __init__(self, address):
        self._address = address

    def info(self, context, publisher, event, payload, metadata):
        body = {'event': event, 'payload': payload,
                'id': metadata['message_id'], 'time': metadata['timestamp']}
        request = urllib.request.Request(
            self._address, json.dumps(body).encode(),
            {'Content-Type': 'application/json'})
        try:
            urllib.request.urlopen(request, timeout=10).close()
        except OSError as exc:
            print(f'{self._address}: {exc}', file=sys.stderr)
            return oslo_messaging.NotificationResult.REQUEUE
        return oslo_messaging.NotificationResult.HANDLED


def main(url, topic, address):
    transport = oslo_messaging.get_notification_transport(
        cfg.ConfigOpts(), url=url)
    listener = oslo_messaging.get_notification_listener(
        transport, [oslo_messaging.Target(topic=topic)], [Webhook(address)],
        executor='threading', allow_requeue=True)
    listener.start()
    listener.wait()


if __name__ == '__main__':
    main(*sys.argv[1:])
