# SPDX-License-Identifier: Apache-2.0

"""Limits that the host refuses, while late writes end in other threads."""

from __future__ import annotations

import testtools

from scavenger_openstack.agent.apply.refusals import Refusals
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Knob

CAP = Cap('/batch/a', Knob.MEMORY_BYTES, 1e9, 'one', 'because')


class Changed(set[str]):
    """What changed; meanwhile the late write of a limit comes to its end."""

    def __init__(self, refusals: Refusals) -> None:
        super().__init__()
        self.refusals = refusals

    def __contains__(self, workload: object) -> bool:
        self.refusals.end(CAP.key)
        return True


class RefusalsTest(testtools.TestCase):

    def test_one_that_ends_while_old_ones_are_forgotten(self) -> None:
        refusals = Refusals()
        refusals.begin(1, CAP, 'no')
        self.assertEqual('no', refusals.why_not(1, CAP))
        refusals.expire(1, Changed(refusals))
        self.assertEqual('', refusals.why_not(1, CAP))
