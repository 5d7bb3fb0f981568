# SPDX-License-Identifier: Apache-2.0


"""The turns of a watcher, told to the agent and to systemd.

Standard library only.
"""

from __future__ import annotations

from scavenger_openstack.restore import abilities
from scavenger_openstack.restore import grammar
from scavenger_openstack.restore import messages
from scavenger_openstack.restore.records import now_s
from scavenger_openstack.restore import state_directory
from scavenger_openstack.restore import watcher

FIRST_TRY_S = 2.0
"""So long the first word waits for what can be restored."""


class Beat:
    """Tells the agent and systemd that the watcher turns.

    Only the loop that restores calls it, between two leases at the latest:
    one that is stuck is silent.
    """

    def __init__(self, state: state_directory.StateDir, say: messages.Say
                 ) -> None:
        self._state, self._say = state, say
        self._prober = abilities.Prober()
        self._wanted = watcher.Wanted()
        self._due_s = 0.0
        self._shown: object = None
        self._asked: object = None
        self._kinds: list[str] = []
        self._ready = False

    def turn(self, *, passed: bool = False) -> None:
        """Publish, if it is time to or there is news.

        :param passed: a whole pass over the leases has ended
        """
        if why := self._prober.begin():
            self._say.problem('threads', f'no thread can be started ({why}): '
                              'limits are restored, and no other is set until '
                              'there is one; ' + grammar.MORE_TASKS)
        else:
            self._say.problems.pop('threads', None)
        first = passed and not self._ready
        if first:
            self._ready = True
            self._prober.first.wait(FIRST_TRY_S)
        kinds, now = self._prober.known(), now_s()
        news = kinds is not self._shown or (
            self._state.watcher >= 0 and self._state.publisher is None)
        if now < self._due_s and not (news or first):
            return
        self._due_s, self._shown = now + watcher.BEAT_S, kinds
        if self._state.watcher >= 0:
            wanted = self._wanted.read(self._state.fd)
            if wanted is not self._asked:
                self._asked = wanted
                self._kinds = abilities.valid(wanted)
                self._prober.want(self._kinds)
        try:
            if self._state.watcher >= 0:
                if self._state.publisher is None:
                    self._state.publisher = watcher.Publisher(self._state.fd)
                self._state.publisher.beat(kinds, now)
            self._say.problems.pop('beat', None)
        except OSError as exc:
            self._say.problem('beat', f'{self._state.path}/{watcher.NAME}: '
                              f'{exc}; the agent sets no limit without it')
        if self._ready:
            messages.notify(b'READY=1\nWATCHDOG=1' if first else b'WATCHDOG=1')
        else:
            messages.starting()

    @property
    def settled(self) -> bool:
        """Whether all that the agent asked for was tried and published."""
        answers = self._prober.known()
        return answers is self._shown and all(
            kind in answers for kind in self._kinds)
