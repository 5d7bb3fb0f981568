# SPDX-License-Identifier: Apache-2.0

"""What a run makes on the host, removed at its end whatever happens."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import os

from scavenger_openstack.drivers.kernel import online_cpus
from scavenger_openstack import errors
from scavenger_openstack.ibench import build
from scavenger_openstack.ibench import geometry
from scavenger_openstack.ibench.host.cgroup import Cgroup
from scavenger_openstack.ibench.host import link as host_link
from scavenger_openstack.ibench.host import lock
from scavenger_openstack.ibench.host import scratch
from scavenger_openstack.ibench.interrupt import Interrupt
from scavenger_openstack.ibench import run
from scavenger_openstack.types import format_cpus
from scavenger_openstack.types import parse_cpus


@contextlib.contextmanager
def opened(*, interrupt: Interrupt, parent: str | None,
           alone: bool, favour: bool = False
           ) -> Iterator[tuple[run.Host, list[str]]]:
    """Compile the kernels and make a cgroup for them.

    What runs have left that were killed is removed before.  Yields the host,
    and notes for the operator.

    :param parent: the cgroup below which it is made; None for no cgroup
    :param alone: no other run may be on this host
    :param favour: the kernels have the highest CPU weight, and this process
        a CPU whenever it reads what they report
    :raises ConfigError: something cannot be here.
    :raises DriverError: the compiler fails.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(lock.locked(alone=alone))
        program = build.build(check=interrupt.check)
        notes = []
        remove_leftovers(parent)
        cgroup = None
        if parent is None:
            notes.append('the kernels run in the cgroup of this shell')
        elif os.geteuid() != 0:
            notes.append('the kernels run in the cgroup of this shell: only '
                         'root makes one of their own')
        else:
            cgroup = Cgroup(parent)
            stack.callback(cgroup.remove)
            cgroup.make()
            if favour:
                cgroup.favour()
                stack.enter_context(_realtime())
        yield run.Host(program, interrupt, cgroup), notes


def remove_leftovers(parent: str | None = '/') -> None:
    """End and remove what runs have left that were killed.

    :param parent: the cgroup below which their cgroups are; None for no
        cgroup
    """
    scratch.remove_leftovers()
    if os.geteuid() == 0:
        host_link.remove_leftovers()
        if parent is not None:
            Cgroup(parent).remove_leftovers()


@contextlib.contextmanager
def _realtime() -> Iterator[None]:
    """Run before other programs; where this user may not, as usual.

    What this process starts runs as usual.
    """
    policy, param = os.sched_getscheduler(0), os.sched_getparam(0)
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK,
                              os.sched_param(1))
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, policy, param)


@contextlib.contextmanager
def linked(host: run.Host, cpus: Sequence[int]
           ) -> Iterator[tuple[run.Host, host_link.Link]]:
    """Make a link with a remote end that serves.

    :param cpus: those of the kernel; the remote end shares them, so that
        the link loads no CPU that was not chosen

    Yields the host as its near end sees it, and the link.

    :raises ConfigError: this host cannot, or this user.
    :raises DriverError: the remote end fails.
    :raises Interrupted: a signal came.
    """
    if os.geteuid() != 0:
        raise errors.ConfigError(
            'network_bandwidth needs a remote end: name one with --address '
            'IP:PORT, where "scavenger-ibench serve" runs, or run it as '
            'root, which makes a link of its own')
    link = host_link.Link()
    with contextlib.ExitStack() as stack:
        stack.callback(link.remove)
        link.make()
        link.serve(host.program, host.cgroup, host.interrupt, cpus)
        yield host._replace(enter=link.enter), link


def choose_cpus(text: str | None, *, every: bool = False,
                option: str = '--cpus') -> tuple[int, ...]:
    """Return the CPUs that were named, else the last that may be used.

    :param every: else all that may be used
    :raises ConfigError: one is not online, or the text is no list.
    """
    if text is None:
        allowed = sorted(os.sched_getaffinity(0))
        return tuple(allowed if every else allowed[-1:])
    try:
        cpus = parse_cpus(text)
    except ValueError as exc:
        raise errors.ConfigError(
            f'{option} {text}: CPUs are named as in 1 or 0-3,8') from exc
    online = online_cpus.read() or online_cpus.counted()
    if not cpus or not cpus <= online:
        raise errors.ConfigError(
            f'{option} {text}: this host has the CPUs '
            f'{format_cpus(online)}')
    return tuple(sorted(cpus))


def other_cpu(cpus: Sequence[int]) -> int | None:
    """Return a CPU that may be used and is none of these, nor of the core of
    the first, and shares its last-level cache if one does."""
    allowed = (os.sched_getaffinity(0) - set(cpus)
               - {geometry.find_sibling(cpus[0])})
    return max(allowed & geometry.find_neighbours(cpus[0]) or allowed,
               default=None)
