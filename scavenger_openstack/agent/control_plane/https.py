# SPDX-License-Identifier: Apache-2.0

"""Calls a conductor over HTTPS, where there is no message broker.

Standard library only.  The token identifies the host; it is sent to the
configured address only, never to the target of a redirection.
"""

from __future__ import annotations

from collections.abc import Callable
import http.client
import json
import pathlib
import ssl
import time
from typing import Any
import urllib.error
import urllib.parse
import urllib.request

from scavenger_openstack.agent.control_plane import host_token
from scavenger_openstack import errors
from scavenger_openstack.types import printable
from scavenger_openstack.wire import fit
from scavenger_openstack.wire.report import MAX_ANSWER_BYTES

TIMEOUT_S = 8.0
PATH = '/v1/sync'
MOST_WHY = 300
REFUSED = 400
"""The status for a report with an error, with a sentence; other statuses may
be temporary, or of a proxy."""
TOO_LONG = 413
"""The status of any server for a long report: a shorter one may pass."""
BUSY = 429


def caller(url: str, host: str, token_file: pathlib.Path,
           ca_file: str | None = None, timeout_s: float = TIMEOUT_S
           ) -> Callable[[bytes], bytes]:
    """Return a function that sends a report and returns the answer.

    It raises WireError if the report is refused, Busy if the conductor
    accepts nothing from this host now, Unreachable if there is no answer,
    another ScavengerError for a token that cannot be used.

    :param url: of the conductor, ``https://NAME[:PORT][/PREFIX]``
    :param token_file: read at each call, so that it may be replaced
    :raises ConfigError: the address or the certificates cannot be used.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        if not url.isascii() or parts.port == 0:
            raise ValueError('not ASCII, or port 0')
        (parts.hostname or '').encode('idna')
    except ValueError as exc:
        raise errors.ConfigError(f'[conductor] url: {url}: {exc}; use '
                                 'https://NAME[:PORT][/PREFIX]') from None
    if parts.scheme != 'https' and not (
            parts.scheme == 'http' and parts.hostname in ('127.0.0.1', '::1')):
        raise errors.ConfigError(
            f'[conductor] url: {url}: not https://, and the token must not '
            'cross a network in the clear')
    if not parts.hostname or parts.username or parts.query:
        raise errors.ConfigError(
            f'[conductor] url: {url}: use https://NAME[:PORT][/PREFIX]')
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as exc:
        raise errors.ConfigError(
            f'[conductor] ca_file: {ca_file}: {exc}') from exc
    opener = urllib.request.build_opener(
        _NoRedirect(), urllib.request.HTTPSHandler(context=context))
    target = url.rstrip('/') + PATH
    # Headers are Latin-1 to the library; the conductor reads UTF-8.
    name = fit.name(host).encode().decode('latin-1')

    def call(report: bytes) -> bytes:
        request = urllib.request.Request(target, report, {
            'Content-Type': 'application/json', 'X-Scavenger-Host': name,
            'Authorization': f'Bearer {host_token.read(token_file)}'})
        until = time.monotonic() + timeout_s
        try:
            with opener.open(request, timeout=timeout_s) as response:
                return _read(response, until)
        except urllib.error.HTTPError as exc:
            with exc:
                sentence, is_conductor = _why(exc)
                why = f'{exc.code} {sentence}'
                if exc.code == TOO_LONG or (
                        exc.code == REFUSED and is_conductor):
                    raise errors.WireError(why) from exc
                if exc.code == BUSY:
                    raise errors.Busy(f'{target}: {why}') from exc
                raise errors.Unreachable(f'{target}: {why}') from exc
        except (OSError, http.client.HTTPException) as exc:
            raise errors.Unreachable(
                f'{target}: {getattr(exc, "reason", "") or exc}') from exc

    return call


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirection."""

    def redirect_request(self, *args: Any, **words: Any) -> None:
        return None


def _read(response: Any, until: float) -> bytes:
    """Return all of an answer.

    :param until: time.monotonic(): a server must not hold us by the byte
    """
    data = bytearray()
    while chunk := response.read1(1 << 16):
        data += chunk
        if len(data) > MAX_ANSWER_BYTES:
            raise http.client.HTTPException(
                f'the answer is longer than {MAX_ANSWER_BYTES} bytes')
        if time.monotonic() > until:
            raise TimeoutError('no whole answer in time')
    return bytes(data)


def _why(response: Any) -> tuple[str, bool]:
    """Return the sentence of an error, if it has one, and whether it has the
    form of a conductor's error."""
    is_conductor = False
    try:
        answer = json.loads(response.read(1 << 16))
        if isinstance(answer, dict):
            answer = answer.get('error', answer)
            is_conductor = isinstance(answer, str)
        if isinstance(answer, dict):
            answer = answer.get('detail', '')
    except (ValueError, RecursionError, OSError, http.client.HTTPException):
        answer = ''
    return (printable(str(answer or response.reason))[:MOST_WHY],
            is_conductor)
