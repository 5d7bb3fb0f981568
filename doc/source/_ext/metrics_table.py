# SPDX-License-Identifier: Apache-2.0

"""The directive ``metrics-table``: the metrics of a program, out of its
code."""

from __future__ import annotations

import importlib
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList


class MetricsTable(Directive):
    """Its argument is MODULE:MAPPING, below the package."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        module, _, name = self.arguments[0].partition(':')
        metrics = getattr(importlib.import_module(
            f'scavenger_openstack.{module}'), name)
        lines = ['.. list-table::', '   :header-rows: 1',
                 '   :widths: 45 10 20 45', '', '   * - Metric', '     - Kind',
                 '     - Labels', '     - Is']
        for metric in metrics.values():
            lines += [f'   * - ``{metric.name}``', f'     - {metric.kind}',
                      '     - ' + ', '.join(f'``{label}``'
                                            for label in metric.labels),
                      f'     - {metric.help}']
        node = nodes.section()
        node.document = self.state.document
        self.state.nested_parse(StringList(lines, module), 0, node)
        return node.children


def setup(app: Any) -> dict[str, Any]:
    app.add_directive('metrics-table', MetricsTable)
    return {'parallel_read_safe': True}
