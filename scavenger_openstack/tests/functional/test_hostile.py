# SPDX-License-Identifier: Apache-2.0

"""A conductor that is hostile or broken, and a loop on real cgroups.

``SCAVENGER_DIRECTIVES`` says how many answers it gives (300);
``SCAVENGER_SEED``, any number, gives others.  All of it:

    SCAVENGER_DIRECTIVES=100000 python -m unittest \\
        scavenger_openstack.tests.functional.test_hostile
"""

from __future__ import annotations

import json
import logging
import os
import pathlib
import random
import subprocess
import sys
import time
from typing import Any

import fixtures
from oslo_config import cfg
import testtools

from scavenger_openstack.agent.control_plane import directives
from scavenger_openstack.agent.control_plane import sync
from scavenger_openstack.agent.events import store
from scavenger_openstack.agent import parameters
from scavenger_openstack.agent import parts
from scavenger_openstack import conf
from scavenger_openstack.tests.functional import hostile as hostile_
from scavenger_openstack.tests.functional import loops
from scavenger_openstack.tests import tiers
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Mode

COUNT = int(os.environ.get('SCAVENGER_DIRECTIVES') or 300)

HOST = 'h78'
"""An agent of that name reports at once after its start."""
FLOORS = {'quota': 10_000, 'memory': 64 * 2 ** 20}
IO = {Knob.IO_BYTES_PER_S: 'bps', Knob.IO_OPS_PER_S: 'iops'}
"""What the kernel's limits of a device are called."""

REAL = ('scavenger', 'cpi2', 'perfcloud', 'attribution')
"""Controllers that follow parameters, besides the one that the test moves."""
OPTIONS = ('[agent]', f'controllers = {", ".join(REAL)}',
           '[scavenger]', 'mode = enforce',
           '[attribution]', 'mode = enforce')


class Faults(logging.Handler):
    """What is logged of unexpected failures, and what terminals obey."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info or not text.isprintable():
            self.found.append(f'{text!r} {record.exc_info}')


class HostileTest(loops.LoopTestCase):

    def test_whatever_it_answers(self) -> None:
        self.useFixture(fixtures.FakeLogger())
        logged = Faults()
        logging.getLogger().addHandler(logged)
        self.addCleanup(logging.getLogger().removeHandler, logged)
        self.addDetail('seed', testtools.content.text_content(
            str(tiers.SEED)))
        chance = random.Random(tiers.SEED)
        hostile = hostile_.Hostile(chance, self.names(), ['wish'])
        conductor = sync.make(
            hostile, self.state_dir.parent / 'sync', store.Store(
                self.state_dir.parent / 'history', 2 ** 20, 2 ** 20),
            host='h', boot_id='b', version='1', sync_s=10.0,
            allow_background=True)
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
            if hostile.stops:
                self.assertNotEqual('', conductor.orders.stopped,
                                    repr(hostile.last[:9999]))
            json.dumps(conductor.facts(), allow_nan=False)
            self.assertEqual([], logged.found, repr(hostile.last[:9999]))
            asked.follow(conductor.orders.parameters, tunable)
            tuned.update(name for name in conductor.orders.parameters
                         if f'parameter {name}' not in asked.refused)
            tick = loop.tick(self.now + number)
            self.assertIsNotNone(tick.decided)
            self.start(kept, hostile.kept, configuration)
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
        self.assertEqual(set(hostile_.FIELDS), hostile.filled.keys())
        self.assertGreater(len(tuned), min(
            len(hostile_.PARAMETERS) / 4, COUNT / 150))

    def test_agents_that_start_with_whatever_it_answers(self) -> None:
        """Of 100 answers one is for an agent as it is installed."""
        self.configure((*OPTIONS[:2], '[agent]', 'interval_s = 0.1',
                        f'host = {HOST}', '[conductor]', 'enabled = true',
                        'sync_s = 1', 'allow_background = true'))
        done = subprocess.run(
            [sys.executable, '-m', hostile_.__name__,
             str(max(3, COUNT // 100)), str(tiers.SEED),
             ','.join(self.names()), '--config-file',
             str(self.state_dir.parent / 'agent.conf'), '--state-dir',
             str(self.state_dir)], capture_output=True, text=True)
        self.addDetail('log', testtools.content.text_content(
            done.stderr[-20_000:]))
        self.assertEqual(0, done.returncode)
        self.assertIn('Directives.digest', json.loads(done.stdout))
        self.assertNotIn('Traceback', done.stderr)

    def names(self) -> list[str]:
        """Names of what is there, or nearly."""
        return [self.id(), self.id('/batch'), self.id('/batch/a'),
                self.id('/batch/b'), self.id('/services'),
                self.id('/services/s'), '/', '../batch', 'x']

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
