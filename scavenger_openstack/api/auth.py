# SPDX-License-Identifier: Apache-2.0

"""Who asks: by Keystone, by a password file, or as the request says.

Each way is WSGI middleware that leaves the caller in the same variables of
the environment, which are Keystone's; the application only reads those.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from collections.abc import Iterable
import hashlib
import hmac
import os
import stat
import threading
from typing import Any

import bcrypt
from oslo_config import cfg

from scavenger_openstack.api.call import Caller
from scavenger_openstack import errors

Application = Callable[[dict[str, Any], Any], Iterable[bytes]]

KEYSTONE, HTTP_BASIC, NOAUTH = 'keystone', 'http_basic', 'noauth'

STATUS = 'HTTP_X_IDENTITY_STATUS'
CONFIRMED = 'Confirmed'

_OURS = ('HTTP_X_ROLES', 'HTTP_X_USER_ID', 'HTTP_X_PROJECT_ID',
         'HTTP_X_USER_NAME', 'HTTP_X_DOMAIN_ID',
         'HTTP_OPENSTACK_SYSTEM_SCOPE')
_REMEMBERED = 64
_FILE_MOST_BYTES = 1 << 20


def protected(application: Application, strategy: str, conf: cfg.ConfigOpts
              ) -> Application:
    """``application`` behind the chosen way.

    :raises ConfigError: it cannot work.
    """
    if strategy == KEYSTONE:
        return _keystone(application, conf)
    if strategy == HTTP_BASIC:
        return HttpBasic(application, conf.api.http_basic_file)
    return _noauth(application)


def caller(environ: dict[str, Any]) -> Caller | None:
    """Return the caller, ``None`` when a request does not name it."""
    if environ.get(STATUS) != CONFIRMED:
        return None
    roles, user, project, user_name, domain, system = (
        environ.get(name) or '' for name in _OURS)
    return Caller(user=user, project=project, roles=tuple(
        role.strip() for role in roles.split(',') if role.strip()),
        user_name=user_name, domain=domain, system=system)


def challenge(strategy: str) -> str | None:
    """``WWW-Authenticate``; Keystone's middleware has its own."""
    return ('Basic realm="interference"' if strategy == HTTP_BASIC else None)


def _keystone(application: Application, conf: cfg.ConfigOpts) -> Application:
    from keystonemiddleware import auth_token
    for group, options in auth_token.list_opts():
        conf.register_opts(options, group)
    section = conf.keystone_authtoken
    missing = [name for name in ('www_authenticate_uri', 'auth_type')
               if not section[name]]
    if missing:
        raise errors.ConfigError(
            f'[keystone_authtoken] {" and ".join(missing)}: not set, and '
            '[api] auth_strategy is keystone')
    # It lets through what it cannot tell, which we answer with 401.
    made: Application = auth_token.AuthProtocol(application, {
        'oslo_config_config': conf, 'delay_auth_decision': True})
    return made


def _noauth(application: Application) -> Application:
    """The request itself says who it is from; without roles: an admin."""
    def called(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        environ.setdefault('HTTP_X_ROLES', 'admin,member,reader')
        environ.setdefault('HTTP_X_USER_ID', 'noauth')
        environ[STATUS] = CONFIRMED
        return application(environ, start)
    return called


class HttpBasic:
    """Users of a file; each may do everything.

    A line is NAME:HASH, as ``htpasswd -B`` writes it.  The file is read for
    each request that is not remembered, so a changed one holds at once.
    Checking a hash takes long on purpose: what fitted is remembered, hashed
    with a key that only this process knows.
    """

    def __init__(self, application: Application, path: str) -> None:
        """Read the file once, so that a wrong one is found at the start.

        :raises ConfigError: the file cannot be used.
        """
        self._application = application
        self._path = path
        self._key = os.urandom(32)
        self._lock = threading.Lock()
        self._fitted: dict[bytes, tuple[str, Any]] = {}
        _users(path)

    def __call__(self, environ: dict[str, Any], start: Any
                 ) -> Iterable[bytes]:
        for name in [name for name in environ
                     if name == STATUS or name in _OURS]:
            del environ[name]
        user = self._user(environ.pop('HTTP_AUTHORIZATION', ''))
        if user is not None:
            environ.update({STATUS: CONFIRMED, 'HTTP_X_USER_ID': user,
                            'HTTP_X_PROJECT_ID': '',
                            'HTTP_X_ROLES': 'admin,member,reader'})
        return self._application(environ, start)

    def _user(self, header: str) -> str | None:
        kind, _, text = header.strip().partition(' ')
        if kind.lower() != 'basic':
            return None
        try:
            decoded = base64.b64decode(text.strip(), validate=True)
            name_bytes, colon, password = decoded.partition(b':')
            name = name_bytes.decode('utf-8')
            users, version = _users(self._path)
        except (ValueError, binascii.Error, errors.ConfigError):
            return None
        if not colon:
            return None
        proof = hmac.digest(self._key, decoded, hashlib.sha256)
        with self._lock:
            if self._fitted.get(proof) == (name, version):
                return name
        # Unknown names take as long as known ones.
        password_hash = users.get(name)
        try:
            fits = bcrypt.checkpw(password, password_hash or next(
                iter(users.values()), b''))
        except ValueError:
            return None
        if password_hash is None or not fits:
            return None
        with self._lock:
            if len(self._fitted) >= _REMEMBERED:
                self._fitted.clear()
            self._fitted[proof] = name, version
        return name


def htpasswd_line(name: str, password: str) -> bytes:
    """Return the line of a user that ``htpasswd -B`` writes."""
    return b'%s:%s\n' % (name.encode(), bcrypt.hashpw(
        password.encode(), bcrypt.gensalt()))


def _users(path: str) -> tuple[dict[str, bytes], Any]:
    """Name -> hash, and what changes when the file does.

    :raises ConfigError: it cannot be read, others may read or write it, or
        a hash is not bcrypt's.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC
                             | os.O_NONBLOCK)
        with open(descriptor, 'rb') as file:
            is_ = os.fstat(descriptor)
            data = file.read(_FILE_MOST_BYTES + 1)
    except OSError as exc:
        raise errors.ConfigError(
            f'[api] http_basic_file {path}: {exc.strerror}') from exc
    if not stat.S_ISREG(is_.st_mode) or is_.st_mode & 0o077:
        raise errors.ConfigError(
            f'[api] http_basic_file {path}: others can read it; type '
            f'"chmod 600 {path}"')
    if len(data) > _FILE_MOST_BYTES:
        raise errors.ConfigError(
            f'[api] http_basic_file {path}: longer than {_FILE_MOST_BYTES} '
            'bytes')
    users = {}
    for number, line in enumerate(data.splitlines(), 1):
        name, colon, hashed = line.strip().partition(b':')
        if not line.strip() or line.startswith(b'#'):
            continue
        if not colon or hashed[:4] not in (b'$2a$', b'$2b$', b'$2y$'):
            raise errors.ConfigError(
                f'[api] http_basic_file {path}: line {number} is not '
                'NAME:HASH; write it with "htpasswd -B"')
        users[name.decode('utf-8', 'replace')] = hashed
    return users, (is_.st_ino, is_.st_size, is_.st_mtime_ns)
