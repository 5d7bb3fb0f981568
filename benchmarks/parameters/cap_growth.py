# SPDX-License-Identifier: Apache-2.0



"""How a cap grows after contention: PerfCloud's equation 1, and ours.

    python benchmarks/parameters/cap_growth.py \\
        doc/source/_static/cap-growth.svg

The three regions of equation 1 (PerfCloud, section III-C) have a colour
each: growth, plateau within a tenth of where contention was met, probing
beyond.  Intervals are 5 s.  The same gamma makes the plateau come six times
later for a disk in MB/s than for a share of the CPUs; ours is a multiple of
that height and always takes as long.
"""

from __future__ import annotations

import argparse
import math
import pathlib
import sys

import charts

from scavenger_openstack.algorithms import attribution
from scavenger_openstack.algorithms.attribution import cubic
from scavenger_openstack.algorithms import perfcloud
from scavenger_openstack.cmd import ending
from scavenger_openstack.plot import panels
from scavenger_openstack.plot import shapes

NAMES = {'growth': shapes.BACKGROUND, 'plateau': shapes.FOREGROUND,
         'probing': shapes.ALARM}
PLATEAU = 0.1
"""Part of the height within which the cap is on the plateau."""

INTERVAL_S = 5


def region(value: float, peak: float) -> str:
    if abs(value - peak) <= PLATEAU * peak:
        return 'plateau'
    return 'growth' if value < peak else 'probing'


def lines(values: list[float], peak: float) -> list[charts.Line]:
    """One line per region, each begun where the last has ended."""
    found = []
    for name, colour in NAMES.items():
        points = [(step, value, f'{name}: {value:.3g}')
                  for step, value in enumerate(values)
                  if region(value, peak) == name]
        if points:
            if points[0][0]:
                step = points[0][0] - 1
                points.insert(0, (step, values[step], ''))
            found.append(charts.Line(points, colour, name))
    return found


def panel(left: float, title: str, values: list[float], peak: float,
          unit: str) -> list[str]:
    top = max(values) * 1.05
    x = panels.Axis(0, len(values) - 1, [
        (step, str(step)) for step in range(0, len(values), max(
            1, len(values) // 6))])
    y = panels.Axis(0, top, [(top * i / 4, f'{top * i / 4:.3g}')
                             for i in range(5)])
    return charts.panel(left, title, lines(values, peak), x=x, y=y,
                        x_name=f'intervals since the cut; cap in {unit}')


def equation(peak: float) -> list[float]:
    """Until the cap has doubled."""
    params = perfcloud.Params()
    found: list[float] = []
    while not found or found[-1] < 2 * peak:
        found.append(perfcloud.next_cap(
            peak, peak, len(found), contention=False, beta=params.beta,
            gamma=params.gamma))
    return found


def ours(peak: float) -> list[float]:
    params = attribution.Params()
    plateau = params.plateau_s / INTERVAL_S
    return [peak * cubic.height(step, cut=params.cut, plateau=plateau)
            for step in range(math.ceil(2.6 * plateau))]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument('output', type=pathlib.Path)
    output = parser.parse_args().output
    output.write_text(charts.picture(
        'How a cap grows after contention', [
            panel(0, 'PerfCloud: half of the CPUs', equation(0.5), 0.5,
                  'shares of the host'),
            panel(charts.WIDTH, 'PerfCloud: 100 MB/s', equation(100.0),
                  100.0, 'MB/s'),
            panel(2 * charts.WIDTH, 'Ours: 4 cores', ours(4.0), 4.0,
                  'cores')], NAMES) + '\n')
    print(f'{output} written')
    return 0


if __name__ == '__main__':
    sys.exit(ending.code('cap_growth', main))
