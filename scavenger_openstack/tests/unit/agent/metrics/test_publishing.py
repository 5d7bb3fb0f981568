# SPDX-License-Identifier: Apache-2.0

"""The file and the listener of an agent's metrics."""

from __future__ import annotations

import json
import os
import pathlib
import socket
import threading
import time
from typing import Any
import urllib.error
import urllib.request

import fixtures
import testtools

from scavenger_openstack.agent import loop
from scavenger_openstack.agent.metrics import publishing
from scavenger_openstack.metrics import listener
from scavenger_openstack.tests import file_size
from scavenger_openstack.tests.unit.agent.metrics.pages import document
from scavenger_openstack.tests.unit.agent.metrics.pages import parsed

TICKS = 'scavenger_agent_ticks_total', ()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(('127.0.0.1', 0))
        port: int = found.getsockname()[1]
        return port


class PublishingTestCase(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)
        self.file = self.directory / 'scavenger.prom'

    def metrics(self, **options: Any) -> publishing.Metrics:
        made = publishing.Metrics(self.directory / 'state', 15.0,
                                  ['scavenger'], **options)
        self.addCleanup(made.end, ())
        return made

    def tick(self, metrics: publishing.Metrics, number: int,
             **differing: Any) -> dict[str, Any]:
        """One tick, as much later as the next page takes."""
        found = json.loads(metrics.tick(
            loop.Tick(number * publishing.EVERY_S), {}, document(
                counters={'ticks': number, 'blind_ticks': 0, 'kills': 0},
                **differing)))
        assert isinstance(found, dict)
        return found

    def ticks(self) -> float:
        return parsed(self.file.read_bytes())[TICKS]


class File(PublishingTestCase):

    def test_it_is_replaced(self) -> None:
        """For others to read, whatever the umask is; with a fresh page each
        5 s, and not more often."""
        self.addCleanup(os.umask, os.umask(0o077))
        metrics = self.metrics(file=str(self.file))
        self.tick(metrics, 1)
        self.assertEqual(0o644, self.file.stat().st_mode & 0o777)
        first = self.file.stat().st_ino
        metrics.tick(loop.Tick(publishing.EVERY_S + 1), {}, document())
        self.assertEqual(first, self.file.stat().st_ino)
        self.tick(metrics, 2)
        self.assertEqual(2, self.ticks())
        self.assertEqual([self.file], list(self.directory.iterdir()))
        self.assertEqual('', self.log.output)

    def test_without_one(self) -> None:
        """The status has the rows all the same."""
        self.assertIn('limits', self.tick(self.metrics(), 1))
        self.assertEqual([], list(self.directory.iterdir()))

    def test_after_the_end(self) -> None:
        metrics = self.metrics(file=str(self.file))
        self.tick(metrics, 1, incidents=[{'cause': 'disk'}])
        metrics.end(['a limit'])
        samples = parsed(self.file.read_bytes())
        self.assertEqual(1, samples['scavenger_limits_not_restored', ()])
        self.assertEqual(0, samples['scavenger_incidents_open',
                                    (('cause', 'disk'),)])

    def test_refused_records(self) -> None:
        leases = self.directory / 'state/leases'
        leases.mkdir(parents=True)
        (leases / 'a.json.refused').touch()
        self.tick(self.metrics(file=str(self.file)), 1)
        self.assertEqual(1, parsed(self.file.read_bytes())[
            'scavenger_limits_not_restored', ()])

    def test_no_directory(self) -> None:
        """One line, also when another one is missing later; it goes on."""
        self.file = self.directory / 'there/scavenger.prom'
        metrics = self.metrics(file=str(self.file))
        for number in range(1, 4):
            self.tick(metrics, number)
        self.assertEqual(1, self.log.output.count('is not written'))
        self.file.parent.mkdir()
        self.tick(metrics, 4)
        self.assertEqual(4, self.ticks())
        self.assertEqual(2, len(self.log.output.splitlines()))

    def test_a_full_disk(self) -> None:
        """The old page stays, and no draft."""
        metrics = self.metrics(file=str(self.file))
        self.tick(metrics, 1)
        full = self.useFixture(file_size.FileSize(1000))
        for number in (2, 3):
            self.tick(metrics, number)
        full.end()
        self.assertEqual(1, self.ticks())
        self.assertEqual(1, self.log.output.count('is not written'))
        self.assertEqual([self.file.name], os.listdir(self.directory))
        self.tick(metrics, 4)
        self.assertEqual(4, self.ticks())

    def test_two_agents_with_one_path(self) -> None:
        """It is always a whole page of one of them."""
        both = [self.metrics(file=str(self.file)) for _ in range(2)]
        self.tick(both[0], 1)
        stop = threading.Event()
        faults: list[Exception] = []

        def turn(metrics: publishing.Metrics) -> None:
            number = 2
            while not stop.is_set():
                try:
                    self.tick(metrics, number)
                except Exception as exc:
                    faults.append(exc)
                number += 1

        threads = [threading.Thread(target=turn, args=(one,))
                   for one in both]
        for thread in threads:
            thread.start()
        whole = self.file.read_bytes().count(b'\n')
        until = time.monotonic() + 1
        counts = set()
        while time.monotonic() < until:
            counts.add(self.file.read_bytes().count(b'\n'))
        stop.set()
        for thread in threads:
            thread.join()
        self.assertEqual(({whole}, [], ''),
                         (counts, faults, self.log.output))
        self.assertEqual([self.file.name], os.listdir(self.directory))

    def test_facts_of_a_plug_in(self) -> None:
        """Which are not understood end nothing."""
        metrics = self.metrics(file=str(self.file))
        for number in (1, 2):
            self.tick(metrics, number, controllers={
                'x': {'mode': 'observe', 'facts': {'tried': {'a': 1}}}})
        self.assertEqual(1, self.log.output.count('no metrics are published'))


class Listening(PublishingTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.address = f'127.0.0.1:{free_port()}'

    def get(self, path: str = '/metrics') -> bytes:
        with urllib.request.urlopen(f'http://{self.address}{path}',
                                    timeout=10) as answer:
            data: bytes = answer.read()
            return data

    def connected(self) -> socket.socket:
        host, _, port = self.address.partition(':')
        found = socket.create_connection((host, int(port)), timeout=10)
        self.addCleanup(found.close)
        return found

    def test_it_serves_the_page(self) -> None:
        metrics = self.metrics(listen=self.address)
        for number in (1, 2):
            self.tick(metrics, number)
            self.assertEqual(number, parsed(self.get())[TICKS])
        self.assertEqual(404, self.assertRaises(
            urllib.error.HTTPError, self.get, '/').code)
        self.assertEqual(1, sum(thread.name == 'metrics'
                                for thread in threading.enumerate()))

    def test_the_address_is_in_use(self) -> None:
        """One line; it listens when the address is free."""
        with socket.create_server(('127.0.0.1', int(
                self.address.partition(':')[2]))):
            metrics = self.metrics(listen=self.address)
            for number in (1, 2):
                self.tick(metrics, number)
        self.assertEqual(1, self.log.output.count('nothing listens there'))
        self.tick(metrics, 3)
        self.assertEqual(3, parsed(self.get())[TICKS])

    def test_a_slow_client_is_cut_off(self) -> None:
        """Though it goes on sending; others are served then."""
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.metrics.listener.REQUEST_S', 0.2))
        self.tick(self.metrics(listen=self.address), 1)
        slow = self.connected()
        slow.sendall(b'GET ')
        answers: list[bytes] = []
        other = threading.Thread(target=lambda: answers.append(self.get()))
        other.start()
        until = time.monotonic() + 20
        while other.is_alive() and time.monotonic() < until:
            try:
                slow.send(b'x')
            except OSError:
                pass        # it is cut off
            other.join(0.05)
        self.assertEqual(1, len(answers))

    def test_clients_that_send_nonsense(self) -> None:
        self.tick(self.metrics(listen=self.address), 1)
        for nonsense in (b'\x00\xff\r\n\r\n', b'GET\r\n\r\n', b'',
                         b'POST /metrics HTTP/1.0\r\n\r\n',
                         b'GET /' + b'x' * 100_000 + b'\r\n\r\n'):
            with self.connected() as client:
                try:
                    client.sendall(nonsense)
                    client.shutdown(socket.SHUT_WR)
                    while client.recv(65536):
                        pass
                except OSError:
                    pass        # it was cut off in the middle
        self.assertEqual(1, parsed(self.get())[TICKS])

    def test_nothing_is_left_at_the_end(self) -> None:
        metrics = self.metrics(listen=self.address)
        self.tick(metrics, 1)
        metrics.end(())
        self.assertRaises(urllib.error.URLError, self.get)

    def test_on_ipv6(self) -> None:
        with socket.socket(socket.AF_INET6) as found:
            try:
                found.bind(('::1', 0))
            except OSError:
                self.skipTest('no IPv6 here')
            port = found.getsockname()[1]
        served = listener.Listener('::1', port, lambda: b'x 1\n')
        self.addCleanup(served.stop)
        self.address = f'[::1]:{port}'
        self.assertEqual(b'x 1\n', self.get())
