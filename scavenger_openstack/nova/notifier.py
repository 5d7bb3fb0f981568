# SPDX-License-Identifier: Apache-2.0

"""Tells the conductor what an instance is, as soon as Nova starts it.

A notification driver of oslo.messaging, in nova-compute::

    [oslo_messaging_notifications]
    driver = messagingv2
    driver = scavenger

Nova calls it in the thread that boots the instance: it only puts the event
into a queue, and a thread of its own does the rest.  What it cannot do is
dropped and counted: the conductor learns it from Nova later.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
import os
import queue
import threading
import time
from typing import Any

from oslo_config import cfg
from oslo_log import log
from oslo_messaging.notify import notifier

from scavenger_openstack import log_once
from scavenger_openstack.nova import options
from scavenger_openstack.nova import tags
from scavenger_openstack.types import printable

LOG = log.getLogger(__name__)

SAY_AGAIN_S = 60.0


class Driver(notifier.Driver):
    """Entry point ``scavenger`` of ``oslo.messaging.notify.drivers``.

    Nova may make several, which share one queue and one thread.
    """

    def __init__(self, conf: cfg.ConfigOpts, topics: Any, transport: Any
                 ) -> None:
        super().__init__(conf, topics, transport)
        self._tagger: Tagger | None = None
        try:
            self._tagger = shared(conf)
        except Exception:
            LOG.exception('instances are not tagged')

    def notify(self, ctxt: Any, msg: Any, priority: Any, retry: Any) -> None:
        if self._tagger is not None:
            self._tagger.take(msg)


class Tagger:
    """The queue, and the thread that empties it.

    :param send: brings a tag to the conductor; whatever it raises is logged
    :param specs: asks Nova for the extra specs of an instance's flavor, which
        the older format of notifications does not have
    :param size: of the queue
    """

    def __init__(self, send: Callable[[dict[str, Any]], None],
                 specs: Callable[[str], Mapping[str, str]], size: int
                 ) -> None:
        self._send = send
        self._specs = specs
        self._queue: queue.Queue[tags.Event] = queue.Queue(size)
        self._lock = threading.Lock()
        self._pid = 0
        self._logged = log_once.LogOnce()
        self.dropped = 0
        """Tags that were not sent; no thread counts exactly."""

    def take(self, message: Any) -> None:
        """Note a notification, if it is about an instance that starts.

        It returns at once, and raises nothing.
        """
        try:
            event = tags.event(message)
            if event is None:
                return
            if self._pid != os.getpid():
                self._start()
            self._queue.put_nowait(event)
        except queue.Full:
            self._drop('the queue is full')
        except Exception as exc:
            self._drop(f'{type(exc).__name__}: {exc}')

    def wait(self) -> None:
        """Return when the queue is empty and all of it sent or dropped."""
        self._queue.join()

    def _start(self) -> None:
        with self._lock:
            if self._pid == os.getpid():
                return
            threading.Thread(target=self._run, daemon=True,
                             name='scavenger-tags').start()
            # In a fork there is no thread.  Last: if none could be started,
            # the next call tries again.
            self._pid = os.getpid()

    def _run(self) -> None:
        while True:
            event = self._queue.get()
            try:
                specs = event.specs
                if specs is None:
                    specs = self._specs(event.instance)
                tag = tags.tag(event, specs)
                for wrong in tags.warnings(event, specs):
                    self._log(LOG.warning, wrong)
                self._send(tag)
            except Exception as exc:
                self._drop(f'{type(exc).__name__}: '
                           + str(exc).partition('\n')[0])
            finally:
                self._queue.task_done()

    def _drop(self, why: str) -> None:
        self.dropped += 1
        self._log(LOG.warning,
                  'The priority of an instance is not sent, the conductor '
                  f'learns it from Nova later: {why}')

    def _log(self, logger: Callable[..., None], text: str) -> None:
        """Log the same once in a while."""
        try:
            now, text = time.monotonic(), printable(text)
            if self._logged.due(text, now_s=now, every_s=SAY_AGAIN_S):
                logger('%s (%d not sent since the start)', text, self.dropped)
        except Exception:   # a log that is broken is no reason to fail
            pass


def shared(conf: cfg.ConfigOpts) -> Tagger:
    """Return the tagger of this process."""
    global _shared
    with _lock:
        if _shared is None:
            options.register(conf)
            _shared = Tagger(Sender(conf).send, specs_of,
                             conf[options.SECTION].tag_queue)
        return _shared


class Sender:
    """Casts tags over the broker; for one thread."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf
        self._client: Any = None

    def send(self, tag: dict[str, Any]) -> None:
        """Cast a tag to the conductors.

        :raises Exception: of many kinds, when there is no broker.
        """
        if self._client is None:
            self._client = tags.client(self._conf)
        self._client.cast({}, 'tag', tag=tag)


def specs_of(instance: str) -> Mapping[str, str]:
    """The extra specs of an instance's flavor, from Nova itself.

    :raises Exception: of many kinds, when it does not answer.
    """
    from nova import context
    from nova import objects
    nova_instance = objects.Instance.get_by_uuid(
        context.get_admin_context(), instance, expected_attrs=['flavor'])
    specs: Mapping[str, str] = nova_instance.flavor.extra_specs
    return specs


_shared: Tagger | None = None
_lock = threading.Lock()
