# SPDX-License-Identifier: Apache-2.0

"""The program of the agent that measures, with a stand-in for what it
measures: one kernel that runs, in a cgroup of its own, until it is ended.

What ends it, and removes what it made, is the product's.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
import time
from typing import Any

from scavenger_openstack.ibench import arguments
from scavenger_openstack.ibench import catalogue
from scavenger_openstack.ibench.host import lock
from scavenger_openstack.ibench.host import session
from scavenger_openstack.ibench.host import supervised
from scavenger_openstack.ibench import interrupt as interrupt_
from scavenger_openstack.ibench import run

SECONDS = 'INJECTION_SECONDS'
"""In the environment: after so long it has measured a profile."""

LOCK = 'INJECTION_LOCK'
"""In the environment: the file that is locked."""

PROFILE = {'tolerated': {'integer': {'value': 0.4, 'low': 0.3, 'high': 0.5}}}


def inject(options: argparse.Namespace, interrupt: interrupt_.Interrupt
           ) -> dict[str, Any]:
    """Run a kernel alone, for a small part of the time."""
    seconds = float(os.environ.get(SECONDS, 'inf'))
    until_s = time.monotonic() + seconds
    soi = catalogue.find_soi('integer')
    with session.opened(interrupt=interrupt, parent='/', alone=False
                        ) as (host, _):
        while time.monotonic() < until_s:
            run.play(host, [(arguments.Start(
                soi, (f'cpus={min(os.sched_getaffinity(0))}',), ''), (
                    'calibrate_s=0.01', *run.level_words(
                        [arguments.Level(5.0, min(20.0, seconds))])))])
    return PROFILE


if __name__ == '__main__':
    # What else runs on this machine is not disturbed by so little.
    lock.locked = functools.partial(
        lock.locked, path=os.environ[LOCK])
    sys.exit(supervised.main(measure=inject))
