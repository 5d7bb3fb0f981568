# SPDX-License-Identifier: Apache-2.0

"""What is to be profiled, by which signal, and on which CPUs."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
import os
import shlex
from typing import NamedTuple

from scavenger_openstack.drivers.kernel import online_cpus
from scavenger_openstack import errors
from scavenger_openstack.ibench.catalogue import Soi
from scavenger_openstack.ibench import geometry
from scavenger_openstack.ibench.host import session
from scavenger_openstack.ibench.profile.qos import FORM
from scavenger_openstack.ibench.profile.qos import Qos
from scavenger_openstack.ibench.profile import signals
from scavenger_openstack.ibench.profile.workload import Workload
from scavenger_openstack.types import format_cpus

SHORT_S = 0.01
"""Of each SoI in the short form.  Source: iBench, section V-D."""


class Wish(NamedTuple):
    """The target of a profile, and how it is measured.

    :ivar seconds: the least length of a turn; None: chosen by the noise of
        the signal
    :ivar cgroup: of the workload, or
    :ivar instance: its UUID or libvirt name, or
    :ivar command: what starts it
    :ivar workload_cpus: where the command runs
    :ivar cpus: of the kernels, and
    :ivar beside_cpus: of those of what CPUs share
    :ivar meter: a command that prints its signal
    :ivar parent: of the cgroup of the kernels; None: they have none
    """

    sois: Sequence[Soi]
    repeats: int
    seconds: float | None = None
    short: bool = False
    cgroup: str | None = None
    instance: str | None = None
    command: str | None = None
    workload_cpus: str | None = None
    meter: str | None = None
    qos: Qos | None = None
    cpus: str | None = None
    beside_cpus: str | None = None
    parent: str | None = '/'
    geometry: Mapping[str, int] = {}
    path: str | None = None
    address: str | None = None
    size_bytes: int | None = None
    seed: int = 1
    yes: bool = False


class Cpus(NamedTuple):
    """Where the kernels run, and a command that is profiled.

    :ivar core: kernels of what a core has for itself: the CPUs of the
        workload, which these share with it by turns
    :ivar beside: kernels of what CPUs share: on other CPUs waits for a CPU
        are not taken for contention
    :ivar workload: those of a command
    """

    core: tuple[int, ...]
    beside: tuple[int, ...]
    workload: tuple[int, ...]


def choose_qos(wish: Wish) -> Qos:
    """Return the QoS that was given, else that of the workload's own signal.

    :raises ConfigError: nothing has such a signal.
    """
    qos = wish.qos
    if qos is None:
        if wish.meter is not None:
            raise errors.ConfigError(
                f'--meter needs --qos, which names what it prints: '
                f'{FORM}')
        qos = (Qos(signals.DURATION, True) if wish.command is not None
               else Qos('progress', False))
    for option, text in (('--command', wish.command),
                         ('--meter', wish.meter)):
        _check_words(option, text)
    if qos.signal == signals.DURATION and wish.command is None:
        raise errors.ConfigError('duration_s is the signal of a --command '
                                 'that ends')
    if qos.signal in signals.COUNTED:
        below = signals.COUNTED[qos.signal].below
        if qos.below != below:
            raise errors.ConfigError(
                f'{qos.signal} is the better the '
                f'{"lower" if below else "higher"} it is: give it as '
                f'{qos.signal}{"<" if below else ">"}BOUND')
    elif qos.signal != signals.DURATION and wish.command is None \
            and wish.meter is None:
        raise errors.ConfigError(
            f'nothing prints {qos.signal}: name a --meter that does, or one '
            f'of the signals that are counted ({signals.names()})')
    if wish.workload_cpus is not None and wish.command is None:
        raise errors.ConfigError(
            '--workload-cpus is where a --command runs; what runs already '
            'stays where it is')
    if wish.short and qos.signal not in signals.COUNTED:
        raise errors.ConfigError(
            f'--short measures for {1e3 * SHORT_S:g} ms, in which only what '
            f'is counted has a value ({", ".join(signals.COUNTED)}), not '
            f'{qos.signal}')
    return qos


def _check_words(option: str, text: str | None) -> None:
    try:
        if text is not None and not shlex.split(text):
            raise errors.ConfigError(f'{option} is empty')
    except ValueError as exc:
        raise errors.ConfigError(f'{option} {text!r}: {exc}') from exc


def choose_cpus(wish: Wish, workload: Workload | None) -> Cpus:
    """Return the CPUs of the kernels and of a command.

    :param workload: what runs already; None for a command
    :raises ConfigError: this shell may not use one.
    """
    mine = os.sched_getaffinity(0)
    if workload is not None:
        used = workload.cpus()
    elif wish.workload_cpus is not None:
        used = frozenset(_named('--workload-cpus', wish.workload_cpus, mine))
    else:       # one is left for what runs beside
        used = frozenset(sorted(mine)[:-1]) or frozenset(mine)
    beside: tuple[int, ...] = ()
    if wish.cpus is not None:
        core = _named('--cpus', wish.cpus, mine)
    elif not used & mine:
        raise errors.ConfigError(
            f'the workload runs on the CPUs {format_cpus(used)}, of which '
            f'this shell may use none ({format_cpus(mine)}): name --cpus, or '
            'start it elsewhere (taskset, cpuset)')
    elif workload is None:
        core = tuple(sorted(used))
        beside = _choose_beside(core, mine - used)
    elif used >= (online_cpus.read() or online_cpus.counted()):
        # It is not pinned, and goes where the kernel is not.
        core = session.choose_cpus(None)
    else:
        core = tuple(sorted(used & mine))
    if wish.beside_cpus is not None:
        beside = _named('--beside-cpus', wish.beside_cpus, mine)
    return Cpus(core, beside or core, tuple(sorted(used)))


def _named(option: str, text: str, mine: set[int]) -> tuple[int, ...]:
    cpus = session.choose_cpus(text, option=option)
    if not mine.issuperset(cpus):
        raise errors.ConfigError(
            f'{option} {text}: this shell may use the CPUs '
            f'{format_cpus(mine)} only (taskset, cpuset)')
    return cpus


def _choose_beside(core: tuple[int, ...], others: set[int]) -> tuple[int, ...]:
    """As many other CPUs; first those that share the last-level cache, last
    those that share a core."""
    near = geometry.find_neighbours(core[0])
    siblings = {geometry.find_sibling(cpu) for cpu in core}
    return tuple(sorted(sorted(others, key=lambda cpu: (
        cpu in siblings, cpu not in near, -cpu))[:len(core)]))
