# SPDX-License-Identifier: Apache-2.0


"""The private servers start, answer and leave nothing behind."""

from __future__ import annotations

import glob
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import testtools

from scavenger_openstack.tests.functional.servers import process
from scavenger_openstack.tests.functional.servers import rabbitmq

GONE_S = 20.0

KILLED = """
import os, sys
from scavenger_openstack.tests.functional.servers import {name}
server = {name}.shared()
print(server.directory, *server.pids, flush=True)
sys.stdin.read()
"""


def gone(pid: str) -> bool:
    try:
        state = pathlib.Path('/proc', pid, 'stat').read_text()
    except OSError:
        return True
    return state.rpartition(')')[2].split()[0] == 'Z'


class Servers(testtools.TestCase):

    def test_nothing_is_left_when_the_tests_are_killed(self) -> None:
        children = {name: self.child(name)
                    for name in ('mariadb', 'postgresql', 'rabbitmq')}
        missing = []
        for name, child in children.items():
            assert child.stdout is not None and child.stderr is not None
            words = child.stdout.readline().split()
            if words:
                self.assertTrue(os.path.isdir(words[0]))
                child.send_signal(signal.SIGKILL)
                self.assert_gone(*words)
                continue
            problem = child.stderr.read()
            if 'is not installed' not in problem:
                self.fail(f'{name}: {problem}')
            missing.append(problem.splitlines()[-1])
        if missing:
            self.skipTest('; '.join(missing))

    def child(self, name: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, '-c', KILLED.format(name=name)], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)
        self.addCleanup(child.communicate)
        self.addCleanup(child.kill)
        return child

    def assert_gone(self, directory: str, *pids: str) -> None:
        deadline = time.monotonic() + GONE_S
        while time.monotonic() < deadline and not (
                all(map(gone, pids)) and not os.path.exists(directory)):
            time.sleep(0.05)
        self.assertEqual([], [pid for pid in pids if not gone(pid)])
        self.assertFalse(os.path.exists(directory))

    def test_a_server_that_does_not_start_says_why(self) -> None:
        server = process.Server('none')
        self.addCleanup(server.close)
        error = self.assertRaises(
            RuntimeError, server.start,
            ['/bin/sh', '-c', 'echo no such luck; exit 3'], lambda: False)
        self.assertIn('no such luck', str(error))

    def test_an_end_removes_the_directory(self) -> None:
        server = process.Server('none')
        server.start(['/bin/sleep', '100'], lambda: True)
        pids = server.pids
        server.close()
        self.assertEqual([], glob.glob(f'{server.directory}*'))
        self.assertTrue(all(gone(str(pid)) for pid in pids))


class Broker(testtools.TestCase):

    def test_listens_on_loopback_only(self) -> None:
        try:
            broker = rabbitmq.shared()
        except process.Missing as exc:
            self.skipTest(str(exc))
        self.assertTrue(process.answers(socket.AF_INET,
                                        ('127.0.0.1', broker.port)))
        sockets = set()
        for pid in broker.pids:
            for fd in pathlib.Path(f'/proc/{pid}/fd').iterdir():
                try:
                    sockets.add(os.readlink(fd))
                except OSError:
                    continue
        listening = {}
        for name, loopback in (
                ('tcp', '0100007F:'),
                ('tcp6', f'{24 * "0"}01000000:')):
            for line in pathlib.Path(f'/proc/net/{name}'
                                     ).read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == '0A' and f'socket:[{words[9]}]' in sockets:
                    listening[words[1]] = words[1].startswith(loopback)
        self.assertGreaterEqual(len(listening), 3)
        self.assertEqual([], [where for where, fine in listening.items()
                              if not fine])
