# SPDX-License-Identifier: Apache-2.0

"""The files of a standalone's control plane: database, password, options.

They are in a directory that only root writes to.  The user that the API runs
as may write the database, whose other files SQLite makes with its owner and
mode, and can make no file there: nothing that root opens is from that user.
"""

from __future__ import annotations

import os
import pathlib
import pwd
import secrets
import shlex
import stat
from typing import NamedTuple

from oslo_config import cfg

from scavenger_openstack import conf as conf_package
from scavenger_openstack.conf import agent as conf_agent
from scavenger_openstack import errors
from scavenger_openstack.restore import files as restore_files

DEFAULT_DIRECTORY = '/var/lib/scavenger/standalone'
NAME = 'admin'
USERS = 'scavenger-control', 'nobody'
"""The API runs as the first of them that exists.  Not as the agent's user,
which owns the directory of the stop file and may use libvirt."""
AGENT_USER = 'scavenger'
"""Owns /var/lib/scavenger where the units are installed."""


class Files(NamedTuple):
    """Where they are."""

    directory: pathlib.Path

    @property
    def database(self) -> pathlib.Path:
        return self.directory / 'scavenger.sqlite'

    @property
    def url(self) -> str:
        return f'sqlite:///{self.database}'

    @property
    def users(self) -> pathlib.Path:
        """Name and hash, for the API."""
        return self.directory / 'users'

    @property
    def password(self) -> pathlib.Path:
        """The file with root's password for the API."""
        return self.directory / 'password'

    @property
    def options(self) -> pathlib.Path:
        """The configuration of scavenger-api and scavenger-manage."""
        return self.directory / 'scavenger.conf'


def of(conf: cfg.ConfigOpts) -> Files:
    """Return where the files are: with another state directory than the
    default beside it, as only its owner may enter that."""
    if os.path.realpath(conf.state_dir) == os.path.realpath(
            conf_agent.DEFAULT_STATE_DIR):
        return Files(pathlib.Path(DEFAULT_DIRECTORY))
    state_dir = pathlib.Path(os.path.abspath(conf.state_dir))
    return Files(state_dir.with_name(f'{state_dir.name}-standalone'))


def user() -> pwd.struct_passwd:
    """Whom the API runs as; this user where it is not root.

    :raises ScavengerError: there is none.
    """
    if os.geteuid():
        return pwd.getpwuid(os.geteuid())
    for name in USERS:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise errors.ScavengerError(
        'there is no user that the API can run as; make the user '
        f'{USERS[0]} (systemd-sysusers does so)')


def make(files: Files, conf: cfg.ConfigOpts, user: pwd.struct_passwd) -> None:
    """Make what is not there; the tables are not made here.

    :raises ScavengerError: the directory is not ours, or another user could
        replace it or remove the stop file.
    :raises OSError: it cannot be done.
    """
    if not os.geteuid():
        _check_above(conf_package.stop_file(conf), user,
                     'remove the stop file, which is the kill switch')
        for place in (files.directory, conf_package.state_dir(conf)):
            _check_above(place, user, f'put another {place} in its place')
    _make_directory(files.directory, user.pw_gid)
    descriptor = os.open(files.database, os.O_RDWR | os.O_CREAT
                         | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    os.close(descriptor)
    for end in ('', '-wal', '-shm'):
        path = f'{files.database}{end}'
        if os.path.exists(path):
            os.chown(path, os.geteuid(), user.pw_gid)
            os.chmod(path, 0o660)
    if not (files.users.exists() and files.password.exists()):
        from scavenger_openstack.api import auth
        password = secrets.token_urlsafe(18)
        _write(files.users, auth.htpasswd_line(NAME, password))
        _write(files.password, f'{password}\n'.encode())
    os.chown(files.users, user.pw_uid, user.pw_gid)
    _write(files.options, _options(files, conf).replace('$', '$$').encode())


def _make_directory(path: pathlib.Path, group: int) -> None:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    info = path.stat(follow_symlinks=False)
    if (not stat.S_ISDIR(info.st_mode) or info.st_mode & 0o022
            or info.st_uid != os.geteuid()):
        raise errors.ScavengerError(
            f'{path} is no directory that only user {os.geteuid()} can write '
            'to: remove it')
    os.chown(path, -1, group)
    path.chmod(0o750)


def _check_above(path: pathlib.Path, user: pwd.struct_passwd, can: str
                 ) -> None:
    """Refuse a path below a directory that another user can write to.

    :param user: whom the API runs as
    :param can: what another user could do who writes above the path
    :raises ScavengerError: the API's user can, or a third one.
    """
    owners = {0, os.stat('/').st_uid, *(
        account.pw_uid for account in pwd.getpwall()
        if account.pw_name == AGENT_USER)}
    for above in dict.fromkeys(
            (*pathlib.Path(os.path.abspath(path)).parents,
             *pathlib.Path(os.path.realpath(path)).parents)):
        try:
            info = above.stat()
        except FileNotFoundError:
            continue            # root makes it
        if above != above.parent and (info.st_uid not in owners
                                      or info.st_uid == user.pw_uid):
            raise errors.ScavengerError(
                f'{above} belongs to user {_name(info.st_uid)}, which could '
                f'{can}: chown root {shlex.quote(str(above))}')
        may = stat.S_IWOTH | (stat.S_IWGRP if info.st_gid == user.pw_gid
                              else 0)
        if info.st_mode & may and not info.st_mode & stat.S_ISVTX:
            raise errors.ScavengerError(
                f'{above} can be written to by user {user.pw_name} of the '
                f'API, which could {can}: chmod go-w '
                f'{shlex.quote(str(above))}')


def _name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _write(path: pathlib.Path, data: bytes) -> None:
    """Put a file that only its owner reads in place of the one before."""
    restore_files.replace(path, data, draft=f'{path}.tmp')


def _options(files: Files, conf: cfg.ConfigOpts) -> str:
    return f"""\
# scavenger-standalone writes this at each start, for scavenger-api; with
# --config-file it is for scavenger-manage, too.
[DEFAULT]
debug = {str(conf.debug).lower()}
[database]
connection = {files.url}
[api]
auth_strategy = http_basic
http_basic_file = {files.users}
port = {conf.api.port}
silent_s = {conf.api.silent_s}
"""
