# SPDX-License-Identifier: Apache-2.0

"""The result in one picture: what the service felt, what the batch got."""

from __future__ import annotations

from collections.abc import Mapping
import math
from typing import Any

from scavenger_openstack.demo.filling import table
from scavenger_openstack.plot import shapes

WIDTH, ROW, HEAD, FOOT = 980, 46, 66, 66
LABEL_X, P99_X, WORK_X, HARM_X = 18, 136, 452, 742
P99_WIDTH, WORK_WIDTH = 280, 220
BARS_SHARE = 0.62
"""Part of the width that the longest bar takes; the rest is for its words."""
TICKS_MS = (0.1, 1.0, 10.0, 100.0, 1e3, 1e4, 1e5)
SENTENCE = ('A short bar on the left: the service hardly notices the batch '
            'work. Long bars in the middle: the idle part of the machine '
            'is used. Red: what the service suffers.')
TOO_MUCH = 1.1
"""Times alone."""
KINDS = {'cpu': ('#f08c2e', 'CPU'), 'memory': ('#8b5cf6', 'memory'),
         'network': ('#0d9488', 'network')}


def milliseconds(value: float) -> str:
    return f'{value / 1000:.1f} s' if value >= 1000 else (
        f'{value:.0f} ms' if value >= 100 else f'{value:.1f} ms')


def svg(result: Mapping[str, Any]) -> str:
    """One compact SVG of the content of :file:`result.json`."""
    phases = result['phases']
    height = HEAD + ROW * len(phases) + FOOT
    parts = [f"<rect width='{WIDTH}' height='{height}' rx='8' "
             "fill='#ffffff'/>",
             shapes.text(P99_X, 28, 'What the service feels: P99 latency',
                         size=14, colour=shapes.INK, bold=True),
             shapes.text(P99_X, 46,
                         'ms, logarithmic; in brackets: times alone'),
             shapes.text(HARM_X, 28, 'Memory and files of the service',
                         size=14, colour=shapes.INK, bold=True),
             shapes.text(HARM_X, 46, 'waits for memory; s per file'),
             shapes.text(WORK_X, 28, 'What the batch work gets done', size=14,
                         colour=shapes.INK, bold=True),
             *_legend()]
    known = [phase['p99_ms'] for phase in phases.values()
             if phase['p99_ms']]
    low, high = min(known, default=1) / 1.6, max(known, default=10)
    most = {kind: max((phase['background_work'][kind] or 0
                       for phase in phases.values()), default=0)
            for kind in KINDS}
    parts += _axes(low, high, HEAD + ROW * len(phases))
    for i, (name, phase) in enumerate(phases.items()):
        y = HEAD + i * ROW
        if name == 'scavenger':
            parts.append(f"<rect x='6' y='{y - 2}' width='{WIDTH - 12}' "
                         f"height='{ROW - 2}' rx='6' fill='#eff6ff'/>")
        parts.append(shapes.text(LABEL_X, y + 25,
                                 table.NAMES.get(name, name),
                                 size=13.5, colour=shapes.INK,
                                 bold=name == 'scavenger'))
        parts += _latency(phase, y, low, high)
        parts += _work(phase, y, most)
        parts += _harm(phase, y)
    settings = result['settings']
    parts.append(shapes.text(LABEL_X, height - 28, SENTENCE, size=11.5,
                             colour=shapes.INK))
    parts.append(shapes.text(
        LABEL_X, height - 11, f'Medians over {table.rounds(settings)} on '
        f'{settings["cpus"]} CPUs; batch work as a share of the most that '
        'any way got done.', size=11))
    return shapes.svg(WIDTH, height, parts, 'Result of scavenger-demo')


def _legend() -> list[str]:
    parts, x = [], float(WORK_X)
    for colour, word in KINDS.values():
        parts += [shapes.bar(x, 38, 10, 9, colour),
                  shapes.text(x + 14, 46, word)]
        x += 78
    return parts


def _latency(phase: Mapping[str, Any], y: float, low: float,
             high: float) -> list[str]:
    value, against = phase['p99_ms'], phase['p99_to_alone']
    if not value:
        return []
    width = _length(value, low, high)
    bad = against is not None and against > TOO_MUCH
    words = milliseconds(value)
    if against is not None:
        words += (f' ({against:.2f}x)' if against < 10
                  else f' ({against:.0f}x)')
    return [shapes.bar(P99_X, y + 10, width, 20,
                       shapes.ALARM if bad else shapes.FOREGROUND),
            shapes.text(P99_X + width + 6, y + 25, words, size=12.5,
                        colour=shapes.INK)]


def _length(value: float, low: float, high: float) -> float:
    return (P99_WIDTH * BARS_SHARE * math.log(value / low)
            / math.log(high / low))


def _axes(low: float, high: float, bottom: float) -> list[str]:
    """Lines and their values below both kinds of bars."""
    ticks = [(P99_X + _length(value, low, high), milliseconds(value))
             for value in TICKS_MS if low <= value <= high]
    ticks += [(WORK_X + WORK_WIDTH * share, f'{100 * share:.0f} %')
              for share in (0.0, 0.5, 1.0)]
    parts = []
    for x, words in ticks:
        parts += [shapes.line(x, HEAD, x, bottom, shapes.GRID),
                  shapes.text(x, bottom + 12, words, size=10,
                              anchor='middle')]
    return parts


def _harm(phase: Mapping[str, Any], y: float) -> list[str]:
    """Waits for memory, and how long a file takes; red what is too much."""
    unanswered = phase['memory_unanswered'] or 0
    took, slower = phase['foreground_transfer_s'], phase['transfer_to_alone']
    words = [(f'memory short {phase["memory_violations"] or 0:g} times, '
              f'{unanswered:g} unanswered', unanswered > 0)]
    if took is not None:
        words.append((f'a file takes {took:.2f} s',
                      slower is not None and slower > TOO_MUCH))
    return [shapes.text(HARM_X, y + 18 + 15 * i, text, size=11.5,
                        colour=shapes.ALARM if bad else shapes.INK)
            for i, (text, bad) in enumerate(words)]


def _work(phase: Mapping[str, Any], y: float,
          most: Mapping[str, float]) -> list[str]:
    parts = []
    for j, (kind, (colour, _)) in enumerate(KINDS.items()):
        share = ((phase['background_work'][kind] or 0) / most[kind]
                 if most[kind] else 0)
        top = y + 3 + 12.5 * j
        parts += [shapes.bar(WORK_X, top, WORK_WIDTH, 9.5, '#f3f4f6'),
                  shapes.bar(WORK_X, top, WORK_WIDTH * share, 9.5, colour),
                  shapes.text(WORK_X + WORK_WIDTH + 8, top + 8.8,
                              f'{100 * share:.0f} %', size=10.5,
                              colour=shapes.INK)]
    return parts
