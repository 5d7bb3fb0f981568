# SPDX-License-Identifier: Apache-2.0

"""The metrics of API and conductor, by prometheus_client.

What the database has is read when Prometheus asks, at most once in
:data:`KEEP_S`; what a process does is counted as it does it.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import logging
import os
import time
from typing import Any
from typing import Protocol

import prometheus_client
from prometheus_client import core
from prometheus_client import multiprocess

from scavenger_openstack.db import connect
from scavenger_openstack.db.resources import figures
from scavenger_openstack import errors
from scavenger_openstack import log_once
from scavenger_openstack.metrics import listener
from scavenger_openstack.metrics.metric import COUNTER
from scavenger_openstack.metrics.metric import GAUGE
from scavenger_openstack.metrics.metric import HISTOGRAM
from scavenger_openstack.metrics.metric import Metric
from scavenger_openstack.metrics.metric import OTHER
from scavenger_openstack.metrics.metric import table
from scavenger_openstack.metrics import options

LOG = logging.getLogger(__name__)

KEEP_S = 15.0
"""So old may be what the database has."""

RETRY_S = 15.0
"""An address that is another process's is tried again after that."""

METHODS = 'DELETE', 'GET', 'HEAD', 'OPTIONS', 'PATCH', 'POST', 'PUT'

DATABASE: Mapping[str, Metric] = table(
    ('database_up', GAUGE, '1 while the database can be read.', ()),
    ('hosts', GAUGE, 'Hosts: enrolled and not heard of yet, silent, enforcing '
     'and observing.', ('state',)),
    ('protection_enabled', GAUGE, '0 where the kill switch is thrown: of the '
     'cloud, and of aggregates and hosts where it is.', ('scope', 'target')),
    ('background_vcpus', GAUGE,
     'Virtual CPUs of the background workloads on all hosts.', ()),
    ('database_rows', GAUGE, 'Rows of a table, as the database estimates '
     'them; on SQLite with those that were deleted in between.', ('table',)))
"""Of both programs."""

CONDUCTOR: Mapping[str, Metric] = table(
    ('reports_total', COUNTER, 'Reports of agents: stored, refused, put off '
     'and failed.', ('result',)),
    ('report_duration_seconds', HISTOGRAM,
     'Time from a report to its answer.', ()),
    ('evictions_total', COUNTER, 'Evictions that came to a state.',
     ('how', 'state')),
    ('placement_background_vcpus', GAUGE, 'What Placement has of background '
     'vCPUs of all hosts: offered, and reserved since it is not there.',
     ('state',)),
    ('last_turn_timestamp_seconds', GAUGE, 'UNIX time of the last turn that '
     'succeeded, of work that one of all conductors does.', ('work',)))

API: Mapping[str, Metric] = table(
    ('api_requests_total', COUNTER, 'Requests by method and status.',
     ('method', 'status')),
    ('api_request_duration_seconds', HISTOGRAM,
     'Time from a request to its answer.', ('method',)))


class Database:
    """What the database has, for a registry of prometheus_client.

    :param silent_s: a host that has not reported for longer is silent
    :param clock: UNIX time in seconds
    :param elapsed: seconds that only grow
    """

    def __init__(self, engine: connect.Engine, silent_s: float,
                 clock: Callable[[], float] = time.time,
                 elapsed: Callable[[], float] = time.monotonic) -> None:
        self._engine = engine
        self._silent_s = silent_s
        self._clock = clock
        self._elapsed = elapsed
        self._read_s = -KEEP_S
        self._figures: figures.Figures | None = None
        self._logged = log_once.LogOnce()

    def collect(self) -> Iterator[core.Metric]:
        """Generate the families; but for ``database_up`` none while the
        database cannot be read."""
        if self._elapsed() - self._read_s >= KEEP_S:
            self._figures = self._read()
            self._read_s = self._elapsed()
        stored = self._figures
        yield family(DATABASE['database_up'], [[int(stored is not None)]])
        if stored is None:
            return
        yield family(DATABASE['hosts'], stored.hosts.items())
        yield family(DATABASE['protection_enabled'], stored.protection)
        yield family(DATABASE['background_vcpus'],
                     [[stored.background_vcpus]])
        yield family(DATABASE['database_rows'], stored.rows.items())

    def _read(self) -> figures.Figures | None:
        def work(connection: connect.Connection) -> figures.Figures:
            return figures.read(connection, self._clock() - self._silent_s)

        try:
            read = connect.read(self._engine, work)
        except errors.DatabaseError as exc:
            if self._logged.due('database', str(exc)):
                LOG.warning('the metrics lack what the database has: %s', exc)
            return None
        self._logged.over('database')
        return read


class Served:
    """One registry, and the address where it is served.

    Of several processes on a host one has the address: the others try again
    while they live.

    :param listen: ``metrics_listen``, '' for nowhere
    """

    def __init__(self, listen: str | None, database: Database) -> None:
        self.counted = self._all = prometheus_client.CollectorRegistry()
        """Of what this process counts."""
        if 'PROMETHEUS_MULTIPROC_DIR' in os.environ:
            self._all = prometheus_client.CollectorRegistry()
            multiprocess.MultiProcessCollector(self._all)
        self._all.register(database)
        self._listen = listen or ''
        self._listener: listener.Listener | None = None
        self._tried: tuple[int, float] = 0, 0.0

    def page(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return prometheus_client.generate_latest(self._all)

    def start(self, *, shared: bool = False) -> None:
        """Serve the page, unless this process does or has just tried; may be
        called with each request, as some servers fork after loading.

        :param shared: there are other processes, of which one may do so
        """
        if not self._listen:
            return
        pid, tried_s = self._tried
        now_s = time.monotonic()
        if pid == os.getpid() and (self._listener is not None
                                   or now_s - tried_s < RETRY_S):
            return
        self._tried, self._listener = (os.getpid(), now_s), None
        try:
            self._listener = listener.Listener(
                *options.address(self._listen), self.page)
        except (OSError, RuntimeError) as exc:
            log_it = (LOG.debug if pid == os.getpid() else
                      LOG.info if shared else LOG.warning)
            log_it('metrics_listen %s: this process does not listen there: '
                   '%s', self._listen, exc)
        else:
            LOG.info('metrics are served at http://%s/metrics', self._listen)

    def stop(self) -> None:
        """Serve the page no more."""
        if self._listener is not None:
            self._listener.stop()
            self._listener = None

    def add(self, collector: Any) -> None:
        """Have the page show what this makes when Prometheus asks."""
        self._all.register(collector)


class Work(Protocol):
    """What one of all conductors does."""

    @property
    def name(self) -> str: ...

    @property
    def turn_s(self) -> float | None:
        """When a turn has succeeded here last, in UNIX time."""
        ...


class Conductor:
    """What a conductor counts.

    :param served: where it is shown
    """

    def __init__(self, served: Served) -> None:
        self._reports = counter(CONDUCTOR['reports_total'], served.counted)
        self._durations = histogram(CONDUCTOR['report_duration_seconds'],
                                    served.counted)
        self._evictions = counter(CONDUCTOR['evictions_total'],
                                  served.counted)
        self._placement: Callable[[], Mapping[str, float]] = dict
        self._works: tuple[Work, ...] = ()
        served.add(self)

    def report(self, result: str, lasted_s: float) -> None:
        """Count a report."""
        self._reports.labels(result).inc()
        self._durations.observe(lasted_s)

    def eviction(self, how: str, state: str) -> None:
        """Count an eviction that came to a state."""
        self._evictions.labels(how, state).inc()

    def follow_placement(self, vcpus: Callable[[], Mapping[str, float]]
                         ) -> None:
        """Show what Placement has.

        :param vcpus: returns it by state, nothing where another conductor
            writes it
        """
        self._placement = vcpus

    def follow(self, works: Iterable[Work]) -> None:
        """Show when each of these was done last."""
        self._works = tuple(works)

    def collect(self) -> Iterator[core.Metric]:
        """Generate the families that are no counters."""
        yield family(CONDUCTOR['placement_background_vcpus'],
                     self._placement().items())
        yield family(CONDUCTOR['last_turn_timestamp_seconds'], [
            (work.name, work.turn_s) for work in self._works
            if work.turn_s is not None])


class Api:
    """The API, with its requests counted: a WSGI application.

    :param served: where they are shown
    """

    def __init__(self, application: Callable[..., Iterable[bytes]],
                 served: Served) -> None:
        self._application = application
        self._served = served
        self._requests = counter(API['api_requests_total'], served.counted)
        self._durations = histogram(API['api_request_duration_seconds'],
                                    served.counted)

    def __call__(self, environ: dict[str, Any], start_response: Any
                 ) -> Iterable[bytes]:
        method = environ.get('REQUEST_METHOD', '')
        if method not in METHODS:
            method = OTHER
        began_s, status = time.monotonic(), '500'

        def started(line: str, *args: Any) -> Any:
            nonlocal status
            status = line.partition(' ')[0]
            return start_response(line, *args)

        try:
            return self._application(environ, started)
        finally:
            self._requests.labels(method, status).inc()
            self._durations.labels(method).observe(
                time.monotonic() - began_s)


def beside(application: Callable[..., Iterable[bytes]], served: Served
           ) -> Callable[..., Iterable[bytes]]:
    """Return the application for a WSGI server, of which each process tries
    to serve the metrics, too."""
    def called(environ: dict[str, Any], start_response: Any
               ) -> Iterable[bytes]:
        served.start(shared=True)
        return application(environ, start_response)
    return called


def counter(metric: Metric, registry: prometheus_client.CollectorRegistry
            ) -> prometheus_client.Counter:
    """Make a counter."""
    return prometheus_client.Counter(metric.name, metric.help, metric.labels,
                                     registry=registry)


def histogram(metric: Metric, registry: prometheus_client.CollectorRegistry
              ) -> prometheus_client.Histogram:
    """Make a histogram, with prometheus_client's buckets: 5 ms to 10 s."""
    return prometheus_client.Histogram(metric.name, metric.help,
                                       metric.labels, registry=registry)


def family(metric: Metric, rows: Iterable[Iterable[Any]]) -> core.Metric:
    """Make a family of gauges; a row has the labels, and the value last."""
    made = core.GaugeMetricFamily(metric.name, metric.help,
                                  labels=metric.labels)
    for *labels, value in rows:
        made.add_metric([str(label) for label in labels], float(value))
    return made
