# SPDX-License-Identifier: Apache-2.0

"""The control plane inside ``scavenger-standalone``.

The conductor is in the agent's process and works in the thread of its sync;
the API is a process without privileges.  The agent waits for none of it.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from typing import Any

from oslo_config import cfg
from oslo_log import log

from scavenger_openstack.cmd import standalone_files
from scavenger_openstack.conductor import service
from scavenger_openstack.conf import control as conf_control
from scavenger_openstack.db import connect
from scavenger_openstack import errors

LOG = log.getLogger(__name__)

READY_S = 15.0
"""So long the first report waits for the database."""
TABLES_S = 300.0
RETRY_S = 60.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0
"""Before an API that ended is started again."""
END_S = 5.0


class Embedded:
    """Database, conductor and API, from ``__enter__`` to ``__exit__``."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf
        self._files = standalone_files.of(conf)
        self._fault = ''
        self._conductor: service.Conductor | None = None
        self._ready = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True,
                                        name='control-plane')

    def __enter__(self) -> Embedded:
        # Here, since the agent's threads become real-time ones soon, and
        # what they start with them.
        self._tables = self._make_tables()
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._ready.set()
        self._thread.join()

    def answer(self, data: bytes) -> bytes:
        """See :meth:`.conductor.service.Conductor.answer`."""
        self._ready.wait(READY_S)
        if self._conductor is None:
            raise errors.Unreachable(
                self._fault or f'{self._files.database} is being made')
        # No token: it comes from this process.
        return self._conductor.answer(data, self._conf.agent.host)

    def _run(self) -> None:
        """Run it, and again after a fault that was not expected."""
        pause_s = FIRST_PAUSE_S
        while True:
            began = time.monotonic()
            try:
                self._run_once()
                return
            except Exception as exc:
                self._conductor = None
                if time.monotonic() - began > 2 * LONGEST_PAUSE_S:
                    pause_s = FIRST_PAUSE_S
                self._fault = (f'the control plane failed '
                               f'({type(exc).__name__}: {exc}) and begins '
                               f'again within {LONGEST_PAUSE_S:.0f} s; '
                               'please report this')
                LOG.exception('the control plane failed, it begins again in '
                              '%.0f s; please report this', pause_s)
            self._ready.set()
            if self._stop.wait(pause_s):
                return
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            self._tables = self._make_tables()

    def _run_once(self) -> None:
        while not self._tables_made():
            self._ready.set()
            if self._stop.wait(RETRY_S):
                return
            self._tables = self._make_tables()
        engine = connect.engine(self._files.url)
        try:
            # One connection stays: the last one that closes would remove
            # files that the API's user cannot make again.
            with engine.connect():
                conductor = service.Conductor(
                    engine, **conf_control.keeping(self._conf))
                conductor.start()
                self._conductor = conductor
                self._ready.set()
                LOG.info('the password of user "%s" of the API at '
                         'http://127.0.0.1:%d is in %s; for "openstack" type '
                         'eval "$(scavenger-standalone env)", with the same '
                         'options', standalone_files.NAME,
                         self._conf.api.port, self._files.password)
                try:
                    self._keep_api()
                finally:
                    conductor.stop(END_S)
        finally:
            engine.dispose()

    def _make_tables(self) -> subprocess.Popen[str] | None:
        try:
            self._user = standalone_files.user()
            standalone_files.make(self._files, self._conf, self._user)
            return _start(
                [sys.executable, '-P', '-m', 'scavenger_openstack.cmd.manage',
                 '--config-file', str(self._files.options), 'db', 'upgrade'],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE, text=True, start_new_session=True)
        except (OSError, KeyError, errors.ScavengerError) as exc:
            self._failed(str(exc))
            return None

    def _tables_made(self) -> bool:
        if self._tables is None:
            return False
        until = time.monotonic() + TABLES_S
        while True:
            try:
                _, stderr = self._tables.communicate(timeout=0.2)
                break
            except subprocess.TimeoutExpired:
                if self._stop.is_set():
                    self._tables.kill()
                    return False
                if time.monotonic() > until:
                    self._tables.kill()
        if self._tables.returncode:
            self._failed(stderr.strip().rpartition('\n')[2] or
                         'scavenger-manage db upgrade ended with '
                         f'{self._tables.returncode}')
            return False
        return True

    def _failed(self, why: str) -> None:
        if why != self._fault:
            LOG.error('no control plane here, next try in %.0f s: %s',
                      RETRY_S, why)
        self._fault = why

    def _keep_api(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            began = time.monotonic()
            process = self._start_api()
            while process.poll() is None:
                if self._stop.wait(0.5):
                    _end(process)
                    return
            if time.monotonic() - began > 2 * LONGEST_PAUSE_S:
                pause_s = FIRST_PAUSE_S
            LOG.warning('scavenger-api ended with %s, starting it again in '
                        '%.0f s', process.returncode, pause_s)
            if self._stop.wait(pause_s):
                return
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _start_api(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, '-P', '-m', 'scavenger_openstack.cmd.api',
                   '--config-file', str(self._files.options),
                   '--parent', str(os.getpid())]
        if not os.geteuid():
            command += ['--user', self._user.pw_name]
        return _start(command, stdin=subprocess.DEVNULL,
                      start_new_session=True, cwd='/')


def _start(command: list[str], **options: Any) -> subprocess.Popen[Any]:
    """Start a process of ordinary priority, which that of an agent's thread
    is not.

    :raises OSError: it cannot be started.
    """
    policy, param = os.sched_getscheduler(0), os.sched_getparam(0)
    os.sched_setscheduler(0, policy | os.SCHED_RESET_ON_FORK, param)
    try:
        return subprocess.Popen(command, **options)
    finally:
        with contextlib.suppress(PermissionError):  # what it starts later, too
            os.sched_setscheduler(0, policy & ~os.SCHED_RESET_ON_FORK, param)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
