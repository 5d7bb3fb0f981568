# SPDX-License-Identifier: Apache-2.0

"""This machine's libvirt and QEMU, as files of a guest.

The guest has the kernel and CPython of the distribution, and the C library of
this machine's: see :mod:`.guest_image`.
"""

from __future__ import annotations

import importlib.util
import pathlib
import shutil
import struct
import subprocess

from scavenger_openstack.tests.functional import guest_archive
from scavenger_openstack.tests.functional import guest_image

PROGRAMS = ('libvirtd', 'qemu-system-x86_64')
MODULES = ('libvirt/connection-driver/libvirt_driver_qemu.so',
           'qemu/accel-tcg-x86_64.so')
DATA = ('/usr/share/libvirt', '/usr/share/seabios')
ROMS = ('multiboot.bin', 'multiboot_dma.bin', 'kvmvapic.bin',
        'linuxboot_dma.bin')
BINDINGS = ('libvirt', 'libvirtmod', 'libvirt_qemu', 'libvirtmod_qemu')
OF_THE_GUEST = ('ld-linux', 'libc.', 'libm.', 'libdl.', 'libpthread.',
                'librt.', 'libresolv.')

BUSY = 'opt/busy'
"""What keeps all vCPUs of a VM busy, and needs no more than 64 KiB."""

LOAD, SECOND = 0x100000, 0x8000
CODE = bytes.fromhex(
    'fa'                    # cli
    'c70500800000faebfe90'  # at SECOND: cli; jmp to itself
    'be0003e0fe'            # the local APIC's register for interrupts
    'c70600450c00'          # INIT to all other CPUs
    'b900001000e2fe'        # a while
    'c70608460c00'          # they begin at SECOND
    'b900001000e2fe'
    'c70608460c00'
    'ebfe')                 # jmp to itself


def busy() -> bytes:
    """A kernel, as the multiboot specification has it, that only spins."""
    head = [0x1badb002, 0x10000]
    head.append(-sum(head) & 0xffffffff)
    end = LOAD + 32 + len(CODE)
    return struct.pack('<8I', *head, LOAD, LOAD, end, end, LOAD + 32) + CODE


def files() -> guest_archive.Files:
    """All that a libvirtd with QEMU needs, by its name in a guest.

    :raises Unavailable: they are not installed here.
    """
    contents: dict[str, bytes | pathlib.Path] = {BUSY: busy()}
    binaries = []
    for program in PROGRAMS:
        binary = shutil.which(program, path='/usr/sbin:/usr/bin')
        if binary is None:
            raise guest_image.Unavailable(f'needs {program}: see bindep.txt')
        binaries.append(binary)
    for module in MODULES:
        binaries += map(str, pathlib.Path('/usr/lib').glob(f'*/{module}'))
    for name in BINDINGS:
        spec = importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            raise guest_image.Unavailable('needs libvirt-python: run '
                                          'tools/setup.sh test')
        path = pathlib.Path(spec.origin)
        contents[f'{guest_archive.SITE}/{path.name}'] = path
        if path.suffix == '.so':
            binaries.append(str(path))
    for binary in binaries:
        if binary.startswith('/usr/'):
            contents[binary[1:]] = pathlib.Path(binary).resolve()
        for line in subprocess.run(['ldd', binary], capture_output=True,
                                   text=True).stdout.splitlines():
            name, _, rest = line.strip().partition(' => ')
            library = rest.partition(' ')[0]
            if library.startswith('/') and not name.startswith(
                    OF_THE_GUEST):
                contents['usr/' + library.removeprefix('/usr')[1:]] = (
                    pathlib.Path(library).resolve())
    for top in DATA:
        for path in pathlib.Path(top).rglob('*'):
            if path.is_file():
                contents[str(path)[1:]] = path.resolve()
    for name in ROMS:
        path = pathlib.Path('/usr/share/qemu', name)
        contents[str(path)[1:]] = path.resolve()
    return contents
