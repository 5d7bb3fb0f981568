# SPDX-License-Identifier: Apache-2.0

"""The kernels, compiled at first use and kept for the next."""

from __future__ import annotations

from collections.abc import Callable
import contextlib
import hashlib
import os
import pathlib
import platform
import shlex
import shutil
import signal
import subprocess
import tempfile
import time

from scavenger_openstack import errors

SOURCES = pathlib.Path(__file__).parent / 'kernels'
PROGRAM = 'scavenger-soi'
FLAGS = ('-O2', '-pthread')
COMPILE_S = 120.0
CHECK_S = 0.1


def cache_directory() -> pathlib.Path:
    """Return where the compiled program is kept: the user's cache
    directory."""
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
              *libraries: str, check: Callable[[], None] = lambda: None
              ) -> None:
    """Compile and link C files into the program ``target``.

    :param check: called ten times a second; what it raises ends the compiler
    :raises ConfigError: there is no compiler.
    :raises DriverError: it fails, or does not end.
    """
    command = [*find_compiler(), *FLAGS, '-o', str(target),
               *map(str, sources), *libraries]
    until_s = time.monotonic() + COMPILE_S
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True, errors='replace',
        start_new_session=True)
    try:
        complaint = None
        while complaint is None:
            check()
            if time.monotonic() > until_s:
                raise errors.DriverError(
                    f'{sources[0]}: {command[0]} did not end in '
                    f'{COMPILE_S:.0f} s')
            with contextlib.suppress(subprocess.TimeoutExpired):
                complaint = process.communicate(timeout=CHECK_S)[1]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)      # and what it runs
            process.communicate()
    if process.returncode:
        raise errors.DriverError(
            f'{sources[0]} does not compile: {complaint.strip()[-400:]} '
            '(are gcc and libc6-dev installed?)')


def build(sources: pathlib.Path = SOURCES,
          cache: pathlib.Path | None = None, *,
          program: str = PROGRAM,
          check: Callable[[], None] = lambda: None) -> pathlib.Path:
    """Return the path of the program that the C files in ``sources`` make.

    A package of a distribution has it beside them.  Else it is compiled when
    no program of these files, this compiler and this machine is in ``cache``.

    :param check: see :func:`compile_c`
    :raises ConfigError: there is no compiler, no source, or the cache
        cannot be written to or run from.
    :raises DriverError: the compiler fails.
    """
    packaged = sources / program
    if packaged.exists():
        return packaged
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
        compile_c(sorted(sources.glob('*.c')), pathlib.Path(draft), '-lm',
                  check=check)
        os.chmod(draft, 0o755)
        os.replace(draft, target)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)
    return target


def _key(sources: pathlib.Path) -> str:
    """Return what the program depends on, as a hash."""
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
