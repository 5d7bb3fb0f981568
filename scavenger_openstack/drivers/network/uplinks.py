# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

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
