# SPDX-License-Identifier: Apache-2.0

"""The directive ``data-path``: the way of one sample to one limit, drawn.

Each box is a function of the code; what goes to the next one is its return
annotation.  A function that is not there any more fails the build.
"""

from __future__ import annotations

import html
import importlib
import inspect
import operator
import re
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive

STEPS = (
    ('sample', 'drivers.host:Host.sample',
     'counters and gauges of cgroups, /proc, network devices and VMs'),
    ('rates', 'decision.rates:rates',
     'what happened per second; what cannot be measured is unknown'),
    ('controllers', 'algorithms.scavenger.scavenger:Controller.step',
     'each wants all its limits, with the reason; mode observe ends here'),
    ('linger', 'decision.linger:Linger.caps',
     'a switch that was just set stays a while'),
    ('propose', 'decision.decider:Decider.propose',
     'the wishes of all controllers, with the overrides of operators'),
    ('settle', 'decision.settle:settle',
     'which wishes hold, by the values of the knobs and the fast loop'),
    ('arbitrate', 'decision.arbitrate:arbitrate',
     'one value per knob: not below the floor, nor looser than its original'),
    ('diff', 'agent.apply.actuator:Actuator.reconcile',
     'what is in force already? Tighten before loosening'),
    ('lease', 'agent.lease.leases:Leases.hold',
     'the value before the first limit, on disk before the limit is set'),
    ('write, read back', 'drivers.host:Host.write',
     'what the kernel then reports counts'),
)
"""Title, function and what it does."""

CALL = {'settle', 'diff', 'lease'}
"""Steps that call the next one instead of handing something on."""

WIDTH, LEFT, BOX, TALL, GAP = 760, 20, 720, 58, 44


class DataPath(Directive):

    def run(self) -> list[nodes.Node]:
        return [nodes.raw('', picture(), format='html'),
                *only_text(self.state.document)]


def only_text(document: nodes.document) -> list[nodes.Node]:
    """The same as a list, for builders without pictures."""
    items = nodes.enumerated_list()
    for title, name, what in STEPS:
        paragraph = nodes.paragraph('', f'{title}: {what} (')
        paragraph += [nodes.literal(name, name), nodes.Text(')')]
        items += nodes.list_item('', paragraph)
    return [nodes.paragraph('', 'In words:'), items]


def handed_on(name: str) -> str:
    """What a function returns, as its annotation says.

    :raises AttributeError: there is no such function.
    """
    module, _, qualified = name.partition(':')
    function = operator.attrgetter(qualified)(
        importlib.import_module(f'scavenger_openstack.{module}'))
    said = inspect.signature(function).return_annotation
    return re.sub(r'\b\w+\.(?=[A-Z])', '', str(said))


def picture() -> str:
    """The steps below each other, as SVG in the text's own colour."""
    height = len(STEPS) * (TALL + GAP)
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" '
             'xmlns="http://www.w3.org/2000/svg" '
             'style="max-width:100%;font-family:sans-serif;font-size:14px">',
             '<title>From a sample to a limit</title>']
    for place, (title, name, what) in enumerate(STEPS):
        top = place * (TALL + GAP) + 2
        parts += [
            f'<rect x="{LEFT}" y="{top}" width="{BOX}" height="{TALL}" '
            'rx="6" fill="none" stroke="currentColor"/>',
            text(LEFT + 14, top + 24, title, 'font-weight="bold"'),
            text(LEFT + BOX - 14, top + 24, name.replace(':', '.'),
                 'text-anchor="end" font-family="monospace" font-size="12"'),
            text(LEFT + 14, top + 45, what)]
        if place + 1 < len(STEPS):
            middle, end = WIDTH / 2, top + TALL + GAP - 4
            given = handed_on(name)
            parts += [
                f'<path d="M{middle} {top + TALL}V{end}m-5-8 5 8 5-8" '
                'fill="none" stroke="currentColor"/>',
                text(middle + 12, top + TALL + GAP / 2 + 4,
                     'for each knob' if title in CALL else given,
                     'font-family="monospace" font-size="12"')]
        else:
            handed_on(name)
    return '\n'.join([*parts, '</svg>'])


def text(x: float, y: float, words: str, style: str = '') -> str:
    return (f'<text x="{x}" y="{y}" fill="currentColor" {style}>'
            f'{html.escape(words)}</text>')


def setup(app: Any) -> dict[str, Any]:
    app.add_directive('data-path', DataPath)
    return {'parallel_read_safe': True}
