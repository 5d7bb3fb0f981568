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

import logging
import threading

from scavenger_openstack.drivers import domain_keeper
from scavenger_openstack.drivers import domain_knobs
from scavenger_openstack.drivers import domain_record
from scavenger_openstack.drivers import libvirt
from scavenger_openstack import errors

LOG = logging.getLogger(__name__)


class Lifter:
    """Lifts them, each domain in a thread: one may hang."""

    def __init__(self, connection: libvirt.Libvirt,
                 keeper: domain_keeper.Keeper) -> None:
        self._libvirt = connection
        self._keeper = keeper
        self._mutex = threading.Lock()
        self._busy: set[str] = set()
        self._said: dict[str, str] = {}
        self._closed = False

    def lift(self, uuid: str) -> None:
        """Begin, unless that domain is being seen to already."""
        with self._mutex:
            if uuid in self._busy or self._closed:
                return
            self._busy.add(uuid)
        threading.Thread(target=self._run, args=(uuid,), daemon=True,
                         name='domain-lifter').start()

    def close(self) -> None:
        """Begin nothing more."""
        self._closed = True

    def _run(self, uuid: str) -> None:
        try:
            with self._libvirt.domain(uuid) as handle:
                handle.check_idle()
                self._lift(uuid, handle)
            self._said.pop(uuid, None)
        except errors.WorkloadGone:
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

    def _lift(self, uuid: str, handle: libvirt.Handle) -> None:
        snapshot = self._keeper.refresh(uuid, handle.look)
        if snapshot is None:
            return
        inactive = domain_record.find(handle.inactive()).records
        lifted = []
        for knob, values in snapshot.records.items():
            if values:
                domain_knobs.apply(handle, knob, domain_knobs.still_there(
                    snapshot, knob, values))
            if inactive.get(knob):
                domain_knobs.apply(handle, knob, domain_knobs.still_there(
                    snapshot, knob, inactive[knob]), inactive=True)
            if knob in inactive:
                handle.set_record(domain_record.uri(knob), domain_record.KEY,
                                  None, inactive=True)
            handle.set_record(domain_record.uri(knob), domain_record.KEY,
                              None)
            lifted.append(knob)
        self._keeper.refresh(uuid, handle.look)
        if lifted:
            LOG.warning('domain %s (%s) came with a limit on %s and no lease '
                        'of ours, from another host or out of a save: '
                        'lifted', snapshot.domain.name, uuid,
                        ', '.join(lifted))
