# SPDX-License-Identifier: Apache-2.0

"""An answer that all requests to one process share for some seconds."""

from __future__ import annotations

from collections.abc import Callable
import hashlib
import threading
import time
from typing import Any
from typing import NamedTuple

from scavenger_openstack.wire import codec

KEEP_S = 5.0


class Encoded(NamedTuple):
    """A JSON document, and a text that is another one when it is."""

    body: bytes
    etag: str


def encoded(value: Any) -> Encoded:
    body = codec.encode(value) + b'\n'
    return Encoded(body, hashlib.sha256(body).hexdigest()[:32])


class Cache:
    """The last answer, for any number of threads, of which one makes it
    again.

    :param keep_s: an answer is given out for so long
    """

    def __init__(self, keep_s: float = KEEP_S) -> None:
        self._keep_s = keep_s
        self._lock = threading.Lock()
        self._answer: Encoded | None = None
        self._made_s = self._failed_s = -float('inf')
        self._fault: Exception | None = None

    def get(self, now_s: float, make: Callable[[], Any]) -> Encoded:
        """The answer as ``make`` made it less than ``keep_s`` ago.

        A thread that waited for another one fails as that did: what takes
        long and fails is not done by each of them.

        :param now_s: UNIX time of the request
        """
        asked_s = time.monotonic()
        with self._lock:
            if self._answer and abs(now_s - self._made_s) < self._keep_s:
                return self._answer
            if self._fault and asked_s < self._failed_s:
                raise self._fault
            try:
                self._answer = encoded(make())
            except Exception as exc:
                self._fault, self._failed_s = exc, time.monotonic()
                raise
            self._fault, self._made_s = None, now_s
            return self._answer
