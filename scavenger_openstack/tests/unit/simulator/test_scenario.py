# SPDX-License-Identifier: Apache-2.0

"""Scenario files: what they draw, and how they are refused."""

from __future__ import annotations

import pathlib
import statistics

import fixtures
import testtools
from testtools import matchers

from scavenger_openstack import errors
from scavenger_openstack import laboratory
from scavenger_openstack.simulator.plant import Plant
from scavenger_openstack.simulator import scenario
from scavenger_openstack.types import Priority

SHIPPED = sorted((pathlib.Path(laboratory.__file__).parent / 'scenarios'
                  ).glob('*.yaml'))

GOOD = """
schema: 1
about: >
  Two lines
  of text.
duration_s: 300
draws: {day: {uniform: [100, 200]}}
machine: {cpus: 8, threads_per_core: 2}
tenants:
  - id: web
    count: {integer: [2, 5]}
    application: shop
    alike: true
    cores: {uniform: [0.1, 1]}
    cpu_s: 0.004
    phases:
      - {shape: wave, period_s: $day, depth: 0.3}
  - id: batch
    priority: background
    role: antagonist
    pinned: [6, 7]
    threads: 2
    footprint_bytes: 1e8
    weight: {choice: [1, {loguniform: [2, 8]}]}
    phases:
      - {shape: bursts, period_s: $day}
"""

BAD = [
    # text instead of part of GOOD, what the message says
    ('schema: 1', 'schema: 2', 'schema: 2; this release reads 1'),
    ('schema: 1', '', 'schema: None'),
    ('schema: 1', 'schema: 1\ntennants: []',
     'tennants: no such key; did you mean tenants?'),
    ('tenants:', 'tenants: [', 'not YAML'),
    ('schema: 1', 'schema: 1\nabout: 2001-99-99', 'not YAML'),
    ('schema: 1', 'schema: 0x' + 'f' * 5000, 'too large a number'),
    ('id: web', 'id: 0x' + 'f' * 5000, 'too large a number'),
    ('schema: 1', 'schema: 1\n' + '\n'.join(
        f'k{n}: 1' for n in range(1001)), 'more than 1000 keys'),
    ('schema: 1', 'schema: 1\nx: !!python/object/apply:os.abort []',
     'not YAML'),
    ('cpus: 8', 'cpus: 7', 'machine: cpus'),
    ('cpus: 8', 'cpus: 8.5', 'machine.cpus: 8.5 is not a whole number'),
    ('cpus: 8', 'cpus: .inf', 'machine.cpus: inf is not a number'),
    ('cpus: 8', 'cpus: .nan', 'machine.cpus: nan is not a number'),
    ('cpus: 8', 'cpus: -8', 'machine.cpus: -8 is not a number from 0 up'),
    ('cpus: 8', 'cpus: eight', "machine.cpus: 'eight' is not a number"),
    ('cpus: 8', 'cpus: 100000', 'machine: cpus (1 to 1024)'),
    ('threads_per_core: 2', 'threads_per_core: 0', 'machine: cpus'),
    ('threads_per_core: 2', 'llcs: 99', 'machine: cpus'),
    ('threads_per_core: 2', 'hertz: 0', 'machine.hertz: must be above 0'),
    ('threads_per_core: 2', 'pmu: 1', 'machine.pmu: 1 is not true or false'),
    ('machine: {cpus: 8, threads_per_core: 2}', 'machine: 8',
     'machine: not a mapping'),
    ('draws: {day: {uniform: [100, 200]}}', 'draws: 5',
     'draws: not a mapping'),
    ('draws: {day: {uniform: [100, 200]}}', '', "'$day' is not a number"),
    ('duration_s: 300', 'duration_s: 0', 'duration_s: 0 is not a number'),
    ('duration_s: 300', 'duration_s: 300\nwarmup_s: 300',
     'warmup_s: 300 is not a number from 0 up to 299'),
    ('duration_s: 300', 'duration_s: 300\nstep_s: 2',
     'step_s: 2 is not a number'),
    ('duration_s: 300', 'duration_s: 300\nstep_s: 0',
     'step_s: 0 is not a number'),
    ('duration_s: 300', 'duration_s: 300\nwarmup_step_s: 0.5',
     'warmup_step_s: 0.5 is not a number'),
    ('duration_s: 300', 'duration_s: 300\nstep_s: 0.001\n'
                        'warmup_step_s: 0.1',
     'warmup_step_s: 0.1 is not a number from 0.001 up to 0.02'),
    ('  - id: web\n', '  - name: web\n', 'tenants[0]: needs an id'),
    ('  - id: web\n', '  - 5\n  - id: web\n', 'tenants[0]: needs an id'),
    ('  - id: web\n', '  - id: [web]\n', "tenants[0].id: ['web'] is not a "
                                         'text'),
    ('id: batch', 'id: web-1', 'tenants: web-1 is there twice'),
    ('count: {integer: [2, 5]}', 'count: 100000',
     'tenants[0].count: 100000 is not a number from 0 up to 500'),
    ('count: {integer: [2, 5]}', 'count: {integer: [5, 2]}',
     'tenants[0].count: {\'integer\': [5, 2]} is no distribution; one of '
     'uniform, integer, lognormal, loguniform, choice'),
    ('{uniform: [0.1, 1]}', '{uniform: 1}', 'tenants[0].cores'),
    ('{uniform: [0.1, 1]}', '{uniform: [1, 2, 3]}', 'is no distribution'),
    ('{uniform: [0.1, 1]}', '{normal: [1, 2]}', 'is no distribution'),
    ('{uniform: [0.1, 1]}', '{loguniform: [0, 2]}', 'is no distribution'),
    ('{uniform: [0.1, 1]}', '{uniform: [1, .inf]}', 'tenants[0].cores'),
    ('{uniform: [0.1, 1]}', '{integer: [1, .inf]}', 'is no distribution'),
    ('{uniform: [0.1, 1]}', '{choice: []}', 'is no distribution'),
    ('{uniform: [0.1, 1]}', '{uniform: [-3, -1]}', 'tenants[0].cores'),
    ('{uniform: [0.1, 1]}', '[1]', 'tenants[0].cores: [1] is not a number'),
    ('{uniform: [0.1, 1]}', 'true', 'tenants[0].cores: True is not'),
    ('cpu_s: 0.004', 'cpu_s: 0', 'tenants[0].cores: needs cpu_s'),
    ('cpu_s: 0.004', 'cpu_s: 0.004\n    requests_per_s: 5',
     'stands instead of requests_per_s'),
    ('alike: true', 'alike: perhaps', 'tenants[0].alike'),
    ('cpu_s: 0.004', 'cpus: 0.004', 'tenants[0].cpus: no such key'),
    ('cpu_s: 0.004', 'cpu_s: 0.004\n    vcpus: 0',
     'vcpus and io_bytes must be at least 1'),
    ('cpu_s: 0.004', 'cpu_s: 0.004\n    cpi: 0', 'cpi above 0'),
    ('cpu_s: 0.004', 'cpu_s: 0.004\n    miss_most: 2', 'at most 1'),
    ('cpu_s: 0.004', 'cpu_s: 0.004\n    file_ops: 2',
     'tenants[0].file_ops: needs file_bytes'),
    ('threads: 2', 'requests_per_s: 2', 'needs cpu_s'),
    ('pinned: [6, 7]', 'pinned: [6, 8]', 'batch.pinned: the machine has 8'),
    ('pinned: [6, 7]', 'pinned: 6', 'tenants[1].pinned: 6 is not a list'),
    ('pinned: [6, 7]', 'pinned: [a]', "tenants[1].pinned: ['a'] is not"),
    ('background', 'middle', "tenants[1].priority: 'middle' is not "
                             'foreground or background'),
    ('shape: wave', 'shape: square', 'tenants[0].phases[0]: shape is one'),
    ('shape: wave, period_s: $day', 'shape: ramp', 'a ramp needs for_s'),
    ('depth: 0.3', 'depht: 0.3', 'tenants[0].phases[0].depht: no such key; '
                                 'did you mean depth?'),
    ('period_s: $day, depth', 'period_s: 0, depth', 'period_s are at least'),
    ('      - {shape: bursts, period_s: $day}', '      shape: bursts',
     'tenants[1].phases: not a list'),
    ('      - {shape: bursts, period_s: $day}', '      [&p {shape: bursts}'
     + ', *p' * 100 + ']', 'tenants[1].phases: 101 are more than 100'),
    ('cpu_s: 0.004', 'cpu_s: 1.0e-320', 'more than 1e+15 requests per second'),
    *(('id: batch', f'id: {value}', 'not YAML: ' + says) for value, says in (
        ('!!int ""', "'' is not of type int"),
        ('!!bool x', "'x' is not of type bool"),
        ('!!float ""', "'' is not of type float"),
        ('!!timestamp x', "'x' is not of type timestamp"),
        ('"\\ud800"', "'\\ud800' is not of type str"),
        ('1:' * 20_000 + '1', 'too large a number'),
        ('1:' * 20_000 + '1.5', 'too large a number'),
        ('[' * 60 + ']' * 60, 'nested deeper than 50 levels'))),
    *(('id: batch', f'id: {value}', 'tenants[1].id: ') for value in (
        '[&a [x, x]]', '{choice: [a, b]}', 'null', '2001-01-01')),
]


class Good(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.found = scenario.Scenario(GOOD, 'good.yaml')

    def test_what_is_drawn(self) -> None:
        drawn = self.found.draw(7)
        self.assertEqual('good', drawn.name)
        self.assertEqual('Two lines of text.', self.found.about)
        *web, batch = drawn.tenants
        self.assertIn(len(web), range(2, 6))
        self.assertEqual([f'web-{n + 1}' for n in range(len(web))],
                         [one.id for one in web])
        self.assertEqual(1, len({one.requests_per_s for one in web}))
        self.assertEqual(web[0].phases[0].period_s, batch.phases[0].period_s)
        self.assertIs(Priority.BACKGROUND, batch.priority)
        self.assertEqual(1e8, batch.footprint_bytes)
        self.assertEqual(frozenset((6, 7)), batch.pinned)
        self.assertEqual((300.0, 60.0, 1.0, 1.0, 1.0), drawn[4:])

    def test_same_seed_same_draw(self) -> None:
        self.assertEqual(self.found.draw(7), self.found.draw(7))
        self.assertNotEqual(self.found.draw(7).tenants,
                            self.found.draw(8).tenants)

    def test_distributions(self) -> None:
        for text, low, median, high in (
                ('{uniform: [2, 4]}', 2, 3, 4),
                ('{loguniform: [1, 100]}', 1, 10, 100),
                ('{lognormal: [5, 0.5]}', 0, 5, 100),
                ('{choice: [1, 1, 9]}', 1, 1, 9)):
            found = scenario.Scenario(GOOD.replace(
                'weight: {choice: [1, {loguniform: [2, 8]}]}',
                f'weight: {text}'), 'd.yaml')
            values = [found.draw(seed).tenants[-1].weight
                      for seed in range(600)]
            self.assertLessEqual(low, min(values))
            self.assertGreaterEqual(high, max(values))
            self.assertLess(abs(statistics.median(values) / median - 1),
                            0.25, text)


class Bad(testtools.TestCase):

    def test_each_says_file_place_and_what(self) -> None:
        for old, new, says in BAD:
            self.assertIn(old, GOOD)
            exc = self.assertRaises(
                errors.ConfigError, scenario.Scenario,
                GOOD.replace(old, new, 1), 'dir/bad.yaml')
            message = str(exc)
            self.assertTrue(message.startswith('dir/bad.yaml: '),
                            (new, message))
            self.assertIn(says, message)
            self.assertNotIn('\n', message)
            self.assertLess(len(message), 600)

    def test_merges_of_merges(self) -> None:
        """10 to the power of 29 keys in 30 lines; PyYAML 6.0.4 takes each
        once, earlier ones until there are too many."""
        bomb = 'a0: &a0 {x: 1}\n' + '\n'.join(
            f'a{n}: &a{n} {{<<: [{", ".join([f"*a{n - 1}"] * 10)}]}}'
            for n in range(1, 30))
        exc = self.assertRaises(
            errors.ConfigError, scenario.Scenario,
            GOOD.replace('schema: 1', f'schema: 1\n{bomb}'), 'bad.yaml')
        self.assertThat(str(exc), matchers.MatchesAny(
            matchers.Contains('more than 1000 keys'),
            matchers.Contains('a0: no such key')))

    def test_a_name_that_unfolds(self) -> None:
        """9 to the power of 20 texts."""
        bomb = '&b0 [' + ', '.join('x' * 9) + ']'
        for n in range(1, 20):
            bomb += f', &b{n} [{", ".join([f"*b{n - 1}"] * 9)}]'
        exc = self.assertRaises(
            errors.ConfigError, scenario.Scenario,
            GOOD.replace('id: batch', f'id: [{bomb}]'), 'bad.yaml')
        self.assertIn('bad.yaml: tenants[1].id: ', str(exc))
        self.assertLess(len(str(exc)), 500)

    def test_too_many_tenants_are_not_made(self) -> None:
        """These would be a million."""
        exc = self.assertRaises(
            errors.ConfigError, scenario.Scenario, 'schema: 1\ntenants:\n'
            + ''.join(f'- {{id: g{n}, count: 500}}\n' for n in range(2000)),
            'bad.yaml')
        self.assertEqual('bad.yaml: tenants: there are more than 500',
                         str(exc))

    def test_a_file_whose_name_is_not_utf_8(self) -> None:
        found = scenario.Scenario(GOOD, 'a\udcff.yaml')
        self.assertNotEqual(found.draw(1), found.draw(2))

    def test_no_mapping(self) -> None:
        for text in ('', '5', '[1]', 'null'):
            exc = self.assertRaises(errors.ConfigError, scenario.Scenario,
                                    text, 'bad.yaml')
            self.assertEqual('bad.yaml: not a scenario: no keys', str(exc))

    def test_no_tenants(self) -> None:
        for text in ('schema: 1', 'schema: 1\ntenants: []',
                     'schema: 1\ntenants: {id: a}'):
            exc = self.assertRaises(errors.ConfigError, scenario.Scenario,
                                    text, 'bad.yaml')
            self.assertEqual('bad.yaml: tenants: none', str(exc))

    def test_a_document_that_unfolds_is_not_printed(self) -> None:
        text = 'about: [&a [x, x, x, x, x, x, x, x, x]'
        for one, before in zip('bcdefghi', 'abcdefgh', strict=True):
            text += f', &{one} [{", ".join([f"*{before}"] * 9)}]'
        for schema, says in (('*i', 'schema: '), ('1', 'about: ')):
            exc = self.assertRaises(
                errors.ConfigError, scenario.Scenario,
                f'{text}]\nschema: {schema}\n', 'bomb.yaml')
            self.assertIn(f'bomb.yaml: {says}', str(exc))
            self.assertLess(len(str(exc)), 500)

    def test_a_file_without_end(self) -> None:
        error = self.assertRaises(errors.ConfigError, scenario.read,
                                  pathlib.Path('/dev/zero'))
        self.assertIn('/dev/zero: not a scenario: more than', str(error))

    def test_files(self) -> None:
        place = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        exc = self.assertRaises(errors.ConfigError, scenario.read,
                                place / 'no.yaml')
        self.assertIn('no.yaml: cannot be read', str(exc))
        (place / 'latin.yaml').write_bytes(b'schema: \xe9')
        exc = self.assertRaises(errors.ConfigError, scenario.read,
                                place / 'latin.yaml')
        self.assertIn('latin.yaml: cannot be read', str(exc))


class Shipped(testtools.TestCase):

    def test_there_are_some(self) -> None:
        self.assertGreaterEqual(len(SHIPPED), 15)

    def test_each_is_read_and_runs(self) -> None:
        """A minute of each; a second of those in milliseconds."""
        for path in SHIPPED:
            found = scenario.read(path)
            self.assertTrue(found.about, path)
            for seed in range(1, 6):
                found.draw(seed)
            drawn = found.draw(1)
            plant = Plant(drawn.machine, drawn.tenants, seed=1,
                          step_s=drawn.step_s)
            steps = 60 if drawn.step_s >= 1 else 500
            for _ in range(steps):
                plant.step()
            for guest in plant.guests:
                self.assertGreaterEqual(guest.speed, 0.01, (path, guest.spec))
                if guest.spec.is_service:
                    self.assertGreater(guest.truth.requests, 0)

    def test_roles_and_lengths(self) -> None:
        for path in SHIPPED:
            drawn = scenario.read(path).draw(1)
            roles = {one.role: one.priority for one in drawn.tenants}
            self.assertLessEqual(set(roles), {'', 'victim', 'antagonist'})
            self.assertIs(Priority.FOREGROUND, roles['victim'],
                          str(path))
            if 'antagonist' in roles:
                self.assertIs(Priority.BACKGROUND, roles['antagonist'],
                              str(path))
            self.assertGreaterEqual(
                drawn.warmup_s, 60, path)
