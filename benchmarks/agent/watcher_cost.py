# SPDX-License-Identifier: Apache-2.0


"""What ``scavenger-restore --watch`` costs while an agent lives.

Two real watchers at once: one of an agent without a limit, one of an agent
with many.  The benchmark is both agents: it holds the locks and renews the
heartbeats as an agent does, and replaces its status each second.  Each line
has the CPU time of a watcher as a percentage of one CPU, and its context
switches per second.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from scavenger_openstack.agent.lease import heartbeat
from scavenger_openstack.agent.lease import ownership
from scavenger_openstack.agent import status
from scavenger_openstack.restore import cgroup
from scavenger_openstack.restore import program
from scavenger_openstack.restore import records

LEASE_S = 15.0
SETTLE_S = 5.0
"""The start of the interpreter and the first tries are not counted."""


class Watched:
    """A state directory with an agent of ours, and its watcher."""

    def __init__(self, path: pathlib.Path, leases: int) -> None:
        self.leases = leases
        self._path = path
        self._due_s = 0.0
        self._owned = ownership.Ownership(path)
        self._owned.take()
        self._heartbeat = heartbeat.Heartbeat(LEASE_S)
        self._heartbeat.open(path / 'heartbeat')
        mount = cgroup.mounts()[0][0]
        for number in range(leases):
            records.save(self._owned.records, records.Lease(
                workload=f'/none-{number}', knob='cpu_idle',
                boot_id=records.boot_id(), name=f'{number:032}.json',
                actions=[{'do': 'write', 'dir': f'{mount}/scv-none/{number}',
                          'inode': 1, 'file': 'cpu.idle', 'text': '0'}]))
        self._watcher = subprocess.Popen(
            [sys.executable, '-m', program.__name__, '--watch',
             '--state-dir', str(path),
             '--stop-file', str(path.parent / 'stop')])

    def turn(self) -> None:
        if (now_s := records.now_s()) >= self._due_s:
            self._due_s = now_s + LEASE_S / heartbeat.RENEWALS
            self._heartbeat.beat(now_s)
        status.write(self._path / 'status.json', {'time_s': now_s})

    def cpu_s(self) -> float:
        # clock_getcpuclockid(3)
        return time.clock_gettime(~self._watcher.pid << 3 | 2)

    def switches(self) -> int:
        return sum(int(count) for path in pathlib.Path(
            f'/proc/{self._watcher.pid}/task').glob('*/status')
            for count in re.findall(r'ctxt_switches:\s*(\d+)',
                                    path.read_text()))

    def close(self) -> None:
        self._watcher.terminate()
        self._watcher.wait()
        for path in (self._path / 'leases').iterdir():
            path.unlink()
        self._heartbeat.close()
        self._owned.release()


@contextlib.contextmanager
def watched(counts: Sequence[int]) -> Iterator[list[Watched]]:
    """One for each number of leases."""
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as all_:
        found = []
        for index, leases in enumerate(counts):
            one = Watched(pathlib.Path(name, str(index)), leases)
            all_.callback(one.close)
            found.append(one)
        yield found


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--seconds', type=float, default=60.0,
                        help='how long to measure [%(default)s]')
    parser.add_argument('--leases', type=int, nargs='+', default=[0, 50],
                        help='limits in force, one watcher each '
                             '[%(default)s]')
    args = parser.parse_args(argv)
    with watched(args.leases) as all_:
        _hold(all_, SETTLE_S)
        before = [(one.cpu_s(), one.switches()) for one in all_]
        began_s = time.monotonic()
        _hold(all_, args.seconds)
        took_s = time.monotonic() - began_s
        for one, (cpu_s, switches) in zip(all_, before, strict=True):
            print(f'{one.leases:4} leases: '
                  f'{100 * (one.cpu_s() - cpu_s) / took_s:.3f} % of a CPU, '
                  f'{(one.switches() - switches) / took_s:.1f} context '
                  f'switches per second, over {took_s:.0f} s')
    return 0


def _hold(all_: Sequence[Watched], seconds: float) -> None:
    end_s = time.monotonic() + seconds
    while (left_s := end_s - time.monotonic()) > 0:
        for one in all_:
            one.turn()
        time.sleep(min(left_s, 1.0))


if __name__ == '__main__':
    sys.exit(main())
