# SPDX-License-Identifier: Apache-2.0

"""What is ready for other services fits what they take and what is here."""

from __future__ import annotations

import pathlib
from typing import Any

import testtools
import yaml

from scavenger_openstack.agent.metrics import page
from scavenger_openstack.api import app
from scavenger_openstack.sdk.v1 import _proxy

TOP = pathlib.Path(__file__).parents[3]

AGGREGATIONS = ('avg', 'count', 'max', 'min', 'stddev', 'stdvar', 'sum')
RANGE_FUNCTIONS = ('changes', 'delta', 'deriv', 'idelta', 'irange', 'irate',
                   'rate')
"""What CloudKitty's collector "prometheus" takes."""


def read(name: str) -> Any:
    return yaml.safe_load((TOP / name).read_text())


class CloudKitty(testtools.TestCase):

    def test_metrics(self) -> None:
        metrics = {metric.name: metric for metric in page.METRICS.values()}
        for name, rated in read('etc/cloudkitty/metrics.yml')[
                'metrics'].items():
            self.assertEqual({'project', 'server_id', 'priority'}, {
                'project', *rated['groupby'], *rated['metadata']})
            self.assertEqual({'project', 'server_id', 'priority'},
                             set(metrics[name].labels))
            extra = rated['extra_args']
            self.assertIn(extra['aggregation_method'], AGGREGATIONS)
            self.assertIn(extra['range_function'], RANGE_FUNCTIONS)
            # A rate counts seconds per second of a counter alone.
            self.assertEqual(('counter', 'rate', 's'), (
                metrics[name].kind, extra['range_function'], rated['unit']))


class ServiceTypes(testtools.TestCase):

    def test_entry(self) -> None:
        """It has the fields of the schema of that list."""
        [entry] = read('contrib/service-types.yaml')['services']
        self.assertEqual({'service_type', 'project', 'api_reference',
                          'description'}, set(entry))
        self.assertRegex(entry['service_type'], '^[a-z][a-z-]*[a-z]+$')
        self.assertEqual((app.SERVICE, _proxy.SERVICE_TYPE),
                         (entry['service_type'],) * 2)
        reference = entry['api_reference'].rpartition('/latest/')[2]
        self.assertTrue((TOP / 'doc/source' / reference).with_suffix(
            '.rst').exists(), reference)
