# SPDX-License-Identifier: Apache-2.0

"""No limit that only the agent could remove: what it asks of its watcher."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping

from oslo_log import log

from scavenger_openstack.agent.lease import ownership
from scavenger_openstack import errors
from scavenger_openstack import log_once
from scavenger_openstack.restore import abilities
from scavenger_openstack.restore import watcher

LOG = log.getLogger(__name__)


class Watched:
    """The kinds of limits that the watcher of one state directory can restore.

    Nothing is asked of it before the first :meth:`refresh`.
    """

    def __init__(self, state: ownership.Ownership, lease_s: float) -> None:
        self._state = state
        self._lease_s = lease_s
        self._answers: Mapping[str, str] | None = None
        self.can: frozenset[str] | None = None
        """What it can restore; ``None`` while nothing is asked of it."""
        self._wanted: list[str] = []
        self._written = True
        self._logged = log_once.LogOnce()

    def refresh(self) -> bool:
        """Whether there is one that turns; once per tick."""
        if not self._written and self._state.records >= 0:
            self.write()
        answers = self._state.watched(self._lease_s)
        if answers is not self._answers or self.can is None:
            self._answers = answers
            self.can = frozenset(kind for kind, why in (answers or {}).items()
                                  if not why)
        if answers is not None:
            for kind in self._wanted:
                self._report(kind, answers.get(kind))
        return answers is not None

    def missing(self, kinds: frozenset[str]) -> frozenset[str]:
        """Return the kinds that the watcher cannot restore."""
        return kinds - self.can if self.can is not None else frozenset()

    def require(self, kinds: frozenset[str]) -> None:
        """:raises NotRestorable: there are some that it cannot restore."""
        missing = self.missing(kinds)
        if missing:
            self.want(missing)
            raise errors.NotRestorable('; '.join(
                f'no {abilities.named(kind)} are set: scavenger-restore '
                + ((self._answers or {}).get(kind)
                   and f'cannot restore them: {(self._answers or {})[kind]}'
                   or ('has not tried yet whether it can restore them'
                       if kind in self._wanted[:abilities.MOST_WANTED] else
                       f'tries the first {abilities.MOST_WANTED} kinds of '
                       'limits that it is asked for, and this is a later one'))
                for kind in sorted(missing)))

    def want(self, kinds: Iterable[str]) -> None:
        """Have it try these, too; at once when the directory is ours."""
        more = [kind for kind in kinds if kind not in self._wanted]
        self._wanted += sorted(more)
        if more and self._state.records >= 0:
            self.write()

    def write(self) -> None:
        """Write what is wanted, for the watcher to find; what fails is tried
        again at each look."""
        try:
            watcher.write_wanted(self._state.path, self._wanted)
        except OSError as exc:
            if self._written:
                LOG.warning('%s/wanted cannot be written: %s; no limit is set '
                            'of a kind that scavenger-restore has not tried: '
                            'make that directory writable, with free space',
                            self._state.path, exc)
            self._written = False
        else:
            self._written = True

    def _report(self, kind: str, why: str | None) -> None:
        if why and self._logged.due(kind, why):
            LOG.warning('no %s are set, and those in force are removed: '
                        'scavenger-restore cannot restore them: %s',
                        abilities.named(kind), why)
        elif why == '' and self._logged.over(kind):
            LOG.info('scavenger-restore can restore %s again: they may be '
                     'set', abilities.named(kind))
