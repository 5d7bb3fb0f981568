# SPDX-License-Identifier: Apache-2.0

"""Four services, what is asked of them, and the resource they live on."""

from __future__ import annotations

from collections.abc import Callable
import os
import pathlib
import random
import shutil
import socket
import struct
import subprocess
from typing import NamedTuple

from scavenger_openstack import errors

ADDRESS = '10.99.0.1'
DIGITS = 8
POSTGRES = '/usr/lib/postgresql'

NGINX = """
daemon off; worker_processes 1; pid {top}/nginx.pid;
error_log /dev/null; user root;
events {{ worker_connections 1024; }}
http {{ access_log off; keepalive_requests 100000000; etag off;
  client_body_temp_path {top}/body; proxy_temp_path {top}/proxy;
  fastcgi_temp_path {top}/fastcgi; uwsgi_temp_path {top}/uwsgi;
  scgi_temp_path {top}/scgi;
  server {{ listen {address}:{port}; root {top}; }} }}
"""


class Application(NamedTuple):
    """A service.

    :ivar lives_on: the SoI of the resource that should hurt it most
    :ivar target_s: of each request, as in the paper; the figure is ours
    :ivar prepare: makes its files in a directory; returns its command
    :ivar fill: writes its data over a connection, where that is its way
    :ivar request: with a number of :data:`DIGITS` digits below ``keys``
        at ``at``
    :ivar hello: what begins a connection
    """

    name: str
    program: str
    work: str
    lives_on: str
    port: int
    rate_per_s: float
    target_s: float
    connections: int
    keys: int
    request: bytes
    at: int
    prepare: Callable[[pathlib.Path, int], list[str]]
    fill: Callable[[socket.socket], None] | None = None
    hello: bytes = b''


def _number(number: int) -> str:
    return f'{number:0{DIGITS}}'


MEMCACHED_BYTES, MEMCACHED_KEYS = 16_384, 5000


def _memcached(top: pathlib.Path, port: int) -> list[str]:
    return ['memcached', '-u', 'nobody', '-l', ADDRESS, '-p', str(port),
            '-t', '1', '-m', '256']


def _fill_memcached(connection: socket.socket) -> None:
    value = b'v' * MEMCACHED_BYTES
    for number in range(MEMCACHED_KEYS):
        connection.sendall(
            f'set {_number(number)} 0 0 {MEMCACHED_BYTES} noreply\r\n'
            .encode() + value + b'\r\n')
    _ask(connection, b'version\r\n')


NGINX_BYTES, NGINX_FILES = 64 << 10, 256


def _nginx(top: pathlib.Path, port: int) -> list[str]:
    for number in range(NGINX_FILES):
        (top / _number(number)).write_bytes(os.urandom(NGINX_BYTES))
    file = top / 'nginx.conf'
    file.write_text(NGINX.format(top=top, port=port, address=ADDRESS))
    return ['nginx', '-p', str(top), '-c', str(file), '-e', '/dev/null']


REDIS_LISTS, REDIS_LENGTH = 64, 2000


def _redis(top: pathlib.Path, port: int) -> list[str]:
    return ['redis-server', '--bind', ADDRESS, '--port', str(port),
            '--save', '', '--dir', str(top), '--protected-mode', 'no',
            '--logfile', '/dev/null']


def _redis_command(*words: str) -> bytes:
    return f'*{len(words)}\r\n'.encode() + b''.join(
        f'${len(word)}\r\n{word}\r\n'.encode() for word in words)


def _fill_redis(connection: socket.socket) -> None:
    numbers = random.Random(1)
    for number in range(REDIS_LISTS):
        _ask(connection, _redis_command('RPUSH', _number(number), *(
            str(numbers.randrange(100_000, 1_000_000))
            for _ in range(REDIS_LENGTH))))


POSTGRES_ROWS = 20_000


def postgres_programs() -> pathlib.Path | None:
    """Return where initdb is, None without PostgreSQL."""
    there = sorted(pathlib.Path(POSTGRES).glob('*/bin/initdb'))
    return there[-1].parent if there else None


def _postgresql(top: pathlib.Path, port: int) -> list[str]:
    """It refuses to run as root: its own user does."""
    programs = postgres_programs()
    assert programs is not None
    data = top / 'data'
    data.mkdir(mode=0o700)
    shutil.chown(data, 'postgres')
    user = ('setpriv', '--reuid=postgres', '--regid=postgres',
            '--clear-groups')
    settings = {
        'listen_addresses': ADDRESS, 'port': port, 'autovacuum': 'off',
        'unix_socket_directories': '', 'shared_buffers': '64MB',
        'max_connections': 60, 'checkpoint_timeout': '1h',
        'max_wal_size': '4GB', 'log_min_messages': 'panic',
        'log_min_error_statement': 'panic'}
    single = [*user, str(programs / 'postgres'), '--single', '-D', str(data),
              'postgres']
    table = ('create table items (id int primary key, value int, '
             'filler text); insert into items select id, 0, repeat(\'f\', '
             f'200) from generate_series(0, {POSTGRES_ROWS - 1}) as id;\n')
    for command, text in (
            ([*user, str(programs / 'initdb'), '-D', str(data), '-A',
              'trust', '-E', 'UTF8', '--locale=C', '--no-sync'], ''),
            (single, table)):
        done = subprocess.run(command, input=text, text=True, check=False,
                              capture_output=True, cwd='/',
                              start_new_session=True)
        if done.returncode:
            raise errors.ConfigError(
                f'{command[4]}: {done.stderr.strip()[-300:]}')
    with open(data / 'pg_hba.conf', 'a') as file:
        file.write('host all all 10.99.0.0/24 trust\n')
    return [*user, str(programs / 'postgres'), '-D', str(data),
            *(word for name, value in settings.items()
              for word in ('-c', f'{name}={value}'))]


def _postgres_hello() -> bytes:
    words = (b'user\0postgres\0database\0postgres\0'
             b'application_name\0client\0\0')
    return struct.pack('!II', len(words) + 8, 3 << 16) + words


def _query(sql: str) -> bytes:
    text = sql.encode() + b'\0'
    return b'Q' + struct.pack('!I', len(text) + 4) + text


def _ask(connection: socket.socket, request: bytes) -> bytes:
    connection.sendall(request)
    return connection.recv(65536)


_ZEROS = _number(0)
_GET = f'get {_ZEROS}\r\n'.encode()
_HTTP = f'GET /{_ZEROS} HTTP/1.1\r\nHost: a\r\n\r\n'.encode()
_SORT = _redis_command('SORT', _ZEROS, 'LIMIT', '0', '10')
_UPDATE = _query(f'update items set value = value + 1 where id = {_ZEROS}')

APPLICATIONS = (
    Application(
        'memcached', 'memcached', 'get of 16 KiB', 'network_bandwidth', 11511,
        3000, 0.002, 32, MEMCACHED_KEYS, _GET, _GET.index(b'0'), _memcached,
        _fill_memcached),
    Application(
        'nginx', 'nginx', 'file of 64 KiB', 'network_bandwidth', 11512, 600,
        0.005, 32, NGINX_FILES, _HTTP, _HTTP.index(b'0'), _nginx),
    Application(
        'redis', 'redis-server', 'sort of 2,000 numbers', 'integer', 11513,
        1500, 0.004, 32, REDIS_LISTS, _SORT, _SORT.index(_ZEROS.encode()),
        _redis, _fill_redis),
    Application(
        'postgresql', 'psql', 'update and commit of a row',
        'storage_bandwidth', 11514, 300, 0.005, 16, POSTGRES_ROWS, _UPDATE,
        _UPDATE.index(_ZEROS.encode()), _postgresql,
        hello=_postgres_hello()))


def find_applications(names: str) -> list[Application]:
    """Return those of names with commas between.

    :raises ConfigError: there is none of a name, or it is not installed.
    """
    by_name = {application.name: application for application in APPLICATIONS}
    chosen = []
    for name in names.split(','):
        application = by_name.get(name)
        if application is None:
            raise errors.ConfigError(
                f'there is no service {name}: ' + ', '.join(by_name))
        if not shutil.which(application.program) or (
                name == 'postgresql' and postgres_programs() is None):
            raise errors.ConfigError(f'{name} is not installed')
        chosen.append(application)
    return chosen
