# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.


"""``scavenger-manage``: the database of the control plane, and its hosts."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import sys
import time
from typing import Any

from oslo_config import cfg

from scavenger_openstack.cmd import exit as exit_
from scavenger_openstack import conf as conf_
from scavenger_openstack import conf_control
from scavenger_openstack.db import aggregates
from scavenger_openstack.db import connect
from scavenger_openstack.db import enrollment
from scavenger_openstack.db import purge
from scavenger_openstack.db import schema

PROG = 'scavenger-manage'

UNITS_S = {'h': 3600, 'd': 86400, 'w': 7 * 86400}

PROGRESS_S = 5.0
"""Seconds between two lines of a purge that takes long."""

PURGE_S = 600.0
"""How long a statement of a purge may take; a dry run reads indexes whole."""

NAME_LENGTH = 255


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; the exit code is 0, 1 (failed), 2 (usage) or 130."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    return exit_.code(PROG, lambda: _main(arguments))


def _main(arguments: Sequence[str]) -> int:
    conf = cfg.ConfigOpts()
    conf_.register(conf)
    conf.register_cli_opt(cfg.SubCommandOpt(
        'command', handler=_add_commands, title='commands'))
    conf_.load(conf, arguments, PROG)
    return conf.command.run(conf)


def _add_commands(parsers: Any) -> None:
    actions = parsers.add_parser(
        'db', help='the tables of the control plane').add_subparsers(
            dest='action', required=True, metavar='upgrade | version | purge')
    actions.add_parser(
        'upgrade', help='make the tables, or bring them to the version of '
                        'this program; conductors and API stopped'
    ).set_defaults(run=_upgrade)
    actions.add_parser(
        'version', help='print the version of the tables; 1 when this '
                        'program needs another').set_defaults(run=_version)
    parser = actions.add_parser(
        'purge', help='delete incidents, limits, statistics and audit '
                      'records that ended long ago; needs no stop')
    parser.add_argument(
        '--older-than', dest='older_than_s', metavar='30d', required=True,
        type=_duration, help='delete what ended before that time: a number '
                             'of hours (48h), days (30d) or weeks (8w), at '
                             'least 2d')
    parser.add_argument('--dry-run', action='store_true',
                        help='only say how much would be deleted')
    parser.set_defaults(run=_purge)
    actions = parsers.add_parser(
        'host', help='hosts that report over HTTPS').add_subparsers(
            dest='action', required=True, metavar='enroll')
    parser = actions.add_parser(
        'enroll', help='print a new token for the agent of a host; only its '
                       'hash is kept, and a token from before is void')
    parser.add_argument('host_name', metavar='NAME', type=_host,
                        help='the host, as [agent] host there says it')
    parser.set_defaults(run=_enroll)
    actions = parsers.add_parser(
        'aggregate', help='which hosts are in an aggregate').add_subparsers(
            dest='action', required=True, metavar='set | unset | list')
    parser = actions.add_parser(
        'set', help='make these the hosts of an aggregate, and no others')
    parser.add_argument('aggregate', metavar='NAME', type=_name)
    parser.add_argument('hosts', metavar='HOST', type=_host, nargs='+',
                        help='a host, as [agent] host there says it')
    parser.set_defaults(run=_aggregate)
    parser = actions.add_parser('unset', help='forget an aggregate')
    parser.add_argument('aggregate', metavar='NAME', type=_name)
    parser.set_defaults(run=_aggregate, hosts=[])
    actions.add_parser(
        'list', help='print each aggregate with its hosts'
    ).set_defaults(run=_aggregates)


@contextlib.contextmanager
def _engine(conf: cfg.ConfigOpts, statement_s: float = connect.STATEMENT_S
            ) -> Iterator[connect.Engine]:
    engine = connect.engine(conf_control.database(conf),
                            statement_s=statement_s)
    try:
        yield engine
    finally:
        engine.dispose()


def _upgrade(conf: cfg.ConfigOpts) -> int:
    with _engine(conf, statement_s=0) as engine:
        before, after = schema.upgrade(engine)
    print(f'the tables have version {after}'
          + (', nothing to do' if before == after else
             ', made' if before is None else f', upgraded from {before}'))
    return 0


def _version(conf: cfg.ConfigOpts) -> int:
    with _engine(conf) as engine, connect.reading(engine) as connection:
        print(schema.current(connection) or 'none', flush=True)
        schema.check(connection)
    return 0


def _purge(conf: cfg.ConfigOpts) -> int:
    times = {'now_s': time.time(), 'older_than_s': conf.command.older_than_s}
    with _engine(conf, statement_s=PURGE_S) as engine:
        with connect.reading(engine) as connection:
            schema.check(connection)
            if conf.command.dry_run:
                counts = purge.count(connection, **times)
        if not conf.command.dry_run:
            counts = purge.run(engine, progress=_Progress(), **times)
    verb = 'would be deleted' if conf.command.dry_run else 'deleted'
    for name, rows in counts.items():
        print(f'{name}: {rows} rows {verb}')
    return 0


def _enroll(conf: cfg.ConfigOpts) -> int:
    name = conf.command.host_name
    with _engine(conf) as engine:
        with connect.reading(engine) as connection:
            schema.check(connection)
        token, had_one = connect.retried(
            engine, lambda connection: enrollment.enroll(
                connection, name, now_s=time.time()), on_duplicate=True)
    print(f'{PROG}: token of {name}, shown only now'
          + ('; the token from before is void' if had_one else ''),
          file=sys.stderr)
    print(token)
    return 0


def _aggregate(conf: cfg.ConfigOpts) -> int:
    name, hosts = conf.command.aggregate, conf.command.hosts
    with _engine(conf) as engine:
        with connect.reading(engine) as connection:
            schema.check(connection)
            unknown = aggregates.unknown(connection, hosts)
        before = connect.retried(
            engine, lambda connection: aggregates.put(
                connection, name, hosts, now_s=time.time()),
            idempotent=True, on_duplicate=True)
    print(f'{name}: {len(set(hosts))} hosts, before {len(before)}')
    if unknown:
        print(f'{PROG}: has not reported yet: {", ".join(unknown)}',
              file=sys.stderr)
    return 0


def _aggregates(conf: cfg.ConfigOpts) -> int:
    with _engine(conf) as engine, connect.reading(engine) as connection:
        schema.check(connection)
        for name, hosts in aggregates.hosts(connection).items():
            print(f'{name}: {" ".join(hosts)}')
    return 0


class _Progress:
    """A line now and then while many rows are deleted."""

    def __init__(self) -> None:
        self._last_s = time.monotonic()

    def __call__(self, table: str, rows: int) -> None:
        if time.monotonic() - self._last_s > PROGRESS_S:
            self._last_s = time.monotonic()
            print(f'{PROG}: {table}: {rows} rows so far', file=sys.stderr,
                  flush=True)


def _duration(text: str) -> float:
    count, unit = text[:-1], text[-1:]
    if not (count.isascii() and count.isdecimal() and len(count) < 6
            and unit in UNITS_S):
        raise argparse.ArgumentTypeError(
            f'{text!r} is no duration such as 48h, 30d or 8w')
    seconds = float(count) * UNITS_S[unit]
    if seconds < purge.SHORTEST_S:
        raise argparse.ArgumentTypeError(
            f'{text} is less than 2d, which specs are still made from')
    return seconds


def _host(text: str) -> str:
    return _name(text, 'a host')


def _name(text: str, what: str = 'an aggregate') -> str:
    if not (text.isprintable() and text.strip() == text and text
            and len(text) <= NAME_LENGTH):
        raise argparse.ArgumentTypeError(
            f'{text!r} cannot be the name of {what}')
    return text


if __name__ == '__main__':
    sys.exit(main())
