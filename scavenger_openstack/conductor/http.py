# SPDX-License-Identifier: Apache-2.0

"""The same reports over HTTPS, as a WSGI application.

``POST /v1/sync`` with a report as its body, the host's name in
``X-Scavenger-Host`` and its token (``scavenger-manage host enroll``) in
``Authorization: Bearer``.  The answer is JSON, and so is each error:
``{"error": "a sentence"}``.  TLS is the web server's.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from http import HTTPStatus
import json
import os
import threading
from typing import Any
from typing import NamedTuple

from scavenger_openstack.conductor import leader
from scavenger_openstack.conductor import service
from scavenger_openstack import errors
from scavenger_openstack.wire.report import MAX_REPORT_BYTES

PATH = '/v1/sync'
HOST = 'X-Scavenger-Host'
BEARER = 'bearer '
MOST = 256
"""Longest host name and token."""

RETRY_S = 10

LOCAL = ('', '127.0.0.1', '::1')


class Reply(NamedTuple):
    """What goes back; ``headers`` are those besides type and length."""

    code: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class Refused(Exception):
    """The request cannot be served: ``Refused(reply)``."""


class Application:
    """For any WSGI server; threads may share it.

    :param leaders: makes what else a process does, if no other one does
    """

    def __init__(self, conductor: service.Conductor,
                 leaders: Callable[[], Sequence[leader.Leader]] = tuple
                 ) -> None:
        self._conductor = conductor
        self._make_leaders = leaders
        self._lock = threading.Lock()
        self._process = 0

    def __call__(self, environ: dict[str, Any],
                 start_response: Callable[..., Any]) -> Iterable[bytes]:
        self._start()
        try:
            reply = self._reply(environ)
        except Refused as exc:
            reply = exc.args[0]
        except errors.ForeignReport as exc:
            reply = _error(403, str(exc))
        except errors.OtherRelease as exc:
            reply = _error(409, str(exc))
        except errors.WireError as exc:
            reply = _error(400, str(exc))
        except errors.Busy as exc:
            reply = _error(429, str(exc), ('Retry-After', str(RETRY_S)))
        except errors.Unreachable as exc:
            reply = _error(503, str(exc), ('Retry-After', str(RETRY_S)))
        start_response(f'{reply.code} {HTTPStatus(reply.code).phrase}', [
            ('Content-Type', 'application/json'),
            ('Content-Length', str(len(reply.body))), *reply.headers])
        return [reply.body]

    def _start(self) -> None:
        """Start with the first request: some servers fork after loading."""
        with self._lock:
            self._conductor.start()
            if self._process != os.getpid():
                self._process = os.getpid()
                for leader in self._make_leaders():
                    leader.start()

    def _reply(self, environ: dict[str, Any]) -> Reply:
        if environ.get('PATH_INFO') != PATH:
            raise Refused(_error(404, f'there is only {PATH}'))
        if environ.get('REQUEST_METHOD') != 'POST':
            raise Refused(_error(405, f'{PATH} takes POST',
                                 ('Allow', 'POST')))
        host = self._authenticated(environ)
        return Reply(200, self._conductor.answer(
            _body(environ), host, address=_address(environ)))

    def _authenticated(self, environ: dict[str, Any]) -> str:
        """The host that sent it: known before the body is read."""
        host = _text(environ.get('HTTP_X_SCAVENGER_HOST', ''))
        given = _text(environ.get('HTTP_AUTHORIZATION', ''))
        token = given[len(BEARER):].strip()
        if not host or not token or not given.lower().startswith(BEARER):
            raise Refused(_unauthorized(
                f'{HOST} and Authorization: Bearer TOKEN are needed'))
        if (len(host) >= MOST or len(token) > MOST
                or not self._conductor.may_send(host, token,
                                                 _address(environ))):
            raise Refused(_unauthorized(
                'this is not the token of this host: "scavenger-manage host '
                'enroll" makes one'))
        return host


def _body(environ: dict[str, Any]) -> bytes:
    length = environ.get('CONTENT_LENGTH') or ''
    if not (length.isascii() and length.isdecimal()):
        raise Refused(_error(411, 'Content-Length is needed'))
    # Not int() of any number of digits.
    if len(length) > 18 or int(length) > MAX_REPORT_BYTES:
        raise Refused(_error(
            413, f'a report has at most {MAX_REPORT_BYTES} bytes'))
    body: bytes = environ['wsgi.input'].read(int(length))
    if len(body) < int(length):
        raise Refused(_error(400, f'the body ends after {len(body)} of '
                                  f'{length} bytes'))
    return body


def _address(environ: dict[str, Any]) -> str:
    """Where a request comes from: behind a web server on this machine what
    that says, the last of it; the rest is the client's word."""
    address = _text(environ.get('REMOTE_ADDR', ''))
    forwarded = _text(environ.get('HTTP_X_FORWARDED_FOR', ''))
    if forwarded and address in LOCAL:
        address = forwarded.rpartition(',')[2].strip()
    return address[:MOST]


def _text(value: str) -> str:
    """A header, which WSGI decodes as Latin-1; '' where it is not UTF-8, or
    has what no name has."""
    try:
        text = value.encode('latin-1').decode().strip()
    except UnicodeError:
        return ''
    return text if text.isprintable() else ''


def _error(code: int, sentence: str, *headers: tuple[str, str]) -> Reply:
    return Reply(code, json.dumps({'error': sentence}).encode(), headers)


def _unauthorized(sentence: str) -> Reply:
    return _error(401, sentence, ('WWW-Authenticate', 'Bearer'))
