# SPDX-License-Identifier: Apache-2.0

"""``tools/openstack.sh``: an OpenStack that stays, to try things on.

A process of its own has it, and all of it ends with that process.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import itertools
import os
import pathlib
import select
import signal
import subprocess
import sys
import threading
import time
from typing import NoReturn

import fixtures
from keystoneauth1 import exceptions

from scavenger_openstack.tests.functional import hypervisor
from scavenger_openstack.tests.functional.openstack import case
from scavenger_openstack.tests.functional.openstack import cloud as cloud_
from scavenger_openstack.tests.functional.openstack import configuration
from scavenger_openstack.tests.functional.openstack import guests
from scavenger_openstack.tests.functional.openstack import packages
from scavenger_openstack.tests.functional.openstack import panel
from scavenger_openstack.tests.functional.openstack import product
from scavenger_openstack.tests.functional.openstack import progress
from scavenger_openstack.tests.functional.openstack import stack
from scavenger_openstack.tests.functional.openstack import state as state_
from scavenger_openstack.tests.functional.openstack import watching

DOWN_S = 180.0
READY = 'ready'
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
NONE = 'There is none; to start one: tools/openstack.sh up'

FLAVORS = {'service': ({'scavenger:application': 'web'}, 1),
           'background': (case.BACKGROUND, 2)}
"""Their extra specs and virtual CPUs."""
HOG = 'hog'
SERVERS = {'web-1': 'service', 'web-2': 'service', 'web-3': 'service',
           HOG: 'background'}
TURNS = (('rest', 90.0), ('cpu 2', 240.0))
"""What the background server does by turns, for so many seconds."""

NEXT = """
What to type next:

    eval "$(tools/openstack.sh env)"
    openstack server list --long
    openstack interference host list
    openstack interference incident list    # the first after some minutes
    openstack antagonist list
    openstack server create --flavor background --image guest --nic none \\
        batch-1
    tools/openstack.sh down
"""


def up(state: state_.State) -> int:
    """Start a stack, and return when it can be used."""
    if state.read():
        print('It is up already; next: env, status or down.')
        return 0
    process = subprocess.Popen(
        [sys.executable, '-m', f'{__package__}.command', 'keep'],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        start_new_session=True)
    assert process.stdin and process.stdout
    try:
        for line in process.stdout:
            if line.strip() == READY:
                print(f'\n{state.read().get("summary")}\n{NEXT}')
                return 0
            print(line, end='', flush=True)
    except KeyboardInterrupt:
        print('\nInterrupted: what has come up goes down again.', flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        process.stdin.close()       # which it waits for
        for line in process.stdout:
            print(line, end='', flush=True)
        return process.wait() or 1
    return 130


def keep(state: state_.State) -> int:
    """Be the process that has the stack."""
    lock = state.lock()
    if lock is None:
        print('Another process starts or ends one.', flush=True)
        return 1
    try:
        with lock:
            return _keep(state)
    finally:
        if not state.log.exists():      # it has told all to its starter
            state.remove()


def _keep(state: state_.State) -> int:
    try:
        environment = stack.prepared(say)
    except packages.Unavailable as exc:
        say(str(exc))
        return 1
    come_up = threading.Event()
    threading.Thread(target=_end_with_starter, args=(come_up,),
                     daemon=True).start()
    for number in ENDS:
        signal.signal(number, _end)
    try:
        with (contextlib.ExitStack() as starts, stack.Stack(
                environment, say=starts.enter_context(
                    progress.Progress(say)).say) as kept,
              contextlib.ExitStack() as inside):
            servers = small_cloud(kept)
            inside.enter_context(watching.changed(
                product.REGULATES, product.DETECTS, 'started: ',
                kept.agents()[0]))
            kept.say('the detector on the host of the servers')
            summary = summary_of(kept, servers)
            kept.say('Horizon')
            starts.close()
            state.write(pid=os.getpid(), pids=kept.pids(),
                        top=str(kept.site.top), summary=summary,
                        panel=kept.panel(),
                        environment=str(environment))
            come_up.set()
            say(READY)
            _write_to(state.log)
            for order, turn_s in itertools.cycle(TURNS):
                disturb(kept, servers[HOG], order)
                time.sleep(turn_s)
            return 0
    except fixtures.MultipleExceptions as exc:
        say(f'It does not come up: {exc.args[0][1]}')
    finally:
        state.clear()
    return 1


def say(line: str) -> None:
    """One line for what waits."""
    print(line, flush=True)


def small_cloud(kept: stack.Stack) -> dict[str, str]:
    """Boot a few servers on the first host, where those of the service
    answer lookups; their ids by name."""
    cloud = kept.cloud
    kept.say('the hypervisors; nova-scheduler has to read their headroom')
    kept.wait_for_headroom()
    kept.say(f'the headroom; {len(SERVERS)} servers have to boot')
    host = kept.hypervisors[0]
    flavors = {name: cloud.flavor(name, specs, vcpus)
               for name, (specs, vcpus) in FLAVORS.items()}
    servers = {name: cloud.boot(name, flavors[flavor], host=host.hostname)
               for name, flavor in SERVERS.items()}
    domains = {}
    for name, server in servers.items():
        domains[name] = cloud.active(server)['OS-EXT-SRV-ATTR:instance_name']
        kept.say(name)
    with contextlib.ExitStack() as inside:
        guests.serve([inside.enter_context(guests.Console(
            host, domains[name])) for name in servers if name != HOG])
    return servers


def disturb(kept: stack.Stack, server: str, order: str) -> None:
    """Have a server do something, if it is still there."""
    try:
        there = kept.cloud.server(server)
        guests.tell(kept.host(there['OS-EXT-SRV-ATTR:host']),
                    there['OS-EXT-SRV-ATTR:instance_name'], order)
    except (cloud_.Refused, exceptions.ClientException, OSError,
            hypervisor.HypervisorError) as exc:
        say(f'{order}: {exc}')


def summary_of(kept: stack.Stack, servers: dict[str, str]) -> str:
    """What there is, and where to look at it."""
    host = kept.hypervisors[0].hostname
    return '\n'.join((
        'Servers:', *(f'  {name:6} {SERVERS[name]:11} on {host}  {server}'
                      for name, server in servers.items()), '',
        f'Horizon: {kept.panel()}/admin/interference/',
        f'  user admin, or demo as a tenant; password '
        f'{configuration.PASSWORD}'))


def down(state: state_.State) -> int:
    """End the stack, and return when nothing is left of it."""
    found = state.read()
    if not found:
        starting = state.starting()
        if not starting:
            state.remove()      # of one that was killed
        print('It comes up or goes down: interrupt tools/openstack.sh up'
              if starting else 'There is none.')
        return 1 if starting else 0
    process = os.pidfd_open(found['pid'])
    try:
        for number in (signal.SIGTERM, signal.SIGKILL):
            signal.pidfd_send_signal(process, number)
            if select.select([process], [], [], DOWN_S)[0]:
                break
    finally:
        os.close(process)
    state.remove()
    print('It is down.')
    return 0


def status(state: state_.State) -> int:
    """Print the programs, their processes and their memory."""
    found = state.read()
    if not found:
        print(NONE)
        return 1
    print(f'{"program":24} {"pid":>8} {"MiB":>6}')
    for name, pids in found['pids'].items():
        for pid in pids:
            print(f'{name:24} {pid:8} {_memory_mib(pid):>6}')
    print(f'\n{found["summary"]}')
    return 0


def env(state: state_.State) -> int:
    """Print what a shell has to evaluate."""
    found = state.read()
    if not found:
        print(NONE, file=sys.stderr)
        return 1
    print(shell(pathlib.Path(found['top']),
                pathlib.Path(found['environment'])))
    return 0


def pictures(state: state_.State, directory: pathlib.Path, size: str,
             theme: str) -> int:
    """Take pictures of the panel, as it is now."""
    found = state.read()
    if not found:
        print(NONE, file=sys.stderr)
        return 1
    # Not for the other commands: it imports a browser.
    taker = importlib.import_module(f'{__package__}.pictures')
    directory.mkdir(parents=True, exist_ok=True)
    for path in taker.take(found['panel'], directory, size, theme):
        print(f'{path}: {path.stat().st_size / 1e3:.0f} kB')
    return 0


def shell(top: pathlib.Path, environment: pathlib.Path) -> str:
    """What lets a shell use a stack, from any directory.

    :param top: of the stack's :class:`.configuration.Site`
    :param environment: that of its programs, among them ``openstack``
    """
    return (pathlib.Path(top, 'openrc').read_text()
            + f'export PATH={environment}/bin:$PATH\n'
            # With our commands; the environment does not have them.
            f'export PYTHONPATH={top}/{stack.PLUGINS}'
            '${PYTHONPATH:+:$PYTHONPATH}')


def _memory_mib(pid: int) -> str:
    try:
        text = pathlib.Path(f'/proc/{pid}/status').read_text()
    except OSError:
        return 'ended'
    for line in text.splitlines():
        if line.startswith('VmRSS:'):
            return str(int(line.split()[1]) // 1024)
    return '?'


def _end_with_starter(come_up: threading.Event) -> None:
    """End this process when the one that waits for it ends before."""
    with contextlib.suppress(OSError):
        while os.read(0, 1):
            pass
    if not come_up.is_set():
        os.kill(os.getpid(), signal.SIGTERM)


def _write_to(log: pathlib.Path) -> None:
    """No reader is left: from now on output goes to a file."""
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for standard in (1, 2):
        os.dup2(fd, standard)
    os.close(fd)


def _end(number: int, frame: object) -> NoReturn:
    """Unwind, once: what ends the stack is not interrupted."""
    for one in ENDS:
        signal.signal(one, signal.SIG_IGN)
    raise SystemExit(128 + number)


COMMANDS = {'up': up, 'down': down, 'status': status, 'env': env,
            'keep': keep}


def main() -> int:
    parser = argparse.ArgumentParser(prog='tools/openstack.sh')
    parser.add_argument('command', choices=(*COMMANDS, 'pictures'),
                        metavar='COMMAND',
                        help='up, down, status, env, pictures')
    parser.add_argument('--directory', type=pathlib.Path,
                        default=packages.TOP / 'doc/source/_static',
                        help='of pictures (doc/source/_static)')
    parser.add_argument('--size', default='desk',
                        choices=('desk', 'wide', 'phone'),
                        help='of pictures: 1280, 1920 or 390 pixels wide')
    parser.add_argument('--theme', default='default', choices=panel.THEMES,
                        help='of pictures (default)')
    options = parser.parse_args()
    if options.command == 'pictures':
        return pictures(state_.State(), options.directory, options.size,
                        options.theme)
    return COMMANDS[options.command](state_.State())


if __name__ == '__main__':
    sys.exit(main())
