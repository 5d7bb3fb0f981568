# SPDX-License-Identifier: Apache-2.0

"""The edge to oslo.messaging: both ends of the one call.

``sync(report) -> answer``; both are JSON texts, so that this layer has no
types of its own.  A report that was not answered is sent again: the broker
has forgotten it by then, and the conductor applies its entries once.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from importlib import util
import json
import math
import os
import re
import sys
import threading
import time
from typing import Any

from oslo_config import cfg
from oslo_log import log
from oslo_service import backend

# Threads.  Without, importing oslo.messaging imports eventlet.
if util.find_spec('cotyledon'):
    backend.init_backend(backend.BackendType.THREADING)

import oslo_messaging
from oslo_messaging import opts
from oslo_messaging.rpc import server as rpc_server

from scavenger_openstack import errors
from scavenger_openstack import log_once
from scavenger_openstack.types import printable
from scavenger_openstack.wire import patterns
from scavenger_openstack.wire import proof
from scavenger_openstack.wire.report import MAX_ANSWER_BYTES
from scavenger_openstack.wire.report import MAX_REPORT_BYTES

LOG = log.getLogger(__name__)

TOPIC = 'scavenger-conductor'
VERSION = '1.0'

ANSWERS = '1.99'
"""Any minor version: what it adds is in the texts, and ignored by others."""

MISMATCH = (f'this agent speaks version {VERSION} of the call to the '
            'conductor, and the conductor another: upgrade the older of the '
            'two')

TIMEOUT_S = 8.0
"""An agent waits so long for an answer; the broker then drops the call."""

REFUSED = errors.WireError.__name__
"""What a conductor answers to what is wrong in a report; each other error,
also one of a type that is not known here, may change: send it later."""

BUSY = errors.Busy.__name__
"""What it answers when it takes no more of this host now."""

MESSAGE = 1000
"""So much of the other end's refusal is shown."""

REBUILD_AFTER = 3
"""Timeouts in a row after which an agent connects again: its queue of answers
may have expired, unseen."""

IDLE_S = 60.0
"""A conductor that no call has reached for so long calls itself."""

REPEAT_S, MOST_LOGGED = 600.0, 50
"""So many refusals are logged in so long, each once."""

_HOST = re.compile(f'"host": ?"({patterns.HOST})"')

THREADS = 8
"""Reports that a conductor works on at the same time: more only wait for the
interpreter and the database."""

RABBIT: dict[str, Any] = {
    # After a restart of the broker 10,000 agents come back.
    'kombu_reconnect_splay': 10.0,
    'kombu_failover_strategy': 'shuffle',
    # An answer to an agent that has gone holds a thread for as long.
    'kombu_missing_consumer_retry_timeout': 2,
    'rpc_conn_pool_size': THREADS,
}
"""What fits many agents and few conductors better than the defaults."""

SignedAnswer = Callable[[bytes, proof.Proof], dict[str, str]]

KINDS = {bool: cfg.BoolOpt, int: cfg.IntOpt, float: cfg.FloatOpt}


def register(conf: cfg.ConfigOpts) -> None:
    """Register oslo.messaging's options, with our defaults."""
    for group, options in opts.list_opts():
        conf.register_opts(options, group)
    # Some it registers with its global configuration only, and reads here.
    for group in cfg.CONF:
        if group.startswith('oslo_messaging_'):
            conf.register_opts([KINDS.get(type(value), cfg.StrOpt)(
                name, default=value)
                for name, value in cfg.CONF[group].items()], group)
    for name, value in RABBIT.items():
        conf.set_default(name, value, 'oslo_messaging_rabbit')
    # Two processes of one name on a host would share a queue of answers.
    conf.set_default(
        'processname', f'{os.path.basename(sys.argv[0])}-{os.getpid()}',
        'oslo_messaging_rabbit')
    conf.set_default('executor_thread_pool_size', THREADS)


class Client:
    """The agent's end.  For one thread; it connects at the first call.

    :param conf: with ``transport_url``
    :param identity: the name of the host, and its token, '' for one that was
        not enrolled; called each time, so that a token may be replaced
    """

    def __init__(self, conf: cfg.ConfigOpts, timeout_s: float = TIMEOUT_S,
                 rebuild_after: int = REBUILD_AFTER,
                 identity: Callable[[], tuple[str, str]]
                 = lambda: ('', '')) -> None:
        register(conf)
        self._conf = conf
        self._identity = identity
        self._timeout_s = timeout_s
        self._rebuild_after = rebuild_after
        self._timeouts = 0
        self._transport: Any = None
        self._call: Any = None

    def sync(self, report: bytes) -> bytes:
        """Send a report, wait for the answer.  With a token both are signed,
        and what is not is no answer.

        :raises WireError: the conductor refuses what is in it, and why
        :raises Busy: it takes no more of this host now
        :raises Unreachable: no answer: send it again later
        """
        text, (host, token) = report.decode(), self._identity()
        ours = proof.make(token, host, report) if token else None
        try:
            answer = self._prepared().call(
                {}, 'sync', report=text, **ours._asdict() if ours else {})
        except oslo_messaging.MessagingTimeout as exc:
            self._timeouts += 1
            if self._timeouts >= self._rebuild_after:
                self.close()
            raise errors.Unreachable(
                f'no answer from a conductor within {self._timeout_s:g} s'
            ) from exc
        except oslo_messaging.RemoteError as exc:
            self._timeouts = 0
            if exc.exc_type == 'UnsupportedVersion':
                raise errors.Unreachable(MISMATCH) from exc
            text = printable(str(exc.value))[:MESSAGE]
            if exc.exc_type == REFUSED and ours is None:
                raise errors.WireError(text) from exc
            if exc.exc_type == BUSY:
                raise errors.Busy(text) from exc
            raise errors.Unreachable(
                text or f'the conductor failed: {exc.exc_type}') from exc
        except oslo_messaging.UnsupportedVersion as exc:
            raise errors.Unreachable(MISMATCH) from exc
        except errors.ScavengerError:
            raise
        except Exception as exc:    # also of the libraries below
            self.close()
            raise errors.Unreachable(
                'the message broker cannot be reached: ' + printable(
                    str(exc).partition('\n')[0] or type(exc).__name__)
            ) from exc
        self._timeouts = 0
        if ours is not None:
            answer = proof.opened(token, ours, answer)
        if not isinstance(answer, str):
            raise errors.Unreachable('the answer of the conductor is no text')
        data = answer[:MAX_ANSWER_BYTES + 1].encode(errors='surrogatepass')
        if len(data) > MAX_ANSWER_BYTES:
            raise errors.Unreachable(
                f'an answer of more than {MAX_ANSWER_BYTES} bytes')
        return data

    def close(self) -> None:
        """Disconnect; the next call connects again."""
        if self._transport is not None:
            self._transport.cleanup()
        self._transport = self._call = None
        self._timeouts = 0

    def _prepared(self) -> Any:
        if self._call is None:
            self._transport = _transport(self._conf)
            # "retry=0": without, a call waits for a broker for ever.
            self._call = oslo_messaging.get_rpc_client(
                self._transport, oslo_messaging.Target(
                    topic=TOPIC, version=VERSION)).prepare(
                        timeout=self._timeout_s, retry=0)
        return self._call


class Server:
    """The conductor's end: calls these in its threads.

    :param answer: takes a report and returns the answer; a
        :class:`.ScavengerError` that it raises goes to the agent as one line
    :param signed_answer: the same of a report with a proof, see :mod:`.proof`
    :param server: a name of this process that no other one has
    :param tag: takes the JSON of what nova-compute tells of an instance; no
        answer, and what it raises goes to the log
    :param failed: takes the reason, a sentence, when no calls can be taken
        and that does not pass by itself
    """

    def __init__(self, conf: cfg.ConfigOpts,
                 answer: Callable[[bytes], bytes],
                 signed_answer: SignedAnswer, server: str,
                 tag: Callable[[bytes], None] = lambda data: None,
                 failed: Callable[[str], None] = LOG.error) -> None:
        register(conf)
        self._transport = _transport(conf)
        target = oslo_messaging.Target(topic=TOPIC, server=server)
        self._endpoint = _Endpoint(answer, signed_answer, tag)
        self._server = oslo_messaging.get_rpc_server(
            self._transport, target, [self._endpoint], server_cls=_make)
        self._failed = failed
        self._ping = oslo_messaging.get_rpc_client(
            self._transport, target(version=VERSION)).prepare(
                timeout=TIMEOUT_S, retry=0)
        self._listens = threading.Event()
        self._started = threading.Event()
        self._stop = threading.Event()

    def start(self) -> None:
        """Take calls from now on, or from when the broker can be reached."""
        threading.Thread(target=self._run, daemon=True, name='rpc').start()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until calls are taken; whether they are."""
        return self._started.wait(timeout_s)

    def stop(self) -> None:
        """End the calls at hand, then disconnect."""
        self._stop.set()
        if not self._listens.is_set():
            return      # it still waits for a broker, and holds nothing
        self._server.stop()
        self._server.wait()
        self._transport.cleanup()

    def _run(self) -> None:
        """Start, and call this conductor through the broker, at first and
        whenever no other call has arrived for :data:`IDLE_S`: the libraries
        do not say that a broker refuses to let it consume."""
        try:
            self._server.start()    # tries for ever while the broker is away
        except Exception as exc:
            self._failed(_refusal(exc))
            return
        self._listens.set()
        unanswered = 0
        while not self._stop.is_set():
            try:
                if time.monotonic() - self._endpoint.taken_s > IDLE_S:
                    self._ping.call({}, 'ping')
            except oslo_messaging.MessagingTimeout:
                unanswered += 1
                if unanswered >= REBUILD_AFTER:
                    self._failed(_refusal(
                        f'{unanswered} calls of this conductor to itself '
                        'were not answered'))
                    return
                continue
            except Exception as exc:    # the broker is away
                LOG.debug('the call to itself failed: %s', exc)
            else:
                if not self._started.is_set():
                    LOG.info('calls are taken from the broker')
                self._started.set()
            unanswered = 0
            self._stop.wait(IDLE_S if self._started.is_set() else 1.0)


class Notifier:
    """Sends notifications, each in the envelope of oslo.messaging.

    :param conf: with ``[notifications] topics`` and ``transport_url``
    :param publisher: a name of this process
    :raises ConfigError: ``transport_url`` cannot be used
    """

    def __init__(self, conf: cfg.ConfigOpts, publisher: str) -> None:
        register(conf)
        self._transport = _transport(conf, notifies=True)
        self._topics = conf.notifications.topics
        self._publisher = publisher

    def send(self, event: str, message_id: str, time: str,
             payload: Mapping[str, object]) -> None:
        """
        :param time: when it happened
        :raises Unreachable: the broker does not take it now
        """
        message = {'message_id': message_id, 'event_type': event,
                   'publisher_id': self._publisher, 'priority': 'INFO',
                   'timestamp': time, 'payload': payload}
        for topic in self._topics:
            try:
                # oslo.messaging's own Notifier does not tell of failures.
                self._transport._send_notification(
                    oslo_messaging.Target(topic=f'{topic}.info'), {}, message,
                    version=2.0, retry=0)
            except Exception as exc:    # also of the libraries below
                raise errors.Unreachable(
                    f'the message broker does not take {event} for {topic}: '
                    + printable(str(exc).partition('\n')[0]
                                or type(exc).__name__)[:MESSAGE]) from exc

    def close(self) -> None:
        """Disconnect."""
        self._transport.cleanup()


class _Endpoint:
    """What is called, by its name."""

    target = oslo_messaging.Target(version=ANSWERS)

    def __init__(self, answer: Callable[[bytes], bytes],
                 signed_answer: SignedAnswer,
                 tag: Callable[[bytes], None]) -> None:
        self._answer = answer
        self._signed_answer = signed_answer
        self._tag = tag
        self.taken_s = -math.inf
        """When the last call arrived, by time.monotonic()."""

    def ping(self, context: dict[str, Any]) -> str:
        """A call of a conductor to itself."""
        self.taken_s = time.monotonic()
        return ''

    @oslo_messaging.expected_exceptions(errors.ScavengerError)
    def tag(self, context: dict[str, Any], tag: object) -> None:
        """A cast of nova-compute."""
        try:
            data = json.dumps(tag).encode()
        except (TypeError, ValueError, RecursionError) as exc:
            raise errors.WireError(f'a tag that is no JSON: {exc}') from None
        self._tag(data)

    @oslo_messaging.expected_exceptions(errors.ScavengerError)
    def sync(self, context: dict[str, Any], report: object,
             **given: object) -> str | dict[str, str]:
        self.taken_s = time.monotonic()
        if not isinstance(report, str):
            raise errors.WireError('a report that is no text: refused')
        if len(report) > MAX_REPORT_BYTES:
            raise errors.WireError(
                f'a report of {len(report)} characters: refused; at most '
                f'{MAX_REPORT_BYTES} bytes are taken')
        try:
            data = report.encode()
        except UnicodeEncodeError:
            raise errors.WireError(
                'a report that is not valid Unicode: refused') from None
        return (self._signed_answer(data, proof.parse(given)) if given
                else self._answer(data).decode())


class _Dispatcher(oslo_messaging.RPCDispatcher):
    """Says in one line what oslo.messaging shows a traceback for."""

    def __init__(self, endpoints: Any) -> None:
        super().__init__(endpoints, None)
        self._logged = log_once.Quota(MOST_LOGGED, REPEAT_S)

    def dispatch(self, incoming: Any) -> Any:
        # Agents ask for none: heartbeats of a call of no method never end.
        incoming.client_timeout = None
        try:
            return super().dispatch(incoming)
        except (oslo_messaging.UnsupportedVersion,
                oslo_messaging.NoSuchMethod) as exc:
            self._say(_host(incoming), exc)
            raise oslo_messaging.ExpectedException() from exc

    def _say(self, host: str, exc: Exception) -> None:
        if self._logged.take(host, time.monotonic()) is not None:
            LOG.warning('refused a call of %s: %s. This conductor speaks '
                        'version %s: upgrade the older of agent and '
                        'conductor', host, printable(str(exc))[:MESSAGE],
                        VERSION)


def _refusal(why: object) -> str:
    """The sentence for operators, of what a broker or a library says."""
    return ('the broker lets this conductor take no calls: see its user, '
            'permissions and queues in RabbitMQ, and transport_url: '
            + printable(str(why).partition('\n')[0]
                        or type(why).__name__)[:MESSAGE])


def _host(incoming: Any) -> str:
    """The host that a call says it is from."""
    try:
        found = _HOST.search(incoming.message['args']['report'][:4096])
    except (AttributeError, LookupError, TypeError):
        found = None
    return found[1] if found else 'an unknown host'


def _make(transport: Any, target: Any, dispatcher: Any, executor: Any) -> Any:
    return rpc_server.RPCServer(
        transport, target, _Dispatcher(dispatcher.endpoints), executor)


def _transport(conf: cfg.ConfigOpts, *, notifies: bool = False) -> Any:
    """
    :param notifies: it is for notifications, not for calls
    :raises ConfigError: ``transport_url`` cannot be used
    """
    try:
        return (oslo_messaging.get_notification_transport if notifies
                else oslo_messaging.get_rpc_transport)(conf)
    except (oslo_messaging.InvalidTransportURL,
            oslo_messaging.DriverLoadFailure) as exc:
        raise errors.ConfigError(f'transport_url: {exc}') from exc
    except ValueError:
        # Its text may quote the password, and so may what led to it.
        raise errors.ConfigError(
            'transport_url cannot be read as a URL: in names and passwords '
            'write / as %2F, # as %23, @ as %40 and so on') from None
