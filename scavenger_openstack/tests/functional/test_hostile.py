# SPDX-License-Identifier: Apache-2.0

"""A conductor that is hostile or broken, and a loop on real cgroups.

``SCAVENGER_DIRECTIVES`` says how many answers it gives (300);
``SCAVENGER_SEED``, any number, gives others.
"""

from __future__ import annotations

import copy
import json
import os
import pathlib
import random
import time
from typing import Any

import fixtures
from oslo_config import cfg
import testtools

from scavenger_openstack.agent.control_plane import directives
from scavenger_openstack.agent.control_plane import sync
from scavenger_openstack.agent import parameters
from scavenger_openstack.agent import parts
from scavenger_openstack import conf
from scavenger_openstack import conf_params
from scavenger_openstack.tests.functional import loops
from scavenger_openstack.tests import tiers
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Mode

COUNT = int(os.environ.get('SCAVENGER_DIRECTIVES') or 300)

ODD: tuple[Any, ...] = (
    None, True, 0, -1, 0.05, 0.5, 2, 1e-300, 1e308, float('nan'),
    float('inf'), 10 ** 30, '', '0', '0-1', '9-', '65535', 'x', 'enforce',
    '\ud800', '\0', '../..', 'a' * 5000, [], {}, [[]], {'a': 1})
KEYS = ('', '.', 'x', 'mode', 'a' * 255, 'a' * 256, '\ud800', '\0', '\n',
        '../..', '__class__', '-1', 'é', '\x1b[2J', '0', 'None')
"""In place of names."""
FLOORS = {'quota': 10_000, 'memory': 64 * 2 ** 20}
IO = {Knob.IO_BYTES_PER_S: 'bps', Knob.IO_OPS_PER_S: 'iops'}
"""What the kernel's limits of a device are called."""

REAL = ('scavenger', 'cpi2', 'perfcloud', 'attribution')
"""Controllers that follow parameters, besides the one that the test moves."""
OPTIONS = ('[agent]', f'controllers = {", ".join(REAL)}',
           '[scavenger]', 'mode = enforce',
           '[attribution]', 'mode = enforce')
PARAMETERS = [f'{section}.{option.name}' for section, params
              in sorted(conf.PARAMS.items())
              for option in conf_params.opts_of(params)]
SECTIONS = sorted(conf.PARAMS)
NUMBERS = (0.0, 1.0, -1.0, 0.05, 2.0, 60.0, 1e-300, 1e9, 1e308, float(2 ** 53),
           'x', '1', 'nan', '-inf', 'true', '')


class Hostile:
    """Answers with directives that are as wrong as can be."""

    def __init__(self, chance: random.Random, names: list[str]) -> None:
        self._chance = chance
        self._names = names
        self._digest = 0
        self.last: Any = None

    def __call__(self, report: bytes) -> bytes:
        chance = self._chance
        if chance.random() < 0.03:
            return chance.randbytes(chance.randrange(200))
        self._digest += 1
        issued_s = time.time() + chance.choice((0, 0, -1e9, 1e9))
        found = {
            'issued_s': issued_s, 'digest': str(self._digest),
            'protection': chance.random() < 0.8,
            'protection_reason': self._text(),
            'modes': {chance.choice(('wish', 'perfiso', 'x')): chance.choice(
                list(Mode)) for _ in range(chance.randrange(3))},
            'parameters': {
                self._parameter(): chance.choice(NUMBERS)
                for _ in range(chance.randrange(4))},
            'tags': [{
                'instance': self._name(), 'priority': chance.choice(
                    ('foreground', 'background')),
                'source': chance.choice(('instance', 'flavor', 'default')),
                'protect': chance.random() < 0.5,
                'floor': {chance.choice(list(Knob)): chance.choice(
                    (0.0, 0.001, 1.0, 1e308))
                    for _ in range(chance.randrange(2))}}
                for _ in range(chance.randrange(3))],
            'exempt': [self._name() for _ in range(chance.randrange(3))],
            'overrides': [{
                'id': self._name(), 'workload': self._name(),
                'instance': chance.choice(('', '', self._name())),
                'knob': chance.choice(list(Knob)),
                'value': chance.choice((None, 0, 0.001, 0.05, 0.3, 1, 2 ** 26,
                                        2 ** 53, 1e308, '0', '0-1', '1')),
                'reason': self._text(), 'expires_s': chance.choice(
                    (issued_s + 60, issued_s + 1e9, 0, 2 ** 53))}
                for _ in range(chance.randrange(6))],
            'specs': [{
                'project': '', 'application': self._name(), 'cpu_model': '',
                'signal': chance.choice(('cpi', 'run_delay', 'x')),
                'mean': chance.choice((0.0, -1.0, 1e-300, 1.0, 1e308)),
                'stddev': chance.choice((0.0, 1e308)), 'n': 1}
                for _ in range(chance.randrange(2))],
            'governed': chance.random() < 0.5}
        for _ in range(chance.choice((0, 0, 0, 1, 2))):
            self._spoil(found)
        self.last = found
        return json.dumps({
            'acknowledged': chance.choice((0, 1, 2 ** 53)),
            'directives': found, 'later': chance.choice(ODD),
            'time_s': chance.choice((0, issued_s)), 'budget': chance.choice((
                None, {'limits': chance.randrange(9), 'until_s': chance.choice(
                    (0, issued_s, issued_s + 60, 2 ** 53))}))}).encode(
                errors='replace')

    def _parameter(self) -> str:
        """The name of one, or one that is nearly such a name."""
        chance = self._chance
        name = chance.choice(PARAMETERS)
        if chance.random() < 0.7:
            return name
        section, _, option = name.partition('.')
        return chance.choice((
            section, option, f'{section}.', f'.{option}', '.', '..', 'x',
            f'{name}.x', f'{section}.{section}.{option}', f'{name} ',
            f'{section}.mode', f'{section}.__class__', name.upper(),
            f'{chance.choice(SECTIONS)}.{option}', f'{section}\n.{option}',
            f'{section}.{chance.choice(KEYS)}', chance.choice(KEYS)))

    def _name(self) -> str:
        return self._chance.choice(self._names)

    def _text(self) -> str:
        return self._chance.choice(('', 'why', 'a\nb', '\x1b[2J', 'x' * 1999))

    def _spoil(self, value: Any) -> None:
        """Put something odd anywhere in it."""
        while True:
            keys = list(value) if isinstance(value, dict) else list(
                range(len(value)))
            if not keys:
                return
            key = self._chance.choice(keys)
            inner = value[key]
            if isinstance(value, dict) and self._chance.random() < 0.1:
                value[self._chance.choice((*KEYS, *keys))] = value.pop(key)
                return
            if (not isinstance(inner, dict | list)
                    or self._chance.random() < 0.3):
                value[key] = copy.deepcopy(self._chance.choice(ODD))
                return
            value = inner


class HostileTest(loops.LoopTestCase):

    def test_whatever_it_answers(self) -> None:
        self.useFixture(fixtures.FakeLogger())
        self.addDetail('seed', testtools.content.text_content(
            str(tiers.SEED)))
        chance = random.Random(tiers.SEED)
        names = [self.id(), self.id('/batch'), self.id('/batch/a'),
                 self.id('/batch/b'), self.id('/services'),
                 self.id('/services/s'), '/', '../batch', 'x']
        hostile = Hostile(chance, names)
        conductor = sync.make(
            hostile, self.state_dir.parent / 'sync',
            spool_bytes=2 ** 20, host='h', boot_id='b', version='1',
            sync_s=10.0, allow_background=True)
        wish = loops.Wish()
        configuration = self.configure(OPTIONS)
        asked = parameters.Parameters(configuration)
        self.real = real = parts.load_controllers(configuration, asked.of)
        tunable = {controller.name: controller for controller, _ in real}
        loop = self.loop((wish, Mode.ENFORCE), *real, options=OPTIONS,
                         orders=lambda: conductor.orders)
        self.cpus = {name: self.tree.get('cpus', name) for name in (
            '/batch', '/batch/a', '/batch/b', '/services', '/services/s')}
        kept = self.state_dir.parent / 'kept'
        kept.mkdir(0o700)
        tuned: set[str] = set()
        followed = limited = stopped = 0
        for number in range(COUNT):
            wish.want(*((self.id(name), Knob.CPU_CORES, 0.7)
                        for name in ('/batch/a', '/batch/b')
                        if chance.random() < 0.3))
            followed += conductor.turn()
            asked.follow(conductor.orders.parameters, tunable)
            tuned.update(name for name in conductor.orders.parameters
                         if f'parameter {name}' not in asked.refused)
            tick = loop.tick(self.now + number)
            self.assertIsNotNone(tick.decided)
            self.start(kept, hostile.last, configuration)
            held = {(key[0], str(key[1])) for key in self.leases.held()}
            limited += bool(held)
            stopped += tick.stopped
            if tick.stopped:
                self.assertEqual(set(), held)
            self.look_at('/services/s', set())
            self.look_at('/services', set())
            for name in ('/batch', '/batch/a', '/batch/b'):
                # A CPU set is that of a group and of all below it.
                self.look_at(name, {
                    knob for key, knob in held if key == self.id(name)
                    or (key, knob) == (self.id('/batch'), Knob.CPU_SET)})
            self.assertFalse((self.state_dir / 'stop').exists())
        # All of it was tried.
        self.assertGreater(min(followed, limited, stopped), COUNT / 20)
        self.assertGreater(COUNT, followed)
        self.assertGreater(len(tuned), min(len(PARAMETERS) / 4, COUNT / 20))

    def start(self, directory: pathlib.Path, found: Any,
              configuration: cfg.ConfigOpts) -> None:
        """An agent starts with these as those that it has kept."""
        (directory / directives.FILE).write_bytes(json.dumps(found).encode())
        one = directives.Directives(directory, allow_background=True)
        one.load(self.now, time.time())
        asked = parameters.Parameters(configuration)
        asked.begin(one.orders.parameters)
        for section, params in conf.PARAMS.items():
            asked.of(section, params)
        for controller, _ in self.real:
            made: Any = type(controller)
            made(asked.of(controller.name, made.params_type), interval_s=1.0,
                 host='h', boot_id='b')
        if isinstance(found, dict) and found.get('protection') is False:
            self.assertTrue(one.orders.stopped)
        for name, params in asked.now.items():
            self.assertIsInstance(params, conf.PARAMS[name])
        one.end()

    def look_at(self, name: str, held: set[str]) -> None:
        """Only what is leased is limited, and never below its floor."""
        cpus = self.tree.get('cpus', name)
        if cpus != self.cpus[name]:
            self.assertIn(str(Knob.CPU_SET), held, f'{name} cpus {cpus}')
            self.assertNotEqual('', cpus)
        for limit, knob, free in (
                ('quota', Knob.CPU_CORES, {'-1'}),
                ('memory', Knob.MEMORY_BYTES, None),
                ('idle', Knob.CPU_IDLE, {'0'}),
                ('frozen', Knob.PAUSED, {'THAWED'})):
            text = self.tree.get(limit, name).split()[0]
            if free is None:
                is_free = text == '-1' or int(text) >= 2 ** 62
            else:
                is_free = text in free
            if is_free:
                continue
            self.assertIn(str(knob), held, f'{name} {limit} {text}')
            if limit in FLOORS:
                self.assertGreaterEqual(int(text), FLOORS[limit], name)
        for knob, unit in IO.items():
            if self.throttled(name, unit):
                self.assertIn(str(knob), held, f'{name} {unit}')

    def throttled(self, name: str, unit: str) -> bool:
        """Whether any device is limited in this unit."""
        if self.tree.version == 2:
            text = self.tree.read('io', name, 'io.max')
            return any(unit in word and not word.endswith('=max')
                       for word in text.split())
        return any(self.tree.read(
            'blkio', name, f'blkio.throttle.{way}_{unit}_device')
            for way in ('read', 'write'))
