# SPDX-License-Identifier: Apache-2.0


"""Which calls a process makes to libvirt, in which thread, how long each is.

Counted where libvirt-python calls the C library, so nothing is missed; what
the library answers by itself, without libvirtd, is left out.  As a program it
is scavenger-standalone, and writes what it has counted, and each tick of the
slow loop, to a file when it ends:

    python benchmarks/agent/libvirt_calls.py FILE \\
        [arguments of scavenger-standalone]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
import functools
import importlib
import json
import pathlib
import sys
import threading
import time
from typing import Any
from typing import NamedTuple

from scavenger_openstack.agent import loop
from scavenger_openstack.cmd import standalone

LOCAL = ('virDomainGetUUID', 'virDomainGetName', 'virDomainGetID',
         'virDomainGetConnect', 'virDomainFree', 'virConnectIsAlive',
         'virGetLastError', 'virConnGetLastError', 'virEvent', 'virRegister',
         'virInitialize', 'virGetVersion')
"""Beginnings of what needs no libvirtd."""


class Call(NamedTuple):
    """``at_s`` is when it began, by CLOCK_MONOTONIC."""

    at_s: float
    took_s: float
    thread: str
    name: str


class Turn(NamedTuple):
    """One tick of the slow loop; ``cpu_s`` is of its thread."""

    at_s: float
    took_s: float
    cpu_s: float


def count() -> list[Call]:
    """From now on each call is added to this list when it has ended."""
    library = importlib.import_module('libvirtmod')
    found: list[Call] = []
    for name in dir(library):
        call = getattr(library, name)
        if (name.startswith('vir') and callable(call)
                and not name.startswith(LOCAL)):
            setattr(library, name, _counted(name, call, found))
    return found


def _counted(name: str, call: Callable[..., Any], found: list[Call]
             ) -> Callable[..., Any]:
    @functools.wraps(call)
    def counted(*args: Any) -> Any:
        began_s = time.monotonic()
        try:
            return call(*args)
        finally:
            found.append(Call(began_s, time.monotonic() - began_s,
                              threading.current_thread().name, name))
    return counted


def turns() -> list[Turn]:
    """From now on each tick of the slow loop is added to this list."""
    found: list[Turn] = []
    tick = loop.Loop.tick

    @functools.wraps(tick)
    def timed(self: loop.Loop, now: float) -> loop.Tick:
        began_s = time.monotonic()
        done = tick(self, now)
        found.append(Turn(began_s, time.monotonic() - began_s, done.cost_s))
        return done

    loop.Loop.tick = timed      # type: ignore[method-assign]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('file', type=pathlib.Path)
    parser.add_argument('arguments', nargs=argparse.REMAINDER,
                        help='of scavenger-standalone')
    args = parser.parse_args()
    calls, ticks = count(), turns()
    try:
        return standalone.main(args.arguments)
    finally:
        args.file.write_text(json.dumps(
            {'main': threading.main_thread().name, 'calls': calls,
             'turns': ticks}))


if __name__ == '__main__':
    sys.exit(main())
