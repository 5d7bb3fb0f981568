# SPDX-License-Identifier: Apache-2.0


"""What can be tuned in Scavenger; ``conf`` makes the options of it.

Each field's ``metadata`` has ``help`` (unit and effect, as an operator reads
it), ``min`` and ``max``, and ``source``: the section of the paper, or that
it is not in the paper.
"""

from __future__ import annotations

import dataclasses

RESERVE_PEAK = 'peak'
RESERVE_PAPER = 'paper'
RESERVE_RULES = (RESERVE_PEAK, RESERVE_PAPER, 'paper_recent_sigma')


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Params:
    """What can be tuned.  Times in seconds; one sample per tick."""

    reserve_rule: str = dataclasses.field(default=RESERVE_PEAK, metadata={
        'help': 'What the foreground keeps of memory and of each link. '
                'peak: its highest use of the last memory_peak_s or '
                'network_peak_s, and min_headroom. paper: the mean and c '
                'standard deviations of a window, which stay as they are '
                'until more is used, or less for a whole window; where use '
                'varies by more than a c-th of its mean, such a reserve does '
                'not shrink any more. paper_recent_sigma: the same with the '
                'standard deviation of the last window.',
        'choices': RESERVE_RULES,
        'source': 'paper and paper_recent_sigma: two readings of Scavenger, '
                  'section 4.2; peak: not in the paper'})
    memory_c: float = dataclasses.field(default=2.0, metadata={
        'help': "Standard deviations of the foreground's memory use that "
                'stay free above its mean, with the rules of the paper '
                '(reserve_rule). More protects against faster growth and '
                'leaves less memory to background work.',
        'min': 0.0, 'max': 100.0, 'source': 'Scavenger, section 6.1'})
    memory_window_s: float = dataclasses.field(default=60.0, metadata={
        'help': 'Seconds of memory use that are learnt first: for as long '
                'after a start, background work may grow into half of what '
                'is available. With the rules of the paper they make the '
                'mean and the standard deviation, and memory use must stay '
                'low for as long before the reserve shrinks.',
        'min': 2.0, 'max': 3600.0, 'source': 'Scavenger, section 6.1'})
    memory_peak_s: float = dataclasses.field(default=1800.0, metadata={
        'help': 'Seconds for which the highest memory use of the foreground '
                'stays reserved, with reserve_rule = peak. More gives fewer '
                'violations and a slower return of memory.',
        'min': 2.0, 'max': 18000.0,
        'source': 'not in the paper; benchmarks/parameters/sensitivity.py'})
    network_c: float = dataclasses.field(default=2.0, metadata={
        'help': "Standard deviations of the foreground's rate that stay "
                'free above its mean, per shared link and direction, with '
                'the rules of the paper (reserve_rule). More keeps foreground '
                'transfers shorter and background transfers longer.',
        'min': 0.0, 'max': 100.0, 'source': 'Scavenger, section 6.1'})
    network_window_s: float = dataclasses.field(default=30.0, metadata={
        'help': 'Seconds of rates that are learnt first: for as long after '
                'a start, background work sends and receives at its floor. '
                'With the rules of the paper they make the mean and the '
                'standard deviation of a link, and the rate must stay low '
                'for as long before the reserve shrinks.',
        'min': 2.0, 'max': 3600.0, 'source': 'Scavenger, section 6.1'})
    network_peak_s: float = dataclasses.field(default=3600.0, metadata={
        'help': 'Seconds for which the highest rate of the foreground stays '
                'reserved on a link, in each direction, with reserve_rule = '
                'peak. More gives fewer violations and a slower return of '
                'bandwidth.',
        'min': 2.0, 'max': 18000.0,
        'source': 'not in the paper; benchmarks/parameters/sensitivity.py'})
    network_wait_s: float = dataclasses.field(default=0.0005, metadata={
        'help': 'Seconds that a packet of the foreground may wait before a '
                'shared link on average: background work keeps the link no '
                'busier (49 % of 1 Gbit/s, 91 % of 10 Gbit/s). Less keeps '
                'answers of the foreground faster and background transfers '
                'slower. 0: background work may fill the link up to the '
                'reserve, as in the paper.',
        'min': 0.0, 'max': 10.0, 'source': 'not in the paper'})
    ipc_c: float = dataclasses.field(default=1.0, metadata={
        'help': 'Standard deviations by which the instructions per cycle of '
                'a foreground workload may differ from their mean before '
                'background work loses CPU quota. More lets background work '
                'disturb the shared cache more.',
        'min': 0.0, 'max': 100.0, 'source': 'Scavenger, section 6.1'})
    ipc_window_s: float = dataclasses.field(default=15.0, metadata={
        'help': 'Seconds of instructions per cycle that make the mean and '
                'the standard deviation of a foreground workload. While it '
                'is learnt (a new workload, a new phase) background work '
                'gets its floor of CPU quota.',
        'min': 2.0, 'max': 86400.0, 'source': 'Scavenger, section 6.1'})
    ipc_quota_increase_cores: float = dataclasses.field(
        default=0.1, metadata={
            'help': 'Cores of CPU quota that background work as a whole '
                    'gains per tick while no foreground workload suffers. '
                    'More fills the host sooner and overshoots further.',
            'min': 0.001, 'max': 64.0, 'source': 'Scavenger, section 6.1'})
    ipc_quota_decrease_factor: float = dataclasses.field(
        default=2.0, metadata={
            'help': 'Factor by which the CPU quota of background work is '
                    'divided per tick while a foreground workload suffers. '
                    'More relieves the foreground sooner.',
            'min': 1.01, 'max': 1000.0, 'source': 'Scavenger, section 6.1'})
    ipc_min_cores: float = dataclasses.field(default=0.25, metadata={
        'help': 'CPU use in cores below which the instructions per cycle '
                'of a foreground workload are not looked at: they say '
                'little then. Less notices smaller workloads and more '
                'noise.',
        'min': 0.0, 'max': 64.0,
        'source': 'not in the paper; the gate that CPI2, section 4.1, '
                  'sets for its outliers'})
    ipc_min_deviation: float = dataclasses.field(default=0.05, metadata={
        'help': 'Least share of the mean instructions per cycle that is '
                'taken for c standard deviations. More leaves more CPU to '
                'background work and lets it slow the foreground down by '
                'up to this share.',
        'min': 0.0, 'max': 1.0, 'source': 'not in the paper'})
    ipc_smoothing: int = dataclasses.field(default=5, metadata={
        'help': 'Samples of instructions per cycle whose mean is judged. '
                'More keeps noise from costing background work its CPU; a '
                'small drop is then noticed that many seconds later, a '
                'large one still at once. 1 judges each sample by itself, '
                'as the paper does.',
        'min': 1, 'max': 60, 'source': 'not in the paper'})
    ipc_strict: bool = dataclasses.field(default=False, metadata={
        'help': 'Limit all background work by the instructions per cycle, '
                'and judge each foreground workload as if it were alone, as '
                'the paper does: the more there are, the less CPU time '
                'background work gets. False: limit only the background work '
                'that misses the shared cache enough to disturb others (all '
                'of it where misses are not measurable, and while threads '
                'have to share cores), and let all foreground workloads '
                'together raise no more false alarms than one does.',
        'source': 'Scavenger, section 6.1; False: not in the paper'})
    min_headroom: float = dataclasses.field(default=0.02, metadata={
        'help': 'Least share of the capacity of memory or of a link that '
                "stays free above the foreground's highest use (its mean, "
                'with the rules of the paper), also when its use is '
                'constant. More protects a foreground that rarely moves '
                'and leaves less to background work.',
        'min': 0.0, 'max': 1.0, 'source': 'not in the paper'})
    blind_ticks: int = dataclasses.field(default=3, metadata={
        'help': 'Ticks for which the last reserve is held when a signal '
                'that was there is missing. After them background work '
                'falls to its floor (memory: it grows no more).',
        'min': 0, 'max': 3600, 'source': 'not in the paper'})
    use_memory: bool = dataclasses.field(default=True, metadata={
        'help': 'Limit the memory of background work to what the '
                'foreground leaves. False: its memory is not limited.',
        'source': 'Scavenger, section 4.2'})
    use_page_cache: bool = dataclasses.field(default=True, metadata={
        'help': 'Count the page cache of background work, too, and take it '
                'back while the foreground reads again from disk what it had '
                'in its page cache. False: background work may displace all '
                'page cache of the foreground.',
        'source': 'not in the paper'})
    page_cache_refault_bytes_per_s: float = dataclasses.field(
        default=262144.0, metadata={
            'help': 'Bytes per second that the foreground as a whole may read '
                    'again from disk, having had them in its page cache, '
                    'before background work loses page cache. Less protects '
                    'the page cache of the foreground more, and lets '
                    'background work grow more slowly.',
            'min': 0.0, 'max': 1e12, 'source': 'not in the paper'})
    use_network: bool = dataclasses.field(default=True, metadata={
        'help': 'Limit the sending rate of background work to what the '
                'foreground leaves on each shared link. False: its sending '
                'is not limited.',
        'source': 'Scavenger, section 4.3'})
    use_network_received: bool = dataclasses.field(default=True, metadata={
        'help': 'With use_network, limit what background work receives over '
                'each shared link in the same way. It makes TCP slow down; '
                'what is sent without heeding losses, as by UDP, fills the '
                'link all the same, and what is dropped at the tap of a VM '
                "counts as the foreground's. False: its receiving is not "
                'limited.',
        'source': 'not in the paper'})
    use_ipc: bool = dataclasses.field(default=True, metadata={
        'help': 'Limit the CPU quota of background work by the instructions '
                'per cycle of the foreground, where hardware counters work. '
                'False: contention for the shared cache goes unanswered.',
        'source': 'Scavenger, section 4.4'})
    use_llc_ways: bool = dataclasses.field(default=True, metadata={
        'help': 'With use_ipc, where resctrl is mounted and the CPU can '
                'divide its last-level cache (CAT): move the ways of the '
                'cache that background work may fill, with its share of the '
                'memory bus, and the CPU quota only where that is not '
                'enough. False: the CPU quota alone.',
        'source': 'Scavenger, section 7'})
    use_cpu_idle: bool = dataclasses.field(default=True, metadata={
        'help': 'Let background work run only where nothing else wants to '
                '(cpu.idle of its groups). False: it competes with the '
                'foreground by its weight.',
        'source': 'not in the paper; DESIGN 7.8'})
    use_cpu_leftover: bool = dataclasses.field(default=True, metadata={
        'help': 'With use_cpu_idle, where background work shares a parent '
                'cgroup with other work: keep its CPU quota a little below '
                'what everything else leaves over, so that no process '
                'stands still beside it; and set cpu.idle of VMs only while '
                'something is left over, so that QEMU answers. False: no '
                'such quota, and cpu.idle of VMs always.',
        'source': 'not in the paper; DESIGN 7.8'})
    cpu_leftover_share: float = dataclasses.field(default=0.97, metadata={
        'help': 'Part of the CPU time left over by everything else that '
                'background work gets. Less lets other processes start '
                'sooner beside it and leaves more CPU time unused.',
        'min': 0.1, 'max': 1.0,
        'source': 'not in the paper; benchmarks/agent/starvation.py'})
    use_cpu_set: bool = dataclasses.field(default=True, metadata={
        'help': 'Keep background work off the CPUs that foreground '
                'workloads have to themselves. False: it may run there.',
        'source': 'Scavenger, section 4.5'})
