# SPDX-License-Identifier: Apache-2.0

"""Statuses of agents and what Prometheus' own parser reads of their pages."""

from __future__ import annotations

import subprocess
from typing import Any

from prometheus_client import parser

from scavenger_openstack.tests.unit.agent import statuses

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def document(**differing: Any) -> dict[str, Any]:
    """Return a status as :func:`.page.page` takes it."""
    return statuses.document(**{
        'wall_time_s': 1_800_000_000.0, 'stopped': False, 'isolation': {},
        'libvirt': None, 'conductor': None, 'grade': None, 'missing': (),
        'counters': {'ticks': 3, 'blind_ticks': 0, 'kills': 0},
        'watcher': {'running': True}, 'refused': [], 'metrics': {},
        **differing})


def parsed(page: bytes) -> Samples:
    """Return the samples by name and labels.

    :raises ValueError: it is no page, or has a sample twice
    """
    samples: Samples = {}
    for family in parser.text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            if key in samples:
                raise ValueError(f'twice: {key}')
            samples[key] = sample.value
    return samples


def check(page: bytes) -> str:
    """Return what ``promtool check metrics`` has to say, '' for nothing."""
    return subprocess.run(
        ['promtool', 'check', 'metrics'], input=page, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout.decode()
