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

"""What it costs the agent to report to a conductor.

Runs the agent as slow_loop.py beside this file does, by turns without a
control plane and with one that answers in the same process (so without the
library that speaks to the broker), and prints CPU per workload and tick and
memory of both, and their ratio in each pair.

    python benchmarks/agent/sync_cost.py [--workloads 50] [--pairs 3]
"""

from __future__ import annotations

import argparse
import statistics
import sys

import slow_loop

from scavenger_openstack.tests.functional import reporting

WITH = '''[DEFAULT]
transport_url = fake:/
[conductor]
enabled = true
sync_s = {}
'''


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--workloads', type=int, default=50,
                        help='of the host (50)')
    parser.add_argument('--pairs', type=int, default=3,
                        help='measurements without and with (3)')
    parser.add_argument('--sync-s', type=float, default=10,
                        help='seconds between reports (10)')
    parser.add_argument('--warm-up', type=float, default=12,
                        help='seconds before each measurement (12)')
    parser.add_argument('--seconds', type=float, default=30,
                        help='of each measurement (30)')
    args = parser.parse_args()
    ratios = []
    for _ in range(args.pairs):
        pair = [slow_loop.measure(
            args.workloads, 10, args.warm_up, args.seconds,
            module=module, config=config)
            for module, config in (
                ('scavenger_openstack.cmd.agent', ''),
                (reporting.__name__, WITH.format(args.sync_s)))]
        ratios.append(pair[1]['us_per_workload'] / pair[0]['us_per_workload'])
        print(f'{args.workloads} workloads, without and with: '
              + ', '.join(f'{row["us_per_workload"]:.1f} us per workload and '
                          f'tick, {row["rss_bytes"] / 2**20:.1f} MiB'
                          for row in pair)
              + f'; {ratios[-1]:.3f} times', flush=True)
    print(f'median of {len(ratios)} pairs: {statistics.median(ratios):.3f} '
          'times')
    return 0


if __name__ == '__main__':
    sys.exit(main())
