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


"""Limits that came with a domain: from another host, or out of a save.

Whoever set them had a lease where he was.  Our record in the domain says
what was there before; by it the limit is lifted in the domain as it runs,
and, where Nova made the live definition the persistent one, in that.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
import logging
import threading

from scavenger_openstack.drivers import domain_keeper
from scavenger_openstack.drivers import domain_knobs
from scavenger_openstack.drivers import domain_record
from scavenger_openstack.drivers import libvirt
from scavenger_openstack import errors
from scavenger_openstack.types import Knob

LOG = logging.getLogger(__name__)


class Lifter:
    """Lifts them, each domain in a thread: one may hang.

    :param ours: whether we hold a knob of a domain by now: while a call
        hung, it may have been started anew
    """

    def __init__(self, connection: libvirt.Libvirt,
                 keeper: domain_keeper.Keeper,
                 ours: Callable[[str, Knob], bool]) -> None:
        self._libvirt = connection
        self._keeper = keeper
        self._ours = ours
        self._mutex = threading.Lock()
        self._busy: set[str] = set()
        self._said: dict[str, str] = {}
        self._closed = False

    def lift(self, uuid: str, knobs: Collection[Knob]) -> None:
        """Begin to lift these, unless that domain is being seen to."""
        with self._mutex:
            if uuid in self._busy or self._closed:
                return
            self._busy.add(uuid)
        threading.Thread(target=self._run, args=(uuid, knobs), daemon=True,
                         name='domain-lifter').start()

    def close(self) -> None:
        """Begin nothing more."""
        self._closed = True

    def _run(self, uuid: str, knobs: Collection[Knob]) -> None:
        try:
            with self._libvirt.domain(uuid) as handle:
                handle.check_idle()
                self._lift(uuid, knobs, handle)
            self._said.pop(uuid, None)
        except errors.WorkloadGone:
            self._said.pop(uuid, None)
            self._keeper.changed(uuid)
        except (errors.DriverError, ValueError) as exc:
            if self._said.get(uuid) != str(exc):
                LOG.warning('domain %s came with a limit that is not ours; '
                            'it is not lifted yet, the next tick tries '
                            'again: %s', uuid, exc)
            self._said[uuid] = str(exc)
        except Exception:
            LOG.exception('domain %s: unexpected failure', uuid)
        finally:
            with self._mutex:
                self._busy.discard(uuid)

    def _lift(self, uuid: str, knobs: Collection[Knob],
              handle: libvirt.Handle) -> None:
        snapshot = self._keeper.refresh(uuid, handle.look)
        if snapshot is None:
            return
        inactive = domain_record.find(handle.inactive()).records
        lifted = []
        for knob in knobs:
            if knob not in snapshot.records or self._ours(uuid, knob):
                continue
            uri = domain_record.uri(knob)
            for found, saved in ((snapshot.records, False), (inactive, True)):
                if found.get(knob) and not self._ours(uuid, knob):
                    domain_knobs.apply(handle, knob, domain_knobs.still_there(
                        snapshot, knob, found[knob]), inactive=saved)
            for found, saved in ((inactive, True), (snapshot.records, False)):
                if knob in found and not self._ours(uuid, knob):
                    handle.set_record(uri, domain_record.KEY, None,
                                      inactive=saved)
            lifted.append(knob)
        self._keeper.refresh(uuid, handle.look)
        if lifted:
            LOG.warning('domain %s (%s) came with a limit on %s and no lease '
                        'of ours, from another host or out of a save: '
                        'lifted', snapshot.domain.name, uuid,
                        ', '.join(lifted))
