# SPDX-License-Identifier: Apache-2.0

"""The limits that an agent in observe mode would set on cgroups of others."""

from __future__ import annotations

from collections.abc import Mapping
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any

from scavenger_openstack import amounts
from scavenger_openstack.demo import product
from scavenger_openstack import errors
from scavenger_openstack.ibench.interrupt import Interrupt
from scavenger_openstack.types import printable

WINDOW_S = 5
CONFIG = f"""\
[scavenger]
memory_window_s = {WINDOW_S}
network_window_s = {WINDOW_S}
"""


def watch(foreground: str, background: str, *, seconds: float,
          interrupt: Interrupt) -> int:
    """Let the product observe for a while; print the limits it would set.

    Nothing is touched: the mode is ``observe``.

    :raises DriverError: the product does not start.
    :raises Interrupted: a signal asks to stop.
    """
    text = product.config(background=background, foreground=foreground,
                          more=CONFIG)
    with tempfile.TemporaryDirectory(prefix='scavenger-watch-') as name:
        directory = pathlib.Path(name)
        log = directory / 'agent.log'
        with log.open('wb') as output:
            process = subprocess.Popen(
                product.command(directory, text), stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, start_new_session=True)
        try:
            _show(product.Status(directory), process, log, seconds,
                  interrupt)
        finally:
            if process.poll() is None:
                product.end(process, '')
    return 0


def _show(status: product.Status, process: subprocess.Popen[bytes],
          log: pathlib.Path, seconds: float,
          interrupt: Interrupt) -> None:
    print(f'observing for {seconds:g} s; nothing is changed '
          f'(windows of {WINDOW_S} s)', flush=True)
    start_s = time.monotonic()
    before: dict[tuple[str, str], Any] = {}
    has_status = False
    while time.monotonic() < start_s + seconds:
        interrupt.wait_until(time.monotonic() + 0.2)
        if process.poll() is not None:
            raise errors.DriverError('scavenger-standalone ended: '
                                     + _last_line(log))
        if status.refresh():
            has_status = True
            limits = {(str(cap.get('workload')), str(cap.get('knob'))): cap
                      for cap in status.caps('would')}
            _print_changes(before, limits, time.monotonic() - start_s)
            before = limits
        elif not has_status and time.monotonic() > start_s + product.START_S:
            raise errors.DriverError('scavenger-standalone has no status: '
                                     + _last_line(log))
    for problem in status.last.get('problems') or ():
        print(printable(f'problem: {problem}'), file=sys.stderr)
    if not before:
        print('the agent would set nothing')


def _print_changes(before: Mapping[tuple[str, str], Any],
                   limits: Mapping[tuple[str, str], Any], at_s: float
                   ) -> None:
    for (workload, knob), cap in limits.items():
        old = before.get((workload, knob))
        if old is None or old.get('value') != cap.get('value'):
            print(printable(
                f'{at_s:5.1f} s  {workload}: would set {knob} to '
                f'{amounts.of_knob(knob, cap.get("value"))}  '
                f'({cap.get("reason", "")})'), flush=True)
    for workload, knob in before.keys() - limits.keys():
        print(printable(f'{at_s:5.1f} s  {workload}: would remove {knob}'),
              flush=True)


def _last_line(log: pathlib.Path) -> str:
    lines = log.read_text().strip().splitlines()
    return lines[-1] if lines else 'its log is empty'
