# SPDX-License-Identifier: Apache-2.0

"""The sample of the policies, which oslopolicy-sample-generator writes."""

from __future__ import annotations

import configparser
import difflib
import os
import pathlib
import subprocess
import sys

import fixtures
import testtools
import yaml

from scavenger_openstack.api import policies

TOP = pathlib.Path(__file__).parents[4]
SAMPLE = TOP / 'etc/scavenger/policy.yaml.sample'
HORIZON = TOP / 'scavenger_openstack/dashboard/policies/defaults.yaml'


class Sample(testtools.TestCase):

    def test_it_is_of_today(self) -> None:
        """If not: tox -e genpolicy."""
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        # The entry points as they stand in the source, installed or not.
        setup = configparser.ConfigParser()
        setup.read(TOP / 'setup.cfg')
        said = directory / 'interference-0.dist-info'
        said.mkdir()
        (said / 'METADATA').write_text('Name: interference\nVersion: 0\n')
        (said / 'entry_points.txt').write_text('\n'.join(
            f'[{group}]{setup["entry_points"][group]}'
            for group in ('oslo.policy.policies', 'oslo.policy.enforcer')))
        done = subprocess.run(
            [sys.executable, '-c', 'import sys; from oslo_policy import '
             'generator; sys.exit(generator.generate_sample())',
             '--config-file',
             str(TOP / 'etc/scavenger/scavenger-policy-generator.conf'),
             '--output-file', str(directory / 'sample')],
            capture_output=True, text=True, timeout=60, cwd=directory,
            env={**os.environ, 'PYTHONPATH': f'{directory}:{TOP}'})
        self.assertEqual(0, done.returncode, done.stderr)
        made = (directory / 'sample').read_text()
        self.assertIn('interference:overrides:set', made)
        self.assertEqual('', '\n'.join(difflib.unified_diff(
            SAMPLE.read_text().split('\n'), made.split('\n'), SAMPLE.name,
            'the policies of now', lineterm='')))


class Horizon(testtools.TestCase):

    def test_its_defaults_are_of_today(self) -> None:
        """If not: Horizon's ``manage.py dump_default_policies --namespace
        interference``, where our package is installed."""
        self.assertEqual(
            [{'name': rule.name, 'check_str': rule.check_str,
              'description': rule.description,
              'operations': getattr(rule, 'operations', []),
              'scope_types': rule.scope_types}
             for rule in policies.list_rules()],
            yaml.safe_load(HORIZON.read_text()))
