#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0

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
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

from blackbox_stage import Case
from blackbox_stage import Failure
from blackbox_stage import LEASE_S
from blackbox_stage import ROOT
from blackbox_stage import SLACK_S
from blackbox_stage import START_S
from blackbox_stage import wait

ALONE = ('unshare', '--pid', '--fork', '--mount-proc', '--propagation',
         'private', 'sh', '-c', 'mount -t tmpfs none /var/lib && '
         'mount -t tmpfs none /run && mkdir -m 700 /run/scavenger && '
         'exec "$@"', 'sh')
"""Before a command that may stop whatever agent it finds; the default
directories are as a fresh installation has them."""


def true_of_now(case: Case, text: str) -> None:
    """What a kill switch claims has to be so."""
    if 'no limit is in force' in text and case.changed():
        raise Failure(f'it said that no limit is in force: {case.changed()}')


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
