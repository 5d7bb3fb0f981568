# SPDX-License-Identifier: Apache-2.0

"""What the scheduler knows of all hosts: one answer of our API, kept.

A thread of its own reads it, so that no request to schedule waits for it,
but for a moment when it starts.  It ends when nothing was scheduled for
15 minutes.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import math
import os
import threading
import time
from typing import Any

from keystoneauth1 import exceptions as auth_exceptions
from keystoneauth1 import loading
import nova.conf
from oslo_config import cfg
from oslo_log import log

from scavenger_openstack.algorithms.placing import Host
from scavenger_openstack.algorithms import profiles
from scavenger_openstack import host_names
from scavenger_openstack import log_once
from scavenger_openstack.nova import options
from scavenger_openstack import text
from scavenger_openstack.types import printable

LOG = log.getLogger(__name__)

PATH = '/v1/summary'
NOT_MODIFIED = 304
FIRST_S = 1.0
IDLE_S = 900.0
REPEAT_S = 3600.0
"""What goes on failing is logged again after that."""
SHOWN = 200
MOST_PROFILES = 10000
"""An answer with more has none: comparing is quick, reading them is not."""

MOST_NAMES, MOST_NEWCOMERS = 20000, 100
"""Of so many names, and profiles of newcomers, results are kept."""

Key = tuple[str, str, str]
"""Kind, target and project of a profile."""


class Hosts(dict[str, Host]):
    """Hosts by the name by which each reports; it does not change.

    What was searched or computed once for a host is kept, since each request
    asks for all of them.

    :ivar profiles: of what may be scheduled, by kind, target and project
    :ivar ignored: parts of the answer about profiles that are none
    """

    def __init__(self, hosts: Mapping[str, Host] = {},
                 profiles: Mapping[Key, profiles.Levels] = {},
                 ignored: int = 0) -> None:
        super().__init__(hosts)
        self.profiles = profiles
        self.ignored = ignored
        # That one is silent is all that is known of when it reported.
        self._index = host_names.Index({
            name: 0.0 if host.silent else 2 * host_names.STALE_S
            for name, host in hosts.items()})
        self._hosts: dict[str, Host | None] = {}
        self._harms: dict[Key, dict[str, float]] = {}

    def of(self, name: str) -> Host | None:
        """The host that Nova calls so, ``None`` without one."""
        if not self:
            return None
        try:
            return self._hosts[name]
        except KeyError:
            reported = self._index.find(name)
            host = None if reported is None else self[reported]
            if len(self._hosts) >= MOST_NAMES:
                self._hosts.clear()
            self._hosts[name] = host
            return host

    def harms(self, newcomer: Key, names: Sequence[str]) -> list[float]:
        """Return how much what has a profile would harm and be harmed on each
        host that Nova calls so; 0 where nothing has a profile.

        :raises KeyError: there is no such profile.
        """
        kept = self._harms.get(newcomer)
        if kept is None:
            if len(self._harms) >= MOST_NEWCOMERS:
                self._harms.clear()
            kept = self._harms[newcomer] = {}
        levels, harms = self.profiles[newcomer], []
        for name in names:
            harm = kept.get(name)
            if harm is None:
                host = self.of(name)
                harm = 0.0 if host is None or host.residents is None else (
                    profiles.harm(levels, host.residents))
                if len(kept) >= MOST_NAMES:
                    kept.clear()
                kept[name] = harm
            harms.append(harm)
        return harms


def parse(answer: Any) -> Hosts:
    """The hosts of an answer of our API.

    What is wrong about a profile is left out and counted: the hosts are
    worth having without it.

    :raises ValueError: it is something else.
    """
    hosts, ignored = {}, 0
    try:
        for host in answer['hosts']:
            residents, wrong = _levels(host)
            ignored += wrong
            hosts[host['name']] = Host(
                bool(host['silent']),
                _number(host['headroom'].get('cpu_cores')),
                _number(host['headroom'].get('memory_bytes')),
                _number(host['capacity'].get('cpu_cores')),
                int(host['incidents']),
                _number(host['background_vcpus']) or 0.0,
                bool(host['enforcing']), residents)
        of_newcomers, others = _profiles(answer.get('profiles', []))
        return Hosts(hosts, of_newcomers, ignored + others)
    except (ArithmeticError, LookupError, TypeError, AttributeError) as exc:
        raise ValueError(f'not a summary: {exc!r:.200}') from None


def _profiles(entries: Any) -> tuple[dict[Key, profiles.Levels], int]:
    """The profiles of an answer, and how many parts of it are none."""
    by_key: dict[Key, profiles.Levels] = {}
    if not isinstance(entries, list) or len(entries) > MOST_PROFILES:
        return by_key, 1
    ignored = 0
    for entry in entries:
        levels, wrong = _levels(entry)
        if levels is not None:
            kind, target, project = (entry.get(name) for name in (
                'kind', 'target', 'project'))
            if (isinstance(kind, str) and isinstance(target, str)
                    and isinstance(project, str)):
                by_key[kind, target, project] = levels
            else:
                wrong = True
        ignored += wrong
    return by_key, ignored


def _levels(entry: Any) -> tuple[profiles.Levels | None, bool]:
    """Return what is tolerated and caused, ``None`` without any of it; whether
    there is something else in its place."""
    if not isinstance(entry, dict):
        return None, True
    sides = [entry.get(side) or {} for side in profiles.Profile._fields]
    if not any(sides):
        return None, False
    for side in sides:
        if not isinstance(side, dict) or not side.keys() <= profiles.NAMES:
            return None, True
        for value in side.values():
            if type(value) not in (int, float) or not 0 <= value <= 1:
                return None, True
    return profiles.levels(*sides), False


class Summary:
    """The last answer, as long as it is new enough.

    :param read: asks the API; whatever it raises is logged
    :param clock: seconds that only grow
    """

    def __init__(self, read: Callable[[], Hosts], *,
                 interval_s: float, max_age_s: float,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._interval_s = interval_s
        self._max_age_s = max_age_s
        self._clock = clock
        self._lock = threading.Lock()
        self._hosts = Hosts()
        self._read_s = self._asked_s = -float('inf')
        self._pid = 0
        self._first = threading.Event()
        self._logged = log_once.LogOnce()

    def hosts(self) -> Hosts:
        """Return all hosts by name, none without an answer that is new."""
        self._asked_s = self._clock()
        if self._pid != os.getpid():
            self._start()
        if not self._first.is_set():
            self._first.wait(FIRST_S)
            self._first.set()       # once is enough
        return self.last_hosts()

    def last_hosts(self) -> Hosts:
        """Return the hosts of the last answer, without asking for more."""
        age_s = self._clock() - self._read_s
        return self._hosts if age_s <= self._max_age_s else Hosts()

    def refresh(self) -> None:
        """Ask for the hosts; without an answer the last one stays a while."""
        began = self._clock()
        try:
            hosts = self._read()
        except Exception as exc:
            why = printable(f'{type(exc).__name__}: {exc}')[:SHOWN]
            if self._logged.due('summary', text.without_ids(why),
                                now_s=began, every_s=REPEAT_S):
                LOG.warning('No summary of the hosts, they are scheduled '
                            'without regard to interference: %s', why)
        else:
            if self._logged.over('summary'):
                LOG.info('There is a summary of the hosts again')
            if hosts.ignored and not self._hosts.ignored:
                LOG.warning('Parts of the summary of the hosts are no '
                            'interference profiles and are ignored: %d',
                            hosts.ignored)
            self._hosts, self._read_s = hosts, began
        finally:
            self._first.set()

    def _start(self) -> None:
        with self._lock:
            if self._pid == os.getpid():
                return
            self._first.clear()     # what is known may be old
            threading.Thread(target=self._run, daemon=True,
                             name='scavenger-summary').start()
            # In a fork there is no thread.  Last: if none could be started,
            # the next call tries again.
            self._pid = os.getpid()

    def _run(self) -> None:
        try:
            while self._clock() - self._asked_s < IDLE_S:
                self.refresh()
                time.sleep(self._interval_s)
        finally:
            self._pid = 0


def shared() -> Summary:
    """Return the summary of this process, for the filter and the weigher."""
    global _shared
    with _lock:
        if _shared is None:
            options.register(nova.conf.CONF)
            section = nova.conf.CONF[options.SECTION]
            _shared = Summary(Reader(nova.conf.CONF).read,
                              interval_s=section.summary_s,
                              max_age_s=section.summary_max_age_s)
        return _shared


class Reader:
    """Asks our API as ``[scavenger]`` of ``nova.conf`` says."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf
        self._adapter: Any = None
        self._etag = ''
        self._hosts = Hosts()

    def read(self) -> Hosts:
        """Return all hosts, the same object where nothing has changed.

        :raises Exception: of many kinds, without an answer.
        """
        timeout_s = self._conf[options.SECTION].summary_timeout_s
        if self._adapter is None:
            auth = loading.load_auth_from_conf_options(self._conf,
                                                       options.SECTION)
            if auth is None:
                raise auth_exceptions.MissingAuthPlugin(
                    'set auth_type and what belongs to it in [scavenger]')
            session = loading.load_session_from_conf_options(
                self._conf, options.SECTION, auth=auth)
            # Of what Keystone is asked; without, it may hang for ever.
            session.timeout = session.timeout or timeout_s
            self._adapter = loading.load_adapter_from_conf_options(
                self._conf, options.SECTION, session=session, auth=auth)
        headers = {'Accept': 'application/json'}
        if self._etag:
            headers['If-None-Match'] = self._etag
        answer = self._adapter.get(PATH, timeout=timeout_s, headers=headers)
        if answer.status_code != NOT_MODIFIED:
            self._hosts = parse(answer.json())
            self._etag = answer.headers.get('ETag', '')
        return self._hosts


def _number(value: Any) -> float | None:
    number = None if value is None else float(value)
    if number is not None and not math.isfinite(number):
        raise ValueError(f'not a summary: {number} of something')
    return number


_shared: Summary | None = None
_lock = threading.Lock()
