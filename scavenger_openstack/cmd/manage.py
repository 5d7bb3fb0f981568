# SPDX-License-Identifier: Apache-2.0

"""``scavenger-manage``: the database of the control plane, its hosts, and what
it has in other services."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import sys
import time
from typing import TYPE_CHECKING

from scavenger_openstack import amounts
from scavenger_openstack.cmd import ending
from scavenger_openstack import command_line
from scavenger_openstack import errors

if TYPE_CHECKING:
    from oslo_config import cfg

    from scavenger_openstack.db import connect
    from scavenger_openstack.db.resources import aggregates

PROG = 'scavenger-manage'

UNITS_S = {'h': amounts.HOUR_S, 'd': amounts.DAY_S, 'w': 7 * amounts.DAY_S}

PROGRESS_S = 5.0
"""Seconds between two lines of a purge that takes long."""

PURGE_S = 600.0
"""How long a statement of a purge may take; a dry run reads indexes whole."""

NAME_LENGTH = 255


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return 0, 1 (failed), 2 (usage) or 130."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    return ending.code(PROG, lambda: _main(arguments))


def parser() -> command_line.Parser:
    program = command_line.program(
        PROG, 'The database of the control plane, its hosts, and what it has '
              'in other services. It needs [database] connection.')
    command_line.add_configuration(program, host=False, before=True)
    add = command_line.add_commands(program)
    action = command_line.add_commands(
        add('db', 'the tables of the control plane'), 'action')
    command = _add(
        action, 'upgrade', 'make the tables, or bring them to the version '
        'of this program; without an option, conductors and API stopped',
        'To upgrade one program after the other: --expand with the new '
        'release, before the first of them, and --contract after the last.')
    kind = command.add_mutually_exclusive_group()
    kind.add_argument('--expand', dest='kind', action='store_const',
                      const='expand', help='only add what this release '
                      'needs; the release before works on')
    kind.add_argument('--contract', dest='kind', action='store_const',
                      const='contract', help='remove what only the release '
                      'before needs, when no API and no conductor of it runs')
    _add(action, 'version', 'print the version of the tables',
         'Exit code: 1 when this program needs another version.')
    command = _add(
        action, 'purge', 'delete incidents, limits, statistics and audit '
        'records that ended long ago; needs no stop; audit records of '
        '[database] keep_audit_days stay')
    command.add_argument(
        '--older-than', dest='older_than_s', metavar='30d', required=True,
        type=_duration, help='delete what ended before that time: a number '
                             'of hours (48h), days (30d) or weeks (8w), at '
                             'least 2d')
    command.add_argument('--dry-run', action='store_true',
                         help='only print how much would be deleted')
    command = add(
        'archive', 'write what is over as Parquet, a file a day and table, '
        'for questions that are asked later',
        'Days younger than two are left out, as agents report hours late, '
        'and days that are there. Run it each day, before [database] '
        'keep_days deletes the rows.')
    command_line.add_configuration(command, host=False)
    command.add_argument('url', metavar='URL', type=_url,
                         help='a directory, or what fsspec takes, such as '
                              's3://BUCKET/PATH')
    command.set_defaults(action='')
    action = command_line.add_commands(
        add('host', 'hosts, and the tokens of their agents'), 'action')
    command = _add(
        action, 'enroll', 'print a new token for the agent of each host',
        'Only its hash is kept, and a token from before is void. With '
        'several hosts each line is a name and a token.')
    _add_hosts(command)
    command.add_argument(
        '--grace', dest='grace_s', metavar='1h', type=_duration,
        default=3600.0, help='for so long, or until its first report with '
        'the token, a host that reports without a token now may go on: a '
        'number of hours, days or weeks, 0h for at once; default: 1h')
    command = _add(
        action, 'unenroll', 'take the token of each host away',
        'It is then taken at its word over the broker, unless '
        '[conductor] require_token is true.')
    _add_hosts(command)
    _add(action, 'list', 'print each host with its last report and whether '
                         'it has a token')
    command = _add(
        action, 'remove', 'take hosts out of all lists, when they are gone '
        'for good or have another name',
        'Their workloads, limits and incidents end, their tokens are void; '
        'what was is kept until it is purged. A host that reports again is '
        'there again: stop its agent first.')
    _add_hosts(command)
    action = command_line.add_commands(
        add('aggregate', 'which hosts are in an aggregate'), 'action')
    command = _add(
        action, 'set', 'make these the hosts of an aggregate, and no others',
        'What Nova says of an aggregate of that name does not count until '
        '"aggregate unset".')
    command.add_argument('aggregate', metavar='NAME', type=_name)
    command.add_argument('hosts', metavar='HOST', type=_host, nargs='+',
                         help='a host, by the name in [agent] host there')
    command = _add(
        action, 'unset', 'forget the hosts that were set for an aggregate; '
        'those in Nova count again')
    command.add_argument('aggregate', metavar='NAME', type=_name)
    command.set_defaults(hosts=[])
    _add(action, 'list', 'print each aggregate with its hosts')
    action = command_line.add_commands(
        add('placement', 'what conductors tell Placement'), 'action')
    _add(action, 'remove', 'take away all providers, resource classes and '
                           'traits that conductors made; [placement] enabled '
                           'has to be false, and conductors started again',
         'Exit code: 1 when something stays because it is in use.')
    action = command_line.add_commands(
        add('flavors', 'flavors of background instances'), 'action')
    command = _add(
        action, 'create', 'make flavors whose instances are background and '
        'placed by what conductors tell Placement; those that are there stay',
        'Exit code: 1 when one is there and differs.')
    command.add_argument('sizes', metavar='SIZE', nargs='*', type=_size,
                         help='virtual CPUs x MiB; default: 1x1024 2x4096 '
                              '4x8192')
    command.add_argument('--name', default='background', metavar='NAME',
                         type=_flavor, help='what the names begin with: '
                         'background gives background.2x4096')
    command.add_argument('--disk', dest='disk_gib', type=int, default=10,
                         metavar='GIB', help='root disk, in GiB; default: 10')
    command.add_argument('--public', action='store_true',
                         help='for all projects; without, give access with '
                              '"openstack flavor set --project"')
    command.add_argument('--dry-run', action='store_true',
                         help='only print what would be made')
    return program


def _add(action: Callable[..., command_line.Parser], name: str, text: str,
         more: str = '') -> command_line.Parser:
    command = action(name, text, more)
    command_line.add_configuration(command, host=False)
    return command


def _add_hosts(action: command_line.Parser) -> None:
    action.add_argument('hosts', metavar='NAME', type=_host, nargs='+',
                        help='a host, by the name in [agent] host there')


def _main(arguments: Sequence[str]) -> int:
    options = command_line.parse(parser(), arguments)
    from scavenger_openstack.cmd import configuration
    conf = configuration.load(PROG, options, has_log=False)
    commands = {
        ('db', 'upgrade'): _upgrade, ('db', 'version'): _version,
        ('db', 'purge'): _purge, ('archive', ''): _archive,
        ('host', 'enroll'): _hosts,
        ('host', 'unenroll'): _hosts, ('host', 'list'): _hosts,
        ('host', 'remove'): _hosts,
        ('aggregate', 'set'): _aggregate, ('aggregate', 'unset'): _aggregate,
        ('aggregate', 'list'): _aggregates,
        ('placement', 'remove'): _remove, ('flavors', 'create'): _flavors}
    return commands[options.command, options.action](conf, options)


@contextlib.contextmanager
def _engine(conf: cfg.ConfigOpts, statement_s: float | None = None
            ) -> Iterator[connect.Engine]:
    from scavenger_openstack.db import connect
    engine = connect.engine_of(conf, notifies=False, statement_s=(
        connect.STATEMENT_S if statement_s is None else statement_s))
    try:
        yield engine
    finally:
        engine.dispose()


def _upgrade(conf: cfg.ConfigOpts, options: argparse.Namespace) -> int:
    from scavenger_openstack.db import connect
    from scavenger_openstack.db import schema
    with _engine(conf, statement_s=0) as engine:
        before, after = schema.upgrade(engine, options.kind)
        due = connect.read(engine, schema.due)
    print(f'the tables have version {after}'
          + (', nothing to do' if before == after else
             ', made' if before is None else f', upgraded from {before}'))
    if due:
        print(due)
    return 0


def _version(conf: cfg.ConfigOpts, options: argparse.Namespace) -> int:
    from scavenger_openstack.db import connect
    from scavenger_openstack.db import schema
    with _engine(conf) as engine, connect.reading(engine) as connection:
        print(schema.current(connection) or 'none', flush=True)
        schema.check(connection)
    return 0


def _purge(conf: cfg.ConfigOpts, options: argparse.Namespace) -> int:
    from scavenger_openstack.db import connect
    from scavenger_openstack.db import purge
    from scavenger_openstack.db import schema
    audit_s = conf.database.keep_audit_days * amounts.DAY_S
    if options.older_than_s < purge.SHORTEST_S:
        raise errors.ConfigError('--older-than: less than 2d; agents report '
                                 'hours late')
    times = {'now_s': time.time(), 'older_than_s': options.older_than_s,
             'audit_older_than_s': audit_s and max(
                 options.older_than_s, audit_s)}
    with _engine(conf, statement_s=PURGE_S) as engine:
        with connect.reading(engine) as connection:
            schema.check(connection)
            if options.dry_run:
                counts = purge.count(connection, **times)
        if not options.dry_run:
            _record_purge(engine, options, 'db.purge', {})
            counts = purge.run(engine, progress=_Progress(), **times)
            _record_purge(engine, options, 'db.purged', counts)
    verb = 'would be deleted' if options.dry_run else 'deleted'
    for name, rows in counts.items():
        print(f'{name}: {amounts.counted(rows, "row")} {verb}')
    return 0


def _archive(conf: cfg.ConfigOpts, options: argparse.Namespace) -> int:
    from scavenger_openstack.archive import files
    from scavenger_openstack.db import connect
    from scavenger_openstack.db import schema
    count = rows = size_bytes = 0
    with _engine(conf, statement_s=PURGE_S) as engine:
        connect.read(engine, schema.check)
        for written in files.write(engine, options.url, time.time()):
            print(f'{written.name} {written.day}: '
                  f'{amounts.counted(written.rows, "row")}, '
                  f'{amounts.of_bytes(written.size_bytes)}', flush=True)
            count, rows = count + 1, rows + written.rows
            size_bytes += written.size_bytes
    print(f'{amounts.counted(count, "file")} written, '
          f'{amounts.counted(rows, "row")}, {amounts.of_bytes(size_bytes)}')
    return 0


def _record_purge(engine: connect.Engine, options: argparse.Namespace,
                  action: str, counts: dict[str, int]) -> None:
    """Record a purge in the audit: before it begins, should it not end, and
    after it."""
    from scavenger_openstack.db import connect
    from scavenger_openstack.db import enrollment
    from scavenger_openstack.db import reports
    connect.retried(engine, lambda connection: reports.add_audit(
        connection, [{
            'time_s': time.time(), 'actor': enrollment.ACTOR,
            'action': action, 'target': '', 'reason': '', 'after': {
                'older_than_s': options.older_than_s, **counts}}]))


def _hosts(conf: cfg.ConfigOpts, options: argparse.Namespace) -> int:
    from scavenger_openstack.cmd import manage_hosts
    from scavenger_openstack.db import connect
    from scavenger_openstack.db import schema
    with _engine(conf) as engine:
        with connect.reading(engine) as connection:
            schema.check(connection)
        return manage_hosts.COMMANDS[options.action](engine, options, PROG)


def _aggregate(conf: cfg.ConfigOpts, options: argparse.Namespace) -> int:
    from scavenger_openstack.db import connect
    from scavenger_openstack.db.resources import aggregates
    from scavenger_openstack.db import schema
    name, hosts = options.aggregate, options.hosts
    with _engine(conf) as engine:
        with connect.reading(engine) as connection:
            schema.check(connection)
            unknown = aggregates.unknown(connection, hosts)
        before, after = connect.retried(
            engine, lambda connection: aggregates.put(
                connection, name, hosts, now_s=time.time()),
            idempotent=True, on_duplicate=True)
    print(f'{name}: {amounts.counted(len(after.hosts), "host")}'
          f'{_source(after)}, before {len(before.hosts)}{_source(before)}')
    if unknown:
        print(f'{PROG}: has not reported yet: {", ".join(unknown)}',
              file=sys.stderr)
    return 0


def _aggregates(conf: cfg.ConfigOpts, options: argparse.Namespace) -> int:
    from scavenger_openstack.db import connect
    from scavenger_openstack.db.resources import aggregates
    from scavenger_openstack.db import schema
    from scavenger_openstack.types import printable
    with _engine(conf) as engine, connect.reading(engine) as connection:
        schema.check(connection)
        members = aggregates.members(connection)
    for name, member in members.items():
        print(printable(
            f'{name}{_source(member)}: {" ".join(member.hosts)}'))
    if not members:
        print(f'{PROG}: no aggregate has a host: "aggregate set" names some, '
              'and with [nova] enabled a conductor reads those of Nova',
              file=sys.stderr)
    return 0


def _source(members: aggregates.Members) -> str:
    """Whose the hosts of an aggregate are, unless an operator named them."""
    return ' (from Nova)' if members.hosts and not members.named else ''


def _remove(conf: cfg.ConfigOpts, options: argparse.Namespace) -> int:
    from scavenger_openstack.cmd import manage_cloud
    return manage_cloud.remove(conf, PROG)


def _flavors(conf: cfg.ConfigOpts, options: argparse.Namespace) -> int:
    from scavenger_openstack.cmd import manage_cloud
    return manage_cloud.create_flavors(conf, options, PROG)


class _Progress:
    """A line now and then while many rows are deleted."""

    def __init__(self) -> None:
        self._last_s = time.monotonic()

    def __call__(self, table: str, rows: int) -> None:
        if time.monotonic() - self._last_s > PROGRESS_S:
            self._last_s = time.monotonic()
            print(f'{PROG}: {table}: '
                  f'{amounts.counted(rows, "row")} so far', file=sys.stderr,
                  flush=True)


def _duration(text: str) -> float:
    count, unit = text[:-1], text[-1:]
    if not (count.isascii() and count.isdecimal() and len(count) < 6
            and unit in UNITS_S):
        raise argparse.ArgumentTypeError(
            f'{text!r} is no duration such as 48h, 30d or 8w')
    return float(count) * UNITS_S[unit]


def _url(text: str) -> str:
    if not (text.strip() and text.isprintable()):
        raise argparse.ArgumentTypeError(
            f'{text!r} is no directory and no URL')
    return text


def _size(text: str) -> tuple[int, int]:
    from scavenger_openstack.cmd import manage_cloud
    return manage_cloud.size(text)


def _flavor(text: str) -> str:
    return _name(text, 'a flavor')


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
