# SPDX-License-Identifier: Apache-2.0


"""The scenarios that come with the package, and those in files."""

from __future__ import annotations

from collections.abc import Sequence
import difflib
import pathlib

from scavenger_openstack import errors
from scavenger_openstack.simulator import scenario
from scavenger_openstack.simulator.scenario import Scenario

SHIPPED = pathlib.Path(__file__).parent / 'scenarios'
SUFFIX = '.yaml'
ALL = 'all'
"""Stands for every scenario that is shipped."""


def names() -> list[str]:
    """Names of the scenarios that are shipped."""
    return sorted(path.stem for path in SHIPPED.glob(f'*{SUFFIX}'))


def find(wanted: Sequence[str]) -> list[Scenario]:
    """Read scenarios by name, or by path: what has a slash or a suffix.

    :raises ConfigError: unknown, unreadable, not a scenario, or there twice
    """
    shipped = names()
    by_name: dict[str, Scenario] = {}
    for name in wanted:
        for source in shipped if name == ALL else [name]:
            if source in shipped:
                path = SHIPPED / f'{source}{SUFFIX}'
            elif '/' in source or pathlib.PurePath(source).suffix:
                path = pathlib.Path(source)
            else:
                close = difflib.get_close_matches(source, [*shipped, ALL], 1)
                raise errors.ConfigError(
                    f'{source}: no such scenario'
                    + (f'; did you mean {close[0]}?' if close else '')
                    + '; --list shows those that are shipped, a file needs '
                    f'{SUFFIX} or a directory in its name')
            read = scenario.read(path)
            if read.name in by_name:
                raise errors.ConfigError(
                    f'{source}: two scenarios of the name {read.name}')
            by_name[read.name] = read
    return list(by_name.values())
