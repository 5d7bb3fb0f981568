# SPDX-License-Identifier: Apache-2.0

"""Parameters that the control plane asks for, on the real controllers."""

import dataclasses
import pathlib
from typing import Any

import fixtures
from oslo_config import cfg
import testtools

from scavenger_openstack.agent.isolation import blind_isolation
from scavenger_openstack.agent import parameters
from scavenger_openstack.agent import parts
from scavenger_openstack.algorithms.cpi2 import cpi2
from scavenger_openstack.algorithms.perfiso import perfiso
from scavenger_openstack.algorithms.scavenger import params as scavenger_params
from scavenger_openstack import conf as conf_
from scavenger_openstack.types import Mode

SECTIONS = ('scavenger', 'io_shares', 'attribution', 'cpi2', 'perfcloud')


def changed(field: dataclasses.Field[Any]) -> Any:
    """Another value than the default, that the option takes."""
    value: Any = field.default
    meta = field.metadata
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return next(one for one in meta['choices'] if one != value)
    if isinstance(value, int):
        return value + 1 if value < meta['max'] else value - 1
    more = value * 1.25 + 0.001
    return more if more <= meta['max'] else value * 0.75


def graph(one: object, seen: tuple[object, ...] = ()) -> object:
    """All that an object holds, to be compared with another."""
    if isinstance(one, int | float | str | None):
        return one
    if any(one is other for other in seen):
        return 'again'
    seen = (*seen, one)
    if isinstance(one, dict):
        return {str(key): graph(value, seen) for key, value in one.items()}
    if isinstance(one, list | tuple | set | frozenset):
        return [graph(value, seen) for value in one]
    names = {*getattr(one, '__dict__', ()), *(
        name for kind in type(one).__mro__
        for name in getattr(kind, '__slots__', ()) if hasattr(one, name))}
    if callable(one) or not names:
        return str(type(one))
    return {name: graph(getattr(one, name), seen) for name in sorted(names)}


class Tuning(testtools.TestCase):

    def test_as_if_it_had_been_made_with_them(self) -> None:
        """Whatever a controller makes of a parameter follows it, but for
        those that hold from the start on."""
        for section in SECTIONS:
            cls = parts.controller_type(section, 'test')
            names = {one.name for one in dataclasses.fields(cls.params_type)}
            self.assertEqual(set(), cls.at_start - names)
            for field in dataclasses.fields(cls.params_type):
                if field.name not in cls.at_start:
                    params = cls.params_type(**{field.name: changed(field)})
                    tuned = cls(host='h')
                    tuned.tune(params)
                    self.assertEqual(graph(cls(params, host='h')),
                                     graph(tuned), f'{section}.{field.name}')


class ParametersTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        self.conf = self.load('[scavenger]\nmemory_c = 3\n')

    def load(self, text: str) -> cfg.ConfigOpts:
        file = pathlib.Path(self.useFixture(fixtures.TempDir()).path) / 'conf'
        file.write_text('[agent]\ncontrollers = '
                        'scavenger,io_shares,attribution,cpi2\n' + text)
        conf = cfg.ConfigOpts()
        conf_.register(conf)
        conf_.load(conf, ['--config-file', str(file)], 'test')
        return conf

    def begin(self, **asked: float | str) -> None:
        self.parameters = parameters.Parameters(self.conf)
        self.parameters.begin(self.names(asked))
        self.controllers: dict[str, Any] = {
            one.name: one for one, _ in parts.load_controllers(
                self.conf, self.parameters.of)}
        self.controllers['perfiso'] = blind_isolation.BlindIsolation(
            None, None,                         # type: ignore[arg-type]
            self.parameters.of('perfiso', perfiso.Params), Mode.OFF)

    def follow(self, **asked: float | str) -> dict[str, str]:
        self.parameters.follow(self.names(asked), self.controllers)
        return self.parameters.refused

    @staticmethod
    def names(asked: dict[str, float | str]) -> dict[str, float | str]:
        return {name.replace('__', '.'): value
                for name, value in asked.items()}

    def test_names_that_are_none(self) -> None:
        """Each is refused by its own name, at the start and later."""
        names = ('scavenger', 'scavenger.', '.', '', '.memory_c',
                 'scavenger.memory_c.', 'scavenger.scavenger.memory_c',
                 'perfiso', 'scavenger.mode', 'scavenger.__class__', 'x.y')
        asked = dict.fromkeys(names, 1.0)
        expected = {f'parameter {name}' for name in names}
        for name in names:
            self.begin()
            self.parameters.begin({name: 1.0})
            self.assertEqual({f'parameter {name}'},
                             self.parameters.refused.keys())
        self.parameters.begin(asked)
        self.assertEqual(expected, self.parameters.refused.keys())
        self.parameters.follow({}, self.controllers)
        self.parameters.follow({**asked, 'scavenger.memory_c': 4.0},
                               self.controllers)
        self.assertEqual(expected, self.parameters.refused.keys())
        self.assertEqual(4.0, self.controllers['scavenger'].params.memory_c)

    def test_a_controller_that_fails_at_them(self) -> None:
        """As one of another package may; the others follow."""
        class Failing:
            at_start = frozenset[str]()

            def tune(self, params: object) -> None:
                raise ZeroDivisionError

        self.begin()
        self.controllers['cpi2'] = Failing()
        refused = self.follow(cpi2__outliers='4', scavenger__memory_c=4.0)
        self.assertEqual({'parameter cpi2'}, refused.keys())
        self.assertEqual(4.0, self.controllers['scavenger'].params.memory_c)

    def test_they_hold_at_once(self) -> None:
        self.begin()
        self.assertEqual({}, self.follow(
            scavenger__memory_c=4.0, scavenger__use_ipc='false',
            attribution__trial_samples=5.0, perfiso__buffer_cores=2.0,
            cpi2__outliers='4'))
        params = self.controllers['scavenger'].params
        self.assertEqual((4.0, False), (params.memory_c, params.use_ipc))
        trial_samples = self.controllers['attribution'].params.trial_samples
        self.assertIs(int, type(trial_samples))
        self.assertEqual(5, trial_samples)
        self.assertEqual(4, self.controllers['cpi2'].params.outliers)
        self.assertEqual(
            2, perfiso.buffer_cores(self.controllers['perfiso'].params, 64))
        self.assertIn('[scavenger] memory_c is 4.0 now: the control plane '
                      'asks for it (file: 3.0)', self.log.output)

    def test_the_file_holds_again(self) -> None:
        self.begin(scavenger__memory_c=4.0)
        self.assertEqual(4.0, self.controllers['scavenger'].params.memory_c)
        self.assertEqual({}, self.follow())
        self.assertEqual(3.0, self.controllers['scavenger'].params.memory_c)
        self.assertIn('memory_c is 3.0 now: as in the file', self.log.output)

    def test_the_configuration_stays_that_of_the_file(self) -> None:
        """Nothing depends on whether it is read before or after."""
        self.begin(scavenger__memory_c=4.0, perfiso__buffer_cores=2.0)
        self.assertEqual((3.0, perfiso.Params().buffer_cores), (
            self.conf.scavenger.memory_c, self.conf.perfiso.buffer_cores))
        self.assertEqual(4.0, self.controllers['scavenger'].params.memory_c)
        self.assertEqual(2, self.controllers['perfiso'].params.buffer_cores)

    def test_what_holds_from_the_start(self) -> None:
        self.begin()
        self.assertEqual(
            {'parameter scavenger.memory_window_s': parameters.AT_START},
            self.follow(scavenger__memory_window_s=30.0,
                        scavenger__memory_c=5.0))
        params = self.controllers['scavenger'].params
        self.assertEqual((scavenger_params.Params().memory_window_s, 5.0),
                         (params.memory_window_s, params.memory_c))
        self.begin(scavenger__memory_window_s=30.0)
        self.assertEqual({}, self.parameters.refused)
        self.assertEqual(
            30.0, self.controllers['scavenger'].params.memory_window_s)
        # And stays when it is not asked for any more.
        self.assertEqual({}, self.follow())
        self.assertEqual(
            30.0, self.controllers['scavenger'].params.memory_window_s)

    def test_what_is_wrong(self) -> None:
        """One line each, and nothing of it holds."""
        self.begin()
        wrong: dict[str, float | str] = {
            'scavenger__memory_c': -1.0, 'scavenger__ipc_c': 'nan',
            'scavenger__mode': 'enforce', 'scavenger__x': 1.0,
            'scavenger__use_ipc': 'maybe', 'scavenger__blind_ticks': 1.5,
            'cpi2__signal': 'x\ny', 'perfcloud__tau': 1.0, 'agent__host': 'x',
            'attribution__trial_samples': '1e400', 'x': 1.0,
            'scavenger__min_headroom': ''}
        refused = self.follow(**wrong)
        self.assertEqual({f'parameter {name}' for name in self.names(wrong)},
                         refused.keys())
        self.assertEqual(parameters.NOT_HERE,
                         refused['parameter perfcloud.tau'])
        self.assertEqual(parameters.NO_OPTION,
                         refused['parameter scavenger.mode'])
        self.assertIn('3', str(self.controllers['scavenger'].params.memory_c))
        self.assertEqual(cpi2.Params(), self.controllers['cpi2'].params)
        lines = [line for line in self.log.output.splitlines()
                 if 'is not followed' in line]
        self.assertEqual(10, len(lines))
        self.assertIn('not followed: 2\n', self.log.output)
        self.assertNotIn('x\ny', self.log.output)
        self.follow(**wrong)
        self.follow(**wrong, scavenger__network_c=2.0)
        self.assertEqual(1, self.log.output.count('not followed: 2\n'))

    def test_what_contradicts(self) -> None:
        """One of the file, or of another that was asked for."""
        self.begin()
        refused = self.follow(attribution__sample_s=3600.0)
        self.assertIn('a window holds',
                      refused['parameter attribution.sample_s'])
        self.begin(attribution__sample_s=3600.0)
        self.assertIn('a window holds', self.parameters.refused[
            'parameter attribution.sample_s'])
        self.assertEqual(5.0, self.controllers['attribution'].params.sample_s)

    def test_names_that_terminals_obey(self) -> None:
        """In one line, and once."""
        self.begin()
        names = ('scavenger.a\nb', 'scavenger.\x1b[2J', '\u202ex')
        for value in (1.0, 2.0):
            refused = self.follow(**dict.fromkeys(names, value))
            self.assertEqual(len(names), len(refused))
        lines = self.log.output.splitlines()
        self.assertEqual((len(names), True),
                         (len(lines), all(map(str.isprintable, lines))))

    def test_so_many_that_no_report_has_room(self) -> None:
        self.begin()
        refused = self.follow(**{f'x{number}': 1.0
                                 for number in range(5000)})
        self.assertEqual(parameters.MAX_REFUSED, len(refused))
        self.assertGreater(30, len(self.log.output.splitlines()))
