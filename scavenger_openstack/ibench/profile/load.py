# SPDX-License-Identifier: Apache-2.0

"""What a profile starts: a command that is the workload, and a meter."""

from __future__ import annotations

import contextlib
import functools
import shlex
import subprocess

from scavenger_openstack import errors
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
              ) -> subprocess.Popen[bytes]:
        try:
            return run.start_process(
                shlex.split(text), cgroup, cpus, stderr=None,
                stdout=subprocess.PIPE if printing else subprocess.DEVNULL)
        except errors.ConfigError as exc:
            raise workload_.Unfit(str(exc)) from exc

    printed = qos.signal not in (signals.DURATION, *signals.COUNTED)
    signal: signals.Signal
    if qos.signal == signals.DURATION:
        assert wish.command is not None
        signal = signals.DurationSignal(functools.partial(
            start, wish.command, False, work.cpus.workload))
        stack.callback(signal.close)
        return signal
    process = None
    if wish.command is not None:
        process = start(wish.command, printed and wish.meter is None,
                        work.cpus.workload)
        stack.callback(run.end_process, process)
        workload = workload_.of_group(signals.name_of(process), process.pid)
    if wish.meter is not None:
        process = start(wish.meter, printed)
        stack.callback(run.end_process, process)
    if printed:
        assert process is not None
        signal = signals.PrintedSignal(process)
        # The first number: a load takes some time to begin.
        injection.alone(work.host, signal, interrupt_.SLICE_S)
        return signal
    assert workload is not None
    signal = signals.CountedSignal(qos.signal, workload)
    stack.callback(signal.close)
    return signal
