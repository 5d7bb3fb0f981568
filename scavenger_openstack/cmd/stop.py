# SPDX-License-Identifier: Apache-2.0

"""The kill switch: ``scavenger-agent stop-all`` and ``resume``.

What they print has to be true: of which state directory, how many limits
are gone, what is left, and which other agents there are.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
import functools
import os
import pathlib
import pwd
import shlex
import stat
import time
from typing import NamedTuple

from scavenger_openstack.agent.lease import ownership
from scavenger_openstack.agent import status
from scavenger_openstack import amounts
from scavenger_openstack.cmd import places as agent_places
from scavenger_openstack import errors
from scavenger_openstack.restore import actions
from scavenger_openstack.restore import program
from scavenger_openstack.restore import records
from scavenger_openstack.restore import state_directory
from scavenger_openstack.types import printable

STOP_WAIT_S = 10.0


class Target(NamedTuple):
    """A state directory and the stop files that its agent may look for."""

    state_dir: pathlib.Path
    stop_files: tuple[pathlib.Path, ...]


def stop_all(places: agent_places.Places) -> int:
    """Make the stop file and wait until nothing is limited any more.

    The agent removes its limits at its next tick, the watcher restores them
    when the agent hangs, and this process when neither does.

    :return: 0 when nothing is left, nor an agent that was not stopped
    :raises ScavengerError: it may not, or a stop file cannot be made.
    """
    _need_root('stop-all')
    failed = [_make(places.stop_file)]      # before anything that may fail
    agents, unknown = _agents(places)
    targets = _targets(places, agents)
    failed += [_make(stop_file) for stop_file in _stop_files(targets)
               if stop_file != places.stop_file]
    if all(failed):
        raise errors.ScavengerError(
            f'{"; ".join(failed)}. Nothing was stopped. Make it writable and '
            'try again, or end the agent and run scavenger-restore --all')
    for problem in filter(None, failed):
        _print(f'{problem}; an agent that looks for it is not stopped')
    # An agent that runs answers which directory is in use.
    guessed = places.guessed and len(targets) == 1 and not any(
        _same(agent.seen_at, places.state_dir) for agent in agents)
    ended = [_end_limits(target, agents, guessed) for target in targets]
    others = _print_others(targets, agents)
    if guessed:
        _print('whether your agent uses another state directory is not '
               'known: correct the configuration, or give --state-dir')
    if unknown:
        _print(f'whether another agent runs is not known: {unknown}')
    return 0 if all(ended) and not (
        any(failed) or guessed or others or unknown) else 1


def resume(places: agent_places.Places) -> int:
    """Remove the stop file.

    Those that only an agent names are files that stop-all made: empty.

    :return: 0 when none is left
    :raises ScavengerError: it may not.
    """
    _need_root('resume')
    removed = failed = False
    stop_files = _stop_files(_targets(places, _agents(places)[0]))
    for stop_file in stop_files:
        try:
            info = os.lstat(stop_file)
            if stop_file != places.stop_file and (
                    info.st_size or not stat.S_ISREG(info.st_mode)):
                raise OSError('it is not an empty file')
            stop_file.unlink()
            _sync(stop_file.parent)
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as exc:
            failed = True
            _print(f'the stop file {stop_file} cannot be removed: {_why(exc)}')
            continue
        removed = True
        _print(f'stop file removed: {stop_file}; limits may be set again')
    if not removed and not failed:
        _print('nothing was stopped: there is no stop file '
               + ' or '.join(map(str, stop_files)))
    return 1 if failed else 0


def elsewhere(places: agent_places.Places) -> list[str]:
    """The agents that use another state directory, a sentence for each."""
    return [f'an agent runs with another state directory (process '
            f'{agent.pid}): add --state-dir {shlex.quote(agent.state_dir)}'
            for agent in _agents(places)[0]
            if not _same(agent.seen_at, places.state_dir)]


def _agents(places: agent_places.Places
            ) -> tuple[list[state_directory.Agent], str]:
    """The agents that run as root or as the owner of the state directory,
    or why that is not known."""
    try:
        owner = os.lstat(places.state_dir).st_uid
    except OSError:
        owner = 0
    try:
        return state_directory.agents(places.proc, owner), ''
    except OSError as exc:
        return [], str(exc)


def _need_root(command: str) -> None:
    if os.geteuid() != 0:
        raise errors.ScavengerError(
            f'{command} must run as root: limits and other agents cannot '
            'be seen otherwise')


def _targets(places: agent_places.Places,
             agents: Sequence[state_directory.Agent]) -> list[Target]:
    """Return what to stop: the state directory that is configured.  When that
    is not known, those of all agents that this process can reach, too."""
    directories = [places.state_dir]
    if places.guessed:
        directories += [
            pathlib.Path(agent.seen_at) for agent in agents
            if agent.seen_at == agent.state_dir
            and not _same(agent.seen_at, places.state_dir)]
    return [Target(directory, tuple(dict.fromkeys((
        places.stop_file if directory == places.state_dir
        else directory / 'stop', *_published(directory, agents)))))
        for directory in directories]


def _stop_files(targets: Sequence[Target]) -> list[pathlib.Path]:
    return [file for target in targets for file in target.stop_files]


def _published(state_dir: pathlib.Path, agents: Sequence[state_directory.Agent]
               ) -> list[pathlib.Path]:
    """The stop file that the agent in this directory says it looks for: its
    configuration may have been another one."""
    if not any(_same(agent.seen_at, state_dir) for agent in agents):
        return []
    try:
        if not state_directory.StateDir(str(state_dir)).open():
            return []
        name = status.read(state_dir / 'status.json').get('stop_file')
    except (errors.ScavengerError, OSError):
        return []
    return ([pathlib.Path(name)]
            if isinstance(name, str) and os.path.isabs(name) else [])


def _make(stop_file: pathlib.Path) -> str:
    """Make a stop file; return why that cannot be, '' when it is there."""
    try:
        stop_file.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(stop_file, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW
                         | os.O_NONBLOCK, 0o644))
        _sync(stop_file.parent)
    except (OSError, ValueError) as exc:
        if isinstance(exc, ValueError) or not stop_file.exists():
            return f'the stop file {stop_file} cannot be made: {_why(exc)}'
    _print(f'stop file made: {stop_file}')
    return ''


def _why(exc: Exception) -> str:
    return getattr(exc, 'strerror', None) or str(exc)


def _end_limits(target: Target, agents: Sequence[state_directory.Agent],
                guessed: bool) -> bool:
    """Wait until the limits of one state directory are gone, else restore
    them; return whether nothing is left there.  Prints what came of it."""
    state_dir, made_s = target.state_dir, records.now_s()
    done = 'no limit is ' + ('recorded' if guessed else 'in force')
    if not state_dir.exists():
        _print(f'state directory: {state_dir}: it does not exist, so no '
               'limit is recorded there')
        return True
    _print(f'state directory: {state_dir}')
    try:
        state = state_directory.StateDir(str(state_dir))
        state.open()
        leases = _Leases(state_dir)
        leases.count()
    except OSError as exc:
        _print(f'it is not used: {exc.strerror or exc} (owner: '
               f'{_owner(state_dir)}). Limits of it may be in force')
        return False
    at_rest = functools.partial(_at_rest, state, made_s)
    deadline = time.monotonic() + STOP_WAIT_S
    # In this order: what is at rest sets no further one.
    while any([not at_rest(), leases.count()]):
        if time.monotonic() > deadline:
            return _restore(target, leases, done, at_rest, [
                agent for agent in agents if _same(agent.seen_at, state_dir)])
        time.sleep(0.1)
    return _report(leases, done)


def _at_rest(state: state_directory.StateDir, made_s: float) -> bool:
    """Whether no agent is about to set a limit: its last tick began after
    ``made_s``, when the stop file was there, and saw it, or none lives."""
    try:
        document = status.read(pathlib.Path(state.path) / 'status.json')
        if document.get('stopped') is True and document['time_s'] >= made_s:
            return True
    except errors.ScavengerError:
        pass
    try:
        if not os.path.lexists(f'{state.path}/lock'):
            return True
        lock = state.take('lock')
    except OSError:
        return False
    if lock >= 0:
        os.close(lock)
    return lock >= 0


def _restore(target: Target, leases: _Leases, done: str,
             at_rest: Callable[[], bool],
             agents: Sequence[state_directory.Agent]) -> bool:
    """Do it in place of an agent that does not answer."""
    code = program.main(['--all', '--state-dir', str(target.state_dir),
                         '--stop-file', str(target.stop_files[0])])
    rest, left = at_rest(), leases.count()
    if code if left else rest:
        return _report(leases, done)
    pids = ', '.join(str(agent.pid) for agent in agents) or 'unknown'
    return _report(leases, (
        f'the agent (process {pids}) did not answer within '
        f'{STOP_WAIT_S:.0f} s'
        + (', every limit was restored in its place. The '
           f'records of {amounts.counted(left, "limit")} stay until it '
           'answers or ends: '
           'scavenger-restore --watch restores again what it may still write'
           if left else '; scavenger-restore --watch restores what it may '
           'still set') + '. To be sure, kill it'), restored=True)


def _report(leases: _Leases, done: str, restored: bool = False) -> bool:
    """Print how many limits are gone and what is left; return whether nothing
    is."""
    left = [] if restored else leases.left()
    _print(f'limits removed: {len(leases.names) - len(left)}')
    for name in left:
        _print(f'NOT removed, see above: {name}; scavenger-agent stop-all '
               'tries again')
    refused = ownership.refused(leases.state_dir)
    for path in refused:
        _print(f'not known: {path} is a record that could not be trusted; '
               'its limit may be in force. Look at it, restore that knob by '
               'hand, delete the file')
    if left or refused:
        return False
    _print(f'{done} (state directory {leases.state_dir}); scavenger-agent '
           'resume allows limits again')
    return True


class _Leases:
    """The lease records of one state directory while they go."""

    def __init__(self, state_dir: pathlib.Path) -> None:
        self.state_dir = state_dir
        self.names: set[str] = set()

    def count(self) -> int:
        """Return how many lease records there are now.

        :raises OSError: the directory cannot be read.
        """
        now = set(self._names())
        self.names |= now
        return len(now)

    def left(self) -> list[str]:
        """Return what each record that is left is about."""
        return [self._about(name) for name in self._names()]

    def _names(self) -> list[str]:
        try:
            return sorted(name for name in os.listdir(
                self.state_dir / 'leases') if name.endswith('.json'))
        except FileNotFoundError:
            return []

    def _about(self, name: str) -> str:
        path = self.state_dir / 'leases' / name
        try:
            with open(path, 'rb') as file:
                lease = records.parse(file.read(records.MAX_BYTES))
        except (OSError, actions.Refused):
            return str(path)
        return f'{lease.knob} of {lease.workload}'


def _print_others(targets: Sequence[Target],
                  agents: Sequence[state_directory.Agent]) -> bool:
    """Print the agents that were not stopped; return whether any is left."""
    others = [agent for agent in agents if not any(
        _same(agent.seen_at, target.state_dir) for target in targets)]
    for agent in others:
        try:
            count = str(_Leases(pathlib.Path(agent.seen_at)).count())
        except OSError:
            count = 'unknown'
        here = agent.seen_at == agent.state_dir
        _print(f'ANOTHER AGENT is not stopped: process {agent.pid}, state '
               f'directory {agent.state_dir}, limits in force: {count}. '
               + ('scavenger-agent stop-all --state-dir '
                  f'{shlex.quote(agent.state_dir)}, with the --config-file '
                  'of that agent, stops it' if here
                  else 'It has another mount namespace, such as a '
                  'container\'s: run stop-all in there, or end the process'))
    return bool(others)


def _same(path: str, other: pathlib.Path) -> bool:
    try:
        return path == str(other) or os.path.samefile(path, other)
    except OSError:
        return False


def _owner(path: pathlib.Path) -> str:
    try:
        uid = path.stat(follow_symlinks=False).st_uid
        return f'{pwd.getpwuid(uid).pw_name}, user {uid}'
    except KeyError:
        return f'user {uid}'
    except OSError:
        return 'unknown'


def _sync(directory: pathlib.Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _print(text: str) -> None:
    print(printable(text), flush=True)
