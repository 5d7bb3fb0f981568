# SPDX-License-Identifier: Apache-2.0

"""What a profile starts: a command that is the workload, and a meter."""

from __future__ import annotations

import contextlib
import functools
import os
import shlex

from scavenger_openstack.ibench.host import cgroup as cgroup_
from scavenger_openstack.ibench import interrupt as interrupt_
from scavenger_openstack.ibench.profile import injection
from scavenger_openstack.ibench.profile import signals
from scavenger_openstack.ibench.profile import work as work_
from scavenger_openstack.ibench.profile import workload as workload_
from scavenger_openstack.ibench import run


def start_load(stack: contextlib.ExitStack, work: work_.Work,
                workload: workload_.Workload | None) -> signals.Signal:
    """Start command and meter, and return the signal.

    They end with ``stack``.

    :param workload: what runs already; None for a command
    :raises ConfigError: a command cannot be started.
    :raises Unfit: it ends too early, or prints no number.
    :raises Interrupted: a signal came.
    """
    wish, qos = work.wish, work.qos
    cgroup = None
    if (wish.command or wish.meter) and work.host.cgroup is not None:
        cgroup = cgroup_.Cgroup(wish.parent or '/', '-load')
        stack.callback(cgroup.remove)
        cgroup.make()
        if wish.command:
            # As the kernels: they share with each other alone.
            cgroup.favour()

    def start(text: str, printing: bool, cpus: tuple[int, ...] = ()
              ) -> signals.Program:
        return signals.Program(
            shlex.split(text), printing=printing,
            prepare=functools.partial(_prepare, cgroup, cpus))

    printed = qos.signal not in (signals.DURATION, *signals.COUNTED)
    signal: signals.Signal
    if qos.signal == signals.DURATION:
        assert wish.command is not None
        signal = signals.DurationSignal(functools.partial(
            start, wish.command, False, work.cpus.workload))
        stack.callback(signal.close)
        return signal
    program = None
    if wish.command is not None:
        program = start(wish.command, printed and wish.meter is None,
                        work.cpus.workload)
        stack.callback(program.end)
        workload = workload_.of_group(program.name, program.process.pid)
    if wish.meter is not None:
        program = start(wish.meter, printed)
        stack.callback(program.end)
    if printed:
        assert program is not None
        signal = signals.PrintedSignal(program)
        _wait_for_lines(work.host, signal)
        return signal
    assert workload is not None
    signal = signals.CountedSignal(qos.signal, workload)
    stack.callback(signal.close)
    return signal


def _prepare(cgroup: cgroup_.Cgroup | None, cpus: tuple[int, ...]) -> None:
    if cgroup is not None:
        cgroup.join()
    if cpus:
        os.sched_setaffinity(0, cpus)


def _wait_for_lines(host: run.Host, signal: signals.PrintedSignal) -> None:
    """Wait for the first number: a load takes some time to begin."""
    injection.alone(host, signal, interrupt_.SLICE_S)
