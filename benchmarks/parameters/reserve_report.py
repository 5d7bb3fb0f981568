# SPDX-License-Identifier: Apache-2.0


"""What the sensitivity study says of the reserve of memory and links."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence

import charts
from charts import number
from charts import percent
import sweep
from sweep import Outcome
from sweep import Setting
import traces
from traces import Group

from scavenger_openstack.algorithms.scavenger import scavenger
from scavenger_openstack.algorithms.scavenger.scavenger import Params

OTHER_HEADROOMS = (0.01, 0.03, 0.05)
THINNED = (1, 2, 5, 10)
THINNED_WINDOWS_S = (300.0, 600.0, 1800.0, 3600.0)
TARGETS = {'memory': (1 / 6, 1 / 2, 1, 2, 4), 'network': (1 / 4, 1 / 2, 1, 2)}
"""Violations a day to show the best values for, in multiples of what is
acceptable."""

Study = tuple[Group, dict[Setting, Outcome]]
Advice = tuple[str, str, str, str, str]
"""A resource, the values in use, the recommended ones, what that rests on,
the reason."""
AS_GOOD = 0.05
RULE = f'''\
How many violations a day are acceptable is a choice: 24 for memory, one an
hour, and 864 for a link, 1 % of the time, unless `--memory-violations` and
`--network-violations` say otherwise. The values in use are kept as long as no
group has more with the whole of its 95 % interval, and nothing that has at
most so many in every group affords {100 * AS_GOOD:.0f} points of the oracle
more. Else, of all that has at most so many in every group and affords within
{100 * AS_GOOD:.0f} points of the best of these, the nearest is recommended:
half a c counts as much as a factor of 2 in w. How long the highest use
counts stays as it is where that keeps to `--memory-violations` (of memory and
of links), to three quarters of next hour's oracle and to models of 6 hours in
every group of traces; else the nearest period that does is recommended; c and
w do not matter with that rule. For the IPC it is the least c,
then the least w, that leaves half of the CPU while nobody is disturbed.
What rests on made-up series says `try`, not `change`: look at it with a
recording before you change a default.
'''


def in_use(params: Params, resource: str) -> tuple[float, float]:
    """c and w in seconds."""
    if resource == 'memory':
        return params.memory_c, params.memory_window_s
    return params.network_c, params.network_window_s


def settings(group: Group, cs: Sequence[float], windows_s: Sequence[float],
             params: Params) -> list[Setting]:
    """All c and w with and without the least headroom; a few with others."""
    sizes = sweep.sizes(group, windows_s)
    found = [Setting(c, size, least) for least in (params.min_headroom, 0.0)
             for size in sizes for c in cs]
    c, window_s = in_use(params, group.resource)
    size = scavenger.samples(window_s, group.interval_s)
    found += [Setting(one, size, least) for least in (params.min_headroom, 0.0)
              for one in (0.0, c)]
    if group.interval_s > 1:
        found += [Setting(c, whole, params.min_headroom)
                  for whole in sweep.sizes(group, [
                      group.interval_s * scavenger.samples(window_s, 1.0)])]
    found += [Setting(one, size, least) for least in OTHER_HEADROOMS
              for one in (0.0, 1.0, c)]
    if group.resource == 'memory':
        found += [Setting(c, one, least) for least in OTHER_HEADROOMS
                  for one in sizes]
    return list(dict.fromkeys(found))


def whole_sizes(study: Mapping[Setting, Outcome],
                cs: Sequence[float]) -> list[int]:
    """The windows that every c was tried with."""
    return sorted(size for size in {one.size for one in study} if all(
        any(one.c == c and one.size == size for one in study) for c in cs))


def matrix(group: Group, study: Mapping[Setting, Outcome],
           cs: Sequence[float], least: float) -> str:
    """c down, w across."""
    sizes = whole_sizes(study, cs)
    head = ['c \\ w', *(f'{charts.seconds(size * group.interval_s)} ({size})'
                        for size in sizes)]
    rows = []
    for c in cs:
        row = [f'{c:g}']
        for size in sizes:
            one = study.get(Setting(c, size, least))
            row.append('' if one is None else
                       f'{number(one.per_day.value)} / '
                       f'{percent(one.afforded.value)}')
        rows.append(row)
    return charts.table(head, rows)


def details(group: Group, study: Mapping[Setting, Outcome],
            params: Params) -> str:
    """Everything, for one c and all w, one w and all c, other headrooms."""
    c, window_s = in_use(params, group.resource)
    size = scavenger.samples(window_s, group.interval_s)
    least = params.min_headroom
    chosen = [one for one in study
              if (one.c == c and one.min_headroom == least)
              or (one.size == size and one.min_headroom == least)
              or (one.size == size and one.c in (0.0, c))]
    rows = []
    for one in sorted(set(chosen), key=lambda one: (
            one.min_headroom != least, one.c != c, one.min_headroom, one)):
        got = study[one]
        rows.append((
            f'{one.c:g}', f'{charts.seconds(one.size * group.interval_s)} '
                          f'({one.size})', f'{100 * one.min_headroom:g}',
            between(got.per_day, number), number(got.worst),
            f'{100 * got.share:.2f}', f'{100 * got.overshoot:.2f}',
            f'{100 * got.largest:.1f}',
            between(got.afforded, percent), f'{100 * got.of_oracle:.0f}',
            f'{100 * got.held:.0f}'))
    return charts.table(
        ('c', 'w', 'least headroom %', 'violations a day',
         f'worst {group.unit}', '% of samples', 'overshoot %', 'largest %',
         'afforded %', '% of oracle', 'held %'), rows)


def between(found: sweep.Range, write: Callable[[float], str]) -> str:
    """An estimate and its interval, if there is one."""
    if found.low == found.high:
        return write(found.value)
    return (f'{write(found.value)} [{write(found.low)}, '
            f'{write(found.high)}]')


def picture(group: Group, study: Mapping[Setting, Outcome],
            cs: Sequence[float], params: Params) -> str:
    """Violations and background over w per c, and one against the other."""
    now, _ = in_use(params, group.resource)
    paint = charts.colours(cs, now)
    sizes = whole_sizes(study, cs) or sorted({one.size for one in study})
    least = params.min_headroom
    windows = [size * group.interval_s for size in sizes]

    def lines(value: Callable[[Outcome], float]) -> list[charts.Line]:
        return [charts.Line([
            (size * group.interval_s, value(study[key]), '')
            for size in sizes for key in (Setting(c, size, least),)
            if key in study], paint[c]) for c in cs]

    def cloud(headroom: float, hollow: bool) -> list[charts.Line]:
        return [charts.Line([
            (got.afforded.value, got.per_day.value,
             f'c {c:g}, w {charts.seconds(size * group.interval_s)}')
            for size in sizes for key in (Setting(c, size, headroom),)
            if key in study for got in (study[key],)], paint[c],
            joined=False, hollow=hollow) for c in cs]

    counts = charts.log_axis(one.per_day.value for one in study.values())
    budget = charts.share_axis(one.afforded.value for one in study.values())
    over = charts.window_axis(windows)
    return charts.picture(group.title, [
        charts.panel(0, 'Violations a day', lines(
            lambda one: one.per_day.value), x=over, y=counts,
            x_name='w in seconds'),
        charts.panel(charts.WIDTH, 'Background afforded', lines(
            lambda one: one.afforded.value), x=over, y=budget,
            x_name='w in seconds'),
        charts.panel(2 * charts.WIDTH, 'Violations over background',
                     cloud(0.0, True) + cloud(least, False), x=budget,
                     y=counts, x_name='afforded (rings: no least headroom)'),
    ], {f'c = {c:g}': colour for c, colour in paint.items()})


def section(group: Group, study: Mapping[Setting, Outcome],
            cs: Sequence[float], link: str,
            params: Params) -> Iterator[str]:
    yield f'## {group.title}\n'
    yield group.about + '\n'
    yield f'![{group.title}]({link})\n'
    for least in (params.min_headroom, 0.0):
        yield ('Violations a day / background afforded in % of the '
               'capacity, '
               + (f'with the least headroom of {100 * least:g} %:\n' if least
                  else 'without a least headroom:\n'))
        yield matrix(group, study, cs, least)
    yield (f'Around the values in use now; [95 % interval, '
           f'{group.unit}s drawn again with replacement]:\n')
    yield details(group, study, params)


def recommendation(resource: str, studies: Sequence[Study], cs: list[float],
                   windows_s: list[float], target: float, params: Params,
                   ) -> tuple[list[str], Advice]:
    """What to choose for all groups of a resource, and the reason."""
    c, window_s = in_use(params, resource)
    all_windows_s = sorted({*windows_s, window_s})
    found = sweep.choices(studies, sorted({*cs, c}), all_windows_s,
                          params.min_headroom)
    names = [group.key for group, _ in studies]
    now = next((one for one in found if (one.c, one.window_s)
                == (c, window_s)), None)
    rows = [(f'at most {number(target * part)}', sweep.best(
        found, target * part)) for part in TARGETS[resource]]
    rows.append(('in use now', now))
    if any(group.interval_s > 1 for group, _ in studies):
        rows.append(('as many samples as at 1 s', _at_1_s(
            studies, c, window_s, params)))
    lines = [
        f'## {resource.capitalize()}: what to choose for the rule of the '
        f'paper\n',
        'The most background with at most so many violations a day in '
        'every group above (violations a day / % of the oracle):\n',
        _choices('violations a day', rows, names)]
    if resource == 'memory':
        rows = [(f'{100 * least:g} %', sweep.best(sweep.choices(
            studies, [c], all_windows_s, least), target))
            for least in sorted((params.min_headroom, *OTHER_HEADROOMS))]
        lines += [f'Another least headroom instead of another c: the same '
                  f'with c = {c:g} and at most {number(target)} a day:\n',
                  _choices('least headroom', rows, names)]
    lines += filter(None, [_headroom(studies, params)])
    pick, reason = _pick(found, now, names, target)
    was = f'c = {c:g}, w = {charts.seconds(window_s)}'
    basis = ', '.join(dict.fromkeys(group.basis for group, _ in studies))
    to = ('none' if pick is None else f'keep {was}' if pick is now else
          f'{"try" if "made-up" in basis else "change"}: c = {pick.c:g}, '
          f'w = {charts.seconds(pick.window_s)}')
    if pick is not now and now is not None:
        reason += _instead(studies, now, target, params)
    finest_s = min(group.interval_s for group, _ in studies)
    if finest_s > 1:
        reason += (f'. The series have a sample every {finest_s:g} s or '
                   f'less often and the agent has one a second: trust the '
                   f'direction, and a recording for the numbers')
    return lines, (f'{resource}, rule of the paper', was, to, basis, reason)


def _instead(studies: Sequence[Study], now: sweep.Choice, target: float,
             params: Params) -> str:
    """What a larger least headroom does without another c or w."""
    for least in sorted(OTHER_HEADROOMS):
        for one in sweep.choices(studies, [now.c], [now.window_s], least):
            if least > params.min_headroom and one.per_day <= target:
                counts = ', '.join(
                    f'{group.key} {number(got.per_day.value)}'
                    for (group, _), got in zip(studies, one.outcomes,
                                               strict=True))
                return (f'. With c and w as they are, `min_headroom` = '
                        f'{100 * least:g} % does it too: {counts}, at '
                        f'{100 * one.of_oracle:.0f} %')
    return ''


def _choices(title: str, rows: Sequence[tuple[str, sweep.Choice | None]],
             names: Sequence[str]) -> str:
    cells = []
    for name, one in rows:
        if one is None:
            cells.append([name, 'none', *[''] * (len(names) + 2)])
            continue
        cells.append([
            name, f'{one.c:g}', charts.seconds(one.window_s),
            f'{100 * one.of_oracle:.0f}', *(
                f'{number(got.per_day.value)} / {100 * got.of_oracle:.0f}'
                for got in one.outcomes)])
    return charts.table((title, 'c', 'w', '% of oracle, mean', *names), cells)


def _pick(found: Sequence[sweep.Choice], now: sweep.Choice | None,
          names: Sequence[str], target: float,
          ) -> tuple[sweep.Choice | None, str]:
    """What :data:`RULE` says, and why."""
    def counts(one: sweep.Choice) -> str:
        return ', '.join(
            f'{name} {between(got.per_day, number)}'
            for name, got in zip(names, one.outcomes, strict=True))

    if now is None:
        return None, ('the values in use now do not fit this series: it is '
                      'too short or too coarse')
    top = sweep.best(found, target)
    has = f'violations a day now: {counts(now)}'
    kept = all(one.per_day.low <= target for one in now.outcomes)
    if kept and (top is None or top.of_oracle - now.of_oracle < AS_GOOD):
        return now, (
            f'{has}, at {100 * now.of_oracle:.0f} % of the oracle: not '
            f'clearly above {number(target)} in any group, and nothing that '
            f'keeps to it affords {100 * AS_GOOD:.0f} points more')
    pick = sweep.nearest(found, target, now, as_good=AS_GOOD)
    if pick is None:
        return None, (f'no c and w of the study keeps to {number(target)} '
                      f'everywhere; {has}')
    return pick, (
        f'{has}, at {100 * now.of_oracle:.0f} % of the oracle; then: '
        f'{counts(pick)}, at {100 * pick.of_oracle:.0f} %. It is the '
        f'nearest that keeps to {number(target)} everywhere and affords '
        f'within {100 * AS_GOOD:.0f} points of the most possible')


def spacing(group: Group, params: Params) -> Iterator[str]:
    """The same series seen less often: do seconds or samples count?"""
    c, _ = in_use(params, group.resource)
    rows, counts = [], []
    for every in THINNED:
        thin = traces.thinned(group, every)
        sizes = [scavenger.samples(window_s, thin.interval_s)
                 for window_s in THINNED_WINDOWS_S]
        found = sweep.sweep(thin, [Setting(c, size, params.min_headroom)
                                   for size in dict.fromkeys(sizes)])
        rows.append([f'{thin.interval_s:g} s', *(
            f'{number(got.per_day.value)} / {percent(got.afforded.value)} '
            f'({size})' for size in sizes
            for got in (found[Setting(c, size, params.min_headroom)],))])
        counts.append([found[Setting(c, size, params.min_headroom)]
                       .per_day.value for size in sizes])
    yield ('Is it the seconds or the samples of a window that count? The '
           f'same series with fewer of its samples, at c = {c:g} (violations '
           'a day / background afforded in % / samples in w):\n')
    yield charts.table(('a sample every', *(
        f'w = {charts.seconds(window_s)}'
        for window_s in THINNED_WINDOWS_S)), rows)
    if min(map(min, counts)):
        fewer = max(max(column) / min(column)
                    for column in zip(*counts, strict=True))
        longer = min(row[0] / row[-1] for row in counts)
        yield (f'{THINNED[-1]} times fewer samples change the violations by '
               f'a factor of at most {fewer:.1f}, a window '
               f'{THINNED_WINDOWS_S[-1] / THINNED_WINDOWS_S[0]:g} times as '
               f'long by one of at least {longer:.1f}'
               + ('.' if fewer > longer else ': here it is the seconds. So '
                  'a window that a coarse trace holds in few samples stands '
                  'for one of as many seconds, not for one of as few '
                  'samples.') + '\n')


def _at_1_s(studies: Sequence[Study], c: float, window_s: float,
            params: Params) -> sweep.Choice | None:
    """The values in use by their number of samples, where it fits."""
    setting = Setting(c, scavenger.samples(window_s, 1.0),
                      params.min_headroom)
    outcomes = tuple(study[setting] for _, study in studies
                     if setting in study)
    if len(outcomes) < len(studies):
        return None
    return sweep.Choice(c, window_s, outcomes)


def _headroom(studies: Sequence[Study], params: Params) -> str:
    """What the least headroom does, beside c."""
    lines = []
    for group, study in studies:
        c, window_s = in_use(params, group.resource)
        size = scavenger.samples(window_s, group.interval_s)
        found = [study.get(one) for one in (
            Setting(c, size, 0.0), Setting(0.0, size, params.min_headroom),
            Setting(c, size, params.min_headroom))]
        if None not in found:
            lines.append([group.key, *(
                f'{number(one.per_day.value)} / {percent(one.afforded.value)}'
                for one in found if one is not None)])
    if not lines:
        return ''
    least = f'{100 * params.min_headroom:g} %'
    return 'What the least headroom does beside c:\n\n' + charts.table(
        ('', f'c = {c:g} alone', f'{least} alone', f'c = {c:g} and {least}'),
        lines)
