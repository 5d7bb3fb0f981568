# SPDX-License-Identifier: Apache-2.0

"""``scavenger-manage host``: the tokens of agents, and hosts that are gone."""

from __future__ import annotations

import argparse
import functools
import sys
import time
from typing import Any

from scavenger_openstack.db import connect
from scavenger_openstack.db import enrollment
from scavenger_openstack.db.resources import hosts
from scavenger_openstack import text

SILENT_S = 120.0
"""A host that has reported within that is not removed: it would be back with
its next report."""


def enroll(engine: connect.Engine, options: argparse.Namespace, prog: str
           ) -> int:
    """Print a new token for each host."""
    for name in dict.fromkeys(options.hosts):
        now_s = time.time()
        enrolled: enrollment.Enrolled = connect.retried(
            engine, functools.partial(
                enrollment.enroll, name=name, now_s=now_s,
                grace_s=options.grace_s), on_duplicate=True)
        print(f'{prog}: token of {name}, shown only now'
              + ('; the token from before is void' if enrolled.had_one
                 else ''), file=sys.stderr)
        if enrolled.reports:
            print(f'{prog}: {name} reports at present'
                  + (' with the token from before' if enrolled.had_one
                     else ' without a token')
                  + ': its reports are refused until it has this one'
                  + (f', from {_when(enrolled.grace_until_s)} on'
                     if enrolled.grace_until_s else ''), file=sys.stderr)
        print(enrolled.token if len(options.hosts) == 1
              else f'{name} {enrolled.token}', flush=True)
    return 0


def unenroll(engine: connect.Engine, options: argparse.Namespace, prog: str
             ) -> int:
    """Take the token of each host away; 1 when there is no such host."""
    return max(_unenroll(engine, name, prog) for name in options.hosts)


def _unenroll(engine: connect.Engine, name: str, prog: str) -> int:
    had_one = connect.retried(engine, functools.partial(
        enrollment.unenroll, name=name, now_s=time.time()))
    if had_one is None:
        return _missing(name, prog)
    print(f'{name}: ' + ('its token is void; delete the token_file of its '
                         'agent' if had_one else 'it has no token'))
    return 0


def list_(engine: connect.Engine, options: argparse.Namespace, prog: str
          ) -> int:
    """Print each host."""
    with connect.reading(engine) as connection:
        rows = hosts.reported(connection)
    print('\n'.join(text.columns(
        ('NAME', 'VERSION', 'LAST REPORT', 'TOKEN'),
        [(row['name'], row['version'] or '-', _when(row['last_seen_s'])
          if row['last_seen_s'] else 'never', _token(row)) for row in rows],
        left=range(4))))
    return 0


def _token(row: dict[str, Any]) -> str:
    if not row['token']:
        return 'no'
    return (f"from {_when(row['token_from_s'])}"
            if (row['token_from_s'] or 0) > time.time() else 'yes')


def remove(engine: connect.Engine, options: argparse.Namespace, prog: str
           ) -> int:
    """Take hosts out of all lists; 1 when one of them is not there, or
    reports."""
    return max(_remove(engine, name, prog) for name in options.hosts)


def _remove(engine: connect.Engine, name: str, prog: str) -> int:
    now_s = time.time()
    with connect.reading(engine) as connection:
        age_s = next((now_s - row['last_seen_s'] for row
                      in hosts.reported(connection) if row['name'] == name),
                     None)
    if age_s is not None and abs(age_s) < SILENT_S:
        print(f'{prog}: {name} reported {abs(age_s):.0f} s ago: stop its '
              f'agent, and repeat this {SILENT_S:.0f} s later',
              file=sys.stderr)
        return 1
    if not connect.retried(engine, functools.partial(
            hosts.remove, name=name, actor=enrollment.ACTOR, now_s=now_s)):
        return _missing(name, prog)
    print(f'{name}: removed')
    return 0


def _missing(name: str, prog: str) -> int:
    print(f'{prog}: there is no host {name}; see "scavenger-manage host list"',
          file=sys.stderr)
    return 1


def _when(time_s: float) -> str:
    return time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(time_s))


COMMANDS = {'enroll': enroll, 'unenroll': unenroll, 'list': list_,
            'remove': remove}
