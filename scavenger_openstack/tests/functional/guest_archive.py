# SPDX-License-Identifier: Apache-2.0

"""The archives that a guest's kernel unpacks: files by name, as cpio.

An initramfs may be several archives, one after the other.  What changes
with the checkout is in the last ones: the requirements of the product, from
the environment that runs the tests, and the product and its tests, as they
are at this moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
from importlib import metadata
from importlib import util
import os
import pathlib
import py_compile
import re
import struct
import sys
from typing import BinaryIO

PACKAGE = pathlib.Path(__file__).resolve().parents[2]

SITE = 'opt/site'
"""Where the product and its requirements are in the guest."""

TEST_TOOLS = ('fixtures', 'testtools')

NAME = re.compile(r'^[\w.-]+', re.M)
"""Of a distribution, in a line that requires it."""

UNCHECKED = struct.pack('<4sIQ', util.MAGIC_NUMBER, 1, 0)
"""The head of byte code that is not compared with its source: the archive
stores no times of files."""

Files = Mapping[str, bytes | pathlib.Path]
"""Name in the guest, without a slash in front -> contents, or where they are
on this machine."""


def write(out: BinaryIO, files: Files) -> None:
    """Write ``files`` as a cpio archive of the kind that the kernel reads.

    Keys are paths; what is on disk keeps its mode, a symbolic link stays
    one.  All belongs to root; directories are made where they are needed.
    """
    made: set[str] = set()
    number = 0

    def entry(name: str, mode: int, data: bytes) -> None:
        nonlocal number
        number += 1
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0,
                  len(name.encode()) + 1, 0)
        head = b'070701' + b''.join(b'%08X' % field for field in fields)
        for part in (head + name.encode() + b'\0', data):
            out.write(part)
            out.write(bytes(-len(part) % 4))

    for name, source in sorted(files.items()):
        above = name.split('/')[:-1]
        for depth in range(1, len(above) + 1):
            directory = '/'.join(above[:depth])
            if directory not in made:
                made.add(directory)
                entry(directory, 0o40755, b'')
        if isinstance(source, bytes):
            entry(name, 0o100755, source)
        elif source.is_symlink():
            entry(name, 0o120777, os.readlink(source).encode())
        else:
            entry(name, 0o100000 | source.stat().st_mode & 0o777,
                  source.read_bytes())
    entry('TRAILER!!!', 0, b'')
    out.write(bytes(-out.tell() % 512))


def compiled(files: Files, scratch: pathlib.Path) -> dict[str, bytes]:
    """Byte code of the modules among ``files``, where the guest looks for
    it: to compile there would take longer than all tests."""
    found = {}
    for name, source in files.items():
        if not name.endswith('.py') or isinstance(source, bytes):
            continue
        code = _cached(source)
        if code is None:
            try:
                py_compile.compile(str(source), str(scratch / 'module.pyc'),
                                   f'/{name}', doraise=True, optimize=0)
            except py_compile.PyCompileError:
                continue    # a template, or a fault that its import will show
            code = (scratch / 'module.pyc').read_bytes()
        where, _, module = name.rpartition('/')
        found[f'{where}/__pycache__/{module.removesuffix(".py")}.'
              f'{sys.implementation.cache_tag}.pyc'] = (
                  UNCHECKED + code[len(UNCHECKED):])
    return found


def _cached(source: pathlib.Path) -> bytes | None:
    """The byte code in ``__pycache__``, if it was made of this version of the
    source."""
    try:
        code = pathlib.Path(util.cache_from_source(
            str(source), optimization='')).read_bytes()
    except OSError:
        return None
    status = source.stat()
    made_of = struct.pack('<4sIII', util.MAGIC_NUMBER, 0,
                          int(status.st_mtime) & 0xffffffff,
                          status.st_size & 0xffffffff)
    return code if code.startswith(made_of) else None


def distributions(names: Iterator[str] | tuple[str, ...]
                  ) -> dict[str, metadata.Distribution]:
    """The installed distributions of these names and all that they need."""
    found: dict[str, metadata.Distribution] = {}
    todo = list(names)
    while todo:
        name = re.sub('[-_.]+', '-', todo.pop()).lower()
        if name in found:
            continue
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue    # of another platform, or optional
        todo += [NAME.findall(line)[0] for line in found[name].requires or ()
                 if 'extra ==' not in line]
    return found


def requirements(*, binaries: bool) -> dict[str, pathlib.Path]:
    """The files of all that the product and its tests import.

    :param binaries: the guest can load this machine's extension modules
    """
    files = {}
    # The product may have been installed when it required less.
    required = (PACKAGE.parent / 'requirements.txt').read_text()
    for distribution in distributions((
            'scavenger-openstack', *NAME.findall(required),
            *TEST_TOOLS)).values():
        for path in distribution.files or ():
            where = pathlib.Path(str(distribution.locate_file(path)))
            name = path.as_posix()
            if (where.is_file() and '__pycache__' not in name
                    and not name.startswith(
                        ('..', '__editable__', f'{PACKAGE.name}/'))
                    and (binaries or '.so' not in path.suffixes)):
                files[f'{SITE}/{name}'] = where
    return files


def product() -> dict[str, pathlib.Path]:
    """The files of the product and of the tests that a guest may run."""
    files = {}
    for where, below, names in os.walk(PACKAGE):
        below[:] = [name for name in below
                    if name not in ('__pycache__', 'unit')]
        for name in names:
            path = pathlib.Path(where, name)
            if path.suffix in ('.py', '.c', '.h'):
                files[f'{SITE}/{path.relative_to(PACKAGE.parent)}'] = path
    return files
