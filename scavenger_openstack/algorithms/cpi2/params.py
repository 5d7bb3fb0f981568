# SPDX-License-Identifier: Apache-2.0

"""What can be tuned in CPI2; ``conf`` makes the options of it."""

from __future__ import annotations

import dataclasses

from scavenger_openstack.algorithms.cpi2 import specs
from scavenger_openstack.algorithms.signals import SIGNALS


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """Table 2 of the paper, row by row.  Times in seconds."""

    signal: str = dataclasses.field(default='cpi', metadata={
        'help': 'Contention signal that is watched: cpi, run_delay or '
                'io_wait. Hosts without hardware counters have no cpi.',
        'choices': tuple(SIGNALS),
        'source': 'CPI2 watches cpi; the others are not in the paper'})
    sample_s: float = dataclasses.field(default=10.0, metadata={
        'help': 'Seconds of each sampling period that are measured. More '
                'smooths more.',
        'min': 0.1, 'max': 3600.0, 'source': 'CPI2, table 2'})
    period_s: float = dataclasses.field(default=60.0, metadata={
        'help': 'Seconds from one sample to the next. Less notices '
                'interference sooner and more noise.',
        'min': 0.1, 'max': 3600.0, 'source': 'CPI2, table 2'})
    outlier_sigmas: float = dataclasses.field(default=2.0, metadata={
        'help': 'Standard deviations above the mean of its spec from which '
                'a sample is an outlier. More raises fewer alarms.',
        'min': 0.0, 'max': 100.0, 'source': 'CPI2, section 4.1, table 2'})
    outliers: int = dataclasses.field(default=3, metadata={
        'help': 'Outliers within outlier_window_s that make a workload a '
                'victim. More raises fewer and later alarms.',
        'min': 1, 'max': 1000, 'source': 'CPI2, section 4.1, table 2'})
    outlier_window_s: float = dataclasses.field(default=300.0, metadata={
        'help': 'Seconds in which outliers are counted.',
        'min': 1.0, 'max': 86400.0,
        'source': 'CPI2, section 4.1, table 2'})
    correlation_window_s: float = dataclasses.field(default=600.0, metadata={
        'help': 'Seconds of samples that victim and suspects are compared '
                'over.',
        'min': 1.0, 'max': 86400.0, 'source': 'CPI2, section 4.2'})
    correlation_threshold: float = dataclasses.field(default=0.35, metadata={
        'help': 'Antagonist correlation, -1 to 1, from which a suspect is '
                'named. More names fewer innocents and misses more '
                'antagonists.',
        'min': 0.0, 'max': 1.0, 'source': 'CPI2, section 4.2, table 2'})
    analysis_interval_s: float = dataclasses.field(default=1.0, metadata={
        'help': 'Least seconds between two analyses on a host.',
        'min': 0.0, 'max': 3600.0, 'source': 'CPI2, section 4.2'})
    cap_cores: float = dataclasses.field(default=0.1, metadata={
        'help': 'CPU left to an antagonist, in cores. Lower protects more '
                'and delays batch work.',
        'min': 0.001, 'max': 1024.0, 'source': 'CPI2, section 5, table 2'})
    cap_best_effort_cores: float = dataclasses.field(default=0.01, metadata={
        'help': 'The same for a best-effort antagonist: one that may be '
                'killed ([cgroups] killable_parents). Its floor is kept, '
                '[cgroups] floor_cpu_cores: set that as low for the rule of '
                'the paper.',
        'min': 0.001, 'max': 1024.0, 'source': 'CPI2, section 5'})
    cap_io_bytes_per_s: float = dataclasses.field(default=1e6, metadata={
        'help': 'Disk throughput left to an antagonist that is named by '
                'io_wait, in bytes per second.',
        'min': 1.0, 'max': 1e12, 'source': 'not in the paper'})
    cap_s: float = dataclasses.field(default=300.0, metadata={
        'help': 'Seconds that a limit lasts. Longer protects longer if the '
                'antagonist goes on, and delays batch work for nothing if '
                'it does not.',
        'min': 1.0, 'max': 86400.0, 'source': 'CPI2, section 5, table 2'})
    min_tasks: int = dataclasses.field(default=specs.MIN_TASKS, metadata={
        'help': 'Tasks of an application on this host from which their '
                'samples make a spec, where the control plane gives none.',
        'min': 1, 'max': 100000, 'source': 'CPI2, section 3.1'})
    min_samples: int = dataclasses.field(
        default=specs.MIN_SAMPLES, metadata={
            'help': 'Samples of each of these tasks that a spec needs.',
            'min': 2, 'max': 1000000, 'source': 'CPI2, section 3.1'})
    min_own_samples: int = dataclasses.field(default=0, metadata={
        'help': 'A workload of an application without a spec is compared '
                'with its own past, from so many samples on. 0: it is left '
                'alone, as in the paper, which manages no application of '
                'fewer than 5 tasks; 60 is an hour.',
        'min': 0, 'max': 1000000,
        'source': 'the rule of 5 tasks is CPI2, section 3.1; one\'s own past '
                  'is not in the paper, DESIGN 7.12'})
