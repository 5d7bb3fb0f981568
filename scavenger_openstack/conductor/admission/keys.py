# SPDX-License-Identifier: Apache-2.0

"""Which senders know the token of a host.

Of each host the hash of its token is kept for a while, so that a report is no
query of the database.  A sender that fits the hash of its host costs nothing;
the others share the queries of a process: a client may invent names.  So that
these cost no enrolled host its reports, the hashes of all hosts are read at
once, after a start and whenever a sender does not fit.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
import functools
import math
import threading
import time

from scavenger_openstack.conductor.admission import accounts
from scavenger_openstack.db import connect
from scavenger_openstack.db import enrollment
from scavenger_openstack import errors
from scavenger_openstack.wire import proof

PROVED_S = 60.0
"""So long a hash counts without a query of the database, and so seldom those
of all hosts are read."""

MOST_HOSTS = 20_000
"""Hosts of which anything is kept."""

MOST_PROOFS = 64
"""So many of each host are remembered: another client of the broker may send
again what it has read there."""


class Keys:
    """The hashes of tokens; threads may share them.

    :param engine: of the database with the hosts
    """

    def __init__(self, engine: connect.Engine, accounts_: accounts.Accounts
                 ) -> None:
        self._engine = engine
        self._accounts = accounts_
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._all_read_s = -math.inf
        self._keys: dict[str, tuple[str, float]] = {}
        self._proofs: dict[str, collections.deque[str]] = {}

    def fitting(self, host: str, fits: Callable[[str], bool]) -> str:
        """The hash of the host's token, of now or of less than
        :data:`PROVED_S` ago, if it fits; else ''.

        :raises Busy: too many did not fit
        :raises DatabaseError: that cannot be found out now
        """
        now = time.monotonic()
        key, read_s = self._keys.get(host, ('', -math.inf))
        is_known = bool(key) and fits(key)
        if not is_known and self._read_all(now):
            key, read_s = self._keys.get(host, ('', -math.inf))
            is_known = bool(key) and fits(key)
        if is_known and now - read_s < PROVED_S:
            return key
        if not is_known:
            self._accounts.take_look_up()
        key = connect.read(self._engine, functools.partial(
            enrollment.key, name=host))
        if not key:
            return ''
        with self._lock:
            if len(self._keys) >= MOST_HOSTS:
                self._keys.clear()
                self._proofs.clear()
            self._keys[host] = key, now
        return key if fits(key) else ''

    def _read_all(self, now: float) -> bool:
        """Read the hashes of all hosts unless that was done lately; return
        whether they may be others than ``now``.  Other threads wait meanwhile.

        :raises DatabaseError: that cannot be done now
        """
        with self._reading:
            if now - self._all_read_s >= PROVED_S:
                read_s = time.monotonic()
                rows = connect.read(self._engine, functools.partial(
                    enrollment.keys, most=MOST_HOSTS))
                with self._lock:
                    self._keys = {host: (key, read_s) for host, key in rows}
                self._all_read_s = read_s
            return self._all_read_s >= now

    def check_new(self, given: proof.Proof) -> None:
        """Refuse a signed report that was taken before.

        :raises Unreachable: this report was taken already
        """
        with self._lock:
            proofs = self._proofs.setdefault(
                given.host, collections.deque(maxlen=MOST_PROOFS))
            if given.proof in proofs:
                raise errors.Unreachable('this report was taken already')
            proofs.append(given.proof)
