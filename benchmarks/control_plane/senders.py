# SPDX-License-Identifier: Apache-2.0

"""Agents that send reports to a conductor, many in one process.

    python benchmarks/control_plane/senders.py NAME URL SECONDS
        [--cloud FIRST:COUNT:STEP] [--each-s SECONDS]

Sends reports of its hosts in turn, over a broker or HTTP, and prints what was
answered in so many seconds, as JSON.  :mod:`control_plane` and others start
several, each in a directory with a token for each host.  With ``--cloud`` its
hosts are those of :mod:`cloud`, and their reports those of an hour; with
``--each-s`` each host reports once in so long.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import concurrent.futures
import itertools
import json
import pathlib
import random
import sys
import time

from scavenger_openstack.agent.control_plane import https
from scavenger_openstack import errors
from scavenger_openstack import rpc
from scavenger_openstack.tests.unit import rpc_cases
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import report as wire

HOSTS = 200
WORKLOADS = 50
AGENTS = 2
"""Processes that send reports; each has its share of the hosts."""
READY = 'ready'

START_S = 60.0
AGAIN_S = 0.2
THREADS = 8
"""Of a process whose hosts report once in so long."""

FACTS = wire.Facts(
    version='1.0.0', enforcing=True, grade='B', cpu_model='AMD EPYC',
    modes={'scavenger': 'enforce', 'perfiso': 'enforce',
           'io_shares': 'observe', 'attribution': 'enforce'},
    capacity={'cpu': 64.0, 'memory': 2.7e11, 'network': 1.25e9,
              'disk': 1e9},
    headroom={'cpu': 21.25, 'memory': 9.1e10, 'network': 8.1e8,
              'disk': 4.4e8},
    precision={'attribution': wire.Precision(confirmed=12, refuted=1)},
    tick_cpu_share=0.0031)


def workloads(salt: int) -> list[wire.Workload]:
    return [wire.Workload(
        id=f'/machine/qemu-{number}-instance-{number:08x}',
        priority='background' if number % 3 else 'foreground',
        kind='instance', instance=f'{number:08x}-1111-2222-3333-{salt:012x}',
        project=f'{number % 7:032x}', application=f'app-{number % 9}',
        display_name=f'vm-{number}', flavor='m1.large', vcpus=4.0,
        floor={'cpu_cores': 0.1, 'memory_bytes': 8e9})
        for number in range(WORKLOADS)]


class Host:
    """What an agent knows of its reports and answers."""

    facts = FACTS

    def __init__(self, name: str) -> None:
        self.name = name
        self.sequence = 0
        self.digest = self.workloads_digest = ''
        self.salt = 0

    def report(self, kind: str) -> bytes:
        listed: list[wire.Workload] | None = None
        if kind == 'workloads' or not self.workloads_digest:
            self.salt += 1
            listed = self.listed()
        now = time.time()
        return codec.encode(wire.Report(
            host=self.name, boot_id='b' * 36, run_id='r' * 32, sent_s=now,
            facts=self.facts, workloads=listed,
            workloads_digest=f'{self.salt:032x}',
            entries=self.entries(kind, now), directives_digest=self.digest))

    def next_report(self) -> bytes:
        """What it sends next, while nothing happens."""
        return self.report('facts')

    def listed(self) -> list[wire.Workload]:
        """The workloads that it has."""
        return workloads(self.salt)

    def entries(self, kind: str, now: float) -> list[wire.AnyEntry]:
        return [self.incident()] if kind == 'incident' else []

    def incident(self) -> wire.Incident:
        self.sequence += 1
        now = time.time()
        listed = self.listed()
        times = [now - 120 + second for second in range(120)]
        return wire.Incident(
            sequence=self.sequence, time_s=now, what='began',
            id=f'{random.getrandbits(128):032x}', begun_s=now - 10,
            victim=listed[0].id, signal='run_delay', value=0.4,
            threshold=0.1, cause='cpu', controller='attribution',
            suspects=[wire.Suspect(workload=one.id, score=0.5,
                                   antagonist=index == 0)
                      for index, one in enumerate(listed[1:6])],
            evidence=[wire.Series(workload=one.id, signal='run_delay',
                                  times_s=times, values=[0.123456] * 120)
                      for one in listed[:3]])

    def answered(self, data: bytes) -> None:
        answer = codec.decode(data, wire.Answer, wire.MAX_ANSWER_BYTES)
        self.workloads_digest = answer.workloads_digest
        if answer.directives is not None:
            self.digest = answer.directives.digest


class Counts:
    """What was sent: how long each took, from when it was due, in seconds.
    """

    def __init__(self) -> None:
        self.times_s: list[float] = []
        self.refused = 0

    def send(self, host: Host, call: Callable[[bytes], bytes], due_s: float
             ) -> None:
        """Send the next report of a host, and note how long that took."""
        report = host.next_report()
        try:
            host.answered(call(report))
        except errors.ScavengerError:
            self.refused += 1
            return
        self.times_s.append(time.monotonic() - due_s)


def callers(hosts: Sequence[Host], url: str, token: str
            ) -> list[Callable[[bytes], bytes]]:
    """What sends the reports of each host.

    :param token: the file of all hosts, '' where each has its own
    """
    if url.startswith('http'):
        return [https.caller(url, host.name, pathlib.Path(token or host.name))
                for host in hosts]
    # A client is for one thread, and has one identity.
    current = [('', '')]
    client = rpc.Client(rpc_cases.configuration(url),
                        identity=lambda: current[0])

    def call_of(host: str) -> Callable[[bytes], bytes]:
        identity = host, pathlib.Path(token or host).read_text()

        def call(report: bytes) -> bytes:
            current[0] = identity
            return client.sync(report)

        return call

    return [call_of(host.name) for host in hosts]


def send(hosts: Sequence[Host], url: str, seconds: float, each_s: float,
         token: str = '') -> None:
    """Send reports for so long, for each line of standard input; print what
    was answered."""
    calls = callers(hosts, url, token)
    # In a cloud they are there already: then one shows that all are taken.
    waiting = [pair for pair in zip(hosts, calls, strict=True)
               if not pair[0].workloads_digest]
    for host, call in waiting or [(hosts[0], calls[0])]:
        until_s = time.monotonic() + START_S
        while True:
            try:
                host.answered(call(host.report('facts')))
                break
            except errors.Unreachable:
                if time.monotonic() > until_s:
                    raise
                time.sleep(AGAIN_S)
    print(READY, flush=True)
    sent = itertools.count()
    while sys.stdin.readline():
        counts = play(hosts, calls, sent, seconds, each_s)
        print(json.dumps({'times_s': counts.times_s,
                          'refused': counts.refused}), flush=True)


def play(hosts: Sequence[Host], calls: Sequence[Callable[[bytes], bytes]],
         sent: Iterator[int], seconds: float, each_s: float) -> Counts:
    """Send reports of the hosts in turn for so long.

    :param sent: counts them
    """
    counts, begun_s = Counts(), time.monotonic()
    threads = THREADS if each_s else 1
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        for count, number in enumerate(sent):
            due_s = time.monotonic()
            if each_s:
                due_s = begun_s + count * each_s / len(hosts)
                time.sleep(max(0.0, due_s - time.monotonic()))
            if due_s - begun_s >= seconds:
                return counts
            number %= len(hosts)
            if each_s:
                pool.submit(counts.send, hosts[number], calls[number], due_s)
            else:
                counts.send(hosts[number], calls[number], due_s)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('name')
    parser.add_argument('url')
    parser.add_argument('seconds', type=float)
    parser.add_argument('--cloud', metavar='FIRST:COUNT:STEP',
                        help='hosts of cloud.py, with the token in the file '
                             'NAME')
    parser.add_argument('--each-s', type=float, default=0.0, metavar='S',
                        help='each host reports once in so long (as soon as '
                             'it can)')
    args = parser.parse_args()
    hosts: Sequence[Host]
    if args.cloud:
        import cloud
        first, count, step = map(int, args.cloud.split(':'))
        hosts = [cloud.Host(first + place * step) for place in range(count)]
    else:
        hosts = [Host(f'{args.name}-{number}')
                 for number in range(HOSTS // AGENTS)]
    send(hosts, args.url, args.seconds, args.each_s,
         args.name if args.cloud else '')


if __name__ == '__main__':
    main()
