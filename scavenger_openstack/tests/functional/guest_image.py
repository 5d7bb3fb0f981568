# SPDX-License-Identifier: Apache-2.0

"""What a guest is made of: a kernel, CPython and what these need.

Everything comes from packages of the distribution that this machine's apt is
configured for, fetched without root and never installed.  To make it takes
a while, so it is kept below ``$XDG_CACHE_HOME`` (or ``~/.cache``), under a
name made from all that it depends on.  Delete it to get newer packages.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import fcntl
import hashlib
import json
import lzma
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time

from scavenger_openstack.tests.functional import guest_archive

APT_TIMEOUT_S = 300
KEEP_S = 60 * 86400
"""A base that nobody used for so long goes when another one is made."""

ROOT_PACKAGES = re.compile(
    r'(lib(?!perl|debconf|newt|slang|textwrap|apt|dpkg|pam).*'
    r'|zlib1g|iproute2|coreutils|dash|e2fsprogs|mount|util-linux'
    r'|python3\.\d+-minimal)')
ROOT_TOOLS = ('iproute2', 'coreutils', 'dash', 'e2fsprogs', 'mount',
              'util-linux')
KERNEL_PACKAGES = re.compile(r'linux-(image|modules|modules-extra)-\d.*')

NOT_NEEDED = re.compile(
    r'/(test|idlelib|tkinter|turtledemo|lib2to3|ensurepip|pydoc_data'
    r'|__pycache__|config-3[^/]*)/|/turtle\.py$|/EXTERNALLY-MANAGED$')
ROOT_FILES = re.compile(
    r'(usr/)?(bin/python3\.\d+|lib/python3(\.\d+)?/.*'
    r'|s?bin/(dash|ip|ln|losetup|mke2fs|mount|nsenter|sh|tc|umount|unshare)'
    r'|lib(64)?/([^/]*-linux-gnu/)?[^/]*\.so[^/]*|lib/tc/.*)$')


class Unavailable(Exception):
    """No guest can be made here; the message says why and what to do."""


@dataclasses.dataclass(frozen=True)
class Architecture:
    """One kind of guest, in the words of Debian and of QEMU.

    ``kernels`` are the packages that may bring a kernel, the first that
    exists is taken; ``options`` and ``append`` are what the guest needs of
    QEMU and on the kernel's command line.
    """

    name: str
    qemu: str
    qemu_package: str
    kernels: tuple[str, ...]
    options: tuple[str, ...]
    append: str


ARCHITECTURES = {
    'x86_64': Architecture(
        name='amd64', qemu='qemu-system-x86_64',
        qemu_package='qemu-system-x86',
        kernels=('linux-image-cloud-amd64', 'linux-image-virtual'),
        options=('-machine', 'q35,accel=tcg', '-cpu', 'max'),
        append='console=ttyS0 mitigations=off tsc=reliable'),
    'aarch64': Architecture(
        name='arm64', qemu='qemu-system-aarch64',
        qemu_package='qemu-system-arm',
        kernels=('linux-image-cloud-arm64', 'linux-image-virtual'),
        # Pointers are signed in a way that is quick to emulate.
        options=('-machine', 'virt,accel=tcg',
                 '-cpu', 'max,pauth-impdef=on'),
        append='console=ttyAMA0'),
}


# --- packages

class Apt:
    """This machine's apt: its sources, but a state directory of our own
    when the machine's lists are missing, old, or of another architecture.
    """

    def __init__(self, architecture: Architecture,
                 directory: pathlib.Path) -> None:
        self._options = ['-o', f'APT::Architecture={architecture.name}',
                         '-o', f'APT::Architectures={architecture.name}',
                         '-o', 'Dir::State::status=/dev/null',
                         '-o', 'APT::Sandbox::User=root',
                         '-o', 'APT::Install-Recommends=false',
                         '-o', 'Acquire::Retries=3',
                         '-o', 'Acquire::http::Timeout=30', '-q']
        self._directory = directory

    def run(self, *arguments: str, where: pathlib.Path | None = None) -> str:
        """Standard output of one ``apt-get``.

        :raises Unavailable: it failed; the message has its last line.
        """
        try:
            done = subprocess.run(
                ['apt-get', *self._options, *arguments], cwd=where,
                stdin=subprocess.DEVNULL, capture_output=True, text=True,
                errors='replace', timeout=APT_TIMEOUT_S,
                env={**os.environ, 'LC_ALL': 'C'})
        except FileNotFoundError:
            raise Unavailable('needs Debian or Ubuntu: the guest is made of '
                              'their packages') from None
        except subprocess.TimeoutExpired:
            raise Unavailable(f'apt-get {arguments[0]} did not end within '
                              f'{APT_TIMEOUT_S} s; look at the network') \
                from None
        if done.returncode:
            said = (done.stderr.strip() or 'nothing').splitlines()[-1]
            raise Unavailable(
                f'apt-get {" ".join(arguments)[:60]}... says: {said}; the '
                'guest is made of packages, let apt reach its archive')
        return done.stdout

    def update(self) -> None:
        """Fetch the lists into our own directory.

        :raises Unavailable: as :meth:`run`.
        """
        lists = self._directory / 'lists'
        for path in (lists / 'partial', self._directory / 'cache/archives'):
            path.mkdir(parents=True, exist_ok=True)
        self._options += ['-o', f'Dir::State::Lists={lists}',
                          '-o', f'Dir::Cache={self._directory}/cache']
        self.run('update')

    def needed(self, wanted: Sequence[str], pattern: re.Pattern[str]
               ) -> list[str]:
        """``NAME=VERSION`` of all that ``wanted`` takes and that matches.

        :raises Unavailable: as :meth:`run`.
        """
        plan = self.run('-s', 'install', *wanted)
        found = re.findall(r'^Inst (\S+) \((\S+) ', plan, re.M)
        return sorted(f'{name}={version}' for name, version in found
                      if pattern.fullmatch(name))

    def fetch(self, packages: Sequence[str], where: pathlib.Path) -> None:
        """Download and unpack.

        :raises Unavailable: as :meth:`run`.
        """
        debs = pathlib.Path(tempfile.mkdtemp(dir=self._directory))
        self.run('download', *packages, where=debs)
        for deb in sorted(debs.glob('*.deb')):
            subprocess.run(['dpkg-deb', '-x', str(deb), str(where)],
                           check=True)
        shutil.rmtree(debs)


def choose(apt: Apt, architecture: Architecture) -> tuple[list[str], ...]:
    """Which packages make the root, and which the kernel.

    The interpreter has the version of the one that runs the tests, if
    there is a package of it: then the byte code can be made beforehand.

    :raises Unavailable: there are no such packages.
    """
    ours = f'{sys.version_info.major}.{sys.version_info.minor}'
    kernel = _needed(apt, KERNEL_PACKAGES,
                     [[name] for name in architecture.kernels])
    root = _needed(apt, ROOT_PACKAGES, [
        [f'python{ours}-minimal', f'libpython{ours}-stdlib', *ROOT_TOOLS],
        ['python3-minimal', 'libpython3-stdlib', *ROOT_TOOLS]])
    return root, kernel


def _needed(apt: Apt, pattern: re.Pattern[str],
            choices: Sequence[Sequence[str]]) -> list[str]:
    """What the first of ``choices`` takes that there is."""
    problems = []
    for wanted in choices:
        try:
            return apt.needed(wanted, pattern)
        except Unavailable as exc:
            problems.append(exc)
    raise problems[0]


# --- the base

def modules_of(tree: pathlib.Path, wanted: Iterable[str]
               ) -> tuple[list[str], dict[str, bytes]]:
    """Kernel modules in an order in which they load, and their contents.

    Those that are built in, or that this kernel does not have, are left
    out: what needs them says so itself.
    """
    paths = {path.name.partition('.ko')[0].replace('-', '_'): path
             for path in tree.glob('lib/modules/*/kernel/**/*.ko*')}
    contents: dict[str, bytes] = {}

    def take(name: str) -> None:
        path = paths.get(name)
        if path is None or name in contents:
            return
        data = path.read_bytes()
        if path.suffix == '.xz':
            data = lzma.decompress(data)
        elif path.suffix == '.zst':
            data = subprocess.run(['zstd', '-dcq', str(path)], check=True,
                                  stdout=subprocess.PIPE).stdout
        needs = re.search(rb'\0depends=([^\0]*)\0', b'\0' + data)
        for other in (needs[1].decode() if needs else '').split(','):
            take(other.replace('-', '_'))
        contents[name] = data

    for name in wanted:
        take(name.replace('-', '_'))
    return list(contents), {f'modules/{name}.ko': data
                            for name, data in contents.items()}


def tree_files(tree: pathlib.Path) -> Iterator[tuple[str, pathlib.Path]]:
    """Name in the guest and path here of what an unpacked root is kept."""
    for where, _, names in os.walk(tree):
        for name in names:
            path = pathlib.Path(where, name)
            inside = str(path.relative_to(tree))
            if ROOT_FILES.fullmatch(inside) and not NOT_NEEDED.search(
                    f'/{inside}'):
                # As after a merge of /usr, which the guest has, too.
                if inside.startswith(('lib', 'bin/', 'sbin/')):
                    inside = f'usr/{inside}'
                yield inside, path


MERGED = {'bin': 'usr/bin', 'sbin': 'usr/sbin', 'lib': 'usr/lib',
          'lib64': 'usr/lib64'}


@dataclasses.dataclass(frozen=True)
class Base:
    """A base that was made: where it is, and what it holds."""

    directory: pathlib.Path
    python: str
    modules: tuple[str, ...]

    @property
    def compatible(self) -> bool:
        """Whether the interpreter of the tests makes its byte code."""
        return self.python == '{}.{}'.format(*sys.version_info)


def cache_directory() -> pathlib.Path:
    """Where bases are kept: what lies there is booted by whoever tests.

    :raises Unavailable: there is no place that only we can write to.
    """
    try:
        top = pathlib.Path(os.environ.get('XDG_CACHE_HOME')
                           or pathlib.Path.home() / '.cache')
        ours = top / 'scavenger-openstack'
        found = ours / 'guest'
        for path in (ours, found):
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = path.stat()
            if status.st_uid != os.geteuid() or status.st_mode & 0o002:
                raise Unavailable(
                    f'{path} belongs to another user, or others may write '
                    'to it: set XDG_CACHE_HOME to a directory of your own')
        if os.access(found, os.W_OK):
            return found
    except (OSError, RuntimeError):
        pass
    raise Unavailable('no directory to keep the guest in: set XDG_CACHE_HOME '
                      'to one that can be written to')


def base(architecture: Architecture, modules: Sequence[str]) -> Base:
    """The base for guests of one kind, from the cache or made now.

    Two that want the same one at the same time wait for each other.

    :param modules: kernel modules that the guest has to load
    :raises Unavailable: it cannot be made here.
    """
    release = platform.freedesktop_os_release()
    recipe = json.dumps([
        dataclasses.asdict(architecture), list(modules), sys.version_info[:2],
        release.get('ID'), release.get('VERSION_CODENAME'),
        pathlib.Path(__file__).read_text()])
    key = hashlib.sha256(recipe.encode()).hexdigest()[:16]
    cache = cache_directory()
    directory = cache / f'{architecture.name}-{key}'
    with open(cache / 'lock', 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (directory / 'made.json').exists():
            _forget_old(cache)
            scratch = pathlib.Path(tempfile.mkdtemp(prefix='.', dir=cache))
            try:
                _make_base(architecture, modules, scratch)
                shutil.rmtree(directory, ignore_errors=True)    # half of one
                for path in (scratch / 'base').iterdir():
                    with open(path, 'rb') as file:
                        os.fsync(file.fileno())     # before its name lasts
                (scratch / 'base').rename(directory)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
        os.utime(directory)
    made = json.loads((directory / 'made.json').read_text())
    return Base(directory, made['python'], tuple(made['modules']))


def _forget_old(cache: pathlib.Path) -> None:
    for path in cache.iterdir():
        if path.is_dir() and path.stat().st_mtime < time.time() - KEEP_S:
            (path / 'made.json').unlink(missing_ok=True)    # no more a base
            shutil.rmtree(path, ignore_errors=True)


def _make_base(architecture: Architecture, modules: Sequence[str],
               scratch: pathlib.Path) -> None:
    for name in ('base', 'root', 'kernel'):
        (scratch / name).mkdir()
    apt = Apt(architecture, scratch)
    try:
        chosen = _fetch(apt, architecture, scratch)
    except Unavailable as first:
        try:
            apt.update()
            chosen = _fetch(apt, architecture, scratch)
        except Unavailable:
            raise first from None
    files: dict[str, bytes | pathlib.Path] = dict(
        tree_files(scratch / 'root'))
    python = max(re.findall(r'usr/bin/python(3\.\d+)\n',
                            '\n'.join(files) + '\n'),
                 key=lambda text: int(text[2:]))
    if int(python[2:]) < 11:
        raise Unavailable(f'the distribution has Python {python}; the guest '
                          'needs 3.11 or newer')
    if python == '{}.{}'.format(*sys.version_info):
        files |= guest_archive.compiled(files, scratch)
    loaded, contents = modules_of(scratch / 'kernel', modules)
    for name, target in MERGED.items():
        (scratch / name).symlink_to(target)
        files[name] = scratch / name
    for name, target in (('python3', f'python{python}'), ('sh', 'dash')):
        (scratch / name).symlink_to(target)
        files[f'usr/bin/{name}'] = scratch / name
    with open(scratch / 'base/base.cpio', 'wb') as out:
        guest_archive.write(out, {**files, **contents})
    kernel = max((scratch / 'kernel/boot').glob('vmlinuz-*'))
    shutil.copyfile(kernel, scratch / 'base/kernel')
    (scratch / 'base/made.json').write_text(json.dumps({
        'python': python, 'modules': loaded, 'packages': chosen}, indent=1))


def _fetch(apt: Apt, architecture: Architecture,
           scratch: pathlib.Path) -> list[str]:
    root, kernel = choose(apt, architecture)
    for packages, where in ((root, 'root'), (kernel, 'kernel')):
        apt.fetch(packages, scratch / where)
    return root + kernel
