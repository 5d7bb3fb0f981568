# SPDX-License-Identifier: Apache-2.0

"""When the quality of service (QoS) of a workload breaks: a signal and its
bound."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from scavenger_openstack import errors

SHARE = 0.05
"""Of the signal alone, where no bound is given.  The paper names none."""

FORM = ('NAME<BOUND or NAME>BOUND, such as p99_s<0.002, requests_per_s>9000 '
        'or duration_s<+10%')

_QOS = re.compile(r'\s*([A-Za-z][A-Za-z0-9_]{0,62})\s*([<>])=?\s*'
                  r'([+-]?[0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*(%?)\s*')


class Qos(NamedTuple):
    """A signal, on which side of its bound it must stay, and the bound.

    :ivar below: it must stay below: a latency, not a rate
    :ivar bound: in the signal's unit; None for a share of what it is alone
    :ivar share: by so much of itself it may be worse than alone
    """

    signal: str
    below: bool
    bound: float | None = None
    share: float = SHARE

    def bound_of(self, alone: float) -> float:
        """Return the bound of a signal that is ``alone`` without
        interference."""
        if self.bound is not None:
            return self.bound
        return alone * (1 + self.share if self.below else 1 - self.share)

    def is_kept(self, value: float, bound: float) -> bool:
        """Whether a value is on the right side of the bound."""
        return value < bound if self.below else value > bound


def parse_qos(text: str) -> Qos:
    """Return the QoS that ``p99_s<0.002`` or ``requests_per_s>-5%`` means.

    :raises ConfigError: it has another form, or a bound that means nothing.
    """
    match = _QOS.fullmatch(text)
    if not match:
        raise errors.ConfigError(f'--qos {text!r} is not {FORM}')
    signal, side, number, percent = match.groups()
    below, value = side == '<', float(number)
    if not math.isfinite(value):
        raise errors.ConfigError(f'--qos {text!r}: the bound is too large')
    if not percent:
        return Qos(signal, below, value)
    if (value > 0) != below or (not below and value <= -100):
        raise errors.ConfigError(
            f'--qos {text!r}: a share is how much worse than alone the '
            'signal may be: NAME<+10% where more is worse, NAME>-10% where '
            'less is')
    return Qos(signal, below, share=abs(value) / 100)
