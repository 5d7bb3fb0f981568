# SPDX-License-Identifier: Apache-2.0


"""What the guests of a hypervisor boot: Debian's kernel and one program.

The program is ``domain_init.c`` with ``domain_workload.c``; it and the
kernel's modules are all of the initramfs, some 2 MB, so a guest needs little
memory and is up soon.
"""

from __future__ import annotations

import dataclasses
import fcntl
import functools
import hashlib
import pathlib
import shutil
import subprocess
import tempfile

from scavenger_openstack.tests.functional import guest_archive
from scavenger_openstack.tests.functional import guest_image
from scavenger_openstack.tests.functional.guest_image import Unavailable

SOURCES = tuple(pathlib.Path(__file__).with_name(name) for name in (
    'domain_init.c', 'domain_workload.c', 'domain_workload.h'))
MODULES = ('virtio_pci', 'virtio_blk', 'virtio_net', 'virtio_balloon',
           'button', 'evdev')

COMPILE = ('gcc', '-O2', '-Wall', '-static', '-pthread', '-s')
COMPILE_TIMEOUT_S = 120

APPEND = ('console=ttyS0 quiet panic=-1 tsc=reliable no_timer_check '
          'random.trust_cpu=on '
          # What costs time when instructions are translated.
          'mitigations=off nokaslr lsm= audit=0 cryptomgr.notests '
          'rcupdate.rcu_expedited=1')


@dataclasses.dataclass(frozen=True)
class Image:
    """Paths of what a guest boots."""

    kernel: pathlib.Path
    initrd: pathlib.Path


def archived(archive: pathlib.Path, prefix: str) -> dict[str, bytes]:
    """The files of a cpio archive whose names begin with ``prefix``."""
    found: dict[str, bytes] = {}
    with open(archive, 'rb') as file:
        while True:
            head = file.read(110)
            size, length = int(head[54:62], 16), int(head[94:102], 16)
            name = file.read(length + -(110 + length) % 4)[:length - 1]
            if name == b'TRAILER!!!':
                return found
            if name.startswith(prefix.encode()):
                found[name.decode()] = file.read(size)
                file.seek(-size % 4, 1)
            else:
                file.seek(size + -size % 4, 1)


@functools.cache
def image() -> Image:
    """The image of every guest, from the cache or made now.

    :raises Unavailable: it cannot be made here.
    """
    kind = guest_image.ARCHITECTURES['x86_64']
    base = guest_image.base(kind, MODULES)
    recipe = hashlib.sha256(b'\0'.join((
        str(base.directory).encode(), pathlib.Path(__file__).read_bytes(),
        *(source.read_bytes() for source in SOURCES)))).hexdigest()[:16]
    cache = guest_image.cache_directory()
    made = cache / f'domain-{recipe}'
    with open(cache / 'lock', 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (made / 'initrd').exists():
            scratch = pathlib.Path(tempfile.mkdtemp(prefix='.', dir=cache))
            try:
                _make(base, scratch)
                shutil.rmtree(made, ignore_errors=True)
                scratch.rename(made)
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
    return Image(made / 'kernel', made / 'initrd')


def _make(base: guest_image.Base, scratch: pathlib.Path) -> None:
    contents = archived(base.directory / 'base.cpio', 'modules/')
    files: dict[str, bytes | pathlib.Path] = {
        f'modules/{number:02}-{name}': contents[f'modules/{name}.ko']
        for number, name in enumerate(base.modules)}
    files['init'] = compiled(scratch)
    with open(scratch / 'initrd', 'wb') as out:
        guest_archive.write(out, files)
    (scratch / 'init').unlink()
    shutil.copyfile(base.directory / 'kernel', scratch / 'kernel')


def compiled(scratch: pathlib.Path) -> bytes:
    """The program that is the guest's first process.

    :raises Unavailable: there is no compiler, or no static C library.
    """
    program = scratch / 'init'
    try:
        done = subprocess.run(
            [*COMPILE, '-o', str(program),
             *(str(source) for source in SOURCES if source.suffix == '.c')],
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=COMPILE_TIMEOUT_S)
    except FileNotFoundError:
        raise Unavailable('needs gcc: install gcc and libc6-dev') from None
    if done.returncode:
        raise Unavailable('the workload of the guests does not compile (is '
                          f'libc6-dev installed?): {done.stderr.strip()}')
    return program.read_bytes()
