# SPDX-License-Identifier: Apache-2.0


"""A private MariaDB."""

from __future__ import annotations

import functools
import itertools
import socket

import pymysql

from scavenger_openstack.tests.functional.servers import process

OPTIONS = ('--no-defaults', '--skip-networking', '--skip-log-bin',
           '--performance-schema=0', '--innodb-buffer-pool-size=64M',
           '--innodb-log-file-size=32M', '--innodb-doublewrite=0',
           # Survives the end of the server, not that of the machine.
           '--innodb-flush-log-at-trx-commit=2', '--max-connections=200')


class MariaDb(process.Server):
    """``options`` are more options of the server."""

    def __init__(self, *options: str) -> None:
        super().__init__('mariadb')
        self._numbers = itertools.count()
        self.socket = self.directory / 'socket'
        self._data = self.make_directory('data')
        self._options = options
        self.run([process.program('mariadb-install-db'), '--no-defaults',
                  f'--datadir={self._data}', '--skip-test-db',
                  '--skip-name-resolve',
                  '--auth-root-authentication-method=normal'])
        self.begin()

    def begin(self) -> None:
        """Start it, the first time or again."""
        self.start([process.program('mariadbd'), *OPTIONS,
                    f'--datadir={self._data}', f'--socket={self.socket}',
                    f'--pid-file={self.directory}/pid',
                    f'--tmpdir={self.directory}', *self._options],
                   lambda: process.answers(socket.AF_UNIX, str(self.socket)))

    def new_database(self) -> str:
        """The URL of an empty database."""
        name = f'test_{next(self._numbers)}'
        self.execute(f'CREATE DATABASE {name} CHARACTER SET utf8mb4')
        return (f'mysql+pymysql://root@localhost/{name}'
                f'?unix_socket={self.socket}')

    def execute(self, statement: str) -> None:
        """One statement, by the server's administrator."""
        connection = pymysql.connect(unix_socket=str(self.socket),
                                     user='root', autocommit=True)
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
        finally:
            connection.close()


@functools.cache
def shared() -> MariaDb:
    """The one of this process.

    :raises process.Missing: MariaDB is not installed.
    """
    process.program('mariadbd')
    process.program('mariadb-install-db')
    return MariaDb()
