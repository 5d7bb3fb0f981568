# SPDX-License-Identifier: Apache-2.0

"""What one hostile agent costs the honest ones.

Two conductors of one process over HTTP and MariaDB; 200 honest hosts report
every 10 s what is usual in a cloud.  Another host with a token of its own
attacks, in each of these ways:

each-second  95 incidents of 64 antagonists each, once a second
incidents    the same as fast as it can, on 8 connections
runs         an entry of another run of its agent in each report
audit        500 starts and ends of its agent in each report
facts        facts and 2,000 workloads of a megabyte, others each time

Rounds without and with the attack take turns.  Printed are the times of the
honest reports, from when they were due, and the ratio of their means; and
what was answered to the attack.  The client of the attack runs at the lowest
priority, so that on a small machine it is the conductors and the database that
it takes time from.

    python benchmarks/control_plane/hostile_agent.py [--rounds 3]
        [--seconds 20] [--attacks incidents,runs] [--database mariadb]

With PYTHONPATH it measures another version of the package.
"""

from __future__ import annotations

import argparse
import collections
from collections.abc import Sequence
import contextlib
import http.client
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid

import cloud
import control_plane
import large_cloud_load
import listings
import senders

from scavenger_openstack.db import connect
from scavenger_openstack.db import schema
from scavenger_openstack.tests.functional.servers import process
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import report as wire

HONEST = 200
EACH_S = 10.0
CONNECTIONS = 8
MOST = 1.2
"""So much longer honest reports may take."""

ATTACKS = ('each-second', 'incidents', 'runs', 'audit', 'facts')


class Hostile:
    """The reports of an attack.

    :param host: its number in the cloud
    """

    def __init__(self, host: int, attack: str) -> None:
        self._host = cloud.Host(host)
        self._attack = attack
        self._lock = threading.Lock()
        self._sequence = itertools.count(2)
        self.name = self._host.name

    def report(self, run: str) -> bytes:
        """Another one each time.

        :param run: of the connection: what comes late in one is left out
        """
        with self._lock:
            return codec.encode(self._made(run, time.time()))

    def _made(self, run: str, now: float) -> wire.Report:
        entries: list[wire.AnyEntry] = []
        workloads, facts = None, cloud.FACTS
        if self._attack in ('each-second', 'incidents'):
            entries = [self._incident(now) for _ in range(95)]
        elif self._attack == 'runs':
            run = uuid.uuid4().hex
            entries = [self._event(now)]
        elif self._attack == 'audit':
            entries = [self._event(now) for _ in range(wire.MAX_ENTRIES)]
        else:
            workloads = [wire.Workload(
                id=str(uuid.uuid4()), priority='background',
                display_name='n' * 200) for _ in range(2000)]
            facts = codec.replace(facts, refused={
                f'override {uuid.uuid4()}': 's' * 1500 for _ in range(200)})
        return wire.Report(
            host=self._host.name, boot_id='b' * 36, run_id=run, sent_s=now,
            facts=facts, workloads=workloads,
            workloads_digest=uuid.uuid4().hex if workloads else cloud.DIGEST,
            entries=entries)

    def _event(self, now: float) -> wire.AgentEvent:
        return wire.AgentEvent(
            sequence=next(self._sequence), time_s=now, detail='d' * 200,
            what='state')

    def _incident(self, now: float) -> wire.Incident:
        names = [workload.id for workload in self._host.listed()]
        return wire.Incident(
            sequence=next(self._sequence), time_s=now, what='began',
            id=uuid.uuid4().hex, begun_s=now - 10, victim=names[0],
            signal='run_delay', value=0.4, threshold=0.1, cause='cpu',
            controller='attribution', suspects=[
                wire.Suspect(workload=f'{uuid.uuid4()}', score=0.5,
                             antagonist=True) for _ in range(64)])


class Attack:
    """Sends them, until it is stopped; ``answers`` counts by status."""

    def __init__(self, hostile: Hostile, urls: list[str], every_s: float
                 ) -> None:
        self.answers: collections.Counter[str] = collections.Counter()
        self._hostile = hostile
        self._every_s = every_s
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(url,), daemon=True)
            for url in (urls[:1] if every_s
                        else urls * (CONNECTIONS // len(urls)))]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, url: str) -> None:
        # Of this thread alone.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        address, run = url.removeprefix('http://'), uuid.uuid4().hex
        while not self._stop.wait(self._every_s):
            connection = http.client.HTTPConnection(address, timeout=60)
            try:
                connection.request(
                    'POST', '/v1/sync', self._hostile.report(run), {
                        'Content-Type': 'application/json',
                        'X-Scavenger-Host': self._hostile.name,
                        'Authorization': f'Bearer {cloud.TOKEN}'})
                answer = connection.getresponse()
                answer.read()
                self.answers[str(answer.status)] += 1
            except (OSError, http.client.HTTPException) as exc:
                self.answers[type(exc).__name__] += 1
            finally:
                connection.close()


def honest(sending: Sequence[subprocess.Popen[str]]) -> list[float]:
    """How long each report of the honest hosts took, in one round."""
    for child in sending:
        control_plane.go(child)
    answers = [json.loads(control_plane.line(child)) for child in sending]
    refused = sum(answer['refused'] for answer in answers)
    if refused:
        print(f'    {refused} honest reports were not taken', flush=True)
    return [time_s for answer in answers for time_s in answer['times_s']]


def senders_of(directory: pathlib.Path, urls: Sequence[str], seconds: float
               ) -> list[contextlib.AbstractContextManager[
                   subprocess.Popen[str]]]:
    """The processes of the honest hosts, one for each conductor."""
    of_each = HONEST // len(urls)
    return [control_plane.child(
        senders.__file__, 'token', url, str(seconds), '--cloud',
        f'{number * of_each}:{of_each}:1', '--each-s', str(EACH_S),
        directory=directory) for number, url in enumerate(urls)]


def attacked(sending: Sequence[subprocess.Popen[str]], urls: list[str],
             attack: str, options: argparse.Namespace) -> float:
    """Print one attack; the ratio of the means."""
    times_s: dict[bool, list[float]] = {False: [], True: []}
    hostile = Hostile(HONEST, attack)
    answers: collections.Counter[str] = collections.Counter()

    for _ in range(options.rounds):
        times_s[False] += honest(sending)
        under = Attack(hostile, urls, 1.0 if attack == 'each-second' else 0.0)
        try:
            times_s[True] += honest(sending)
        finally:
            under.stop()
            answers.update(under.answers)
    ratio = statistics.fmean(times_s[True]) / statistics.fmean(
        times_s[False])
    for is_attack, which in ((False, 'without'), (True, attack)):
        some = sorted(times_s[is_attack])
        print(f'  {which:<13}{len(some):>7}' + ''.join(
            f'{1e3 * value:10.2f}' for value in (
                statistics.fmean(some), listings.percentile(some, 0.5),
                listings.percentile(some, 0.99), some[-1])), flush=True)
    print(f'  {"":<13}{ratio:.2f} times the mean, '
          f'{"not " if ratio > MOST else ""}within {MOST}; answers to the '
          'attack: ' + ', '.join(f'{count} x {status}' for status, count
                                 in sorted(answers.items())), flush=True)
    return ratio


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--rounds', type=int, default=3,
                        help='without and with each attack (3)')
    parser.add_argument('--seconds', type=float, default=20.0,
                        help='of a round (20)')
    parser.add_argument('--attacks', default=','.join(ATTACKS))
    parser.add_argument('--database', default='mariadb',
                        choices=sorted(listings.SERVERS))
    options = parser.parse_args()
    try:
        server = listings.SERVERS[options.database]()
    except process.Missing as exc:
        sys.exit(f'hostile_agent: {exc}')
    try:
        url = server.new_database()
        engine = connect.engine(url, statement_s=600)
        schema.upgrade(engine)
        cloud.Rows(engine, HONEST + 1, time.time()).fill(0)
        engine.dispose()
        with tempfile.TemporaryDirectory() as top, \
                contextlib.ExitStack() as stack:
            here = pathlib.Path(top)
            large_cloud_load.configure(here, url)
            urls = [stack.enter_context(large_cloud_load.conductor(
                here, number))[1] for number in range(2)]
            sending = [stack.enter_context(child) for child
                       in senders_of(here, urls, options.seconds)]
            for child in sending:
                if control_plane.line(child).strip() != senders.READY:
                    sys.exit('hostile_agent: no report is answered')
            print(f'{HONEST} honest hosts, a report every {EACH_S:.0f} s; ms')
            print(f'  {"":<13}{"reports":>7}{"mean":>10}{"median":>10}'
                  f'{"p99":>10}{"longest":>10}', flush=True)
            worst = max(attacked(sending, urls, attack, options)
                        for attack in options.attacks.split(','))
            print(f'worst: {worst:.2f} times')
    finally:
        server.close()


if __name__ == '__main__':
    main()
