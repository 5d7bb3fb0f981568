# SPDX-License-Identifier: Apache-2.0


"""Which libvirt and QEMU there are, and what follows from that."""

from __future__ import annotations

from typing import NamedTuple

from scavenger_openstack.restore import grammar


TAKES_NEGATIVE = 9_000_000
"""libvirt since 9.0 sets no quota on cgroup v2 when it is told -1.  8.x wrote
-1 into cpu.max, which the kernel refuses, and the quota stayed: 8.3 and 8.9
were seen to, see https://gitlab.com/libvirt/libvirt/-/issues/324"""


class Versions(NamedTuple):
    """Versions as libvirt counts them: 1,000,000 major + 1,000 minor +
    release; ``None``: not told."""

    library: int | None
    daemon: int | None
    qemu: int | None

    def __str__(self) -> str:
        return (f'libvirtd {text(self.daemon)}, libvirt library '
                f'{text(self.library)}, QEMU {text(self.qemu)}')


UNKNOWN = Versions(None, None, None)


def text(version: int | None) -> str:
    """Return a version as people write it: ``9.0.0``."""
    if version is None:
        return 'unknown'
    return f'{version // 1_000_000}.{version // 1000 % 1000}.{version % 1000}'


def texts(versions: Versions) -> dict[str, str]:
    """Return the versions as people write them, for the status."""
    return {name: text(version)
            for name, version in versions._asdict().items()}


def no_quota_us(daemon: int | None, cgroup_version: int | None) -> int:
    """Return what this libvirtd has to be told so that vCPUs have no quota.

    :param daemon: its version
    :param cgroup_version: of the ``cpu`` controller; ``None``: there is none
    """
    if cgroup_version != 2 or (daemon or 0) >= TAKES_NEGATIVE:
        return -1
    return grammar.FREE_QUOTA_US
