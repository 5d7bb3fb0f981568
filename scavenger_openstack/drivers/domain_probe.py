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

"""How a domain stands, as libvirt says: such a call may hang itself."""

from __future__ import annotations

from collections.abc import Callable
import enum
import logging
import threading
from typing import Any

from scavenger_openstack.drivers import domain_handle
from scavenger_openstack.drivers import libvirt
from scavenger_openstack import errors

LOG = logging.getLogger(__name__)

MAX_HANGING = 4
"""So many calls may hang; more would take libvirtd's threads from Nova."""


class How(enum.Enum):
    """How a domain stands."""

    FINE = enum.auto()
    HELD_UP = enum.auto()
    """Its QEMU does not answer, or a job holds it."""
    HAS_JOB = enum.auto()
    GONE = enum.auto()
    UNKNOWN = enum.auto()
    """It has to be asked about again."""


class Call:
    """A call to libvirt in a thread of its own."""

    def __init__(self, do: Callable[[], Any]) -> None:
        self.done = threading.Event()
        self.found: Any = None
        self.error: errors.DriverError | None = None
        threading.Thread(target=self._run, args=(do,), daemon=True,
                         name='libvirt-contact-call').start()

    def _run(self, do: Callable[[], Any]) -> None:
        try:
            self.found = do()
        except errors.DriverError as exc:
            self.error = exc
        except Exception:
            LOG.exception('libvirt: unexpected failure')
        finally:
            self.done.set()


class Probe:
    """Asks how domains stand; used by one thread.

    :param timeout_s: how long an answer may take
    :param reach: comes back when libvirt answers, and tells whether it did
        so at once
    """

    def __init__(self, connection: libvirt.Libvirt, timeout_s: float,
                 reach: Callable[[], bool]) -> None:
        self._libvirt = connection
        self._timeout_s = timeout_s
        self._reach = reach
        self._hanging: dict[str, Call] = {}

    def how(self, uuid: str) -> How:
        """How a domain stands; one that a call hangs on is not asked about
        by another."""
        self._hanging = {who: call for who, call in self._hanging.items()
                         if not call.done.is_set()}
        if uuid in self._hanging:
            return How.HELD_UP
        if len(self._hanging) >= MAX_HANGING:
            return How.UNKNOWN
        call = Call(lambda: self._look(uuid))
        if not call.done.wait(self._timeout_s):
            self._hanging[uuid] = call
            # Does it alone keep us waiting?
            return How.HELD_UP if self._reach() else How.UNKNOWN
        if isinstance(call.error, domain_handle.Busy):
            return How.HAS_JOB
        if isinstance(call.error, errors.WorkloadGone):
            return How.GONE
        if isinstance(call.error, libvirt.Unreachable):
            return How.UNKNOWN
        return call.found or How.FINE   # whatever else it says: it answers

    def _look(self, uuid: str) -> How:
        with self._libvirt.domain(uuid) as handle:
            if handle.occupied():
                return How.HELD_UP
            handle.check_idle()
        return How.FINE
