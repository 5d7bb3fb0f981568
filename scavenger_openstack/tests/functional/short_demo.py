# SPDX-License-Identifier: Apache-2.0

"""``scavenger-demo`` with its times and its disk cut short.

Everything happens, but no figure of it means anything.
"""

from __future__ import annotations

import dataclasses
import sys

from scavenger_openstack.cmd import demo
from scavenger_openstack.demo.filling import phases
from scavenger_openstack.demo.filling import turns
from scavenger_openstack.demo.stage import disk
from scavenger_openstack.demo.who import play


def main() -> int:
    disk.SIZE_MIB = 48
    phases.LEARN_S = 6.0
    turns.TURN_S = 1.0
    play.QUIET_S = 6.0
    play.DRAIN_S = 3.0
    for name, phase in phases.PHASES.items():
        phases.PHASES[name] = dataclasses.replace(
            phase, warm_up_s=phases.LEARN_S if phase.agent else 1.0)
    return demo.main()


if __name__ == '__main__':
    sys.exit(main())
