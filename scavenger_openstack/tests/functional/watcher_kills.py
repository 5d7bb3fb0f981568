# SPDX-License-Identifier: Apache-2.0

"""The watcher dies or stops, too, while the agent is killed.

The agent of a :class:`.kills.Stage` sets its limits, then it is killed.  What
the watcher leaves in force when it dies is restored by the next one, which
systemd starts; what it leaves when it is stopped, when it goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
import pathlib
import random
import signal
import time

from scavenger_openstack.tests.functional import base
from scavenger_openstack.tests.functional import kills

CALLS = {'write': 58, 'unlinkat': 11}
"""Calls through which the watcher itself changes anything, and how many of
each it makes at least."""

DEADLINE_S = 60.0 * base.pace()


class Late(Exception):
    """What had to happen did not, within :data:`DEADLINE_S`."""


def _wait(what: str, condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise Late(what)
        time.sleep(0.005)


def _down(stage: kills.Stage, signal_name: str) -> bool:
    """Whether the watcher is dead, or stands still long enough to be stopped:
    strace stops it for a moment at each call."""
    if signal_name == 'KILL':
        return stage.watcher.poll() is not None
    stat = pathlib.Path(f'/proc/{stage.watcher.pid}/stat')
    for _ in range(30):
        if stat.read_text().rpartition(')')[2].split()[0] not in 'Tt':
            return False
        time.sleep(0.01)
    return True


def _up(stage: kills.Stage) -> None:
    """What systemd does with a dead watcher, and an operator with one that
    is stopped."""
    if stage.watcher.poll() is None:
        stage.watcher.send_signal(signal.SIGCONT)
    else:
        stage.watch()


def forgetful_package(directory: pathlib.Path) -> pathlib.Path:
    """A copy of the product that deletes a record before it restores."""
    begin = '    try:\n        if lease.boot_id != boot_id():\n'
    return kills.broken_package(directory, 'restore/restoration.py', (
        begin, f'    os.unlink(lease.name, dir_fd=here)\n{begin}'))


def enumerated(stage: kills.Stage, signal_name: str,
               instants: Callable[[str], range] = kills.every,
               back_s: float = DEADLINE_S
               ) -> Iterator[tuple[str, int, float, dict[str, object]]]:
    """Kill the agent with all limits in force; signal the watcher at the
    N-th call of a kind, for each N until none is left.

    :param signal_name: ``KILL`` or ``STOP``
    :param instants: the Ns of a kind of call
    :param back_s: how long to wait for what is not back
    :returns: (call, N, seconds from the watcher's return until all was
        back, what was not back) for each N
    """
    def down() -> bool:
        return _down(stage, signal_name)

    for call in CALLS:
        for number in instants(call):
            stage.end_watcher()
            stage.watch(f'{call}:signal={signal_name}:when={number}')
            agent = stage.agent(0)
            _wait('all limits are in force, or the watcher is down',
                  lambda: down() or len(stage.leases()) > 10)
            agent.kill()
            agent.communicate(timeout=DEADLINE_S)
            _wait('the watcher has restored all, or is down',
                  lambda: down() or not stage.leases())
            if not down():
                break
            _up(stage)
            took, left = stage.back_within(back_s)
            yield call, number, took, left
            if left:
                return


def at_random(stage: kills.Stage, signal_name: str, times: int, seed: int
              ) -> Iterator[tuple[float, float, dict[str, object]]]:
    """Signal the watcher, then kill the agent, each at a random instant.

    :returns: (seconds that the watcher was down, seconds from its return
        until all was back, what was not back) for each time
    """
    dice = random.Random(seed)
    for _ in range(times):
        agent = stage.agent(0)
        assert agent.stdout and agent.stdout.readline() == 'turning\n'
        time.sleep(dice.uniform(0, 2 * kills.TICKS * kills.INTERVAL_S))
        stage.watcher.send_signal(signal.Signals[f'SIG{signal_name}'])
        _wait('the watcher is down', lambda: _down(stage, signal_name))
        down_s = dice.uniform(0, 3 * kills.INTERVAL_S)
        time.sleep(down_s)
        agent.kill()
        agent.communicate(timeout=DEADLINE_S)
        _up(stage)
        took, left = stage.back_within(DEADLINE_S)
        yield down_s, took, left
        if left:
            return
