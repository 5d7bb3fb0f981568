# SPDX-License-Identifier: Apache-2.0

"""The act: a service alone, beside a hog, and under the agent.

All of it runs on two CPUs, in cgroups of one weight, as VMs of one size would.
The hog is a source of interference: integer units at full intensity, three
threads a CPU.  Beside it is another batch job that disturbs nothing, so that
the agent could name the wrong job.  The agent has its shipped options,
with which it observes; in the last phase its attribution may set limits.
"""

from __future__ import annotations

from collections.abc import Mapping
import os
import pathlib
import subprocess
import sys
import time
from typing import Any

from scavenger_openstack import amounts
from scavenger_openstack.demo import product
from scavenger_openstack.demo import service
from scavenger_openstack.demo.stage.stage import BACKGROUND
from scavenger_openstack.demo.stage.stage import FOREGROUND
from scavenger_openstack.demo.stage.stage import Stage
from scavenger_openstack.drivers.kernel import proc
from scavenger_openstack import errors
from scavenger_openstack.ibench import arguments
from scavenger_openstack.ibench import build
from scavenger_openstack.ibench.interrupt import Interrupt
from scavenger_openstack.restore import scheduling
from scavenger_openstack import text

SERVICE = FOREGROUND + '/service'
HOG = BACKGROUND + '/hog'
QUIET = BACKGROUND + '/quiet'
GROUPS = (SERVICE, HOG, QUIET)

CPUS = 2
HOG_THREADS_PER_CPU = 3
QUIET_PERCENT = 5.0
FOREVER_S = 1e7

LAUNCH_S = 1.0
ALONE_S = 20.0
UNMANAGED_S = 25.0
NAMING_S = 60.0
"""Longest time between the permission to set limits and the first limit."""
SETTLE_S = 5.0
"""Time between the first limit and the measurement of its effect."""
MANAGED_S = 35.0
USUAL_NAMING_S = 8.0
EVERY_S = 0.5
RECENT_S = 3.0

STAT = pathlib.Path('/proc/stat')

CONFIG = """\
[attribution]
mode = {mode}
"""

Sample = dict[str, Any]


class Act:
    """Plays the act on a stage with :data:`GROUPS`.

    :param more_config: lines for the configuration of the agent
    """

    def __init__(self, stage: Stage,
                 interrupt: Interrupt, *, seed: str,
                 more_config: str = '') -> None:
        self._stage = stage
        self._interrupt = interrupt
        self._seed = seed
        self._more_config = more_config
        self._before = stage.tree.knobs()
        self._agent: product.Agent | None = None
        self._processes: list[subprocess.Popen[bytes]] = []
        self._samples: list[Sample] = []
        self._incidents: dict[str, dict[str, Any]] = {}
        self._limited_s: float | None = None
        self._named: dict[str, float] = {}

    def play(self) -> dict[str, Any]:
        """Play it; return the record for :func:`.demo.result.summary`.

        :raises Interrupted: a signal asks to stop.
        :raises DriverError: a program failed.
        """
        stage = self._stage
        self._soi = build.build()
        program = service.compile_program()
        # A running agent takes no mode that does more than the one that it
        # was started with.
        self._agent = agent = product.Agent(stage, self._config('enforce'))
        agent.wait(self._interrupt)
        self._start_s = time.monotonic() + LAUNCH_S
        self._service = service.Service(
            stage.directory, service.requests(
                self._seed, service.PERIOD_S, len(stage.cpus)),
            len(stage.cpus), self._start_s)
        self._processes = [
            stage.launch(*self._service.command(program), log='service',
                         below=SERVICE),
            self._launch_job(QUIET, 1, QUIET_PERCENT)]
        hog_s, agent_s = ALONE_S, ALONE_S + UNMANAGED_S
        print('scavenger-demo: the agent observes', file=sys.stderr)
        scheduling.thread()     # else the hog delays what is measured of it
        try:
            managed_s = self._run(agent, hog_s, agent_s)
        finally:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        return self._record(agent.status.last, hog_s, agent_s, managed_s)

    def _run(self, agent: product.Agent, hog_s: float, agent_s: float
             ) -> float | None:
        """Run all phases; return the moment from which the effect of a limit
        is measured."""
        # Not at once: a signal breaks off the load of its BPF programs.
        self._watch(agent, 'the service alone', 0.0, hog_s / 2)
        agent.reload(self._config('observe'), 'observe')
        self._watch(agent, 'the service alone', hog_s / 2, hog_s)
        self._processes.append(self._launch_job(
            HOG, HOG_THREADS_PER_CPU * len(self._stage.cpus), 100.0))
        self._watch(agent, 'beside the hog, unmanaged', hog_s, agent_s)
        agent.reload(self._config('enforce'), 'enforce')
        self._watch(agent, 'under the agent', agent_s, agent_s + NAMING_S)
        if self._limited_s is None:
            return None
        managed_s = self._limited_s + SETTLE_S
        self._watch(agent, 'under the agent, hog limited', self._limited_s,
                    managed_s + MANAGED_S)
        return managed_s

    def play_on(self) -> None:
        """Go on until a signal comes.

        :raises Interrupted: it came.
        :raises DriverError: a program failed.
        """
        while True:
            self._check()
            self._interrupt.wait_until(time.monotonic() + EVERY_S)

    def stop(self) -> list[str]:
        """End the agent; return the knobs that it left changed, in words.

        :raises DriverError: it did not end as it should.
        """
        if self._agent is not None:
            self._agent.stop()
        return self._stage.tree.changed(self._before)

    def _config(self, mode: str) -> str:
        name = self._stage.tree.name
        return product.config(
            background=name + BACKGROUND,
            foreground=name + FOREGROUND,
            more=CONFIG.format(mode=mode) + self._more_config)

    def _launch_job(self, group: str, threads: int, percent: float
                    ) -> subprocess.Popen[bytes]:
        return self._stage.launch(
            str(self._soi), 'integer', f'threads={threads}',
            'every_s=3600', arguments.levels_word(
                [arguments.Level(percent, FOREVER_S)]),
            *(['calibrate_s=0.2'] if percent < 100 else ['chunk_s=1']),
            log=group.rpartition('/')[2], below=group)

    def _watch(self, agent: product.Agent, phase: str, begin_s: float,
               end_s: float) -> None:
        """Take samples until ``end_s``, at most until the hog is limited."""
        if not sys.stderr.isatty():
            print(f'{begin_s:3.0f} s: {phase}', file=sys.stderr, flush=True)
        waits = self._limited_s is None
        while (at_s := time.monotonic() - self._start_s) < end_s:
            self._check()
            if at_s >= 0:
                self._samples.append(self._sample(agent.status, at_s))
                self._show(phase, at_s)
                if waits and self._limited_s is not None:
                    return
            self._interrupt.wait_until(time.monotonic() + EVERY_S)

    def _check(self) -> None:
        """:raises DriverError: a program has ended."""
        for process in self._processes:
            if process.poll() is not None:
                raise errors.DriverError(
                    f'{process.args!r} ended with {process.returncode}')
        if self._agent is not None:
            self._agent.check()

    def _sample(self, status: product.Status, at_s: float) -> Sample:
        """Return the totals and limits at a moment; note named workloads."""
        status.refresh()
        limits = {}
        for cap in status.caps():
            if cap['knob'] == 'cpu_cores':
                limits[self._group(str(cap['workload']))] = cap['value']
        for incident in status.last.get('incidents') or ():
            self._incidents[incident['id']] = incident
            for workload in incident.get('antagonists') or ():
                self._named.setdefault(self._group(workload), at_s)
        # A limit without a name is a trial of a few seconds.
        if (self._limited_s is None and HOG in limits
                and HOG in self._named):
            self._limited_s = at_s
        busy_s = proc.busy_s(STAT.read_bytes())
        return {'at_s': at_s, 'limits': limits,
                'busy_s': sum(busy_s.get(cpu, 0.0)
                              for cpu in self._stage.cpus),
                'demo_s': self._stage.tree.cpu_s(''),
                'cpu_s': {group: self._stage.tree.cpu_s(group)
                          for group in GROUPS}}

    def _group(self, workload: str) -> str:
        return workload.removeprefix(self._stage.tree.name)

    def _show(self, phase: str, at_s: float) -> None:
        """Replace the line of the terminal by the present state."""
        recent = sorted(
            latency_s for due_s, latency_s in self._service.latencies(
                time.monotonic()) if due_s >= at_s - RECENT_S)
        slow = service.percentile(recent, 0.99)
        limit = self._samples[-1]['limits'].get(HOG)
        total_s = (max(usual_s(), at_s + SETTLE_S + MANAGED_S)
                   if self._limited_s is None else
                   self._limited_s + SETTLE_S + MANAGED_S)
        left_s = max(0.0, total_s - at_s)
        text.over(sys.stderr, ''.join((
            f'{text.bar(min(1.0, at_s / total_s))} {left_s // 60:.0f}:'
            f'{left_s % 60:02.0f} left  {phase}',
            '' if slow is None else f'  P99 {1000 * slow:.0f} ms',
            '' if limit is None else
            f'  limit {amounts.of_knob("cpu_cores", limit)}')))

    def _record(self, status: Mapping[str, Any], hog_s: float,
                agent_s: float, managed_s: float | None) -> dict[str, Any]:
        text.over(sys.stderr)
        now_s = time.monotonic()
        return {
            'cpus': self._stage.cpus, 'tree': self._stage.tree.name,
            'host': status.get('host'), 'hog_s': hog_s, 'agent_s': agent_s,
            'managed_s': managed_s, 'end_s': self._samples[-1]['at_s'],
            'named': self._named, 'limited_s': self._limited_s,
            'status_s': status.get('time_s'),
            'problems': list(status.get('problems') or ()),
            'incidents': list(self._incidents.values()),
            'samples': self._samples,
            'latencies': self._service.latencies(now_s)}


def usual_s() -> float:
    """Return how long the act usually takes, in s."""
    return ALONE_S + UNMANAGED_S + USUAL_NAMING_S + SETTLE_S + MANAGED_S


def choose_cpus() -> list[int]:
    """Return the CPUs to run on: the last ones, since the first have most of
    the interrupts.

    :raises DriverError: there are too few.
    """
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < CPUS:
        raise errors.DriverError(
            f'the demo needs {CPUS} CPUs, here is {len(cpus)}')
    return cpus[-CPUS:]
