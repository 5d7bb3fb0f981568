# SPDX-License-Identifier: Apache-2.0


"""A private PostgreSQL."""

from __future__ import annotations

import functools
import glob
import itertools
import signal
import socket

import psycopg2

from scavenger_openstack.tests.functional.servers import process

BINARIES = '/usr/lib/postgresql/*/bin'

OPTIONS = ('-c', 'listen_addresses=', '-c', 'max_connections=200',
           # Survives the end of the server, not that of the machine.
           '-c', 'fsync=off', '-c', 'full_page_writes=off')


class PostgreSql(process.Server):
    """``options`` are more options of the server."""

    crash = signal.SIGQUIT      # SIGKILL leaves its shared memory

    def __init__(self, *options: str) -> None:
        super().__init__('postgresql')
        self._numbers = itertools.count()
        self._data = self.directory / 'data'
        self._options = options
        self.run([_program('initdb'), '-D', str(self._data), '--auth=trust',
                  '--username=root', '--no-sync', '--encoding=UTF8',
                  '--locale=C'])
        self.begin()

    def begin(self) -> None:
        """Start it, the first time or again."""
        self.start([_program('postgres'), '-D', str(self._data),
                    '-k', str(self.directory), *OPTIONS, *self._options],
                   self._ready, end=signal.SIGQUIT)

    def new_database(self) -> str:
        """The URL of an empty database."""
        name = f'test_{next(self._numbers)}'
        self.execute(f'CREATE DATABASE {name}')
        return f'postgresql+psycopg2://root@/{name}?host={self.directory}'

    def execute(self, statement: str) -> None:
        """One statement, by the server's administrator."""
        connection = psycopg2.connect(host=str(self.directory), user='root',
                                      dbname='postgres')
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(statement)
        finally:
            connection.close()

    def _ready(self) -> bool:
        if not process.answers(socket.AF_UNIX,
                               str(self.directory / '.s.PGSQL.5432')):
            return False
        try:
            self.execute('SELECT 1')
        except psycopg2.OperationalError:   # it is still starting up
            return False
        return True


@functools.cache
def shared() -> PostgreSql:
    """The one of this process.

    :raises process.Missing: PostgreSQL is not installed.
    """
    _program('postgres')
    return PostgreSql()


def _program(name: str) -> str:
    return process.program(name, *sorted(glob.glob(BINARIES), reverse=True))
