# SPDX-License-Identifier: Apache-2.0

"""Which BPF programs the kernel has, as bpftool lists them."""

from __future__ import annotations

import ctypes
import struct

from scavenger_openstack.drivers.kernel import bpf


def loaded() -> set[int]:
    """Ids of all BPF programs in the kernel (BPF_PROG_GET_NEXT_ID)."""
    ids: set[int] = set()
    last = 0
    libc = ctypes.CDLL(None, use_errno=True)
    calls = bpf.system_calls()
    assert calls is not None
    number = ctypes.c_long(calls.bpf)
    while True:
        buffer = ctypes.create_string_buffer(struct.pack('=II', last, 0), 128)
        if libc.syscall(number, 11, buffer, 128):
            return ids
        last = struct.unpack_from('=4xI', buffer.raw)[0]
        ids.add(last)
