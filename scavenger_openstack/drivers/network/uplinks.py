# SPDX-License-Identifier: Apache-2.0

"""The network devices by which a host's traffic leaves: its uplinks."""

from __future__ import annotations

import os
import pathlib
import re

from scavenger_openstack.drivers.kernel import proc

_PARTS = ('device/physfn', 'device/sfnum', 'parent')
"""Files of what shares the wire of another device: a virtual function, a
subfunction, a partition of InfiniBand."""

_DEEPEST = 8
"""Devices on one another that the kernel allows."""

_REPRESENTOR = re.compile(r'(?:c\d+)?pf\d+(?:[vs]f\d+)?')
"""The port name of what stands for a function behind a switch in the card."""


def find(root_dir: str = '/') -> list[str]:
    """Devices that are hardware or made of such (bond, team, failover), are
    up, and tell their speed; not those that one is made of.

    Foreground and background share them.  The speed of a device of a virtual
    machine is often not known, and what is built on devices (bridges, VLANs,
    tunnels, taps) is none itself; nor is what shares the wire of another.
    """
    top = pathlib.Path(root_dir, 'sys/class/net')
    try:
        names = sorted(os.listdir(top))
    except OSError:
        return []
    devices = {_whole(top, name) for name in names if _is_hardware(top / name)}
    return sorted(name for name in devices if name and _is_up(top / name))


def _is_hardware(device: pathlib.Path) -> bool:
    if (device / 'bonding').exists():
        return True
    return os.path.lexists(device / 'device') and not (
        any(os.path.lexists(device / part) for part in _PARTS)
        or _REPRESENTOR.fullmatch(proc.read_text(f'{device}/phys_port_name')))


def _whole(top: pathlib.Path, name: str) -> str:
    """The device that ``name`` is a part of; itself, if it is none of any;
    '' where that is not told.

    A bridge, a switch and a VRF are masters, too, but send nothing by
    themselves: they tell no speed, or are bridges.
    """
    for _ in range(_DEEPEST):
        try:
            master = os.path.basename(os.readlink(top / name / 'master'))
        except OSError:
            return '' if (top / name / 'bonding_slave').exists() else name
        if ((top / master / 'bridge').exists()
                or not _is_up(top / master)
                and not (top / master / 'bonding').exists()):
            return name
        name = master
    return name


def _is_up(device: pathlib.Path) -> bool:
    try:
        return (proc.read_text(f'{device}/operstate') == 'up'
                and int(proc.read_text(f'{device}/speed')) > 0)
    except ValueError:
        return False
