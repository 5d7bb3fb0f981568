# SPDX-License-Identifier: Apache-2.0

"""What the agent would do on cgroups of other programs."""

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
    """Let the product observe for a while; print what it would set.

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
    seen = False
    while time.monotonic() < start_s + seconds:
        interrupt.wait_until(time.monotonic() + 0.2)
        if process.poll() is not None:
            raise errors.DriverError('scavenger-standalone ended: '
                                     + _last(log))
        if status.look():
            seen = True
            now = {(str(cap.get('workload')), str(cap.get('knob'))): cap
                   for cap in status.caps('would')}
            _changes(before, now, time.monotonic() - start_s)
            before = now
        elif not seen and time.monotonic() > start_s + product.START_S:
            raise errors.DriverError('scavenger-standalone has no status: '
                                     + _last(log))
    for problem in status.last.get('problems') or ():
        print(printable(f'problem: {problem}'), file=sys.stderr)
    if not before:
        print('the agent would set nothing')


def _changes(before: Mapping[tuple[str, str], Any],
             now: Mapping[tuple[str, str], Any], at_s: float) -> None:
    for key, cap in now.items():
        if key not in before or before[key].get('value') != cap.get('value'):
            print(printable(
                f'{at_s:5.1f} s  {key[0]}: would set {key[1]} to '
                f'{amounts.of_knob(key[1], cap.get("value"))}  '
                f'({cap.get("reason", "")})'), flush=True)
    for key in before:
        if key not in now:
            print(printable(
                f'{at_s:5.1f} s  {key[0]}: would remove {key[1]}'),
                flush=True)


def _last(log: pathlib.Path) -> str:
    lines = log.read_text().strip().splitlines()
    return lines[-1] if lines else 'its log is empty'
