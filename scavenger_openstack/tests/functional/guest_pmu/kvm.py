# SPDX-License-Identifier: Apache-2.0



"""A machine of KVM, as much of one as its CPU: it executes two instructions.

Source: Linux, Documentation/virt/kvm/api.rst; the numbers are those of
linux/kvm.h and asm/kvm.h of arm64.
"""

from __future__ import annotations

from collections.abc import Callable
import ctypes
import fcntl
import mmap
import os
import struct

CREATE_VM, VCPU_MMAP_SIZE, CREATE_VCPU, RUN = 0xae01, 0xae04, 0xae41, 0xae80
SET_MEMORY, ARM_PREFERRED_TARGET, ARM_VCPU_INIT, SET_ONE_REG = (
    0x4020ae46, 0x8020aeaf, 0x4020aeae, 0x4010aeac)

libc = ctypes.CDLL(None, use_errno=True)

PC = 0x6030000000100040
ADDRESS, SIZE = 0x40000000, 1 << 16
LOOP = struct.pack('<II', 0x91000400, 0x17ffffff)
"""add x0, x0, #1; and back to it."""


def run(ready: Callable[[], object]) -> None:
    """Be a guest for ever, and hardly anything else.

    :raises OSError: there is no KVM here.
    """
    vm = fcntl.ioctl(os.open('/dev/kvm', os.O_RDWR), CREATE_VM, 0)
    size = fcntl.ioctl(os.open('/dev/kvm', os.O_RDWR), VCPU_MMAP_SIZE, 0)
    memory = mmap.mmap(-1, SIZE)
    memory[:len(LOOP)] = LOOP
    fcntl.ioctl(vm, SET_MEMORY, struct.pack(
        '=IIQQQ', 0, 0, ADDRESS, SIZE,
        ctypes.addressof(ctypes.c_char.from_buffer(memory))))
    vcpu = fcntl.ioctl(vm, CREATE_VCPU, 0)
    fcntl.ioctl(vcpu, ARM_VCPU_INIT,
                fcntl.ioctl(vm, ARM_PREFERRED_TARGET, bytes(32)))
    start = ctypes.c_uint64(ADDRESS)
    fcntl.ioctl(vcpu, SET_ONE_REG, struct.pack(
        '=QQ', PC, ctypes.addressof(start)))
    mmap.mmap(vcpu, size)
    ready()
    while True:
        fcntl.ioctl(vcpu, RUN, 0)
