# SPDX-License-Identifier: Apache-2.0

"""The network devices by which a host's traffic leaves: its uplinks."""

from __future__ import annotations

import os
import pathlib


def find(root_dir: str = '/') -> list[str]:
    """Devices that are hardware or bonds of such, are up, and tell their
    speed; not the single devices of a bond.

    Foreground and background share them.  The speed of a device of a virtual
    machine is often not known, and what is built on devices (bridges, VLANs,
    tunnels, taps) is none itself.
    """
    top = pathlib.Path(root_dir, 'sys/class/net')
    try:
        names = sorted(os.listdir(top))
    except OSError:
        return []
    return [name for name in names if _is_uplink(top / name)]


def _is_uplink(device: pathlib.Path) -> bool:
    if not ((device / 'device').exists() or (device / 'bonding').exists()):
        return False
    if (device / 'bonding_slave').exists():
        return False
    try:
        return ((device / 'operstate').read_text().strip() == 'up'
                and int((device / 'speed').read_text()) > 0)
    except (OSError, ValueError):
        return False
