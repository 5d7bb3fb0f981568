# SPDX-License-Identifier: Apache-2.0

"""What can be tuned of the detector of our own."""

from __future__ import annotations

import dataclasses

from scavenger_openstack.algorithms.attribution import explanation

MOST_SAMPLES = 600
"""Of a window: about 100 ms of CPU for one analysis of 20 suspects."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """What can be tuned.  None of it is in a paper unless it says so."""

    sample_s: float = dataclasses.field(default=5.0, metadata={
        'help': 'Seconds of one sample. More smooths more and answers '
                'later.',
        'min': 0.1, 'max': 3600.0, 'source': 'PerfCloud, section III-D'})
    window_s: float = dataclasses.field(default=600.0, metadata={
        'help': 'Seconds of samples that victim and suspects are compared '
                'over; 12 to 600 samples. More finds weaker and rarer '
                'antagonists; the cost grows with the square.',
        'min': 1.0, 'max': 86400.0, 'source': 'CPI2, section 4.2'})
    max_analyses_per_min: int = dataclasses.field(default=60, metadata={
        'help': 'How often in a minute a victim is compared with its '
                'suspects (about 10 ms of CPU each for 120 samples). When '
                'more suffer, they take turns, and antagonists are named '
                'later.',
        'min': 1, 'max': 6000, 'source': 'CPI2, section 4.2: one a second'})
    max_chance: float = dataclasses.field(default=0.05, metadata={
        'help': 'Chance that any innocent among all suspects scores as '
                'high, up to which an antagonist is named. Less names fewer '
                'innocents and takes longer.',
        'min': 1e-9, 'max': 1.0, 'source': 'not in a paper; DESIGN 7.13'})
    min_share: float = dataclasses.field(default=0.05, metadata={
        'help': 'Share of all use of the contended resource by which the '
                'use of a suspect has to vary.',
        'min': 0.0, 'max': 1.0, 'source': 'not in a paper'})
    min_misses_per_s: float = dataclasses.field(default=1e6, metadata={
        'help': 'Misses of the last-level cache per second by which a '
                "suspect's own have to vary before cpi can be attributed to "
                'it. A million are 64 MB/s.',
        'min': 0.0, 'max': 1e12, 'source': 'not in a paper'})
    min_effect: float = dataclasses.field(default=0.1, metadata={
        'help': 'Least part by which cpi has to rise, and least part of its '
                'runnable time that a victim has to wait more. More leaves '
                'small disturbances alone.',
        'min': 0.01, 'max': 10.0, 'source': 'not in a paper'})
    min_io_effect: float = dataclasses.field(default=0.2, metadata={
        'help': 'Least part by which the wait per disk operation has to '
                'rise.',
        'min': 0.01, 'max': 10.0, 'source': 'not in a paper'})
    own_limit_share: float = dataclasses.field(default=0.1, metadata={
        'help': 'Share of time held back by its own quota from which a '
                'workload is said to suffer from that.',
        'min': 0.001, 'max': 1.0, 'source': 'not in a paper'})
    direct_share: float = dataclasses.field(default=0.045, metadata={
        'help': 'Share of the time in which the kernel is asked what holds '
                'a resource that a victim waits for, 2 seconds at a time and '
                'only while one waits; 0 is never. Each context switch of '
                'the host costs about a microsecond more then.',
        'min': 0.0, 'max': 1.0, 'source': 'not in a paper'})
    quiet_s: float = dataclasses.field(default=300.0, metadata={
        'help': 'Seconds without a disturbance after which an incident '
                'ends.',
        'min': 1.0, 'max': 86400.0, 'source': 'DESIGN 7.13'})
    first_cut: float = dataclasses.field(default=0.6, metadata={
        'help': 'Part of what an antagonist could use without harm that is '
                'taken away at first, to see whether it helps.',
        'min': 0.01, 'max': 0.99, 'source': 'not in a paper'})
    cut: float = dataclasses.field(default=0.3, metadata={
        'help': 'Part of its use that is taken away when the victim suffers '
                'again.',
        'min': 0.01, 'max': 0.99, 'source': 'not in a paper'})
    plateau_s: float = dataclasses.field(default=30.0, metadata={
        'help': 'Seconds after which a limit has grown to where it was cut. '
                'More disturbs less often and delays more background work.',
        'min': 1.0, 'max': 86400.0,
        'source': 'PerfCloud, equation 1: 10 to 27 s'})
    trial_samples: int = dataclasses.field(default=3, metadata={
        'help': 'Samples after which a limit is judged.',
        'min': 1, 'max': 100, 'source': 'DESIGN 6'})
    back_off_s: float = dataclasses.field(default=300.0, metadata={
        'help': 'Seconds for which an antagonist is not limited again after '
                'a limit that did not help; twice as long each time, up to a '
                'day.',
        'min': 1.0, 'max': 86400.0, 'source': 'not in a paper'})
    remember_s: float = dataclasses.field(default=3600.0, metadata={
        'help': 'Seconds for which the last good limit of an antagonist is '
                'remembered, for when it comes back, and all that is known '
                'of a VM that is started again.',
        'min': 0.0, 'max': 604800.0, 'source': 'not in a paper'})
    max_caps_per_min: int = dataclasses.field(default=6, metadata={
        'help': 'New limits of a host in a minute; beyond, there are only '
                'incidents.',
        'min': 0, 'max': 1000, 'source': 'DESIGN 6; the number is not in '
                                         'a paper'})

    def __post_init__(self) -> None:
        samples = self.window_s / self.sample_s
        if not explanation.MIN_SAMPLES <= samples <= MOST_SAMPLES:
            raise ValueError(
                f'window_s = {self.window_s:g} holds {samples:g} samples of '
                f'sample_s = {self.sample_s:g}; a window holds '
                f'{explanation.MIN_SAMPLES} to {MOST_SAMPLES}')
