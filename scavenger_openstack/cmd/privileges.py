# SPDX-License-Identifier: Apache-2.0

"""The privileges of this process, and how it gives them up for good.

Capabilities are those of a thread: call this before there are others.
"""

from __future__ import annotations

import ctypes
import errno
import os
import pwd
import struct

from scavenger_openstack import errors

# prctl(2), capabilities(7)
PR_SET_PDEATHSIG = 1
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT = 47
_PR_CAP_AMBIENT_CLEAR_ALL = 4
_CAPABILITY_VERSION_3 = 0x20080522
_MOST_CAPABILITIES = 64

_LIBC = ctypes.CDLL(None, use_errno=True)


def become(name: str) -> None:
    """Be another user from now on, without groups and capabilities.

    :raises ConfigError: there is no such user
    :raises OSError: that takes root
    """
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        raise errors.ConfigError(f'--user {name}: no such user') from None
    _forgo()
    os.setgroups([])
    os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
    os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
    drop()


def drop() -> None:
    """Have no capability, and get none by starting a program.

    :raises OSError: the kernel refuses that.
    """
    _forgo()
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = struct.pack('Ii', _CAPABILITY_VERSION_3, 0)
    if _LIBC.capset(header, bytes(24)):
        raise OSError(ctypes.get_errno(), 'capset')


def prctl(option: int, value: int) -> None:
    """Call prctl(2).

    :raises OSError: the kernel refuses that.
    """
    if _LIBC.prctl(option, *map(ctypes.c_ulong, (value, 0, 0, 0))):
        raise OSError(ctypes.get_errno(), f'prctl({option})')


def _forgo() -> None:
    """Make the bounding set empty, where this process may.  Where it may
    not, no program that it starts gains any by ``no_new_privs``."""
    for number in range(_MOST_CAPABILITIES):
        try:
            prctl(_PR_CAPBSET_DROP, number)
        except OSError as exc:
            if exc.errno in (errno.EPERM, errno.EINVAL):
                return          # CAP_SETPCAP is missing; the last was before
            raise
