# SPDX-License-Identifier: Apache-2.0

"""Agents, conductors and the API of two releases beside each other.

Everything is replaced one after the other, and back, while hosts report over
RabbitMQ and HTTPS and a client asks the API all the time.  Afterwards each
incident and limit is stored once, and the API failed only while it was
started again.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
import contextlib
import json
import pathlib
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid

import bcrypt
import fixtures
import sqlalchemy as sa
import testtools
from testtools import content

from scavenger_openstack.db import connect
from scavenger_openstack.db import enrollment
from scavenger_openstack.db import tables
from scavenger_openstack.tests.functional import agents
from scavenger_openstack.tests.functional.openstack import services
from scavenger_openstack.tests.functional import rolling_host
from scavenger_openstack.tests.functional.servers import databases
from scavenger_openstack.tests.functional.servers import process
from scavenger_openstack.tests.functional.servers import rabbitmq
from scavenger_openstack.tests import tiers
from scavenger_openstack.tests.unit.agent.control_plane import certificates

TOP = pathlib.Path(__file__).parents[3]

RELEASE_BEFORE = '89e69650bbccbc2a7465240b630505ff9c1beba0'
"""A commit until there is a tag of a release."""

HOSTS = ('node-0', 'node-1', 'node-2')
OVER_HTTPS = HOSTS[-1]
CONDUCTORS = ('conductor-0', 'conductor-1')
MORE = 3
"""Incidents of each host that are stored before the next step."""
WITHIN_S = 90.0
AGAIN_S = 0.1
ASK_S = 0.05
TAIL = 3000

COMMANDS = ('interference host list', 'interference host show {host}',
            'interference incident show {incident}', 'interference cap list',
            'antagonist list')
"""Words after ``openstack``."""

CONTROL = """
[DEFAULT]
transport_url = {broker}
control_exchange = {exchange}
[oslo_messaging_rabbit]
kombu_reconnect_splay = 0
[database]
connection = {database}
[api]
port = {port}
auth_strategy = http_basic
http_basic_file = {users}
"""


class Asking:
    """Asks the API all the time, until :meth:`end`.

    ``failures`` are the times between which a request failed, by
    time.monotonic(), and why; ``restarts`` are those of the API.
    """

    def __init__(self, url: str) -> None:
        self.answers = 0
        self.failures: list[tuple[float, float, str]] = []
        self.restarts: list[tuple[float, float]] = []
        self._requests = [
            urllib.request.Request(f'{url}{path}', headers={
                'Authorization': 'Basic ' + base64.b64encode(
                    b'admin:secret').decode()})
            for path in ('/v1/incidents?limit=5', '/v1/hosts',
                         '/v1/caps?limit=5', '/v1/antagonists')]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def _ask(self) -> None:
        number = 0
        while not self._stop.wait(ASK_S):
            number += 1
            began_s = time.monotonic()
            try:
                with urllib.request.urlopen(
                        self._requests[number % len(self._requests)],
                        timeout=30) as answer:
                    json.loads(answer.read())
                self.answers += 1
            except (OSError, ValueError) as exc:
                text = (exc.read().decode() if isinstance(
                    exc, urllib.error.HTTPError) else '')
                self.failures.append((began_s, time.monotonic(),
                                      f'{exc} {text}'))

    def end(self) -> None:
        self._stop.set()
        self._thread.join()

    @property
    def unexpected(self) -> list[str]:
        """The failures besides those of restarts."""
        return [why for began_s, ended_s, why in self.failures
                if not any(ended_s >= since_s and began_s <= until_s
                           for since_s, until_s in self.restarts)]


def release_before(test: testtools.TestCase) -> pathlib.Path:
    """Return a directory with the program of the release before; skips the
    test where git does not have it."""
    directory = pathlib.Path(test.useFixture(fixtures.TempDir()).path)
    done = subprocess.run(
        f'git -C {TOP} archive {RELEASE_BEFORE} scavenger_openstack '
        f'| tar -x -C {directory}', shell=True, capture_output=True,
        text=True)
    if not (directory / 'scavenger_openstack').exists():
        why = (f'NOT TESTED: the release before, {RELEASE_BEFORE}, is not '
               'here; a clone with its history has it')
        print(f'{why}: {done.stderr}', file=sys.stderr)
        test.skipTest(why)
    return directory


@tiers.only_in_all('tests of files that are kept guard each change')
class AgentsOnOneHost(agents.AgentTestCase):
    """An agent of another release takes over what one has left."""

    def setUp(self) -> None:
        super().setUp()
        self.before = release_before(self)
        # No conductor answers: what is to be reported waits on the disk.
        self.configure(
            '[DEFAULT]',
            f'transport_url = rabbit://guest@127.0.0.1:{process.free_port()}/',
            '[scavenger]', 'mode = enforce', 'use_cpu_leftover = false',
            'memory_window_s = 3', '[conductor]', 'enabled = true',
            'sync_s = 1')

    def limited(self, tree: pathlib.Path) -> subprocess.Popen[str]:
        """Start the agent of a release, which sets limits."""
        agent = self.start('standalone', by=[
            'env', '-C', str(tree), f'PYTHONPATH={tree}'])
        self.wait_for('a limit', lambda: self.idle() == '1')
        ticks = self.ticks()
        self.wait_for('ticks', lambda: self.ticks() != ticks)
        return agent

    def ended(self, agent: subprocess.Popen[str]) -> str:
        """End an agent in order; return what it has logged."""
        agent.terminate()
        _, err = agent.communicate(timeout=60)
        self.assertEqual((0, '0', []), (
            agent.returncode, self.idle(), self.leases()), err)
        for fault in ('Traceback', 'not usable', 'please report'):
            self.assertNotIn(fault, err)
        return err

    def test_in_order_and_back(self) -> None:
        for tree in (self.before, TOP, self.before, TOP):
            log = self.ended(self.limited(tree))
        for what in ('history.jsonl: a history of a release before',
                     'spool.sqlite: written by a release before'):
            self.assertEqual(1, log.count(what), log)
        self.assertNotIn('lacks: 0', log)
        self.assertNotIn('lacks: unknown', log)

    def test_after_a_kill(self) -> None:
        """Limits of a killed agent are restored, or taken over."""
        for tree, other in ((self.before, TOP), (TOP, self.before)):
            agent = self.limited(tree)
            signal.pidfd_send_signal(self.watcher(), signal.SIGKILL)
            agent.kill()
            agent.communicate()
            self.assertEqual('1', self.idle())
            self.ended(self.limited(other))


@tiers.only_in_all('tests of messages and of tables guard each change')
class RollingUpgrade(databases.MariaDb):
    """``here`` and ``before`` are the trees of the two releases."""

    def setUp(self) -> None:
        super().setUp()
        try:
            self.broker = rabbitmq.shared()
        except process.Missing as exc:
            self.skipTest(str(exc))
        self.directory = pathlib.Path(self.useFixture(
            fixtures.TempDir()).path)
        self.here, self.before = TOP, release_before(self)
        self.exchange = f'exchange-{uuid.uuid4().hex[:8]}'
        self.port, self.https_port = process.free_port(), process.free_port()
        self.url = f'http://127.0.0.1:{self.port}'
        users = self.directory / 'users'
        users.touch(mode=0o600)
        users.write_bytes(b'admin:' + bcrypt.hashpw(
            b'secret', bcrypt.gensalt(4)) + b'\n')
        self.pem, self.key = certificates.make(self, self.directory)
        self.config = self.directory / 'control.conf'
        self.config.write_text(CONTROL.format(
            broker=self.broker.url, exchange=self.exchange,
            database=self.engine.url.render_as_string(hide_password=False),
            port=self.port, users=users))
        self.programs: dict[str, services.Service] = {}
        self.addOnException(self.attach)

    def attach(self, exc_info: object) -> None:
        for name, program in self.programs.items():
            self.addDetail(name, content.text_content(
                program.log.read_text(errors='replace')[-TAIL:]))
        for host in HOSTS:
            with contextlib.suppress(OSError):
                self.addDetail(f'{host} faults', content.text_content((
                    self.directory / host / 'faults').read_text()[-TAIL:]))

    def start(self, name: str, tree: pathlib.Path, command: list[str],
              ready: Callable[[], bool]) -> None:
        """Start a program of a release, in the place of that of another."""
        if name in self.programs:
            self.programs[name].stop()
        program = self.programs[name] = services.Service(
            name, [sys.executable, '-P', *command], {
                'PYTHONPATH': str(tree), 'PYTHONDONTWRITEBYTECODE': '1',
                'SCAVENGER_CONFIG_FILE': str(self.config)}, ready)
        self.addCleanup(program.close)
        self.addCleanup(program.stop)
        program.begin()

    def conductor(self, name: str, tree: pathlib.Path) -> None:
        self.start(name, tree, [
            '-m', 'scavenger_openstack.cmd.conductor', '--config-file',
            str(self.config)], lambda: 'calls are taken' in self.programs[
                name].log.read_text(errors='replace'))

    def conductor_over_https(self, tree: pathlib.Path) -> None:
        self.start('conductor-https', tree, [
            '-m', 'gunicorn', '--bind', f'127.0.0.1:{self.https_port}',
            '--threads', '4', '--certfile', str(self.pem), '--keyfile',
            str(self.key), 'scavenger_openstack.wsgi.conductor:application'],
            lambda: 'Booting worker' in self.programs[
                'conductor-https'].log.read_text(errors='replace'))

    def api(self, tree: pathlib.Path) -> None:
        began_s = time.monotonic()
        self.start('api', tree, [
            '-m', 'scavenger_openstack.cmd.api', '--config-file',
            str(self.config)],
            lambda: services.answers(f'{self.url}/healthcheck', self.port))
        if hasattr(self, 'asking'):
            self.asking.restarts.append((began_s, time.monotonic()))

    def control_plane(self, tree: pathlib.Path) -> None:
        """Replace one program after the other."""
        for name in CONDUCTORS:
            self.conductor(name, tree)
        self.conductor_over_https(tree)
        self.api(tree)

    def agent(self, host: str, tree: pathlib.Path) -> None:
        directory = self.directory / host
        directory.mkdir(exist_ok=True)
        self.start(host, tree, [rolling_host.__file__, json.dumps({
            'host': host, 'directory': str(directory),
            'broker': self.broker.url, 'exchange': self.exchange,
            'url': (f'https://127.0.0.1:{self.https_port}'
                    if host == OVER_HTTPS else ''),
            'ca_file': str(self.pem),
            'token_file': str(self.directory / 'token')})],
            (directory / 'waits').exists)

    def manage(self, tree: pathlib.Path, *words: str) -> str:
        """Run ``scavenger-manage`` of a release."""
        done = subprocess.run(
            [sys.executable, '-P', '-m', 'scavenger_openstack.cmd.manage',
             '--config-file', str(self.config), *words],
            env={'PYTHONPATH': str(tree)}, capture_output=True, text=True)
        self.assertEqual(0, done.returncode, done.stderr)
        return done.stdout

    def commands(self, tree: pathlib.Path) -> None:
        """Type commands of a release."""
        incident = next(uuid for uuids in self.incidents().values()
                        for uuid in uuids)
        for words in COMMANDS:
            done = subprocess.run(
                [sys.executable, '-P', '-m', 'openstackclient.shell',
                 *words.format(host=HOSTS[0], incident=incident).split(),
                 '-f', 'json'],
                env={'PYTHONPATH': str(tree), 'HOME': str(self.directory),
                     'OS_AUTH_TYPE': 'http_basic', 'OS_ENDPOINT': self.url,
                     'OS_USERNAME': 'admin', 'OS_PASSWORD': 'secret'},
                capture_output=True, text=True)
            self.assertEqual(0, done.returncode, f'{words}: {done.stderr}')
            json.loads(done.stdout)

    def incidents(self) -> dict[str, list[str]]:
        """Return the incidents in the database by host."""
        with connect.reading(self.engine) as connection:
            rows = connection.execute(sa.select(
                tables.hosts.c.name, tables.incidents.c.uuid).join_from(
                    tables.incidents, tables.hosts)).all()
        return {host: [row.uuid for row in rows if row.name == host]
                for host in HOSTS}

    def given(self, host: str) -> list[str]:
        """Return the incidents that the agents of a host were given."""
        return (self.directory / host / 'stored').read_text().split()

    def all_given(self) -> list[str]:
        return sorted(uuid for host in HOSTS for uuid in self.given(host))

    def stored(self) -> list[int]:
        """Return how many incidents are in the database, ended, limits,
        removed ones, and incidents that the hourly sums count."""
        with connect.reading(self.engine) as connection:
            return [int(count or 0) for part in (
                sa.select(sa.func.count(), sa.func.count(
                    tables.incidents.c.ended_s)),
                sa.select(sa.func.count(), sa.func.count(
                    tables.caps.c.removed_s)),
                sa.select(sa.func.sum(
                    tables.antagonist_hours.c.incidents)))
                for count in connection.execute(part).one()]

    def wait_for(self, what: str, is_there: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not is_there():
            self.assertLess(time.monotonic(), deadline, what)
            time.sleep(AGAIN_S)

    def progress(self, what: str) -> None:
        """Wait until incidents of each host are stored that began now."""
        before = {host: len(self.given(host)) for host in HOSTS}
        self.wait_for(f'incidents are stored: {what}', lambda: all(
            len(set(self.given(host)[before[host]:]).intersection(uuids))
            >= MORE for host, uuids in self.incidents().items()))

    def test_everything_is_replaced(self) -> None:
        self.manage(self.before, 'db', 'upgrade')
        with connect.writing(self.engine) as connection:
            token = self.directory / 'token'
            token.touch(mode=0o600)
            token.write_text(enrollment.enroll(
                connection, OVER_HTTPS, now_s=time.time()).token)
        self.control_plane(self.before)
        self.asking = Asking(self.url)
        self.addCleanup(self.asking.end)
        for host in HOSTS:
            self.agent(host, self.before)
        self.progress('all of the release before')
        self.manage(self.here, 'db', 'upgrade', '--expand')
        self.progress('with more tables')
        self.conductor(CONDUCTORS[0], self.here)
        self.progress('conductors of both')
        self.control_plane(self.here)
        self.progress('agents of the release before')
        self.commands(self.before)
        for host in HOSTS:
            self.agent(host, self.here)
            self.progress('agents of both')
        self.control_plane(self.before)
        self.progress('conductors and API of the release before')
        self.commands(self.here)
        for host in HOSTS[1:]:
            self.agent(host, self.before)
        self.progress('some agents back')
        self.control_plane(self.here)
        for host in HOSTS[1:]:
            self.agent(host, self.here)
        self.manage(self.here, 'db', 'upgrade', '--contract')
        self.progress('all of this release')
        self.finish()

    def finish(self) -> None:
        """Nothing is lost, nothing is there twice."""
        for host in HOSTS:
            (self.directory / host / 'quiet').touch()
        with contextlib.suppress(AssertionError):   # the figures tell more
            self.wait_for('all is stored', lambda: (
                5 * [len(self.all_given())] == self.stored()))
        for host in HOSTS:
            self.programs[host].stop()
        self.asking.end()
        count = len(self.all_given())
        failures = self.asking.failures
        self.addDetail('figures', content.text_content(
            f'{count} incidents, {self.asking.answers} answers of the API, '
            f'{len(failures)} failures in {len(self.asking.restarts)} '
            'restarts, at most '
            f'{max(b - a for a, b in self.asking.restarts):.1f} s, and '
            f'{len(self.asking.unexpected)} besides'))
        print(self.getDetails()['figures'].as_text(), file=sys.stderr)
        self.assertEqual(self.all_given(), sorted(
            uuid for uuids in self.incidents().values() for uuid in uuids))
        self.assertEqual(5 * [count], self.stored())
        self.assertEqual([], self.asking.unexpected)
        with connect.reading(self.engine) as connection:
            self.assertNotIn('report.refused', connection.scalars(sa.select(
                tables.audit.c.action)).all())
        self.assertLess(100, self.asking.answers)
