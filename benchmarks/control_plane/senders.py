# SPDX-License-Identifier: Apache-2.0

"""Agents that send reports to a conductor, many in one process.

    python benchmarks/control_plane/senders.py NAME URL SECONDS

Sends reports of its hosts in turn, over a broker or HTTP, and prints how many
were answered in so many seconds.  :mod:`control_plane` starts several, each in
a directory with a token for each host.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
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

FACTS = wire.Facts(
    version='1.0.0', enforcing=True, grade='B', cpu_model='AMD EPYC',
    modes={'scavenger': 'enforce', 'perfiso': 'enforce',
           'io_shares': 'observe', 'attribution': 'enforce'},
    capacity={'cpu': 64.0, 'memory': 2.7e11, 'network': 1.25e9, 'disk': 1e9},
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

    def __init__(self, name: str) -> None:
        self.name = name
        self.sequence = 0
        self.digest = self.workloads_digest = ''
        self.salt = 0

    def report(self, kind: str) -> bytes:
        listed: list[wire.Workload] | None = None
        entries: list[wire.AnyEntry] = []
        if kind == 'workloads' or not self.workloads_digest:
            self.salt += 1
            listed = workloads(self.salt)
        if kind == 'incident':
            entries = [self.incident()]
        now = time.time()
        return codec.encode(wire.Report(
            host=self.name, boot_id='b' * 36, run_id='r' * 32, sent_s=now,
            facts=FACTS, workloads=listed,
            workloads_digest=f'{self.salt:032x}', entries=entries,
            directives_digest=self.digest))

    def incident(self) -> wire.Incident:
        self.sequence += 1
        now = time.time()
        listed = workloads(self.salt)
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


def send(name: str, url: str, seconds: float) -> None:
    """Send reports one after another; print how many were answered."""
    hosts = [Host(f'{name}-{number}') for number in range(HOSTS // AGENTS)]
    if url.startswith('http'):
        calls = [https.caller(url, host.name, pathlib.Path(host.name))
                 for host in hosts]
    else:
        # A client is for one thread, and has one token.
        token = ['']
        client = rpc.Client(rpc_cases.configuration(url),
                            token=lambda: token[0])

        def call_of(host: str) -> Callable[[bytes], bytes]:
            its = pathlib.Path(host).read_text()

            def call(report: bytes) -> bytes:
                token[0] = its
                return client.sync(report)

            return call

        calls = [call_of(host.name) for host in hosts]
    for host, call in zip(hosts, calls, strict=True):
        until_s = time.monotonic() + START_S
        while not host.workloads_digest:
            try:
                host.answered(call(host.report('facts')))
            except errors.Unreachable:
                if time.monotonic() > until_s:
                    raise
                time.sleep(AGAIN_S)
    print(READY, flush=True)
    sys.stdin.readline()
    count, until_s = 0, time.monotonic() + seconds
    while time.monotonic() < until_s:
        number = count % len(hosts)
        hosts[number].answered(calls[number](hosts[number].report('facts')))
        count += 1
    print(count, flush=True)
    sys.stdin.readline()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('name')
    parser.add_argument('url')
    parser.add_argument('seconds', type=float)
    args = parser.parse_args()
    send(args.name, args.url, args.seconds)


if __name__ == '__main__':
    main()
