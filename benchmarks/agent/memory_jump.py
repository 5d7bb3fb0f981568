# SPDX-License-Identifier: Apache-2.0

"""How soon a foreground memory jump is answered, by the real agent.

Real cgroups below a parent with a limit that plays the host's memory: a
service jumps past mu + headroom while a batch job holds anonymous memory.
Three answers are shown: the limit in force (the job fits under it), the
kill (consent given) and the freeze (none given).  The time runs from the end
of the jump to the answer, in ticks of the agent.

    python benchmarks/agent/memory_jump.py [--rounds 10]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from scavenger_openstack.tests.functional import base

MIB = 2**20
INTERVAL_S = 1.0
HOLDER = """
import sys
data = []
print('ready', flush=True)
for line in sys.stdin:
    part = bytearray(int(line) << 20)
    for i in range(0, len(part), 4096): part[i] = 1
    data.append(part)
    print('held', flush=True)
"""


class Holder:
    """A process in a cgroup that takes memory when it is told."""

    def __init__(self, tree: base.CgroupTree, below: str) -> None:
        paths = [str(tree.path(c, below) / 'cgroup.procs')
                 for c in tree.mounts]
        self.process = subprocess.Popen(
            [sys.executable, '-u', '-c',
             f'for p in {paths!r}: open(p, "w").write("0")\n' + HOLDER],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._line()

    def take(self, mib: int) -> None:
        assert self.process.stdin
        self.process.stdin.write(f'{mib}\n')
        self.process.stdin.flush()
        self._line()

    def _line(self) -> None:
        assert self.process.stdout
        self.process.stdout.readline()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def once(jump_mib: int, killable: bool,
         answered: Callable[[base.CgroupTree], str]) -> tuple[float, str]:
    """One jump; seconds from its end to the answer, and the answer."""
    with base.CgroupTree() as tree, tempfile.TemporaryDirectory(
            dir='/dev/shm') as where:
        directory = pathlib.Path(where)
        tree.make('/batch/job')
        tree.make('/services/s')
        tree.write('memory', '', 'memory.limit_in_bytes', str(1024 * MIB))
        config = directory / 'agent.conf'
        config.write_text('\n'.join((
            '[conductor]', 'enabled = false',
            '[agent]', f'interval_s = {INTERVAL_S}', '[cgroups]',
            f'background_parents = {tree.name}/batch',
            f'foreground_parents = {tree.name}/services',
            f'memory_root = {tree.name}',
            f'killable_parents = {tree.name}/batch' if killable else '',
            '[scavenger]', 'mode = enforce', 'memory_window_s = 4')))
        job, service = (Holder(tree, '/batch/job'),
                        Holder(tree, '/services/s'))
        job.take(400)
        service.take(100)
        agent = subprocess.Popen(
            [sys.executable, '-m', 'scavenger_openstack.cmd.standalone',
             '--config-file', str(config), '--state-dir',
             str(directory / 'state')], stderr=subprocess.DEVNULL)
        try:
            status = directory / 'state' / 'status.json'
            while True:
                time.sleep(0.2)
                try:
                    facts = json.loads(status.read_text())['controllers'][
                        'scavenger']['facts']['memory']
                except (OSError, ValueError, KeyError):
                    continue
                if facts['rule'] == 'holding':
                    break
            time.sleep(INTERVAL_S * (1 + time.monotonic() % 1))
            service.take(jump_mib)
            began = time.monotonic()
            while not (answer := answered(tree)):
                if time.monotonic() - began > 10 * INTERVAL_S:
                    return float('inf'), 'unanswered'
                time.sleep(0.005)
            return time.monotonic() - began, answer
        finally:
            tree.thaw()
            job.end()
            service.end()
            agent.terminate()
            agent.wait(20)


def limited(tree: base.CgroupTree) -> str:
    limit = int(tree.read('memory', '/batch/job', 'memory.limit_in_bytes'))
    return f'limit {limit // MIB} MiB' if limit < 800 * MIB else ''


def killed(tree: base.CgroupTree) -> str:
    use = int(tree.read('memory', '/batch/job', 'memory.usage_in_bytes'))
    return f'killed, {use // MIB} MiB left' if use < 50 * MIB else ''


def frozen(tree: base.CgroupTree) -> str:
    state = tree.read('freezer', '/batch/job', 'freezer.state')
    return state.lower() if state == 'FROZEN' else ''


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--rounds', type=int, default=10)
    args = parser.parse_args()
    print(f'host 1024 MiB, service 100 MiB, batch job 400 MiB anonymous, '
          f'tick {INTERVAL_S:g} s, {args.rounds} rounds each')
    worst = 0.0
    for title, jump, killable, answered in (
            ('+200 MiB, the job fits', 200, False, limited),
            ('+515 MiB, kill allowed', 515, True, killed),
            ('+515 MiB, no kill', 515, False, frozen)):
        found = [once(jump, killable, answered) for _ in range(args.rounds)]
        ticks = [seconds / INTERVAL_S for seconds, _ in found]
        worst = max(worst, *ticks)
        print(f'{title}: {found[0][1]}; answered after '
              f'{statistics.median(ticks):.2f} ticks (median), '
              f'{min(ticks):.2f} to {max(ticks):.2f}', flush=True)
    return 0 if worst <= 1.5 else 1


if __name__ == '__main__':
    sys.exit(main())
