# SPDX-License-Identifier: Apache-2.0

"""Horizon with our plug-in, beside the OpenStack of the tests.

It runs as in production: behind a WSGI server, without debugging, with style
sheets and scripts that were compiled beforehand.  These depend on Horizon and
on the plug-in alone, so they are kept in the environment of :mod:`.packages`
and compiled again only when the plug-in's own change.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pathlib
import secrets
import shutil
import subprocess

from scavenger_openstack.tests.functional.openstack import configuration
from scavenger_openstack.tests.functional.openstack import packages
from scavenger_openstack.tests.functional.openstack import services

SERVICE = 'horizon'
WSGI = 'panel_wsgi'
COMPILE_S = 600.0
KEPT = 4
"""So many compiled sets stay: of other checkouts, and of other versions."""

THEMES = 'default', 'material'
"""Those of Horizon; the cookie ``theme`` chooses one."""

PLUGIN = packages.TOP / packages.PACKAGE / 'dashboard'
COMPILED = 'enabled', 'static'
"""The directories of the plug-in that decide what is compiled."""

MODULES = {
    'panel_settings': """
from openstack_dashboard.local import enabled

from scavenger_openstack.dashboard import enabled as plugin

enabled.__path__.extend(plugin.__path__)

from openstack_dashboard.settings import *
""",
    WSGI: """
from django.conf import settings
from django.core import wsgi
import whitenoise

application = whitenoise.WhiteNoise(
    wsgi.get_wsgi_application(), root=settings.STATIC_ROOT, prefix='static/')
""",
    'local/__init__': ''}
"""Modules of the program -> their text."""

SETTINGS = """
DEBUG = False
WEBROOT = '/'
ALLOWED_HOSTS = ['127.0.0.1', 'localhost']
SECRET_KEY = {secret!r}
STATIC_ROOT = {static!r}
COMPRESS_OFFLINE = True
SESSION_ENGINE = 'django.contrib.sessions.backends.file'
SESSION_FILE_PATH = {sessions!r}
CACHES = {{'default': {{
    'BACKEND': 'django.core.cache.backends.locmem.LocMemCache'}}}}
OPENSTACK_KEYSTONE_URL = {keystone!r}
"""
"""What an operator writes into ``local_settings.py``."""


def static(environment: pathlib.Path) -> pathlib.Path:
    """Return the directory of all compiled static files, both themes.

    It is made if it is not there, in half a minute.

    :param environment: that of the programs
    :raises packages.Unavailable: it cannot be made; with the last lines.
    """
    top = environment / 'panel-static'
    top.mkdir(exist_ok=True)
    directory = top / _fingerprint()
    with open(top / 'lock', 'a') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ready = directory / packages.READY
        if not ready.exists():
            shutil.rmtree(directory, ignore_errors=True)
            _remove_old(top)
            try:
                _compile(environment, directory)
            except BaseException:
                shutil.rmtree(directory, ignore_errors=True)
                raise
            ready.touch()
        os.utime(ready)
    return directory


def service(site: configuration.Site, plugins: pathlib.Path
            ) -> services.Service:
    """Horizon behind HTTP, on the port of its name.

    :raises packages.Unavailable: as :func:`static`.
    """
    directory = site.directory(SERVICE)
    sessions = site.top / 'sessions'
    sessions.mkdir(mode=0o700)
    _write_modules(directory, static(site.environment), sessions,
                   site.keystone)
    port = site.ports[SERVICE]
    return services.Service(
        SERVICE, [str(site.environment / 'bin/python'), '-P',
                  str(services.SERVE), WSGI, str(port)],
        _variables(directory, services.environment(site, plugins)),
        lambda: services.answers(f'{site.url(SERVICE)}/auth/login/', port))


def _compile(environment: pathlib.Path, directory: pathlib.Path) -> None:
    work = directory / 'work'
    work.mkdir(parents=True)
    plugins = packages.plugins(work / 'plugins')
    settings = work / 'etc'
    _write_modules(settings, directory, work, 'http://127.0.0.1/v3')
    variables = _variables(settings, {
        'PATH': '/usr/sbin:/usr/bin:/sbin:/bin', 'HOME': str(work),
        'PYTHONPATH': str(plugins), 'PYTHONDONTWRITEBYTECODE': '1'})
    for words in (('collectstatic', '--noinput', '--verbosity', '0'),
                  ('compress', '--force', '--verbosity', '0')):
        done = subprocess.run(
            [str(environment / 'bin/python'), '-P', '-W', 'ignore', '-m',
             'django', *words], env=variables, cwd=work, capture_output=True,
            text=True, timeout=COMPILE_S, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise packages.Unavailable(
                f'Horizon\'s {words[0]} failed: {done.stderr[-2000:]}')
    shutil.rmtree(work)


def _write_modules(directory: pathlib.Path, static_files: pathlib.Path,
                   sessions: pathlib.Path, keystone: str) -> None:
    (directory / 'local').mkdir(parents=True)
    for name, text in MODULES.items():
        (directory / f'{name}.py').write_text(text)
    (directory / 'local/local_settings.py').write_text(SETTINGS.format(
        secret=secrets.token_hex(), static=str(static_files),
        sessions=str(sessions), keystone=keystone))


def _variables(directory: pathlib.Path, variables: dict[str, str]
               ) -> dict[str, str]:
    return {**variables, 'DJANGO_SETTINGS_MODULE': 'panel_settings',
            'PYTHONPATH': f'{directory}:{variables["PYTHONPATH"]}'}


def _fingerprint() -> str:
    """What has to be the same for compiled files to be used again."""
    digest = hashlib.sha256(SETTINGS.encode())
    for path in sorted(path for name in COMPILED
                       for path in (PLUGIN / name).rglob('*')
                       if path.is_file() and path.suffix != '.pyc'):
        digest.update(str(path.relative_to(PLUGIN)).encode() + b'\0')
        digest.update(path.read_bytes() + b'\0')
    return digest.hexdigest()[:16]


def _remove_old(top: pathlib.Path) -> None:
    """Leave room for one more."""
    ready = []
    for path in top.glob(f'*/{packages.READY}'):
        with contextlib.suppress(OSError):
            ready.append((path.stat().st_mtime, path.parent))
    for _, path in sorted(ready, reverse=True)[KEPT - 1:]:
        shutil.rmtree(path, ignore_errors=True)
