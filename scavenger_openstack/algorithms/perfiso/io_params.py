# SPDX-License-Identifier: Apache-2.0


"""What can be tuned in the shares of disks; ``conf`` makes the options of it.

Each field's ``metadata`` is as in :mod:`..scavenger.params`.
"""

from __future__ import annotations

import dataclasses

MOST_OPS_PER_S = 1e9
"""No disk does more."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """What can be tuned.  Times in seconds; one sample per tick."""

    wait_tolerance: float = dataclasses.field(default=0.15, metadata={
        'help': 'Share by which disk operations of the foreground may take '
                'longer than while background work does next to none, on '
                'average over all foreground workloads; twice that for each '
                'one; half as much again for workloads that wait for disks '
                'for a small share of their time. Less protects more and '
                'delays background work.',
        'min': 0.01, 'max': 10.0, 'source': 'not in the paper'})
    wait_window_s: float = dataclasses.field(default=30.0, metadata={
        'help': 'Seconds of quiet disks in which it is learnt how long '
                'operations of a foreground workload take undisturbed. For '
                'as long, background work beside a new one has its floor; '
                'but not where its best of the last day is known. Of VMs, '
                '[libvirt] stats_ticks times as long: only new measurements '
                'count. Longer learns more surely.',
        'min': 2.0, 'max': 86400.0, 'source': 'not in the paper'})
    wait_smoothing: int = dataclasses.field(default=5, metadata={
        'help': 'Measurements of the time per operation whose mean is judged. '
                'More keeps noise from costing background work its share; '
                'small disturbances are then noticed that much later, large '
                'ones still at once. A second cut comes after as many, or '
                'when the foreground waits much longer. Of VMs there is one '
                'in [libvirt] stats_ticks ticks.',
        'min': 1, 'max': 60, 'source': 'not in the paper'})
    increase_share: float = dataclasses.field(default=0.05, metadata={
        'help': 'Part by which the operations of all background work grow '
                'per tick while no foreground workload suffers: of what '
                'they were when one did last, or of what they are. More '
                'fills the disks sooner and overshoots further.',
        'min': 0.001, 'max': 1.0, 'source': 'not in the paper'})
    decrease_factor: float = dataclasses.field(default=2.0, metadata={
        'help': 'Factor by which the operations of all background work are '
                'divided, at least, when the foreground suffers. More '
                'relieves the foreground for longer.',
        'min': 1.01, 'max': 1000.0, 'source': 'not in the paper'})
    deficit_window_s: float = dataclasses.field(default=10.0, metadata={
        'help': 'Seconds of disk operations that deficits are computed '
                'from (delta in the paper). Longer lets a workload that '
                'did little before have more for longer.',
        'min': 1.0, 'max': 3600.0,
        'source': 'PerfIso, section 4.1, which gives no value'})
    max_ops_per_s: float = dataclasses.field(default=0.0, metadata={
        'help': 'Disk operations per second of all background work '
                'together on each disk, at the most. It also holds where '
                'the time per operation of the foreground cannot be '
                'measured. 0: as many as the foreground tolerates.',
        'min': 0.0, 'max': MOST_OPS_PER_S,
        'source': 'PerfIso, section 4.1 and 6, static limits'})
    blind_ticks: int = dataclasses.field(default=3, metadata={
        'help': 'Ticks for which the last limits are held while the time '
                'per operation, which was measurable, is missing for all of '
                'the foreground. After them background work falls to its '
                'floor.',
        'min': 0, 'max': 3600, 'source': 'not in the paper'})
