# SPDX-License-Identifier: Apache-2.0

"""The token that identifies a host to the control plane."""

from __future__ import annotations

import pathlib
import stat

from scavenger_openstack.agent import status
from scavenger_openstack import errors

MOST_BYTES = 4096


def read(path: pathlib.Path) -> str:
    """Return the token in a file.

    :raises ScavengerError: it cannot be read, or others can read it.
    """
    try:
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise errors.ScavengerError(
                f'{path}: others can read the token of this host: chmod 600, '
                'and enroll the host again')
        text = status.read_file(path, MOST_BYTES).decode('ascii').strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise errors.ScavengerError(
            f'{path}: no token: {getattr(exc, "strerror", "") or exc}; '
            'scavenger-manage host enroll makes one') from exc
    if not text.isprintable() or not text or ' ' in text:
        raise errors.ScavengerError(f'{path}: not a token')
    return text
