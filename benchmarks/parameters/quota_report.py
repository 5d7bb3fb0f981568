# SPDX-License-Identifier: Apache-2.0


"""What the sensitivity study says of the CPU quota by IPC."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import pathlib
import statistics
from typing import Any

import charts
from charts import number
from ipc_noise import answer_s
from ipc_noise import Case
from ipc_noise import FLOOR_CORES
from ipc_noise import HOST_CORES
from ipc_noise import quiet

from scavenger_openstack.algorithms.scavenger.quota import Quota
from scavenger_openstack.algorithms.scavenger.quota import Verdict
from scavenger_openstack.algorithms.scavenger.scavenger import Params
from scavenger_openstack.algorithms.window import samples
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates

PAPER_CS = (1.0, 1.5, 2.0, 2.5, 3.0)
PAPER_WINDOWS_S = (15, 30, 60)
CS = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0)
WINDOWS_S = (15, 30, 60, 120, 300)
RHOS = (0.0, 0.5, 0.9)
WORKLOADS = (1, 5, 20, 60)
NOISES = (0.01, 0.02, 0.05, 0.1)
NOISE = 0.05
LOSSES = (0.1, 0.2, 0.3)
RUNS = (1, 2, 3)
RUN_SETTINGS = ((1.0, 15), (2.0, 30), (3.0, 60))
ENOUGH = 0.5
"""Share of the host's CPU that should be left to background work when
nobody is disturbed: what the recommendation asks for."""
STEADY = 0.5
"""... with noise that is correlated up to this from second to second."""

PAPER = 0       # smoothing of the paper's rule
SMOOTHING = Params().ipc_smoothing
CANDIDATES = (
    (1.0, 15, PAPER, 1, 1), (3.0, 60, PAPER, 1, 1), (3.0, 60, PAPER, 3, 1),
    (3.0, 60, PAPER, 3, 3), (3.0, 120, PAPER, 3, 3), (4.0, 60, PAPER, 1, 1),
    (4.0, 300, PAPER, 1, 1), (1.0, 15, SMOOTHING), (2.0, 15, SMOOTHING),
    (2.0, 60, SMOOTHING), (2.5, 60, SMOOTHING), (3.0, 60, SMOOTHING),
    (2.0, 300, SMOOTHING), (2.5, 60, 1), (4.0, 60, 1), (1.0, 60, 20),
    (2.0, 60, 10))
"""c, w, smoothing; for the paper's rule, samples in a row for phases and
for decreases."""

Setting = tuple[float, int]
Advice = tuple[str, str, str, str, str]

ABOUT = f'''\
## CPU quota: how noise in the IPC is answered

The rule for the cache (section 4.4) judges the IPC of every foreground
workload each second and the tightest vote wins. Here nobody disturbs
anybody: the IPC of each workload is Gaussian around a constant, with a
deviation of {100 * NOISE:.0f} % of it and a correlation rho from second to
second (AR(1)). So each decrease and each new phase is a mistake. The host
has {HOST_CORES:.0f} cores; background work starts at its floor of
{FLOOR_CORES:g} and gains 0.1 a second, so that even without a mistake it
has 91 % of the CPU over the half hour of a run. CPI2 (figure 7) has 9 %
of deviation for one job over machines; what it is from second to second on
a host of one's own, a recording tells (below).

Each cell: false phases an hour / % of the time at the minimum because of
them / CPU afforded in % of the host.
'''


def of_noise(seconds: int, pictures: pathlib.Path, link: str,
             ) -> tuple[list[str], Advice]:
    """The section, and the row of what is recommended."""
    lines = [ABOUT, f'![CPU afforded]({link})\n']
    (pictures / 'sensitivity-ipc.svg').write_text(_picture(seconds))
    lines.append('### The rule of the paper\n\nEach sample by itself, each '
                 'workload by c alone, as if it were the only one.\n')
    lines += _grid(PAPER_CS, PAPER_WINDOWS_S, PAPER, seconds)
    lines.append(
        'What if a phase needed k samples in a row beyond mu +/- 2 c sigma? '
        'Until then such a sample counts as any other low or high one:\n')
    lines.append(charts.table(
        ('c, w, rho, workloads', *(f'k = {run}' for run in RUNS)),
        [(f'{c:g}, {window_s} s, {rho:g}, {workloads}', *(
            _cell(Case(workloads, NOISE, rho, c, window_s, PAPER, run),
                  seconds) for run in RUNS))
         for c, window_s in RUN_SETTINGS
         for rho in RHOS for workloads in WORKLOADS]))
    lines.append(
        f'### The rule of the agent\n\nWhat is judged is the mean of '
        f'`ipc_smoothing` = {SMOOTHING} samples, and c grows with the '
        f'number of workloads.\n')
    lines += _grid(CS, WINDOWS_S, SMOOTHING, seconds)
    lines.append(
        '### What false alarms and late answers cost\n\nCPU afforded in % at '
        f'rho = {", ".join(f"{rho:g}" for rho in RHOS)}; and the seconds '
        'until background work is down to a quarter when one of 20 '
        'workloads (rho 0.5) really loses 10, 20 and 30 % of its IPC (mean '
        'of 8; 60 = not within a minute). Low samples alone cost much of '
        'the CPU, so k also for decreases:\n')
    lines.append(charts.table(
        ('c, w, rule', *(f'{workloads} workloads' for workloads in WORKLOADS),
         'answer to 10 / 20 / 30 %'),
        [_candidate(seconds, one) for one in CANDIDATES]))
    pick = _pick(seconds)
    now = Params()
    shown = list(dict.fromkeys(
        [(now.ipc_c, int(now.ipc_window_s)), *([pick] if pick else [])]))
    lines.append(f'With other noise (the rule of the agent, rho {STEADY:g}; '
                 f'it takes at least {100 * now.ipc_min_deviation:g} % of mu '
                 f'for c sigma):\n')
    lines.append(charts.table(
        ('c, w, deviation of the IPC', *(
            f'{workloads} workloads' for workloads in WORKLOADS)),
        [(f'{c:g}, {window_s} s, {100 * noise:g} %', *(
            _cell(Case(workloads, noise, STEADY, c, window_s), seconds)
            for workloads in WORKLOADS))
         for c, window_s in shown for noise in NOISES]))
    return lines, _advice(seconds, pick)


def _grid(cs: Sequence[float], windows_s: Sequence[int], smoothing: int,
          seconds: int) -> Iterator[str]:
    for workloads in WORKLOADS:
        yield (f'{workloads} foreground workload'
               f'{"s" if workloads > 1 else ""}:\n')
        yield charts.table(
            ('rho, w', *(f'c = {c:g}' for c in cs)),
            [(f'{rho:g}, {window_s} s', *(
                _cell(Case(workloads, NOISE, rho, c, window_s, smoothing),
                      seconds) for c in cs))
             for rho in RHOS for window_s in windows_s])


def _cell(case: Case, seconds: int) -> str:
    got = quiet(case, seconds)
    return (f'{number(got.phases_per_h)} / {100 * got.at_minimum:.0f} / '
            f'{100 * got.afforded:.0f}')


def _candidate(seconds: int, setting: tuple[Any, ...]) -> list[str]:
    c, window_s, smoothing, *runs = setting
    name = (f'smoothing {smoothing}' if smoothing else
            f'paper, k = {runs[0]} for phases, {runs[1]} for decreases')
    row = [f'{c:g}, {window_s} s, {name}']
    for workloads in WORKLOADS:
        row.append(' / '.join(
            str(round(100 * quiet(Case(workloads, NOISE, rho, *setting),
                                  seconds).afforded)) for rho in RHOS))
    row.append(' / '.join(
        f'{_answer_s(*setting, loss=loss):.0f}' for loss in LOSSES))
    return row


def _answer_s(*setting: Any, loss: float) -> float:
    return statistics.fmean(
        answer_s(Case(20, NOISE, 0.5, *setting), loss=loss, seed=seed)
        for seed in range(8))


def _pick(seconds: int) -> Setting | None:
    """The most sensitive setting of the agent's rule that leaves enough."""
    return next(
        ((c, window_s) for c in CS for window_s in WINDOWS_S
         if all(quiet(Case(workloads, NOISE, rho, c, window_s),
                      seconds).afforded >= ENOUGH
                for workloads in WORKLOADS for rho in RHOS if rho <= STEADY)),
        None)


def _advice(seconds: int, pick: Setting | None) -> Advice:
    now = Params()
    was = (now.ipc_c, int(now.ipc_window_s))

    def least(setting: Setting, rhos: Sequence[float],
              noise: float = NOISE) -> str:
        return ', '.join(
            f'{workloads}: ' + str(round(100 * min(
                quiet(Case(workloads, noise, rho, *setting),
                      seconds).afforded for rho in rhos)))
            for workloads in WORKLOADS)

    steady = [rho for rho in RHOS if rho <= STEADY]
    less = '; '.join(f'with {100 * noise:g} % of noise '
                     f'{least(was, [STEADY], noise)}' for noise in NOISES[:2])
    reason = (f'CPU in % that is left while nobody is disturbed, by number '
              f'of workloads, at {100 * NOISE:.0f} % of noise and rho up to '
              f'{STEADY:g}: now {least(was, steady)} ({less})')
    name = f'c = {was[0]:g}, w = {was[1]} s'
    basis = 'made-up noise'
    if pick is None:
        return ('CPU by IPC', name, 'none', basis, reason + '; no c and w '
                'of the study leaves half of it')
    if pick == was:
        return 'CPU by IPC', name, f'keep {name}', basis, reason
    then = _answer_s(*pick, loss=0.2), _answer_s(*pick, loss=0.3)
    return ('CPU by IPC', name, f'try: c = {pick[0]:g}, w = {pick[1]} s',
            basis, reason + f'; then {least(pick, steady)}. It is the least '
            f'c, then the least w, that leaves half of it in all these '
            f'cases. A loss of 20 % is answered in {then[0]:.0f} s '
            f'(now {_answer_s(*was, loss=0.2):.0f}), one of 30 % in '
            f'{then[1]:.0f} s. At rho {RHOS[-1]:g} it leaves '
            f'{least(pick, RHOS[-1:])}')


def _picture(seconds: int) -> str:
    paint = charts.colours(CS, Params().ipc_c)

    def lines(window_s: int, smoothing: int) -> Iterator[charts.Line]:
        for c in CS:
            yield charts.Line([
                (float(workloads), got.afforded, f'c {c:g}')
                for workloads in WORKLOADS
                for got in (quiet(Case(workloads, NOISE, STEADY, c, window_s,
                                       smoothing), seconds),)], paint[c])

    x = charts.window_axis(WORKLOADS)
    y = charts.share_axis((1.0,))
    return charts.picture(
        f'CPU afforded under noise, rho {STEADY:g}', [
            charts.panel(charts.WIDTH * place,
                         f'CPU afforded: {name}, w = {window_s} s',
                         list(lines(window_s, smoothing)), x=x, y=y,
                         x_name='foreground workloads')
            for place, (name, window_s, smoothing) in enumerate((
                ('paper', 15, PAPER), ('agent', 15, SMOOTHING),
                ('agent', 120, SMOOTHING)))],
        {f'c = {c:g}': colour for c, colour in paint.items()})


def of_recording(ticks: Sequence[Rates], interval_s: float,
                 params: Params) -> list[str]:
    """Noise of the recorded workloads, and what the rule makes of it."""
    lines = ['## CPU quota: IPC of the recorded host\n']
    series: dict[str, list[float]] = {}
    for tick in ticks:
        for one in tick.workloads:
            if (one[0].priority is not Priority.BACKGROUND and one.cpi
                    and one.cpu_cores is not None
                    and one.cpu_cores >= params.ipc_min_cores):
                series.setdefault(one[0].id, []).append(1 / one.cpi)
    series = {name: values for name, values in series.items()
              if len(values) >= 30}
    if not series:
        return [*lines, 'Skipped: no foreground workload with at least 30 '
                        'samples of its IPC; hardware counters are needed.\n']
    lines.append(
        'Deviation and rho place each workload among the made-up cases of '
        'the project\'s own study; both have in them what background work '
        'did to it while this was recorded.\n')
    rows = []
    for name, values in sorted(series.items(), key=lambda one: -len(one[1])):
        mean, sigma = statistics.fmean(values), statistics.stdev(values)
        rho = 0.0 if not sigma else sum(
            (a - mean) * (b - mean) for a, b in zip(
                values, values[1:], strict=False)) / sigma ** 2 / len(values)
        rows.append((name, str(len(values)), f'{mean:.2f}',
                     f'{100 * sigma / mean:.1f}', f'{rho:.2f}'))
    lines.append(charts.table(
        ('workload', 'samples', 'mean IPC', 'deviation %', 'rho'), rows))
    lines.append('The rule of the agent on these IPC: phases an hour / % of '
                 'the time at the minimum / CPU afforded in % of the host:\n')
    lines.append(charts.table(
        ('w', *(f'c = {c:g}' for c in CS)),
        [(f'{window_s} s', *(_replayed(ticks, interval_s, dataclasses.replace(
            params, ipc_c=c, ipc_window_s=float(window_s))) for c in CS))
         for window_s in WINDOWS_S]))
    return lines


def _replayed(ticks: Sequence[Rates], interval_s: float,
              params: Params) -> str:
    quota = Quota(params, samples(params.ipc_window_s, interval_s))
    minimum = counted = 0
    cores = 0.0
    for tick in ticks:
        maximum = float(len(tick.topology)) or HOST_CORES
        quota.observe([one for one in tick.workloads
                       if one[0].priority is not Priority.BACKGROUND],
                      minimum=FLOOR_CORES, maximum=maximum)
        if quota.cores is not None:
            counted += 1
            minimum += quota.verdict is Verdict.MINIMUM
            cores += quota.cores / maximum
    if not counted:
        return ''
    return (f'{number(quota.phases * 3600 / counted / interval_s)} / '
            f'{100 * minimum / counted:.0f} / {100 * cores / counted:.0f}')
