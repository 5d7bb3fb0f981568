# SPDX-License-Identifier: Apache-2.0

"""The alerts and the dashboard in ``etc`` go by metrics that there are."""

from __future__ import annotations

from collections.abc import Iterator
import json
import pathlib
import re
import shutil
import subprocess
from typing import Any

import fixtures
import testtools
import yaml

from scavenger_openstack.agent.metrics import page
from scavenger_openstack import cloud_metrics

ETC = pathlib.Path(__file__).parents[3] / 'etc'
RULES = ETC / 'prometheus/scavenger.rules.yml'
DASHBOARD = ETC / 'grafana/scavenger.json'

TABLES = (page.METRICS, cloud_metrics.DATABASE, cloud_metrics.CONDUCTOR,
          cloud_metrics.API)
METRICS = {metric.name: metric for table in TABLES
           for metric in table.values()}
OF_HISTOGRAM = re.compile('_(bucket|sum|count)$')
SELECTOR = re.compile(r'\b(scavenger_\w+)(?:\{([^}]*)\})?')
BY = re.compile(r'\b(?:by|on)\s*\(([^)]*)\)')
MATCHER = re.compile(r'(\w+)\s*(?:=~|!=|!~|=)\s*"')
OF_SCRAPE = {'instance', 'job', 'le'}


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())['panels']
    return found


def expressions() -> Iterator[str]:
    for group in yaml.safe_load(RULES.read_text())['groups']:
        for rule in group['rules']:
            yield rule['expr']
    for panel in panels():
        for target in panel.get('targets', ()):
            yield target['expr']


def metric(name: str) -> Any:
    """The metric of a name in an expression, ``None`` if there is none."""
    base = OF_HISTOGRAM.sub('', name)
    if base != name and base in METRICS and (
            METRICS[base].kind == cloud_metrics.HISTOGRAM):
        return METRICS[base]
    return METRICS.get(name)


class Names(testtools.TestCase):

    def test_each_metric_is_one_of_ours(self) -> None:
        """With labels that it has."""
        wrong = []
        for expression in expressions():
            labels = set(OF_SCRAPE)
            for name, matchers in SELECTOR.findall(expression):
                found = metric(name)
                if found is None or (found.kind == cloud_metrics.HISTOGRAM
                                     and found.name == name):
                    wrong.append(f'{name} in {expression}')
                    continue
                labels.update(found.labels)
                wrong += [f'{label} of {name} in {expression}'
                          for label in MATCHER.findall(matchers)
                          if label not in {*found.labels, *OF_SCRAPE}]
            wrong += [f'{label.strip()} in {expression}'
                      for group in BY.findall(expression)
                      for label in group.split(',')
                      if label.strip() not in labels]
        self.assertEqual([], wrong)

    def test_no_name_is_there_twice(self) -> None:
        self.assertEqual(sum(map(len, TABLES)), len(METRICS))

    def test_each_of_an_agent_is_used(self) -> None:
        """But for what only a host that is looked at needs."""
        used = {found.name for expression in expressions()
                for name, _ in SELECTOR.findall(expression)
                if (found := metric(name))}
        self.assertEqual(
            {f'scavenger_{name}' for name in (
                'agent_blind_ticks_total', 'agent_memory_peak_bytes',
                'agent_stopped', 'agent_ticks_total', 'controller_mode',
                'capacity_cpu_cores', 'capacity_memory_bytes',
                'capacity_network_bytes_per_second',
                'headroom_network_bytes_per_second', 'instances_left_out')},
            METRICS.keys() - used)


class Dashboard(testtools.TestCase):

    def test_panels_do_not_overlap(self) -> None:
        places: dict[tuple[int, int], str] = {}
        for panel in panels():
            where = panel['gridPos']
            for x in range(where['x'], where['x'] + where['w']):
                self.assertLess(x, 24)
                for y in range(where['y'], where['y'] + where['h']):
                    self.assertEqual(panel['title'], places.setdefault(
                        (x, y), panel['title']))

    def test_ids_and_titles_are_unique(self) -> None:
        for key in ('id', 'title'):
            values = [panel[key] for panel in panels()]
            self.assertEqual(len(values), len(set(values)))


class Promtool(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)
        for file in (ETC / 'prometheus').iterdir():
            shutil.copy(file, self.directory)

    def promtool(self, *words: str) -> str:
        """What it has to say, '' if it is content."""
        done = subprocess.run(
            ['promtool', *words], cwd=self.directory, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return done.stdout if done.returncode else ''

    def test_rules(self) -> None:
        self.assertEqual('', self.promtool('check', 'rules', RULES.name))

    def test_alerts_fire_and_end(self) -> None:
        self.assertEqual('', self.promtool('test', 'rules',
                                           'scavenger.test.yml'))

    def test_each_alert_is_tried(self) -> None:
        """It is expected to fire, and not to before and after."""
        tried: dict[str, set[bool]] = {}
        for one in yaml.safe_load((self.directory / 'scavenger.test.yml')
                                  .read_text())['tests']:
            for case in one['alert_rule_test']:
                tried.setdefault(case['alertname'], set()).add(
                    bool(case['exp_alerts']))
        [group] = yaml.safe_load(RULES.read_text())['groups']
        self.assertEqual({rule['alert']: {True, False}
                          for rule in group['rules']}, tried)

    def test_the_example_of_prometheus(self) -> None:
        self.assertEqual('', self.promtool('check', 'config',
                                           'prometheus.yml.example'))

    def test_queries_of_the_dashboard(self) -> None:
        """As recording rules, which promtool parses."""
        rules = [{'record': f'a:b{number}', 'expr': expression.replace(
            '$instance', '.*')}
            for number, expression in enumerate(expressions())]
        (self.directory / 'queries.yml').write_text(yaml.safe_dump(
            {'groups': [{'name': 'queries', 'rules': rules}]}))
        self.assertEqual('', self.promtool('check', 'rules', 'queries.yml'))
