# SPDX-License-Identifier: Apache-2.0

"""What ``scavenger-status upgrade check`` looks at."""

from __future__ import annotations

from collections.abc import Callable
import time
from typing import TypeVar

from oslo_config import cfg
from oslo_upgradecheck import common_checks
from oslo_upgradecheck import upgradecheck
from oslo_upgradecheck.upgradecheck import Code
from oslo_upgradecheck.upgradecheck import Result

from scavenger_openstack import amounts
from scavenger_openstack.api import auth
from scavenger_openstack.api import policy_file
from scavenger_openstack.db import connect
from scavenger_openstack.db.resources import hosts
from scavenger_openstack.db.resources import services
from scavenger_openstack.db.rows import Row
from scavenger_openstack.db import schema
from scavenger_openstack import errors
from scavenger_openstack.types import printable
from scavenger_openstack import version

T = TypeVar('T')

SILENT_S = amounts.DAY_S
"""Without a report for so long, a host is not just restarting."""

NAMED = 5
"""How many hosts a line names."""


class Checks(upgradecheck.UpgradeCommands):
    """What "upgrade check" looks at."""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf

    def _database(self) -> Result:
        due = ''

        def check() -> None:
            nonlocal due
            due = self._read(schema.due)

        result = _failed_with(check)
        return Result(Code.WARNING, due) if due else result

    def _policy(self) -> Result:
        result = _failed_with(lambda: policy_file.check(self._conf))
        return (result if result.code else
                common_checks.check_policy_json(self, self._conf))

    def _authentication(self) -> Result:
        strategy = self._conf.api.auth_strategy
        if strategy == auth.NOAUTH:
            return Result(Code.WARNING, (
                '[api] auth_strategy is noauth: every client may do '
                'everything. '
                'Set keystone or http_basic.'))
        if strategy == auth.HTTP_BASIC:
            return _failed_with(lambda: auth.HttpBasic(
                lambda environ, start: (), self._conf.api.http_basic_file))
        return Result(Code.SUCCESS)

    def _versions(self) -> Result:
        own = _major(version())
        return self._of_hosts(lambda host, now_s: (
            own is not None
            and _major(host['version']) not in (None, own)), (
                f'of another major version than this one, {version()}. '
                'Their reports may be refused, and they protect themselves '
                'meanwhile. Upgrade the conductors first, then the agents.'))

    def _silent(self) -> Result:
        return self._of_hosts(
            lambda host, now_s: now_s - host['last_seen_s'] > SILENT_S, (
                f'without a report for {SILENT_S / amounts.HOUR_S:.0f} h or '
                'ever. Look at "conductor" in "scavenger-agent status --json" '
                'there; what they have to report waits on their disks. '
                '"scavenger-manage host remove" removes those that are gone.'
            ))

    def _names(self) -> Result:
        try:
            foreign = frozenset(self._read(services.without))
        except errors.ScavengerError:
            foreign = frozenset()   # the other checks tell
        return self._of_hosts(
            lambda host, now_s: host['name'] in foreign, (
                'not by the name of a compute service of Nova: their '
                'aggregates, what flavors say and the scheduler do not reach '
                'them. Set [agent] host there to the name that "openstack '
                'compute service list" shows, and remove the old names with '
                '"scavenger-manage host remove".'))

    def _of_hosts(self, is_affected: Callable[[Row, float], bool],
                  what: str) -> Result:
        """Return a warning when any host is affected."""
        try:
            rows = self._read(hosts.reported)
        except errors.ScavengerError:
            return Result(Code.WARNING, 'Not known: the database cannot be '
                                        'used.')
        now_s = time.time()
        names = [printable(
            f'{row["name"]} ({row["version"] or "version unknown"})')
                 for row in rows if is_affected(row, now_s)]
        if not names:
            return Result(Code.SUCCESS)
        more = len(names) - NAMED
        return Result(Code.WARNING, (
            f'{len(names)} of {amounts.counted(len(rows), "host")} '
            f'{"is" if len(names) == 1 else "are"} {what} '
            f'In question: {", ".join(names[:NAMED])}'
            + (f' and {more} more.' if more > 0 else '.')))

    def _keeping(self) -> Result:
        if self._conf.database.keep_days:
            return Result(Code.SUCCESS)
        return Result(Code.WARNING, (
            '[database] keep_days is 0: nothing that is over is deleted, the '
            'database grows without end. Set the days that you need, or run '
            '"scavenger-manage db purge" daily.'))

    def _read(self, work: Callable[[connect.Connection], T]) -> T:
        engine = connect.engine_of(self._conf)
        try:
            with connect.reading(engine) as connection:
                schema.check(connection)
                return work(connection)
        finally:
            engine.dispose()

    _upgrade_checks = (('Database', _database),
                       ('Policy file', _policy),
                       ('Authentication', _authentication),
                       ('Versions of agents', _versions),
                       ('Silent agents', _silent),
                       ('Old rows', _keeping),
                       ('Names of hosts', _names))


def _failed_with(check: Callable[[], object]) -> Result:
    """A failure with the sentence of what ``check`` raises."""
    try:
        check()
    except errors.ScavengerError as exc:
        return Result(Code.FAILURE, ' '.join(str(exc).split()))
    return Result(Code.SUCCESS)


def _major(text: str) -> int | None:
    """The first number of a version; ``None`` when there is none."""
    first = text.partition('.')[0]
    return int(first) if first.isascii() and first.isdecimal() else None
