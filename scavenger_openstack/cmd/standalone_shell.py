# SPDX-License-Identifier: Apache-2.0

"""``scavenger-standalone env``: lines for a shell, with which ``openstack``
uses the API of this host, and those that undo it.
"""

from __future__ import annotations

import os
import pathlib
import shlex

from oslo_config import cfg

from scavenger_openstack.cmd import standalone_files
from scavenger_openstack import errors
from scavenger_openstack.restore import state_directory
from scavenger_openstack.types import printable

ADDRESS = '127.0.0.1'
_LISTENS = '0A'
"""The state of a socket in /proc/net/tcp."""

SET = r"""for scavenger_name in $(env |
    sed -n 's/^\(OS_[A-Za-z0-9_]*\)=.*/\1/p'); do
  if [ -z "${scavenger_has_saved-}" ]; then
    eval "scavenger_saved_$scavenger_name=\$$scavenger_name"
  fi
  unset "$scavenger_name"
done
unset scavenger_name
scavenger_has_saved=yes
"""
"""Keeps what the shell has for another cloud: any variable that is left
would be an option of the authentication here, which takes none of them."""

UNDO = r"""if [ -n "${scavenger_has_saved-}" ]; then
  unset scavenger_has_saved OS_AUTH_TYPE OS_USERNAME OS_PASSWORD OS_ENDPOINT
  for scavenger_name in $(set |
      sed -n 's/^scavenger_saved_\(OS_[A-Za-z0-9_]*\)=.*/\1/p'); do
    eval "export $scavenger_name=\"\$scavenger_saved_$scavenger_name\""
    unset "scavenger_saved_$scavenger_name"
  done
  unset scavenger_name
fi
"""


def environment(conf: cfg.ConfigOpts) -> str:
    """Lines for a shell, with which ``openstack`` finds the API.

    :raises ScavengerError: the password is not there, or not for this user;
        or no API, or another program, would get it.
    """
    password = _password(standalone_files.of(conf).password)
    _check_listener(pathlib.Path(conf.state_dir), conf.api.port)
    variables = {'OS_AUTH_TYPE': 'http_basic',
                 'OS_USERNAME': standalone_files.NAME,
                 'OS_PASSWORD': password,
                 'OS_ENDPOINT': f'http://{ADDRESS}:{conf.api.port}'}
    return SET + ''.join(f'export {name}={shlex.quote(value)}\n'
                         for name, value in variables.items())


def _password(path: pathlib.Path) -> str:
    try:
        return path.read_text().strip()
    except PermissionError as exc:
        raise errors.ScavengerError(
            f'{path}: only root may read the password: type it as '
            'root') from exc
    except FileNotFoundError as exc:
        raise errors.ScavengerError(
            f'{path}: not there; start scavenger-standalone first, '
            'with the same options') from exc
    except (OSError, ValueError) as exc:
        raise errors.ScavengerError(
            f'{path}: cannot be read: {exc}') from exc


def _check_listener(state_dir: pathlib.Path, port: int) -> None:
    """Refuse to show the password to another program.

    :raises ScavengerError: what listens is not the API that the agent of
        this state directory has started.
    """
    agents = {agent.pid for agent in state_directory.agents(
        owner=os.geteuid()) if _is_same(agent.seen_at, state_dir)}
    if not agents:
        raise errors.ScavengerError(
            f'no scavenger-standalone runs with state directory {state_dir}; '
            'start it first, with the same options')
    socket = _listening(port)
    if socket is None:
        raise errors.ScavengerError(
            f'the API does not listen at {ADDRESS}:{port} yet; try again in '
            'a few seconds, or look at the log of scavenger-standalone')
    try:
        owners = {pid: _parent(pid) for pid in _holders(socket)}
    except OSError as exc:
        raise errors.ScavengerError(
            f'which program listens at {ADDRESS}:{port} cannot be seen, and '
            f'it would get the password: {exc}') from exc
    if not owners or not agents.issuperset(owners.values()):
        names = ', '.join(f'{printable(_name(pid))} (process {pid})'
                          for pid in owners) or 'one that is not seen'
        raise errors.ScavengerError(
            f'another program listens at {ADDRESS}:{port} and would get the '
            f'password: {names}; set another [api] port and start '
            'scavenger-standalone again')


def _is_same(path: str, other: pathlib.Path) -> bool:
    try:
        return os.path.samefile(path, other)
    except OSError:
        return False


def _listening(port: int) -> str | None:
    """What the kernel calls the socket that gets connections to a port of
    loopback, ``None`` when there is none."""
    address = f'0100007F:{port:04X}'
    for line in pathlib.Path('/proc/net/tcp').read_text().splitlines()[1:]:
        fields = line.split()
        if fields[1] == address and fields[3] == _LISTENS:
            return f'socket:[{fields[9]}]'
    return None


def _holders(socket: str) -> list[int]:
    """The processes that have a socket open.

    :raises OSError: a process cannot be read, and no other one listens.
    """
    holders, refused = [], None
    for process in pathlib.Path('/proc').glob('[0-9]*'):
        try:
            if any(os.readlink(file) == socket
                   for file in os.scandir(process / 'fd')):
                holders.append(int(process.name))
        except PermissionError as exc:
            refused = exc
        except OSError:
            continue            # it has ended, or a file was closed
    if refused is not None and not holders:
        raise refused
    return holders


def _parent(pid: int) -> int:
    """Return the id of the process that started a process.

    :raises OSError: the process has ended.
    """
    text = pathlib.Path(f'/proc/{pid}/stat').read_text(errors='replace')
    return int(text.rpartition(')')[2].split()[1])


def _name(pid: int) -> str:
    try:
        return pathlib.Path(f'/proc/{pid}/comm').read_text(
            errors='replace').strip()
    except OSError:
        return '?'
