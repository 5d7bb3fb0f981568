# SPDX-License-Identifier: Apache-2.0

"""The virtual environment that the OpenStack of the tests runs from.

It is made once for each list of packages, below ``$XDG_CACHE_HOME`` (or
``~/.cache``), and shared by all checkouts.  Delete it to have it made again.
``SCAVENGER_NOVA``, such as 32.0.0, is another release of Nova.
"""

from __future__ import annotations

from collections.abc import Callable
import configparser
import contextlib
import fcntl
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

from scavenger_openstack.tests.functional import guest_image

TOP = pathlib.Path(__file__).parents[4]
PACKAGE = 'scavenger_openstack'
REQUIREMENTS = TOP / 'tools/openstack-requirements.txt'
CONSTRAINTS = TOP / 'tools/openstack-constraints.txt'

NOVA = 'SCAVENGER_NOVA'

INSTALL_S = 1800.0
KEEP_S = 30 * 86400.0
"""One that was not used for so long goes when another one is made."""

READY = 'scavenger-ready'


class Unavailable(Exception):
    """There is no OpenStack to be had here; why, and what to do."""


def environment(say: Callable[[str], None] = print) -> pathlib.Path:
    """The directory of the virtual environment, made now if need be.

    :param say: gets a line when it takes a while
    :raises Unavailable: it cannot be made here.
    """
    try:
        top = guest_image.cache_directory().parent
    except guest_image.Unavailable as exc:
        raise Unavailable(str(exc)) from None
    libvirt = _libvirt()
    found = top / f'stack-{_fingerprint(libvirt)}'
    with open(top / 'stack.lock', 'a') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ready = found / READY
        if not ready.exists():
            say(f'OpenStack is installed in {found}: a minute or more')
            shutil.rmtree(found, ignore_errors=True)
            _remove_old(top)
            try:
                _install(found, libvirt)
            except BaseException:
                shutil.rmtree(found, ignore_errors=True)
                raise
            ready.touch()
        os.utime(ready)
    return found


def plugins(where: pathlib.Path) -> pathlib.Path:
    """A directory from which Python has our package and its entry points.

    As if it were installed, but without a copy.

    :param where: made now
    """
    setup = configparser.ConfigParser()
    setup.read(TOP / 'setup.cfg')
    about = where / f'{PACKAGE}-0.dist-info'
    about.mkdir(parents=True)
    (where / PACKAGE).symlink_to(TOP / PACKAGE)
    (about / 'METADATA').write_text(
        'Metadata-Version: 2.1\nName: scavenger-openstack\nVersion: 0\n')
    with open(about / 'entry_points.txt', 'w') as file:
        for group, lines in setup['entry_points'].items():
            file.write(f'[{group}]\n{lines.strip()}\n\n')
    return where


def _fingerprint(libvirt: str) -> str:
    """What has to be the same for an environment to be used again."""
    parts = [_listed(REQUIREMENTS).encode(), _listed(CONSTRAINTS).encode(),
             f'{sys.version} {sys.base_prefix} {libvirt}'.encode()]
    return hashlib.sha256(b'\0'.join(parts)).hexdigest()[:16]


def _listed(file: pathlib.Path) -> str:
    """The packages, with the release of Nova that is asked for."""
    text, asked = file.read_text(), os.environ.get(NOVA)
    return re.sub('(?m)^nova==.*$', f'nova=={asked}', text) if asked else text


def _libvirt() -> str:
    """The version of the installed libvirt: its binding needs the same."""
    try:
        done = subprocess.run(
            ['pkg-config', '--modversion', 'libvirt'], capture_output=True,
            text=True, timeout=60, stdin=subprocess.DEVNULL)
    except OSError:
        done = None
    if done is None or done.returncode:
        raise Unavailable('needs libvirt-dev and pkg-config: run '
                          'tools/setup.sh test as root')
    return done.stdout.strip()


def _install(where: pathlib.Path, libvirt: str) -> None:
    _run([sys.executable, '-m', 'venv', str(where)])
    files = []
    for file in CONSTRAINTS, REQUIREMENTS:
        files.append(where / file.name)
        files[-1].write_text(_listed(file))
    _run([str(where / 'bin/python'), '-m', 'pip', 'install', '--quiet',
          '--no-input', '--disable-pip-version-check',
          '--root-user-action=ignore', '--constraint', str(files[0]),
          '--requirement', str(files[1]), f'libvirt-python=={libvirt}'])


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=INSTALL_S,
            stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        raise Unavailable(f'{" ".join(command[:4])} did not end within '
                          f'{INSTALL_S:.0f} s; look at the network') from None
    if done.returncode:
        raise Unavailable(
            f'{" ".join(command[:4])} failed, the package index may be out '
            f'of reach: {done.stderr.strip()[-1000:]}')


def _remove_old(top: pathlib.Path) -> None:
    for path in top.glob('stack-*'):
        with contextlib.suppress(OSError):
            ready = path / READY
            used = (ready if ready.exists() else path).stat().st_mtime
            if time.time() - used > KEEP_S:
                shutil.rmtree(path, ignore_errors=True)
