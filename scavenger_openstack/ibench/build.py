# SPDX-License-Identifier: Apache-2.0

"""The kernels, compiled at first use and kept for the next."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import platform
import shlex
import shutil
import subprocess
import tempfile

from scavenger_openstack import errors

SOURCES = pathlib.Path(__file__).parent / 'kernels'
PROGRAM = 'scavenger-soi'
FLAGS = ('-O2', '-pthread')
COMPILE_S = 120.0


def cache_directory() -> pathlib.Path:
    """Where the compiled program is kept: the user's cache directory."""
    home = os.environ.get('XDG_CACHE_HOME')
    if not home or not os.path.isabs(home):
        home = os.path.expanduser('~/.cache')
    return pathlib.Path(home) / 'scavenger-openstack'


def find_compiler() -> list[str]:
    """Return the words that call the C compiler.

    :raises ConfigError: there is none.
    """
    words = shlex.split(os.environ.get('CC', '')) or ['cc']
    if not shutil.which(words[0]):
        raise errors.ConfigError(
            f'no C compiler ({words[0]}): the programs that make load are '
            'compiled at first use, install gcc and libc6-dev')
    return words


def compile_c(sources: list[pathlib.Path], target: pathlib.Path,
              *libraries: str) -> None:
    """Compile and link C files into the program ``target``.

    :raises ConfigError: there is no compiler.
    :raises DriverError: it fails, or does not end.
    """
    command = [*find_compiler(), *FLAGS, '-o', str(target),
               *map(str, sources), *libraries]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False,
            stdin=subprocess.DEVNULL, start_new_session=True,
            timeout=COMPILE_S)
    except subprocess.TimeoutExpired as exc:
        raise errors.DriverError(f'{sources[0]}: {command[0]} did not end '
                                 f'in {COMPILE_S:.0f} s') from exc
    if done.returncode:
        raise errors.DriverError(
            f'{sources[0]} does not compile: {done.stderr.strip()[-400:]} '
            '(are gcc and libc6-dev installed?)')


def build(sources: pathlib.Path = SOURCES,
          cache: pathlib.Path | None = None, *,
          program: str = PROGRAM) -> pathlib.Path:
    """Return the path of the program that the C files in ``sources`` make.

    It is compiled when no program of these files, this compiler and this
    machine is in ``cache``.

    :raises ConfigError: there is no compiler, no source, or the cache
        cannot be written to or run from.
    :raises DriverError: the compiler fails.
    """
    cache = cache or cache_directory()
    target = cache / f'{program}-{_key(sources)}'
    if target.exists():
        return target
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.statvfs(cache).f_flag & os.ST_NOEXEC:
            raise errors.ConfigError(
                f'{cache} is mounted noexec: programs are compiled there, '
                'set XDG_CACHE_HOME to a directory that allows them')
        # Two may build at once: each in a draft of its own.
        handle, draft = tempfile.mkstemp(prefix=program, dir=cache)
        os.close(handle)
    except OSError as exc:
        raise errors.ConfigError(
            f'{exc.filename or cache}: {exc.strerror}: programs are '
            'compiled there, set XDG_CACHE_HOME to a directory that can be '
            'written to') from exc
    try:
        compile_c(sorted(sources.glob('*.c')), pathlib.Path(draft), '-lm')
        os.chmod(draft, 0o755)
        os.replace(draft, target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)
    return target


def _key(sources: pathlib.Path) -> str:
    """What the program depends on, as a hash."""
    files = sorted([*sources.glob('*.c'), *sources.glob('*.h')])
    if not files:
        raise errors.ConfigError(f'{sources} has no C files: the package is '
                                 'not installed completely')
    compiler = find_compiler()
    digest = hashlib.sha256()
    for part in (platform.machine(), *compiler, *FLAGS,
                 _version(compiler)):
        digest.update(part.encode() + b'\0')
    for file in files:
        digest.update(file.name.encode() + b'\0' + file.read_bytes())
    return digest.hexdigest()[:16]


def _version(compiler: list[str]) -> str:
    """The first line that names the compiler's version; '' without any."""
    try:
        return subprocess.run(
            [*compiler, '--version'], capture_output=True, text=True,
            check=False, stdin=subprocess.DEVNULL,
            timeout=COMPILE_S).stdout.partition('\n')[0]
    except (OSError, subprocess.SubprocessError):
        return ''
