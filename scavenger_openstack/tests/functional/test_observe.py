# SPDX-License-Identifier: Apache-2.0

"""An agent that only observes costs next to nothing."""

from __future__ import annotations

import os
import pathlib

from scavenger_openstack.tests.functional import agents
from scavenger_openstack.tests import tiers


@tiers.only_in_all('a figure of a quiet machine')
class Observing(agents.AgentTestCase):

    def test_no_bpf_program_and_no_loop(self) -> None:
        self.configure('[scavenger]', 'mode = observe',
                       '[perfiso]', 'mode = observe', 'buffer_cores = 1')
        agent = self.start('agent', 'run')

        def looks() -> int:
            isolation = self.status().get('isolation')
            return (isolation.get('looks', 0) if isinstance(isolation, dict)
                    else 0)

        self.wait_for('it looks once per tick', lambda: looks() > 1)
        found = [os.readlink(file) for file in pathlib.Path(
            f'/proc/{agent.pid}/fd').iterdir()]
        self.assertEqual([], [name for name in found if 'bpf' in name])
        policies = {os.sched_getscheduler(int(task.name)) for task in
                    pathlib.Path(f'/proc/{agent.pid}/task').iterdir()}
        self.assertEqual(1, len(policies))      # no thread before the others
        isolation = self.status()['isolation']
        self.assertNotIn('polls', isolation)
        self.assertNotIn('1', self.idle())
