# SPDX-License-Identifier: Apache-2.0

"""Has the agent's metrics in its status, in a file and behind a listener."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import glob
import json
import os
import pathlib
import secrets
import time
from typing import Any
from typing import TYPE_CHECKING

from oslo_log import log

from scavenger_openstack.agent.lease import ownership
from scavenger_openstack.agent.loop import Tick
from scavenger_openstack.agent.metrics import page
from scavenger_openstack.agent.metrics.text_format import Row
from scavenger_openstack.agent.metrics import totals
from scavenger_openstack import errors
from scavenger_openstack.events import Event
from scavenger_openstack.log_once import LogOnce
from scavenger_openstack.metrics import options
from scavenger_openstack.restore import files
from scavenger_openstack.types import Cap
from scavenger_openstack.types import KnobKey
from scavenger_openstack import version

if TYPE_CHECKING:
    from scavenger_openstack.metrics import listener

LOG = log.getLogger(__name__)

EVERY_S = 5.0
"""How often they are made; Prometheus asks every 15 to 60 s."""

LEFT_S = 60.0
"""What is so old is no draft that another agent writes now."""


class Metrics:
    """The metrics of one agent.

    :param controllers: the names of those that run
    :param file: where they are written, '' for nowhere
    :param listen: where they are served, '' for nowhere
    :param instances: VMs that have metrics of their own, at most
    """

    def __init__(self, state_dir: pathlib.Path, lease_s: float,
                 controllers: Collection[str], *, file: str | None = '',
                 listen: str | None = '', instances: int = 0) -> None:
        self._totals = totals.Totals(controllers, instances)
        self._state = ownership.Ownership(state_dir)
        self._lease_s = lease_s
        self._path = file or ''
        # Another agent may write to the same path.
        self._draft = f'{self._path}.{os.getpid()}-{secrets.token_hex(4)}.new'
        self._is_tidy = False
        self._listen = listen or ''
        self._listener: listener.Listener | None = None
        self._logged = LogOnce()
        self._version = version()
        self._made_s = 0.0
        self._json = b'{}'
        self._page = b''
        self._document: Mapping[str, Any] = {}

    def happened(self, events: Iterable[Event]) -> None:
        """Count what happened in a tick."""
        self._totals.happened(events)

    def tick(self, tick: Tick, in_force: Mapping[KnobKey, Cap],
             document: Mapping[str, Any]) -> bytes:
        """Count a tick, and publish what is due; return the part of the
        status, in JSON.

        :param document: the status without limits and VMs
        """
        self._totals.tick(tick, in_force)
        if tick.time_s - self._made_s >= EVERY_S or not self._document:
            self._made_s, self._document = tick.time_s, document
            rows = self._rows(document)
            self._json = json.dumps(rows, separators=(',', ':')).encode()
            if self._path or self._listen:
                self._publish({
                    **document, 'metrics': rows,
                    'watcher': {'running': self._state.watched(
                        self._lease_s) is not None},
                    'refused': ownership.refused(self._state.path)})
        return self._json

    def end(self, left: Sequence[str]) -> None:
        """Publish that the agent has ended.  The file stays, so that its last
        tick grows old.

        :param left: the limits that were not removed
        """
        if self._document and self._path:
            self._totals.end()
            self._publish({
                **self._document, 'metrics': self._rows(self._document),
                'watcher': {'running': self._state.watched(
                    self._lease_s) is not None},
                'refused': left, 'would': (), 'incidents': ()})
        if self._listener is not None:
            self._listener.stop()

    def _rows(self, document: Mapping[str, Any]) -> dict[str, list[Row]]:
        grade = (document['grade'] or {}).get('letter', '')
        return {'agent_info': [[self._version, grade, 1]],
                'agent_cpu_seconds_total': [[round(time.process_time(), 3)]],
                **self._totals.rows(document['controllers'])}

    def _publish(self, document: Mapping[str, Any]) -> None:
        """Write the file and hand the listener its page; what fails is
        logged once, and tried again."""
        try:
            data = page.page(document)
        except errors.ScavengerError as exc:    # of a plug-in's facts
            if self._logged.due('page', str(exc)):
                LOG.warning('no metrics are published: %s; please report '
                            'this', exc)
            return
        if self._path:
            if not self._is_tidy:
                self._is_tidy = True
                _remove_left(self._path)
            try:
                files.replace(self._path, data, draft=self._draft, mode=0o644,
                              public=True)
            except OSError as exc:
                if self._logged.due('file', exc.errno):
                    LOG.warning('metrics_file %s is not written: %s; tried '
                                'again every %.0f s', self._path,
                                exc.strerror, EVERY_S)
            else:
                if self._logged.over('file'):
                    LOG.info('metrics_file %s is written again', self._path)
        if self._listen:
            self._page = data
            self._serve()

    def _serve(self) -> None:
        if self._listener is None:
            from scavenger_openstack.metrics import listener
            try:
                self._listener = listener.Listener(
                    *options.address(self._listen),
                    lambda: self._page)
            except (OSError, RuntimeError) as exc:
                if self._logged.due('listen', str(exc)):
                    LOG.warning('metrics_listen %s: nothing listens there: '
                                '%s; tried again every %.0f s', self._listen,
                                exc, EVERY_S)
                return
            self._logged.over('listen')
            LOG.info('metrics are served at http://%s/metrics', self._listen)


def _remove_left(path: str) -> None:
    """Remove the drafts that agents left which were killed."""
    with contextlib.suppress(OSError):
        for draft in glob.glob(f'{glob.escape(path)}.*-*.new'):
            if time.time() - os.lstat(draft).st_mtime > LEFT_S:
                os.unlink(draft)
