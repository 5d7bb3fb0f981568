# SPDX-License-Identifier: Apache-2.0

"""How long to wait after what did not help, or failed."""

LONGEST_S = 86400.0


def longer(before: float, *, first: float, most: float) -> float:
    """How long to wait after one more failure: twice as long each time.

    :param before: how long it was the last time, 0 if this is the first
    :param first: how long at first; same unit, as is ``most``
    """
    return min(most, max(first, 2 * before))
