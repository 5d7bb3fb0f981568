# SPDX-License-Identifier: Apache-2.0

"""What a watcher can restore: the kinds of limits, and how each is tried.

A kind is a text of three words: what is written, the identity of where, and
its name.  ``cgroup 29:1 /sys/fs/cgroup/cpu`` is that mount of that hierarchy,
``resctrl 30:1 /sys/fs/resctrl`` that of resctrl,
``domain 4026531836 qemu:///system`` a libvirtd as seen from that PID
namespace, and ``net 4026531840`` the devices of that network namespace, or of
one that has the name which follows.  With the identity in it, what a watcher
can restore in another namespace is another kind.  Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import itertools
import os
import re
import threading
import time
from typing import NamedTuple

from scavenger_openstack.restore import cgroup
from scavenger_openstack.restore import grammar
from scavenger_openstack.restore.grammar import RestoreAction
from scavenger_openstack.restore.grammar import RestoreError
from scavenger_openstack.restore import network
from scavenger_openstack.restore import resctrl
from scavenger_openstack.restore import virsh

MOST_WANTED = 1000
"""So many kinds are tried for an agent, besides the cgroup mounts: one is a
network namespace whose devices are limited."""
AGAIN_S = {'cgroup': 10.0, 'resctrl': 10.0, 'domain': 120.0, 'net': 300.0}
"""What worked is tried again after so long: until then a watcher counts as one
that can.  To open a file costs next to nothing, to start virsh 15 ms of CPU
time."""
RETRY_S = 2.0
"""What failed is tried again after so long, then after twice that, up to"""
MAX_RETRY_S = 60.0
MOUNTS_S = 30.0
"""New cgroup mounts are looked for so often."""
HANGS_S = 120.0
"""When nothing was tried for so long, a try hangs: nothing is known."""
_WANTED = re.compile(r'(?:cgroup|resctrl) \d{1,20}:\d{1,20} (?:/[^/\0\n]+)+'
                     rf'|domain \d{{1,20}} {grammar.URI}'
                     rf'|net \d{{1,20}} {network.NETNS}')
_NOTHING: Mapping[str, str] = {}
_NEVER = '192.0.2.1'
"""An address that no host has (RFC 5737)."""


def of_action(action: RestoreAction, mounts: Sequence[cgroup.Mount]) -> str:
    """The kind of a valid restore action, as seen from here.

    :raises RestoreError: its cgroup mount is missing.
    """
    if action['do'] == 'write':
        return of_mount(cgroup.mount_of(action['dir'], mounts)[0])
    if action['do'] == 'resctrl':
        return of_mount(action['dir'], 'resctrl')
    if action['do'] == 'domain':
        return of_libvirt(action['uri'])
    return of_network(action['netns'])


def of_mount(point: str, what: str = 'cgroup') -> str:
    """The kind of what is written below a mount of cgroups or of resctrl.

    :raises RestoreError: it is gone.
    """
    try:
        info = os.stat(point)
    except OSError as exc:
        raise RestoreError(f'{what} mount {point}: {exc.strerror}') from None
    return f'{what} {info.st_dev}:{info.st_ino} {point}'


def of_libvirt(uri: str) -> str:
    """The kind of the limits of VMs at a libvirtd."""
    return f'domain {_namespace("pid")} {uri}'


def of_network(netns: str = '') -> str:
    """The kind of limits on devices, of a named network namespace or ours."""
    return f'net {_namespace("net")} {netns}'


def valid(kinds: object) -> list[str]:
    """Return what another process wants, as far as these are kinds of limits;
    only the first ones, if there are too many."""
    listed = kinds if isinstance(kinds, list) else []
    return list(itertools.islice((
        kind for kind in listed if isinstance(kind, str)
        and len(kind) <= 4096 and _WANTED.fullmatch(kind)), MOST_WANTED))


def named(kind: str) -> str:
    """The limits of a kind, for people."""
    what, _, name = kind.split(' ', 2)
    if what == 'cgroup':
        return f'limits below {name}'
    if what == 'resctrl':
        return f'limits of last-level caches ({name})'
    if what == 'domain':
        return f'limits of VMs at {name}'
    return ('limits of network devices'
            + (f' in network namespace {name}' if name else ''))


def why_not(kind: str) -> str:
    """Try it, and change nothing: why a kind cannot be restored from here,
    '' when it can."""
    what, where, name = kind.split(' ', 2)
    if what == 'cgroup':
        return _why_not_mount(kind, name, cgroup.mounts(), 'cgroup.procs')
    if what == 'resctrl':
        return _why_not_mount(kind, name, resctrl.mounts(), 'tasks')
    if where != str(_namespace('pid' if what == 'domain' else 'net')):
        return ('scavenger-restore runs in another '
                f'{"PID" if what == "domain" else "network"} namespace than '
                'the agent; run both in that of the host')
    if what == 'domain':
        try:
            with virsh.SESSIONS.use(name):
                return ''
        except virsh.VirshError as exc:
            return (f'virsh -c {name} says {str(exc)!r:.199}; let the user '
                    f'of scavenger-restore (uid {os.geteuid()}) run it')
    shown = network.tool('tc', name, 'qdisc', 'show', 'dev', 'lo')
    # The kernel looks at the permission before it looks for the neighbour.
    done = network.tool('ip', name, 'neigh', 'del', _NEVER, 'dev', 'lo')
    if shown.returncode or 'not permitted' in done.stderr:
        fault = (shown.stderr if shown.returncode else done.stderr).strip()
        return (f'tc and ip say {fault!r:.199}; see the capabilities of '
                'scavenger-restore')
    return ''


def _why_not_mount(kind: str, point: str, mounts: Sequence[cgroup.Mount],
                   file: str) -> str:
    """Return why a mount cannot be written to, '' if it can; ``file`` is one
    that is in it."""
    hint = ('; mount it, writable, in the mount namespace of '
            'scavenger-restore')
    try:
        if (point not in [mount[0] for mount in mounts]
                or of_mount(point, kind.partition(' ')[0]) != kind):
            return f'scavenger-restore has not that hierarchy there{hint}'
        os.close(os.open(f'{point}/{file}', os.O_WRONLY | os.O_CLOEXEC
                         | os.O_NONBLOCK | os.O_NOFOLLOW))
    except (OSError, RestoreError) as exc:
        return f'{exc}{hint}'
    return ''


def _namespace(what: str) -> int:
    return os.stat(f'/proc/self/ns/{what}').st_ino


class Tried(NamedTuple):
    """What came of the last try, and when the next one is due (monotonic);
    ``failed`` counts the failures since the last success."""

    why: str
    due_s: float
    failed: int = 0


class Prober(threading.Thread):
    """Tries each kind now and then: a try may hang, so not in the loop that
    restores.

    ``answers`` is replaced, never changed: kind -> why not, '' for it can.
    """

    def __init__(self) -> None:
        super().__init__(name='prober', daemon=True)
        self.answers: Mapping[str, str] = {}
        self.first = threading.Event()
        """Set when all has been tried once."""
        self._wanted: Sequence[str] = ()
        self._wake = threading.Event()
        self._tried: dict[str, Tried] = {}
        self._seen_s = time.monotonic()

    def begin(self) -> str:
        """Start, unless it has; return why not, where no thread can be
        started: a later call tries again."""
        try:
            if self.ident is None:
                self.start()
        except RuntimeError as exc:
            return str(exc)
        return ''

    def want(self, kinds: Sequence[str]) -> None:
        """Try these besides the cgroup mounts."""
        if list(kinds) != list(self._wanted):
            self._wanted = list(kinds)
            self._wake.set()

    def known(self) -> Mapping[str, str]:
        """``answers``, or nothing while a try hangs."""
        return (self.answers
                if time.monotonic() - self._seen_s < HANGS_S else _NOTHING)

    def run(self) -> None:
        while True:
            self._wake.clear()
            self._round([*_own(), *self._wanted])
            self.first.set()
            due_s = min((tried.due_s for tried in self._tried.values()),
                        default=0.0)
            self._wake.wait(max(0.0, min(due_s - time.monotonic(),
                                         MOUNTS_S)) or RETRY_S)

    def _round(self, kinds: Iterable[str]) -> None:
        kinds = dict.fromkeys(kinds)
        self._tried = {kind: tried for kind, tried in self._tried.items()
                       if kind in kinds}
        for kind in kinds:
            self._seen_s = time.monotonic()
            old = self._tried.get(kind, Tried('not tried', 0.0))
            if self._seen_s >= old.due_s:
                self._tried[kind] = _try(kind, old)
                self._seen_s = time.monotonic()
                answers = {kind: tried.why
                           for kind, tried in self._tried.items()}
                if answers != self.answers:
                    self.answers = answers


def _own() -> list[str]:
    kinds = []
    try:
        for point, _, _ in cgroup.mounts():
            kinds.append(of_mount(point))
    except (OSError, RestoreError):
        pass            # the next round looks again
    return kinds


def _try(kind: str, old: Tried) -> Tried:
    try:
        why = why_not(kind)
    except Exception as exc:    # not to know is not to be able to
        why = f'{exc!s:.199}' or repr(exc)
    now_s = time.monotonic()
    if not why:
        return Tried('', now_s + AGAIN_S[kind.partition(' ')[0]])
    pause_s = min(MAX_RETRY_S, RETRY_S * 2 ** min(old.failed, 10))
    # One failure is none: libvirtd may be about to start again.
    shown = '' if not old.why and not old.failed else why
    return Tried(shown, now_s + pause_s, old.failed + 1)
