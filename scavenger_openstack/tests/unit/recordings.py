# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.



"""Ticks as an agent could have them, and their recording: a host where all
that the format knows of happens, by the roll of a seeded die."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Sequence
import pathlib
import random
from typing import Any

from oslo_config import cfg

from scavenger_openstack.agent import loop as loop_
from scavenger_openstack.algorithms.scavenger import scavenger
from scavenger_openstack import conf as conf_
from scavenger_openstack.decision import decider
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

    def read(self, workload: str, knob: Knob) -> Value | None:
        return None

    def restore_actions(self, workload: str, knob: Knob) -> list[Any]:
        return []

    def write(self, workload: str, knob: Knob, value: Value,
              original: Sequence[base.RestoreAction] = ()) -> Value:
        return value

    def queue(self, workload: str, knob: Knob) -> str:
        return base.usual_queue(knob)

    def refresh(self, held: Collection[KnobKey]) -> base.Changes:
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

    :param mode: that of the one controller
    :param protect: the resources that limits are set on, if not all
    :param after: the host before a restart of the agent
    """

    def __init__(self, path: pathlib.Path, seed: int = 1,
                 mode: Mode = Mode.ENFORCE, after: Host | None = None,
                 protect: str = '') -> None:
        self.dice = random.Random(seed)
        self.now: float = after.now + 1 if after else 1000.0
        state: dict[str, Any] = after.decider.state() if after else {}
        conf = options('scavenger.memory_window_s=4', f'scavenger.mode={mode}',
                       'scavenger.network_window_s=3', 'agent.host=node7',
                       f'agent.protect={protect}')
        controller = scavenger.Controller(
            conf_.params_of(conf, 'scavenger', scavenger.Params),
            host='node7', boot_id='boot')
        self.recorder = writer.Recorder(path, Nowhere())
        self.decider: decider.Decider = decider.Decider(
            [(controller, mode)], conf_.limited_knobs(conf.agent.protect))
        self.recorder.start({**writer.header(
            conf, [(controller, mode)], state, self.now), 'boot_id': 'boot',
            'time_s': self.now})
        self.decider.load(state, self.now)
        self.workloads = [
            Workload('/services/s', Priority.FOREGROUND, vcpus=2.0,
                     project='p', application='web',
                     allowed_cpus=frozenset((1,)), disks=('vda',)),
            Workload(ODD, Priority.BACKGROUND, source='parent',
                     group='/batch', floor={Knob.CPU_CORES: 0.1},
                     interfaces=('veth0',), killable=True, created_s=7.0),
            Workload('/batch/b', Priority.BACKGROUND, group='/batch',
                     memory_allotment_bytes=GIB, created_s=8.0)]
        self.used = dict.fromkeys((one.id for one in self.workloads), 0.0)
        self.originals: dict[KnobKey, Value] = {}

    def ticks(self, count: int) -> list[loop_.Tick]:
        return [self.tick() for _ in range(count)]

    def tick(self) -> loop_.Tick:
        """One more tick, written to the recording."""
        dice = self.dice
        self.now += dice.choice((1.0, 1.0, 1.01, 0.25))
        tick = loop_.Tick(self.now)
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
                self.recorder.knobs.write(*cap[:3])
        self.recorder.tick(tick, in_force)
        return tick

    def decide(self, tick: loop_.Tick, sample: HostSample) -> None:
        dice = self.dice
        tick.sample = sample
        held_back = tick.stopped or tick.unwatched
        proposal = self.decider.propose(sample, held_back=held_back)
        tick.reset, tick.rates = proposal.reset, proposal.rates
        claims = settle.claim(proposal, self.fast(held_back)
                              if dice.random() < 0.3 else settle.NO_FAST_LOOP)
        tick.decided = settle.settle(claims, self.found(claims.caps))
        if dice.random() < 0.2:
            tick.unmet = {workload: dice.choice((0, dice.randrange(GIB)))
                          for workload, knob in tick.decided.wanted
                          if knob is Knob.MEMORY_BYTES}
        if dice.random() < 0.2:
            tick.pending = frozenset({('/batch/b', Knob.MEMORY_BYTES),
                                      (ODD, Knob.MEMORY_BYTES)})
        self.decider.answer(tick.decided, tick.unmet, tick.pending)

    def found(self, claims: Iterable[Cap]) -> dict[KnobKey, Value | None]:
        if self.dice.random() < 0.1:
            self.originals = {
                (ODD, Knob.MEMORY_BYTES): self.dice.randrange(GIB),
                ('/batch', Knob.CPU_SET): '0-1'}
        return {(cap.workload, cap.knob): self.originals.get(cap[:2])
                for cap in claims if self.dice.random() < 0.9}

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
