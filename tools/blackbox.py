#!/usr/bin/env python3
# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Ways in which a limit could outlive its agent, tried from outside.

    sudo tools/blackbox.py [CASE...]

Starts the installed programs on cgroups of its own, kills, stops or
misleads them, and reads the files of the kernel to see whether every limit
on CPUs and memory, and every pause, is back at its original within the
lease, and whether what was printed is true.  Limits of disks, networks and
VMs are not looked at.  Standard library only; it shares no code with the
agent.  It runs on cgroup v1 and v2.  The last line counts what passed and
failed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from collections.abc import Sequence
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid

ROOT = pathlib.Path('/sys/fs/cgroup')
V1 = ('cpu', 'cpuset', 'memory', 'blkio', 'freezer')
V2 = ('cpu', 'cpuset', 'memory', 'io')
KNOBS = ('cpu.shares', 'cpu.cfs_quota_us', 'cpu.weight', 'cpu.max',
         'cpu.idle', 'cpuset.cpus', 'memory.limit_in_bytes', 'memory.high',
         'memory.max', 'freezer.state', 'cgroup.freeze')
LEASE_S = 3.0
SLACK_S = 5.0
"""Beyond the lease: two CPUs may be busy with something else."""
START_S = 60.0
GROUPS = ('background', 'background/a', 'background/b', 'foreground',
          'foreground/f')
ALONE = ('unshare', '--pid', '--fork', '--mount-proc', '--propagation',
         'private', 'sh', '-c', 'mount -t tmpfs none /var/lib && '
         'mount -t tmpfs none /run && mkdir -m 700 /run/scavenger && '
         'exec "$@"', 'sh')
"""Before a command that may stop whatever agent it finds; the default
directories are as a fresh installation has them."""
LEAVES = ('background/a', 'background/b', 'foreground/f')


class Failure(Exception):
    """A case found something that must not be."""


class Tree:
    """Cgroups of our own, each leaf with one process that sleeps."""

    def __init__(self) -> None:
        self.name = f'scv-box-{uuid.uuid4().hex[:8]}'
        self.v2 = (ROOT / 'cgroup.controllers').exists()
        self.tops = [ROOT] if self.v2 else [ROOT / kind for kind in V1]
        self.processes: list[subprocess.Popen[bytes]] = []

    def make(self) -> None:
        if self.v2:
            enable(ROOT)
        for top in self.tops:
            for group in ('', *GROUPS):
                path = top / self.name / group
                path.mkdir()
                for file in ('cpuset.mems', 'cpuset.cpus'):
                    if not self.v2 and (path / file).exists():
                        (path / file).write_text(
                            (path.parent / file).read_text())
                if self.v2 and group not in LEAVES:
                    enable(path)
        for leaf in LEAVES:
            process = subprocess.Popen(['sleep', '3600'])
            self.processes.append(process)
            for top in self.tops:
                (top / self.name / leaf / 'cgroup.procs').write_text(
                    str(process.pid))

    def knobs(self) -> dict[str, str]:
        """Every knob below the background, as the kernel shows it."""
        found = {}
        for top in self.tops:
            for group in GROUPS[:3]:
                for file in KNOBS:
                    path = top / self.name / group / file
                    if path.exists():
                        found[str(path)] = path.read_text().strip()
        return found

    def remove(self) -> None:
        for top in self.tops:
            for group in reversed(('', *GROUPS)):
                for file, text in (('freezer.state', 'THAWED'),
                                   ('cgroup.freeze', '0')):
                    path = top / self.name / group / file
                    with contextlib.suppress(OSError):
                        if path.exists():
                            path.write_text(text)
        for process in self.processes:
            process.kill()
            process.wait()
        for top in self.tops:
            for group in reversed(('', *GROUPS)):
                deadline_s = time.monotonic() + 10
                path = top / self.name / group
                while path.exists() and time.monotonic() < deadline_s:
                    with contextlib.suppress(OSError):
                        path.rmdir()
                    time.sleep(0.01)


def enable(path: pathlib.Path) -> None:
    """Have the children of a v2 cgroup get all controllers that it has."""
    has = (path / 'cgroup.controllers').read_text().split()
    (path / 'cgroup.subtree_control').write_text(
        ' '.join(f'+{kind}' for kind in V2 if kind in has))


class Case:
    """One host to play on: cgroups, directories, programs."""

    def __init__(self, programs: pathlib.Path) -> None:
        self.programs = programs
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix='scv-box-'))
        self.tree = Tree()
        self.running: list[subprocess.Popen[bytes]] = []
        self.logs: dict[int, pathlib.Path] = {}
        self.tree.make()
        self.originals = self.tree.knobs()
        self.state = self.directory / 'state'
        self.good = self.configuration('good.conf', self.state)

    def configuration(self, name: str, state: pathlib.Path,
                      parents: str = 'background_parents') -> pathlib.Path:
        path = self.directory / name
        path.write_text(f'''\
[DEFAULT]
state_dir = {state}
[agent]
stop_file = {self.directory}/stop
interval_s = 0.25
lease_s = {LEASE_S}
controllers = scavenger
[libvirt]
uri =
[cgroups]
{parents} = /{self.tree.name}/background
foreground_parents = /{self.tree.name}/foreground
[scavenger]
mode = enforce
memory_window_s = 2
''')
        return path

    def start(self, program: str, *arguments: object,
              before: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        log = self.directory / f'{program}.{len(self.running)}.log'
        with log.open('wb') as output:
            process = subprocess.Popen(
                [*before, str(self.programs / program),
                 *map(str, arguments)], stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, start_new_session=True)
        self.running.append(process)
        self.logs[process.pid] = log
        return process

    def run(self, program: str, *arguments: object,
            before: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [*before, str(self.programs / program), *map(str, arguments)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=120)
        text = (done.stdout + done.stderr).strip()
        print(f'    {program} {arguments[0] if arguments else ""} -> '
              f'{done.returncode}: ' + text.replace('\n', '\n        '))
        if 'Traceback' in text:
            raise Failure(f'{program} ended with a traceback')
        return done

    def said(self, process: subprocess.Popen[bytes]) -> str:
        """All that a program wrote."""
        return self.logs[process.pid].read_text()

    def watcher(self, before: Sequence[str] = ()
                ) -> subprocess.Popen[bytes]:
        return self.start('scavenger-restore', '--watch', '--state-dir',
                          self.state, '--stop-file', self.directory / 'stop',
                          before=before)

    def agent(self, configuration: pathlib.Path | None = None,
              before: Sequence[str] = ()) -> subprocess.Popen[bytes]:
        return self.start('scavenger-agent', 'run', '--config-file',
                          configuration or self.good, before=before)

    def limited(self) -> None:
        """Start watcher and agent, and wait for limits of two kinds."""
        self.state.mkdir(mode=0o700, exist_ok=True)
        self.watch = self.watcher()
        self.acting = self.agent()
        self.wait_for_limits()

    def changed(self) -> dict[str, str]:
        return {path: text for path, text in self.tree.knobs().items()
                if self.originals[path] != text}

    def wait_for_limits(self) -> None:
        wait('limits of two kinds', START_S, lambda: len(
            {path.rpartition('/')[2] for path in self.changed()}) >= 2)

    def wait_for_originals(self, within_s: float = LEASE_S + SLACK_S) -> None:
        began_s = time.monotonic()
        try:
            wait('originals', within_s, lambda: not self.changed())
        except Failure:
            raise Failure(f'after {within_s:g} s still limited: '
                          f'{self.changed()}') from None
        print(f'    originals back after {time.monotonic() - began_s:.1f} s')

    def remove(self) -> None:
        for process in self.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)
            if process.poll() is None:
                process.terminate()
        for process in self.running:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.tree.remove()
        shutil.rmtree(self.directory, ignore_errors=True)


def wait(what: str, within_s: float, condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline_s:
            raise Failure(f'{what}: not within {within_s:g} s')
        time.sleep(0.02)


def true_of_now(case: Case, text: str) -> None:
    """What a kill switch claims has to be so."""
    if 'no limit is in force' in text and case.changed():
        raise Failure(f'it said that no limit is in force: {case.changed()}')


# What may go wrong ------------------------------------------------------


def kill_agent(case: Case) -> None:
    """The agent is killed; the watcher lives."""
    case.limited()
    case.acting.kill()
    case.wait_for_originals()


def stop_agent(case: Case) -> None:
    """The agent is stopped; when it goes on, it may set limits again."""
    case.limited()
    os.kill(case.acting.pid, signal.SIGSTOP)
    case.wait_for_originals()
    os.kill(case.acting.pid, signal.SIGCONT)
    case.wait_for_limits()
    case.acting.terminate()
    case.wait_for_originals()


def typo(case: Case) -> None:
    """stop-all and resume with a misspelt option in the configuration."""
    case.limited()
    broken = case.configuration('typo.conf', case.state, 'backgroud_parents')
    done = case.run('scavenger-agent', 'stop-all', '--config-file', broken)
    true_of_now(case, done.stdout)
    if done.returncode or case.changed():
        raise Failure(f'stop-all ended with {done.returncode}; limited: '
                      f'{case.changed()}')
    done = case.run('scavenger-agent', 'resume', '--config-file', broken)
    if done.returncode:
        raise Failure(f'resume ended with {done.returncode}')
    case.wait_for_limits()


def unreadable(case: Case) -> None:
    """stop-all with configurations that cannot be read at all, where it
    finds no other agent either."""
    case.limited()
    garbage = case.directory / 'garbage.conf'
    garbage.write_bytes(b'\xff\xfe[agent\n=')
    for configuration in (garbage, case.directory,
                          case.directory / 'missing.conf'):
        done = case.run('scavenger-agent', 'stop-all', '--config-file',
                        configuration, before=ALONE)
        true_of_now(case, done.stdout)
        if done.returncode == 0 and case.changed():
            raise Failure('stop-all of another state directory ended with 0 '
                          'while limits are in force here')


def elsewhere(case: Case) -> None:
    """stop-all of a state directory in which nothing is, while an agent
    with another one limits."""
    case.limited()
    other = case.configuration('other.conf', case.directory / 'other')
    other.write_text(other.read_text().replace('/stop\n', '/other-stop\n'))
    done = case.run('scavenger-agent', 'stop-all', '--config-file', other)
    true_of_now(case, done.stdout)
    if case.changed() and not (
            done.returncode and str(case.acting.pid)
            in done.stdout + done.stderr):
        raise Failure('stop-all did not name the agent that limits')


def stop_all_hangs(case: Case) -> None:
    """stop-all while the agent is stopped and the watcher is killed."""
    case.limited()
    os.kill(case.acting.pid, signal.SIGSTOP)
    case.watch.kill()
    done = case.run('scavenger-agent', 'stop-all', '--config-file',
                    case.good)
    true_of_now(case, done.stdout)
    if case.changed():
        raise Failure(f'stop-all left {case.changed()}')


MALFORMED = ('', 'null', '[]', '"text"', '{}', '{"schema": 1}',
             '{{"schema": 1, "workload": "x", "knob": "cpu_idle", '
             '"boot_id": "{boot}", "pid": 1, "created_s": 1.0, '
             '"original": 0, "steps": {steps}}}')
STEPS = ('[{}]', '[null]', '["x"]', '{}', '7', '[]', '[{"do": 7}]',
         '[{"do": "write"}]', '[{"do": ["write"]}]',
         '[{"do": "write", "dir": {}, "inode": [], "file": 1, "text": 2}]',
         '[[[[[[]]]]]]', '[{"do": "domain", "values": []}]')


def malformed_leases(case: Case) -> None:
    leases = case.state / 'leases'
    boot = pathlib.Path('/proc/sys/kernel/random/boot_id').read_text().strip()
    texts = [*MALFORMED[:-1], *(MALFORMED[-1].format(boot=boot, steps=steps)
                                for steps in STEPS)]
    for number, text in enumerate(texts):
        # Before and after the good ones in the order of names.
        for name in (f'{number:032x}.json', f'{"f" * 28}{number:04x}.json'):
            (leases / name).write_text(text)


def malformed_restore(case: Case) -> None:
    """Agent and watcher killed, malformed leases beside the good ones,
    and scavenger-restore once."""
    case.limited()
    case.watch.kill()
    case.acting.kill()
    case.acting.wait()
    malformed_leases(case)
    time.sleep(LEASE_S)
    case.run('scavenger-restore', '--state-dir', case.state, '--stop-file',
             case.directory / 'stop')
    case.wait_for_originals()


def malformed_watcher(case: Case) -> None:
    """The same, and the watcher is started again."""
    case.limited()
    case.watch.kill()
    case.acting.kill()
    case.acting.wait()
    malformed_leases(case)
    again = case.watcher()
    case.wait_for_originals()
    if again.poll() is not None:
        raise Failure(f'the watcher ended with {again.returncode}')


def malformed_agent(case: Case) -> None:
    """The same, and a new agent begins and ends."""
    case.limited()
    case.watch.kill()
    case.watch.wait()
    case.acting.kill()
    case.acting.wait()
    malformed_leases(case)
    again = case.agent()
    case.wait_for_originals()
    if again.poll() is not None:
        raise Failure(f'the agent ended with {again.returncode}: '
                      f'{case.said(again)[-400:]}')
    case.watcher()
    case.wait_for_limits()
    again.terminate()
    case.wait_for_originals()


def _second(case: Case, *before: str) -> None:
    case.limited()
    state = case.directory / 'second'
    state.mkdir(mode=0o700)
    other = case.configuration('second.conf', state)
    case.start('scavenger-restore', '--watch', '--state-dir', state,
               '--stop-file', case.directory / 'stop')
    second = case.agent(other, before=before)
    wait('end of the second agent', START_S,
         lambda: second.poll() is not None)
    said = case.said(second)
    print(f'    the second agent ended with {second.returncode}: '
          + said.strip().splitlines()[-1])
    if second.returncode == 0 or str(case.acting.pid) not in said:
        raise Failure('the second agent did not name the first')
    case.acting.terminate()
    case.wait_for_originals()


def second_agent(case: Case) -> None:
    """A second agent with another state directory."""
    _second(case)


def second_agent_contained(case: Case) -> None:
    """The same in mount, network and IPC namespaces of its own."""
    _second(case, 'unshare', '--mount', '--net', '--ipc')


def watcher_stopped(case: Case) -> None:
    """A watcher that is stopped counts as none."""
    case.limited()
    os.kill(case.watch.pid, signal.SIGSTOP)
    case.wait_for_originals(4 * LEASE_S + SLACK_S)
    os.kill(case.watch.pid, signal.SIGCONT)
    case.wait_for_limits()


def watcher_killed(case: Case) -> None:
    """Without a watcher nothing stays limited."""
    case.limited()
    case.watch.kill()
    case.watch.wait()
    case.wait_for_originals(4 * LEASE_S + SLACK_S)


def no_virsh(case: Case) -> None:
    """A watcher without virsh: no limit of a VM is set, all others are."""
    socket = case.directory / 'libvirt-sock'
    uri = f'qemu+unix:///system?socket={socket}'
    other = case.configuration('libvirt.conf', case.state)
    other.write_text(other.read_text().replace('uri =\n', f'uri = {uri}\n'))
    virsh = shutil.which('virsh')
    case.state.mkdir(mode=0o700, exist_ok=True)
    case.watch = case.watcher(() if virsh is None else (
        'unshare', '--mount', '--propagation', 'private', 'sh', '-c',
        f'mount --bind /dev/null {os.path.realpath(virsh)} && exec "$@"',
        'sh'))
    case.acting = case.agent(other)
    case.wait_for_limits()
    begin = f'no limits of VMs at {uri} are set'
    wait('the agent says so', START_S,
         lambda: begin in case.said(case.acting))
    line = next(line for line in case.said(case.acting).splitlines()
                if begin in line)
    print(f'    {line}')
    if 'virsh' not in line.partition(begin)[2]:
        raise Failure('the reason does not name virsh')
    case.wait_for_limits()
    case.acting.kill()
    case.wait_for_originals()


def refused_left(case: Case) -> None:
    """A record that was refused is not passed over in silence."""
    case.limited()
    malformed_leases(case)
    case.acting.kill()
    case.wait_for_originals()
    done = case.run('scavenger-agent', 'stop-all', '--config-file',
                    case.good)
    if done.returncode == 0 or 'refused' not in done.stdout + done.stderr:
        raise Failure('stop-all passed over the refused records')
    case.run('scavenger-agent', 'status', '--config-file', case.good)


def unprivileged(case: Case) -> None:
    """stop-all without rights says so, and changes nothing."""
    case.limited()
    os.chmod(case.directory, 0o755)
    done = subprocess.run(
        ['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups',
         str(case.programs / 'scavenger-agent'), 'stop-all',
         '--config-file', str(case.good)], capture_output=True, text=True,
        timeout=60)
    said = (done.stdout + done.stderr).strip()
    print(f'    -> {done.returncode}: {said}')
    if done.returncode != 1 or 'root' not in said or 'Traceback' in said:
        raise Failure('it must say that it has to run as root')
    if 'no limit is in force' in said:
        raise Failure('it claims what it cannot know')


CASES = (kill_agent, stop_agent, typo, unreadable, elsewhere, stop_all_hangs,
         malformed_restore, malformed_watcher, malformed_agent, second_agent,
         second_agent_contained, watcher_stopped, watcher_killed, no_virsh,
         refused_left, unprivileged)


def play(case: Callable[[Case], None], programs: pathlib.Path
         ) -> str | None:
    """Play one case; what was wrong, if anything."""
    stage = Case(programs)
    try:
        case(stage)
        return None
    except (Failure, subprocess.TimeoutExpired) as exc:
        for process in stage.running:
            lines = stage.said(process).splitlines()
            for line in lines[-8:]:
                print(f'        | {line}')
        return str(exc)
    finally:
        stage.remove()


def main() -> int:
    names = {case.__name__: case for case in CASES}
    parser = argparse.ArgumentParser(
        description=(__doc__ or '').partition('\n')[0],
        epilog='cases: ' + ', '.join(names))
    parser.add_argument('case', nargs='*', metavar='CASE',
                        help='play only these (default: all)')
    parser.add_argument('--programs', type=pathlib.Path, metavar='DIR',
                        default=pathlib.Path(__file__).resolve()
                        .parents[1] / '.venv/bin',
                        help='where scavenger-agent and scavenger-restore '
                             'are (default: .venv/bin of this checkout)')
    options = parser.parse_args()
    for name in options.case:
        if name not in names:
            parser.error(f'no case {name}; there are {", ".join(names)}')
    if os.geteuid():
        parser.error('needs root: it makes cgroups')
    failed = 0
    chosen = options.case or list(names)
    for name in chosen:
        print(f'== {name}: {" ".join((names[name].__doc__ or "").split())}',
              flush=True)
        problem = play(names[name], options.programs)
        print(f'   {"ok" if problem is None else "FAILED: " + problem}',
              flush=True)
        failed += problem is not None
    print(json.dumps({'cgroup': 2 if (ROOT / 'cgroup.controllers').exists()
                      else 1, 'kernel': os.uname().release}))
    print(f'{len(chosen) - failed} passed, {failed} failed, 0 skipped')
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
