# SPDX-License-Identifier: Apache-2.0

"""A real agent names and limits a real antagonist, and no other."""

from __future__ import annotations

from typing import Any

from scavenger_openstack.tests.functional import suspects

DEADLINE_S = 60.0

QUOTA = 'cpu.cfs_quota_us'


FIRST_S = 30.0


class FirstThereTest(suspects.SuspectsTestCase):

    def test_what_never_rests_is_named(self) -> None:
        """It works before the agent does, and nothing limits it."""
        for _ in range(3):
            self.run_along('/back/hog', 'work(1e9, 1.0)')
        self.run_innocents()
        hog = f'{self.tree.name}/back/hog'
        status = self.agent()
        kinds: set[str] = set()

        def named() -> bool:
            if status.refresh():
                for one in status.last['incidents']:
                    self.assertLessEqual(
                        set(one.get('antagonists', ())), {hog})
                    kinds.update(ground['kind'] for ground
                                 in one.get('grounds', ())
                                 if ground['workload'] == hog)
            return bool(kinds)

        self.wait_for('the hog is named', named, FIRST_S)
        self.assertEqual({'direct'}, kinds)
        self.assertEqual([], status.caps())
        self.end()


class AttributionTest(suspects.SuspectsTestCase):

    def quota(self, below: str) -> int:
        return int(self.tree.read('cpu', below, QUOTA))

    def test_who_takes_the_cpu_is_limited(self) -> None:
        self.tree.make('/back/hog')
        status = self.agent(mode='enforce')
        self.run_innocents()
        [hog] = self.run_hogs('/back/hog', mean_s=3)
        quotas: list[int] = []
        seen: list[dict[str, Any]] = []

        def limited_and_better() -> bool:
            if status.refresh():
                for one in status.last['incidents']:
                    self.assertEqual((self.victim_id, 'run_delay', 'core'), (
                        one['victim'], one['signal'], one['cause']))
                    self.assertLessEqual(
                        set(one.get('antagonists', ())), {hog})
                    seen.append(one)
                for cap in status.caps():
                    self.assertEqual((hog, 'cpu_cores'),
                                     (cap['workload'], cap['knob']))
            quotas.append(self.quota('/back/hog'))
            return any(one['outcome'] == 'confirmed' for one in seen)

        self.wait_for('the hog is limited, and the victim better for it',
                      limited_and_better, DEADLINE_S)
        least = min(quota for quota in quotas if quota > 0)
        self.assertLess(least, 50_000)  # it took three fifths of each 100 ms
        self.assertEqual((-1, -1), (self.quota('/back/steady'),
                                    self.quota('/fore/victim')))
        self.end()
        self.assertEqual(-1, self.quota('/back/hog'))
