# SPDX-License-Identifier: Apache-2.0

"""A control plane with something in it, and the real ``openstack`` for it.

The API is the real one, on SQLite, behind HTTP on a loopback port.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import os
import pathlib
import tempfile
import threading
import time
from typing import Any
from typing import NamedTuple
import warnings

import bcrypt
import fixtures
from openstackclient import shell
from osc_lib import clientmanager
from oslo_config import cfg
from sqlalchemy import Connection
from sqlalchemy import insert
from werkzeug import serving

from scavenger_openstack.api import app
from scavenger_openstack import conf as conf_
from scavenger_openstack.db import connect
from scavenger_openstack.db import schema
from scavenger_openstack.db import tables
from scavenger_openstack.osc import plugin

PASSWORD = 'secret'
WEB = '6d2a6a52-7a3c-4a57-9c52-5d5f8e2b7a10'
SCAN = '/batch/scan'
INCIDENT = '0123456789abcdef0123456789abcdef'
EVIL = 'web\x1b[2J\u202e\n+----+'
"""What a tenant may call an instance."""


class Result(NamedTuple):
    """What a command returned and wrote."""

    status: int
    out: str
    err: str


class Server(fixtures.Fixture):
    """A WSGI application on a loopback port."""

    def __init__(self, application: Any) -> None:
        self.application = application

    def _setUp(self) -> None:
        server = serving.make_server('127.0.0.1', 0, self.application,
                                     threaded=True, request_handler=_Quiet)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        self.addCleanup(thread.join, 10)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        thread.start()
        self.url = f'http://127.0.0.1:{server.port}'


class _Quiet(serving.WSGIRequestHandler):

    def log(self, type: str, message: str, *args: Any) -> None:
        """Nothing."""


class ControlPlane(fixtures.Fixture):
    """The API, filled, and an environment in which ``openstack`` finds it."""

    def __init__(self, auth: str = 'http_basic', **caller: str) -> None:
        """
        :param caller: variables that Keystone's middleware would set, for
            the authentication "noauth"
        """
        self.auth = auth
        self.caller = caller

    def _setUp(self) -> None:
        # What the API logs is not on the terminal of the command.
        log = logging.getLogger('scavenger_openstack.api')
        self.useFixture(fixtures.FakeLogger(log.name))
        self.addCleanup(setattr, log, 'propagate', log.propagate)
        log.propagate = False
        self.top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.database = self.top / 'database'
        self.database.write_bytes(filled())
        self.engine = connect.engine(f'sqlite:///{self.database}')
        self.addCleanup(self.engine.dispose)
        users = self.top / 'users'
        users.touch(mode=0o600)
        users.write_bytes(b'admin:' + bcrypt.hashpw(
            PASSWORD.encode(), bcrypt.gensalt(4)) + b'\n')
        conf = cfg.ConfigOpts()
        conf_.register(conf)
        conf([], default_config_files=[], default_config_dirs=[])
        conf.set_override('http_basic_file', str(users), 'api')
        conf.set_override('silent_s', 3600.0, 'api')
        application = app.create(self.engine, conf, self.auth)
        self.url = self.useFixture(Server(
            lambda environ, start: application(
                {**environ, **self.caller}, start))).url
        self.useFixture(Environment(
            self.top, OS_AUTH_TYPE='http_basic', OS_ENDPOINT=self.url,
            OS_USERNAME='admin', OS_PASSWORD=PASSWORD))


class Environment(fixtures.Fixture):
    """No variable for ``openstack`` but these, and no file of the user."""

    def __init__(self, top: pathlib.Path, **variables: str) -> None:
        self.variables = {'OS_CLIENT_CONFIG_FILE': str(top / 'clouds.yaml'),
                          'COLUMNS': '80', **variables}

    def _setUp(self) -> None:
        for name in os.environ:
            if name.startswith('OS_'):
                self.useFixture(fixtures.EnvironmentVariable(name))
        for name, value in self.variables.items():
            self.useFixture(fixtures.EnvironmentVariable(name, value))
        pathlib.Path(self.variables['OS_CLIENT_CONFIG_FILE']).write_text(
            'clouds: {}\n')


def openstack(*words: str) -> Result:
    """Run the command in this process, which has imported it already."""
    out, err = io.StringIO(), io.StringIO()
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers.clear()       # it logs everything, to those that it adds
    try:
        with contextlib.redirect_stdout(out), \
                contextlib.redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter('ignore')
            # It keeps one client for the life of the process.
            setattr(clientmanager.ClientManager, plugin.API_NAME,
                    clientmanager.ClientCache(plugin.make_client))
            try:
                status = shell.main(list(words))
            except SystemExit as exc:
                status = exc.code if isinstance(exc.code, int) else 1
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    return Result(status, out.getvalue(), err.getvalue())


@functools.cache
def filled() -> bytes:
    """A database with what :func:`fill` puts in it, made once."""
    with tempfile.TemporaryDirectory() as top:
        path = pathlib.Path(top, 'database')
        engine = connect.engine(f'sqlite:///{path}')
        try:
            schema.upgrade(engine)
            with connect.writing(engine) as connection:
                fill(connection, time.time())
        finally:
            engine.dispose()
        return path.read_bytes()


def fill(connection: Connection, now_s: float) -> None:
    """Two hosts, and an incident between two workloads of the first."""
    def add(table: Any, **values: Any) -> Any:
        key = connection.execute(
            insert(table).values(**values)).inserted_primary_key
        return key and key[0]

    host = add(tables.hosts, name='compute-1', version='1.2.3',
               enforcing=True, settings={'modes': {}, 'parameters': {}},
               first_seen_s=now_s - 9999, last_seen_s=now_s, facts={
                   'version': '1.2.3', 'enforcing': True, 'grade': 'B',
                   'modes': {'attribution': 'enforce'}, 'cpu_model': 'EPYC',
                   'capacity': {'cpu': 8.0},
                   'headroom': {'memory': 2.0 ** 30, 'cpu': 3.5},
                   'used': {'cpu': 0.5}, 'tick_cpu_share': 0.0123,
                   'spool_bytes': 3 << 20, 'sent_s': now_s,
                   'clock_offset_s': 90.0, 'limited': ['cpu_cores'],
                   'missing': ['disk: waits are not measured'],
                   'own_modes': {'attribution': 'observe'},
                   'refused': {'parameter cpi2.x': 'there is no such option'},
                   'precision': {'attribution': {'confirmed': 3,
                                                 'refuted': 1}}})
    add(tables.hosts, name='compute-2', version='1.2.3', enforcing=False,
        settings={}, first_seen_s=now_s - 9999, last_seen_s=now_s - 9000,
        facts={'stopped': 'the stop file is there', 'grade': 'C',
               'precision': {'attribution': {'unclear': 2}}})
    for name, priority, more in (
            (WEB, 'foreground', {'instance': WEB, 'display_name': EVIL,
                                 'flavor': 'm1.large', 'project': 'p1',
                                 'kind': 'instance', 'source': 'default'}),
            (SCAN, 'background', {'kind': 'container', 'source': 'parent'}),
            ('/batch/steady', 'background', {'kind': 'container',
                                             'source': 'parent'})):
        add(tables.workloads, host_id=host, name=name, priority=priority,
            vcpus=2.0, floor={'cpu_cores': 0.1}, since_s=now_s - 900, **more)
    begun_s = now_s - 300
    moments = [begun_s - 60 + 10 * i for i in range(13)]
    incident = add(
        tables.incidents, host_id=host, uuid=INCIDENT, victim=WEB,
        victim_instance=WEB, project='p1', signal='run_delay',
        cause='core', controller='attribution', value=0.41, threshold=0.15,
        action=f'limit {SCAN}', outcome='confirmed',
        begun_s=begun_s, changed_s=begun_s + 60, ended_s=begun_s + 90,
        grounds=[
            {'kind': 'direct', 'workload': SCAN, 'share': 0.86,
             'waited_s': 1.9, 'window_s': 2.0},
            {'kind': 'direct', 'share': 0.05, 'waited_s': 1.9,
             'window_s': 2.0, 'threads': ['kworker', EVIL]},
            {'kind': 'timing', 'workload': SCAN, 'share': 0.93,
             'chance': 0.001},
            {'kind': 'experiment', 'workload': SCAN, 'before': 0.41,
             'after': 0.08}],
        evidence=[
            {'workload': workload, 'signal': signal, 'times_s': moments,
             'values': values} for workload, signal, values in (
                 (SCAN, 'cpu_cores', [0.1] * 5 + [3.9] * 6 + [0.5] * 2),
                 ('/batch/steady', 'cpu_cores', [1.0, 1.2] * 6 + [None]),
                 (WEB, 'run_delay', [0.05] * 5 + [0.38, 0.41, 0.43] * 2
                  + [0.08] * 2))])
    for workload, score, antagonist in ((SCAN, 0.93, True),
                                        ('/batch/steady', 0.08, False)):
        add(tables.suspects, incident_id=incident, workload=workload,
            score=score, antagonist=antagonist, begun_s=begun_s)
    add(tables.caps, host_id=host, workload=SCAN, knob='cpu_cores',
        value=0.5, original=None, owner='attribution', why='',
        reason=f'run_delay of {WEB} rises from 0.05 to 0.41 with its use; an '
               'innocent seems so guilty with a chance of 0.001',
        incidents=INCIDENT,
        set_s=begun_s + 50, changed_s=begun_s + 50)
    add(tables.caps, host_id=host, workload=SCAN, knob='memory_bytes',
        value=2.0 ** 29, original=2.0 ** 31, owner='scavenger',
        why='scavenger no longer needs it',
        reason='the foreground needs it', incidents='', set_s=begun_s - 500,
        changed_s=begun_s - 400, removed_s=begun_s - 400)
    for workload, victims, seconds in ((SCAN, (WEB, 'other'), 90.0),
                                       ('/batch/steady', (WEB,), 500.0)):
        for victim in victims:
            add(tables.antagonist_hours, host_id=host, victim=victim,
                hour_s=int(begun_s // 3600 * 3600), workload=workload,
                cause='core', incidents=2, interference_s=seconds,
                confirmed=1, refuted=0, victim_project='p1')
    add(tables.specs, project='p1', application='web', cpu_model='EPYC',
        signal='cpi', mean=1.25, stddev=0.2, n=86400, m2=3456.0,
        cpu_cores=0.75,
        day_s=int(now_s // 86400 * 86400))
