# SPDX-License-Identifier: Apache-2.0



"""Ticks as an agent could have them, and their recording: a host where all
that the format knows of happens, by the roll of a seeded die."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import pathlib
import random
from typing import Any

from oslo_config import cfg

from scavenger_openstack.agent import loop as loop_
from scavenger_openstack.agent import parameters
from scavenger_openstack.algorithms import allowance
from scavenger_openstack.algorithms.cpi2 import cpi2
from scavenger_openstack.algorithms.cpi2 import specs
from scavenger_openstack.algorithms.scavenger import scavenger
from scavenger_openstack import conf as conf_
from scavenger_openstack.conf import params as conf_params
from scavenger_openstack.decision.controller import Controller
from scavenger_openstack.decision import decider
from scavenger_openstack.decision import orders
from scavenger_openstack.decision import settle
from scavenger_openstack.drivers import base
from scavenger_openstack.recording import writer
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Cpu
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Knob
from scavenger_openstack.types import KnobKey
from scavenger_openstack.types import Mode
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Value
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadSample

GIB = 2 ** 30
ODD = '/batch/\udcff\x1b[2J "\u200b'
"""A name that a tenant may choose."""

CAPS: dict[Knob, Value] = {Knob.CPU_SET: '0-1', Knob.CPU_CORES: 0.5}


class Nowhere:
    """Knobs that take any value."""

    def __init__(self) -> None:
        self.executor = base.new_executor()

    def read(self, workload: str, knob: Knob,
             state: base.KnobState | None = None) -> Value | None:
        return None

    def restore_actions(self, workload: str, knob: Knob,
                        state: base.KnobState | None = None) -> list[Any]:
        return []

    def write(self, workload: str, knob: Knob, value: Value,
              state: base.KnobState | None = None) -> Value:
        return value

    def queue(self, workload: str, knob: Knob) -> str:
        return base.usual_queue(knob)

    def refresh(self, held: Mapping[KnobKey, base.KnobState]
                ) -> base.Changes:
        return base.Changes()

    def notify(self, event: base.Event) -> bool:
        return False


def options(*lines: str) -> cfg.ConfigOpts:
    """Options, with each ``section.name=value``."""
    conf = cfg.ConfigOpts()
    conf_.register(conf)
    conf_.load(conf, [], 'test')
    for line in lines:
        name, _, value = line.partition('=')
        section, _, option = name.partition('.')
        conf.set_override(option, value, section)
    return conf


class Host:
    """Makes ticks.

    :param mode: that of the regulator
    :param protect: the resources that limits are set on, if not all
    :param after: the host before a restart of the agent
    :param asked: operators ask for this and that, and a detector observes
    """

    def __init__(self, path: pathlib.Path, seed: int = 1,
                 mode: Mode = Mode.ENFORCE, after: Host | None = None,
                 protect: str = '', asked: bool = False) -> None:
        self.dice = random.Random(seed)
        self.asked = random.Random(seed) if asked else None
        self.orders = orders.NO_ORDERS
        self.now: float = after.now + 1 if after else 1000.0
        state: dict[str, Any] = after.decider.state() if after else {}
        conf = options('scavenger.memory_window_s=4', f'scavenger.mode={mode}',
                       'scavenger.network_window_s=3', 'agent.host=node7',
                       'cpi2.signal=io_wait', 'cpi2.sample_s=1',
                       'cpi2.period_s=1', 'cpi2.outliers=1',
                       'cpi2.correlation_threshold=0.1',
                       f'agent.protect={protect}')
        self.params: dict[str, Any] = {
            kind.name: conf_params.params_of(conf, kind.name, kind.params_type)
            for kind in (scavenger.Controller, cpi2.Controller)}
        controllers: list[tuple[Controller, Mode]] = [
            (scavenger.Controller(self.params['scavenger'], host='node7',
                                  boot_id='boot'), mode)]
        if asked:
            controllers.append((cpi2.Controller(
                self.params['cpi2'], host='node7', boot_id='boot'),
                Mode.OBSERVE))
        self.recorder = writer.Recorder(path, Nowhere())
        self.decider: decider.Decider = decider.Decider(
            controllers, conf_.limited_knobs(conf.agent.protect)
            if mode is Mode.ENFORCE else ())
        self.recorder.start({**writer.header(
            conf, controllers, parameters.Parameters(conf).of, state,
            self.now), 'boot_id': 'boot', 'time_s': self.now})
        self.decider.load(state, self.now)
        self.workloads = [
            Workload('/services/s', Priority.FOREGROUND, vcpus=2.0,
                     project='p', application='web', protected=False,
                     allowed_cpus=frozenset((1,)), disks=('vda',)),
            Workload(ODD, Priority.BACKGROUND, source='parent',
                     project='q', group='/batch',
                     floor={Knob.CPU_CORES: 0.1},
                     interfaces=('veth0',), killable=True, created_s=7.0),
            Workload('/batch/b', Priority.BACKGROUND, group='/batch',
                     memory_allotment_bytes=GIB, created_s=8.0)]
        self.used = dict.fromkeys((one.id for one in self.workloads), 0.0)
        self.originals: dict[KnobKey, Value] = {}
        self.wanted: Mapping[KnobKey, Cap] = {}
        self.fast_state = settle.NO_FAST_LOOP

    def ticks(self, count: int) -> list[loop_.Tick]:
        return [self.tick() for _ in range(count)]

    def tick(self) -> loop_.Tick:
        """One more tick, written to the recording."""
        dice = self.dice
        self.now += dice.choice((1.0, 1.0, 1.01, 0.25))
        tick = loop_.Tick(self.now)
        if self.asked:
            self.ask(self.asked)
        tick.orders = self.orders
        tick.stopped = dice.random() < 0.1
        tick.unwatched = dice.random() < 0.1
        if dice.random() < 0.05:
            self.decider.forget_sample()
        if dice.random() > 0.05:
            self.decide(tick, self.sample())
        else:
            tick.outcome.problems.append('the host could not be read')
        in_force = list(tick.decided.wanted) if tick.decided else []
        for key in in_force:
            if dice.random() < 0.5:
                cap = tick.decided.wanted[key]  # type: ignore[union-attr]
                self.recorder.knobs.write(cap.workload, cap.knob,
                                          cap.value)
        self.recorder.tick(tick, in_force, self.params)
        return tick

    def ask(self, dice: random.Random) -> None:
        """Now and then operators ask for something else."""
        if dice.random() < 0.1:
            self.orders = self.orders._replace(**dice.choice((
                {'modes': dice.choice((
                    {}, {'scavenger': Mode.OBSERVE}, {'cpi2': Mode.OFF}))},
                {'exempt': frozenset(dice.sample(('p', 'q'), 1))},
                {'overrides': orders.Overrides(
                    self.override(dice) for _ in range(dice.randrange(4)))},
                {'budget': dice.choice((None, allowance.Budget(
                    dice.randrange(9), self.now + 60, self.now)))},
                {'specs': {('p', 'web', 'EPYC', 'io_wait'): specs.Spec(
                    dice.random() * 4e-4, 1e-5, 500.0, 0, 'directive')}})))
        if dice.random() < 0.05:
            name, changes = dice.choice((
                ('scavenger', {'memory_c': dice.choice((1.0, 3.0))}),
                ('scavenger', {'use_cpu_idle': dice.random() < 0.5}),
                ('cpi2', {'outlier_sigmas': dice.choice((0.0, 9.0))})))
            before = self.params[name]
            self.params[name] = dataclasses.replace(before, **changes)
            if self.params[name] != before and name in self.decider.tunable:
                self.decider.tunable[name].tune(self.params[name])

    def override(self, dice: random.Random) -> orders.Override:
        knob, value = dice.choice((
            (Knob.CPU_CORES, 0.5), (Knob.CPU_CORES, None),
            (Knob.MEMORY_BYTES, GIB), (Knob.CPU_SET, '0'),
            (Knob.CPU_IDLE, 1), (Knob.PAUSED, 1)))
        return orders.Override(
            f'{dice.randrange(10 ** 9)}', dice.choice((
                '/batch/b', ODD, '/batch', '/services/s', '/gone')),
            '', knob, value, 'why', self.now + dice.choice((5.0, 500.0)))

    def decide(self, tick: loop_.Tick, sample: HostSample) -> None:
        dice = self.dice
        tick.sample = sample
        held_back = tick.stopped or tick.unwatched
        if dice.random() < 0.2:
            tick.unmet = {workload: dice.choice((0, dice.randrange(GIB)))
                          for workload, knob in self.wanted
                          if knob is Knob.MEMORY_BYTES}
        if dice.random() < 0.2:
            tick.pending = frozenset({('/batch/b', Knob.MEMORY_BYTES),
                                      (ODD, Knob.MEMORY_BYTES)})
        proposal = self.decider.propose(
            sample, held_back=held_back, orders=self.orders,
            taken=self.fast_state.keys, unmet=tick.unmet,
            pending=tick.pending)
        tick.reset, tick.rates = proposal.reset, proposal.rates
        self.fast_state = (self.fast(held_back) if dice.random() < 0.3
                           else settle.NO_FAST_LOOP)
        tick.decided = settle.settle(
            proposal, self.found(proposal.caps), self.fast_state)
        self.wanted = tick.decided.wanted

    def found(self, wished: Iterable[Cap]) -> dict[KnobKey, Value | None]:
        if self.dice.random() < 0.1:
            self.originals = {
                (ODD, Knob.MEMORY_BYTES): self.dice.randrange(GIB),
                ('/batch', Knob.CPU_SET): '0-1'}
        return {(cap.workload, cap.knob): self.originals.get(cap[:2])
                for cap in wished if self.dice.random() < 0.9}

    @staticmethod
    def fast(held_back: bool) -> settle.FastLoopState:
        return settle.FastLoopState(('/batch',), () if held_back else (
            Cap('/batch/b', Knob.CPU_CORES, 0.1, 'perfiso', 'one CPU left'),))

    def sample(self) -> HostSample:
        dice = self.dice
        present = [one for one in self.workloads if dice.random() < 0.97]
        samples = []
        for one in present:
            self.used[one.id] += dice.random()
            samples.append(WorkloadSample(
                one, cpu_s=self.used[one.id],
                run_delay_s=dice.choice((None, self.used[one.id] / 3)),
                io_ops=int(self.used[one.id] * 100),
                io_wait_s=self.used[one.id] / 50,
                net_tx_bytes=int(self.used[one.id] * 1e6),
                memory_bytes=dice.choice((None, 0, dice.randrange(GIB))),
                caps_in_force=CAPS if dice.random() < 0.5 else {}))
        return HostSample(
            'node7', 'boot', self.now + 0.001, 1.7e9 + self.now,
            tuple(samples), cpu_model=dice.choice((None, 'EPYC')),
            topology={0: Cpu(0, 0, 0), 1: Cpu(1, 0, 0)},
            cpu_busy_s={0: self.now / 2, 1: self.now / 3},
            memory_total_bytes=4 * GIB,
            memory_available_bytes=dice.choice((
                None, GIB, 3 * GIB, dice.randrange(4 * GIB))),
            links={'eth0': 125e6}, link_of={'veth0': 'eth0'},
            link_tx_bytes={'eth0': int(sum(self.used.values()) * 2e6)})
