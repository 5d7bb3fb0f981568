# SPDX-License-Identifier: Apache-2.0

"""Events to store, and a directory to store them in."""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import pathlib
import resource
import signal
from typing import Any

import fixtures
import testtools

from scavenger_openstack.agent.events import history
from scavenger_openstack.agent.events import store
from scavenger_openstack import events
from scavenger_openstack.events import Event
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Knob
from scavenger_openstack.wire import report

MIB = 2 ** 20


def limit(time_s: float, workload: str = '/batch/a') -> report.Limit:
    return events.limit_event(
        time_s, 'set', Cap(workload, Knob.CPU_CORES, 0.5, 'o', 'r'),
        lowest=0.5, highest=0.5)


def limits(first: int, count: int) -> list[Event]:
    return [limit(float(number)) for number in range(first, first + count)]


def kill(name: str = 'w', reason: str = 'x' * 200) -> report.Kill:
    return report.Kill(sequence=1, time_s=1.0, workload=name, processes=1,
                       owner='o', reason=reason)


def statistics(name: str = 'a') -> report.Statistics:
    return report.Statistics(
        sequence=1, time_s=1.0, project='p', application=name,
        cpu_model='epyc', signal='cpi', hour_s=0.0, n=1, mean=1.0, m2=0.0,
        least=1.0, most=1.0)


def incident(evidence: int = 0, number: int = 0) -> report.Incident:
    return report.Incident(
        sequence=1, time_s=1.0, id=f'{number:032x}', what='began',
        begun_s=1.0, victim='v', signal='cpi', evidence=[report.Series(
            workload='w', signal='cpi', times_s=[1.0] * 120,
            values=[1.5] * 120)] * evidence)


class StoreTestCase(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.directory = self.top / 'history'
        self.lines: list[str] = []
        self.unreadable = 0

    def open(self, history_bytes: int = MIB,
             reports_bytes: int | None = MIB, **options: Any) -> store.Store:
        opened = store.Store(self.directory, history_bytes, reports_bytes,
                             warn=self.lines.append, **options)
        self.addCleanup(opened.close)
        return opened

    def files(self, kind: str = 'events') -> list[pathlib.Path]:
        return sorted(self.directory.glob(f'*.{kind}'))

    def size(self, kind: str = 'events') -> int:
        return sum(path.stat().st_size for path in self.files(kind))

    def history(self) -> list[Event]:
        """What is read back; :attr:`unreadable` counts the other lines."""
        reader = history.Reader(self.directory)
        read = list(reader.events())
        self.unreadable = reader.unreadable
        return read

    def times(self) -> list[float]:
        return [event.time_s for event in self.history()]

    @contextlib.contextmanager
    def full(self, file_bytes: int) -> Iterator[None]:
        """A disk on which files have at most so many bytes."""
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, old)
