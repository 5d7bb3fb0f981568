# SPDX-License-Identifier: Apache-2.0

"""What a profile starts: a command that is the workload, and a meter."""

from __future__ import annotations

import contextlib
import functools
import shlex
import subprocess

from scavenger_openstack import errors
from scavenger_openstack.ibench.host.cgroup import Cgroup
from scavenger_openstack.ibench.interrupt import SLICE_S
from scavenger_openstack.ibench.profile import injection
from scavenger_openstack.ibench.profile import signals
from scavenger_openstack.ibench.profile.work import Work
from scavenger_openstack.ibench.profile import workload as profiled_workload
from scavenger_openstack.ibench import run


def start_load(stack: contextlib.ExitStack, work: Work,
               workload: profiled_workload.Workload | None) -> signals.Signal:
    """Start command and meter, and return the signal.

    They end with ``stack``.

    :param workload: what runs already; None for a command
    :raises ConfigError: a command cannot be started.
    :raises Unfit: it ends too early, or prints no number.
    :raises Interrupted: a signal came.
    """
    wish, name = work.wish, work.qos.signal
    start = functools.partial(_start, _make_cgroup(stack, work))
    signal: signals.Signal
    if name == signals.DURATION:
        assert wish.command is not None
        signal = signals.DurationSignal(functools.partial(
            start, wish.command, work.cpus.workload))
        stack.callback(signal.close)
        return signal
    process = None
    is_printed = name not in signals.COUNTED
    if wish.command is not None:
        process = start(wish.command, work.cpus.workload,
                        is_printed=is_printed and wish.meter is None)
        stack.callback(run.end_process, process)
        workload = profiled_workload.of_group(signals.name_of(process),
                                              process.pid)
    if wish.meter is not None:
        process = start(wish.meter, is_printed=is_printed)
        stack.callback(run.end_process, process)
    if is_printed:
        assert process is not None
        signal = signals.PrintedSignal(process)
        # The first number: a load takes some time to begin.
        injection.alone(work.host, signal, SLICE_S)
        return signal
    assert workload is not None
    signal = signals.CountedSignal(name, workload)
    stack.callback(signal.close)
    return signal


def _make_cgroup(stack: contextlib.ExitStack, work: Work
                 ) -> Cgroup | None:
    """Make the cgroup of command and meter; None: they have none."""
    wish = work.wish
    if work.host.cgroup is None or not (wish.command or wish.meter):
        return None
    cgroup = Cgroup(wish.parent or '/', '-load')
    stack.callback(cgroup.remove)
    cgroup.make()
    if wish.command:
        # As the kernels: they share with each other alone.
        cgroup.favour()
    return cgroup


def _start(cgroup: Cgroup | None, text: str,
           cpus: tuple[int, ...] = (), *, is_printed: bool = False
           ) -> subprocess.Popen[bytes]:
    try:
        return run.start_process(
            shlex.split(text), cgroup, cpus, stderr=None,
            stdout=subprocess.PIPE if is_printed else subprocess.DEVNULL)
    except errors.ConfigError as exc:
        raise profiled_workload.Unfit(str(exc)) from exc
