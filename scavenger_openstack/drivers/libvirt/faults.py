# SPDX-License-Identifier: Apache-2.0


"""What may not work in libvirt or a domain, and the words for it."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
import enum
import logging
import threading
import time
from typing import NamedTuple

from scavenger_openstack.types import KnobKey


class Message(NamedTuple):
    """What the status and the log say of a fault."""

    state: str
    text: str
    level: int = logging.WARNING


LOST = Message(
    'cannot be reached',
    'libvirt cannot be reached (%s); VMs are measured, and keep the limits '
    'that they have: none is set or removed until it answers; it is tried '
    'again')
HANGS = Message(
    'does not answer',
    'libvirt does not answer (%s); VMs are measured, and keep the limits '
    'that they have: none is set or removed until it does; see its log; VMs '
    'go on when it is restarted')
SLOWLY = Message(
    'is slow', 'libvirt is slow (%s): limits of VMs take more than %g s; '
    'see what else it does')
SILENT = Message(
    'does not answer',
    'domain %s: its QEMU does not answer, or a job holds it; its disks have '
    'no numbers, and its limits stay as they are until it does; see virsh '
    'domcontrol, virsh domjobinfo, and its storage')
SILENT_IDLE = Message(
    'does not answer',
    'domain %s: its QEMU does not answer, or a job holds it; our own limit '
    'cpu_idle may be the cause, since QEMU waits with its vCPUs on a busy '
    'host; its disks have no numbers, and its limits stay as they are until '
    'it does; if an exemption of the VM does not end this, see virsh '
    'domcontrol, virsh domjobinfo, and its storage')
BUSY = Message(
    'has a job',
    'domain %s migrates or is being saved; its limits stay as they are '
    'until that has ended', logging.DEBUG)


class DomainState(enum.Enum):
    """What libvirt says of a domain."""

    ANSWERS = enum.auto()
    HELD_UP = enum.auto()
    """Its QEMU does not answer, or a job holds it."""
    HAS_JOB = enum.auto()
    GONE = enum.auto()
    UNKNOWN = enum.auto()
    """It has to be asked about again."""


class PendingFault:
    """Something that did not work, the cause of which is not known yet.

    :param done: set when what is late comes back; ``None`` for what failed,
        as the ``message`` says
    :param reset: called when the message is dropped
    """

    def __init__(self, keys: Sequence[KnobKey], message: str = '',
                 done: threading.Event | None = None,
                 reset: Callable[[], object] = lambda: None) -> None:
        self.keys = tuple(keys)
        self.uuid = self.keys[0][0]
        self.message = message
        self.done = done
        self.reset = reset
        self.since_s = time.monotonic()

    @property
    def hangs(self) -> bool:
        return self.done is not None and not self.done.is_set()


class Fault:
    """What does not work in libvirt or a domain, for whatever reasons.

    :param quiet: whether it is no news, unless it lasts
    """

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.since_s = time.monotonic()
        self.reasons: set[object] = set()
        self.message: Message | None = None
        self.args: tuple[object, ...] = ()
        self.keys: set[KnobKey] = set()
