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
from traces import Group

from scavenger_openstack.algorithms import scavenger
from scavenger_openstack.algorithms.scavenger import Params

OTHER_HEADROOMS = (0.01, 0.03, 0.05)
TARGETS = {'memory': (1 / 6, 1 / 2, 1, 2, 4), 'network': (1 / 4, 1 / 2, 1, 2)}
"""Violations a day to show the best values for, in multiples of what is
acceptable."""

Study = tuple[Group, dict[Setting, Outcome]]
Advice = tuple[str, str, str, str]
"""A resource, the values in use, the recommended ones, the reason."""


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
    found = sweep.choices(studies, sorted({*cs, c}),
                          sorted({*windows_s, window_s}),
                          params.min_headroom)
    names = [group.key for group, _ in studies]
    lines = [f'## {resource.capitalize()}: what to choose\n',
             'The most background with at most so many violations a day in '
             'every group above (violations a day / % of the oracle):\n']
    now = next((one for one in found if (one.c, one.window_s)
                == (c, window_s)), None)
    rows = []
    tops = [(f'at most {number(target * part)}', sweep.best(
        found, target * part)) for part in TARGETS[resource]]
    for name, one in [*tops, ('in use now', now),
                      ('as many samples as at 1 s', _at_1_s(
                          studies, c, window_s, params))]:
        rows.append([name, *(['none'] + [''] * (len(names) + 2)
                             if one is None else [
            f'{one.c:g}', charts.seconds(one.window_s),
            f'{100 * one.of_oracle:.0f}', *(
                f'{number(got.per_day.value)} / {100 * got.of_oracle:.0f}'
                for got in one.outcomes)])])
    if all(group.interval_s <= 1 for group, _ in studies):
        rows.pop()
    lines.append(charts.table(
        ('violations a day', 'c', 'w', '% of oracle, mean', *names), rows))
    lines += filter(None, [_headroom(studies, params)])
    was = f'c = {c:g}, w = {charts.seconds(window_s)}'
    if now is None:
        reason = ('the values in use now do not fit this series: it is too '
                  'short or too coarse')
        return lines, (resource, was, 'none', reason)
    pick = sweep.nearest(found, target, now)
    ours = ', '.join(f'{name} {number(got.per_day.value)}' for name, got in
                     zip(names, now.outcomes, strict=True))
    if pick is None:
        reason = (f'no c and w of the study keeps to {number(target)} '
                  f'violations a day everywhere (now: {ours})')
        return lines, (resource, was, 'none', reason)
    if pick is now:
        reason = (f'violations a day: {ours}; that is within the '
                  f'{number(target)} asked for, and nothing within it '
                  f'affords 5 points of the oracle more than these '
                  f'{100 * now.of_oracle:.0f} %')
        return lines, (resource, was, f'{was} (keep)', reason)
    then = ', '.join(f'{name} {number(got.per_day.value)}' for name, got in
                     zip(names, pick.outcomes, strict=True))
    reason = (f'violations a day now: {ours}, at {100 * now.of_oracle:.0f} % '
              f'of the oracle; then: {then}, at {100 * pick.of_oracle:.0f} '
              f'%. Of what keeps to {number(target)} a day everywhere and '
              f'gives within 5 points of the most possible, it is the '
              f'nearest to the values in use')
    finest_s = min(group.interval_s for group, _ in studies)
    if finest_s > 1:
        reason += (f'. The series have a sample every {finest_s:g} s or '
                   f'less often and the agent has one a second: trust the '
                   f'direction, and a recording for the numbers')
    return lines, (resource, was,
                   f'c = {pick.c:g}, w = {charts.seconds(pick.window_s)}',
                   reason)


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
