# SPDX-License-Identifier: Apache-2.0

"""The cgroups of kubelet, by their names."""

from __future__ import annotations

import re

_KUBELET = re.compile(
    '/(?:kubepods(?:/(?:besteffort|burstable))?'
    r'|(?:[^/]+-)?kubepods(?:-(?:besteffort|burstable))?\.slice)\Z')


def is_of_kubelet(path: str) -> bool:
    """Whether kubelet sets the weight of a cgroup, by its name: that of all
    pods, or of one class of them.  ``cpu.idle`` is set on the pods in it."""
    return _KUBELET.search(path) is not None
