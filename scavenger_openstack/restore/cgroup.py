# SPDX-License-Identifier: Apache-2.0

"""Restore actions that write files of cgroups; standard library only.

An action is the write of a known text to a known file (:data:`FILES`) of a
directory that lies strictly below a cgroup mount and still has the recorded
inode.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import errno
import os
import re

from scavenger_openstack.restore import cpuset
from scavenger_openstack.restore import files
from scavenger_openstack.restore.files import DIRECTORY
from scavenger_openstack.restore import grammar
from scavenger_openstack.restore.grammar import device_row
from scavenger_openstack.restore.grammar import Gone
from scavenger_openstack.restore.grammar import pairs
from scavenger_openstack.restore.grammar import parse_cpus
from scavenger_openstack.restore.grammar import Refused
from scavenger_openstack.restore.grammar import RestoreAction
from scavenger_openstack.restore.grammar import RestoreError
from scavenger_openstack.restore import mount_table

MAX_DEPTH = 64
_CPUS = '[0-9]{1,4}(?:-[0-9]{1,4})?'
CPUS = f'(?:{_CPUS}(?:,{_CPUS})*)?'
_IO = '(?:[rw]bps|[rw]iops)=(?:max|[0-9]{1,20})'
_THROTTLE = {f'blkio.throttle.{way}_{unit}_device': '[0-9]{1,20}'
             for way in ('read', 'write') for unit in ('bps', 'iops')}
FILES: Mapping[str, Mapping[str, str]] = {
    'cgroup': {
        'cpu.cfs_quota_us': '-1|[0-9]{1,16}',
        'cpu.cfs_period_us': '[0-9]{1,9}',
        'cpu.shares': '[0-9]{1,7}',
        'cpu.idle': '[01]',
        'cpuset.cpus': CPUS,
        'memory.limit_in_bytes': '-1|[0-9]{1,20}',
        'freezer.state': 'THAWED|FROZEN',
        **_THROTTLE},
    'cgroup2': {
        'cpu.max': '(?:max|[0-9]{1,16}) [0-9]{1,9}',
        'cpu.weight': '[0-9]{1,5}',
        'cpu.idle': '[01]',
        'cpuset.cpus': CPUS,
        'memory.high': 'max|[0-9]{1,20}',
        'memory.max': 'max|[0-9]{1,20}',
        'io.max': f'{_IO}(?: {_IO}){{0,3}}',
        'cgroup.freeze': '[01]'}}
"""File system type -> file -> pattern of the whole text."""
_ANY = {**FILES['cgroup'], **FILES['cgroup2']}
"""A file that both have takes the same text in both."""
_DEVICE = '[0-9]{1,4}:[0-9]{1,7}'
_PAGE = os.sysconf('SC_PAGE_SIZE')
_UNLIMITED_PAGES = (2 ** 63 - 1) // _PAGE
_HINTS = {
    errno.EROFS: 'mount the cgroup tree read-write',
    errno.EACCES: 'run as root; a CPU set must fit in that of its parent',
    errno.EPERM: 'run as root',
    errno.EBUSY: 'the kernel is not ready for it yet',
    errno.EINVAL: 'compare with the limits of the parent cgroup',
    errno.ENOENT: 'mount its controller again'}

Mount = tuple[str, str, int]
"""Mount point, file system type, device number."""

Held = Callable[[], Collection[tuple[object, object]]]
"""Files, with the inodes of their directories, that are still to be
restored."""


def mounts(kinds: Collection[str] = tuple(FILES)) -> list[Mount]:
    """Return where cgroup hierarchies, or file systems of other ``kinds``, are
    mounted, the shortest path first."""
    return sorted(((row.point, row.kind,
                    os.makedev(*map(int, row.device.split(':'))))
                   for row in mount_table.visible(kinds)),
                  key=lambda mount: len(mount[0]))


def check(action: RestoreAction) -> None:
    """Hold an action against the closed set, whatever is mounted now.

    :raises Refused: it is not in it.
    """
    grammar.only(action, {'do', 'dir', 'inode', 'file', 'text', 'device'})
    grammar.text(action, 'dir', '(?:/[^/\0\n]+)+')
    grammar.number(action, 'inode')
    if {'.', '..'} & set(action['dir'].split('/')):
        raise Refused(f'dir {action["dir"]!r:.99} is not a plain path')
    grammar.text(action, 'file', '|'.join(map(re.escape, _ANY)))
    grammar.text(action, 'text', _ANY[action['file']])
    if action['file'] == 'cpuset.cpus':
        grammar.cpus(action['text'])
    if action['file'] in _THROTTLE or action['file'] == 'io.max':
        grammar.text(action, 'device', _DEVICE)
    elif 'device' in action:
        raise Refused(f'{action["file"]} takes no device')


def validate(action: RestoreAction, mounts: Sequence[Mount]) -> None:
    """Hold an action against the cgroup mounts.

    A mount may be missing for a while (early in the boot, in a mount
    namespace): that is no reason to refuse for ever.  A directory that is
    there, and in no cgroup mount, is one.

    :raises Refused: no cgroup is meant.
    """
    path = action['dir']
    mount = _mounted(path, mounts)
    if mount is None:
        if os.path.lexists(path) or any(path == mount[0] for mount in mounts):
            raise Refused(f'dir {path!r:.99} is not below a cgroup mount')
    elif action['file'] not in FILES[mount[1]]:
        raise Refused(f'{mount[1]} has no file {action["file"]!r:.99}')


def _mounted(path: str, mounts: Sequence[Mount]) -> Mount | None:
    for mount in reversed(mounts):      # one may lie on another
        if path.startswith(mount[0].rstrip('/') + '/'):
            return mount
    return None


def mount_of(path: str, mounts: Sequence[Mount]) -> Mount:
    """The mount that a directory of an action lies below.

    :raises RestoreError: none now; it may come back.
    """
    mount = _mounted(path, mounts)
    if mount is None:
        raise RestoreError(f'{path} lies below no cgroup mount now: mount '
                           'that hierarchy again, at the same place')
    return mount


def same(action: RestoreAction, got: str) -> bool:
    """Whether a file that reads ``got`` holds what the action wants."""
    file, text = action['file'], action['text']
    if 'device' in action:
        lines = got.split('\n')
        if file == 'io.max':
            # The other limits of the line are other knobs.
            now = pairs(dict(map(device_row, lines)).get(action['device'],
                                                         ''))
            return all(now.get(key, 'max') == value
                       for key, value in pairs(text).items())
        by_device = dict(line.partition(' ')[::2] for line in lines)
        return int(by_device.get(action['device']) or 0) == int(text)
    if file == 'cpuset.cpus':
        return parse_cpus(text) == parse_cpus(got)
    if file.startswith('memory.') and 'max' not in (text, got):
        return _pages(text) == _pages(got)
    return bool(text == got)


def _pages(text: str) -> int:
    pages = int(text) // _PAGE
    return _UNLIMITED_PAGES if text == '-1' else min(pages, _UNLIMITED_PAGES)


def follow(actions: Sequence[RestoreAction]) -> list[RestoreAction]:
    """Return actions with the present paths of their directories: version 1
    lets a cgroup be renamed, and its limits stay.

    :param actions: parents before their children
    """
    moved: dict[str, str] = {}
    followed = []
    for action in actions:
        if action['do'] == 'write':
            above, name = os.path.split(action['dir'])
            above = moved.get(above, above)
            path = f'{above}/{name}'
            try:
                found = os.lstat(path).st_ino
            except OSError:
                found = 0
            with contextlib.suppress(OSError), os.scandir(above) as entries:
                path = path if found == action['inode'] else next((
                    entry.path for entry in entries
                    if entry.inode() == action['inode'] and entry.is_dir(
                        follow_symlinks=False)), path)
            moved[action['dir']] = path
            action = {**action, 'dir': path}
        followed.append(action)
    return followed


def inode(action: RestoreAction) -> int:
    """The directory whose CPU set the action restores; 0: it restores none."""
    return action['inode'] if action.get('file') == 'cpuset.cpus' else 0


def run(action: RestoreAction, mounts: Sequence[Mount], *,
        named: Collection[int] = frozenset(), capped: str = '',
        remember: Callable[[str], object] = str,
        held: Held = frozenset) -> bool:
    """Write what a valid action says and read it back; return whether it
    changed a thing.

    v1 takes no CPU set with CPUs that are offline, or that were and so are
    missing in the parent's set, or that a cgroup beside this one has to
    itself: of such a set those are restored that can be; all that the parent
    can give, if none of them can.  v2 takes CPUs that a cgroup beside this
    one has as a partition, and ends the partition: those are left out in the
    same way.  v1 takes no memory limit above that of memory and swap, and no
    quota above that of a cgroup around: the highest that it takes is written.
    What is in ``held`` is still to be restored: it limits nothing.

    A v1 CPU set passes to groups made below it while it was capped.  Those
    whose inode is not in ``named`` and whose set equals the capped one get
    their parent's set.  ``remember`` is called with the capped set before
    it is lost, ``capped`` is what it was told by a try that did not end.

    :raises Gone: the action's object is no longer there.
    :raises RestoreError: it does not read back as the original, or its
        cgroup mount is missing now.
    :raises Refused: the path leads somewhere else.
    """
    where = f'{action["dir"]}/{action["file"]}'
    kind = mount_of(action['dir'], mounts)[1]
    directory = None
    try:
        directory = _enter(action, mounts)
        subtree = inode(action) and kind == 'cgroup'
        if inode(action) and not subtree:
            action = {**action, 'text': cpuset.nearest(
                directory, action['text'], 2)}
        was = _read(directory, action['file'])
        changed = not same(action, was)
        if changed:
            if subtree:
                remember(was)
            action = _put(directory, action, named, held)
            got = _read(directory, action['file'])
            if not same(action, got):
                raise RestoreError(
                    f'{where} reads {got!r:.99} after {action["text"]!r} was '
                    'written: see what else writes it')
        if subtree:
            sets = [parse_cpus(text)
                    for text in {capped, was if changed else ''} if text]
            changed |= _widen(directory, sets, action['text'], named, held)
        return changed
    except (OSError, ValueError) as exc:
        _still_there(action, mounts)
        code = getattr(exc, 'errno', None)
        if code == errno.ENODEV and 'device' in action:
            raise Gone(f'{action["device"]} is no disk of this host any '
                       'more') from None
        if code == errno.ENOENT and kind == 'cgroup2':
            raise Gone(f'{where} went with its controller, and the limit '
                       'with both') from None
        raise RestoreError(
            f'{where} does not take {action["text"]!r} '
            f'({os.strerror(code) if code else exc}): '
            f'{_HINTS.get(code or 0, "see the kernel log")}') from exc
    finally:
        if directory is not None:
            os.close(directory)


def _put(directory: int, action: RestoreAction, named: Collection[int],
         held: Held) -> RestoreAction:
    """Write what the action says; return the action as the kernel takes it.
    """
    device, text = action.get('device', ''), action['text']
    try:
        files.write(directory, action['file'], f'{device} {text}'.strip())
    except OSError as exc:
        nearest = _nearest(directory, action, named, held, exc.errno)
        if nearest is None:
            raise
        text = nearest
        files.write(directory, action['file'], text)
    return {**action, 'text': text}


def _nearest(directory: int, action: RestoreAction, named: Collection[int],
             held: Held, refused: int | None) -> str | None:
    """Return what the kernel takes instead of a text that it refused, by the
    limits of others that stay; ``None`` for no other."""
    file, text = action['file'], action['text']
    if file == 'cpuset.cpus' and refused in (errno.EINVAL, errno.EACCES):
        above = os.stat('..', dir_fd=directory).st_ino
        if refused == errno.EACCES and (file, above) in held():
            return None
        return cpuset.nearest(directory, text, 1, named)
    if file == 'memory.limit_in_bytes' and refused == errno.EINVAL:
        try:
            most = files.read(directory, 'memory.memsw.limit_in_bytes')
        except FileNotFoundError:
            return None
        return most if _pages(most) < _pages(text) else None
    if file == 'cpu.cfs_quota_us' and refused == errno.EINVAL:
        return _quota_around(directory, int(text), held)
    return None


def _quota_around(directory: int, quota: int, held: Held) -> str | None:
    """The quota that those of the cgroups around an open one leave it; none
    while one of these is to be restored, too."""
    period = int(files.read(directory, 'cpu.cfs_period_us'))
    most = quota
    with contextlib.ExitStack() as opened:
        while True:
            directory = os.open('..', DIRECTORY, dir_fd=directory)
            opened.callback(os.close, directory)
            try:
                parent_quota_us = int(files.read(directory,
                                                 'cpu.cfs_quota_us'))
                parent_period_us = int(files.read(directory,
                                                  'cpu.cfs_period_us'))
            except FileNotFoundError:       # the root
                break
            if 0 < parent_quota_us * period < quota * parent_period_us:
                if ('cpu.cfs_quota_us', os.fstat(directory).st_ino) in held():
                    return None
                most = min(most,
                           parent_quota_us * period // parent_period_us)
    return str(most) if most < quota else None


def _enter(action: RestoreAction, mounts: Sequence[Mount]) -> int:
    """Open the action's directory, following nothing on the way."""
    path = action['dir']
    point, _, device = mount_of(path, mounts)
    fd = os.open(point, DIRECTORY)
    try:
        for part in path[len(point):].strip('/').split('/'):
            above, fd = fd, os.open(part, DIRECTORY, dir_fd=fd)
            os.close(above)
        info = os.fstat(fd)
        if info.st_dev != device:
            raise Refused(f'{path} is not on the cgroup mount {point}')
        if info.st_ino != action['inode']:
            raise Gone(f'{path} was deleted and made again')
    except BaseException as exc:
        os.close(fd)
        code = getattr(exc, 'errno', None)
        if code == errno.ENOENT:
            raise Gone(f'{path} is no longer there') from None
        if code in (errno.ENOTDIR, errno.ELOOP):
            raise Refused(f'{path} leads over something that is not a '
                          'directory') from None
        raise
    return fd


def _still_there(action: RestoreAction, mounts: Sequence[Mount]) -> None:
    try:
        os.close(_enter(action, mounts))
    except OSError:
        pass        # the error that made us look again says more


def _read(directory: int, file: str) -> str:
    if file == 'freezer.state':     # its own state, whatever its parent's is
        own = files.read(directory, 'freezer.self_freezing')
        return 'THAWED' if own == '0' else 'FROZEN'
    return files.read(directory, file)


def _widen(directory: int, capped: Collection[frozenset[int]], text: str,
           named: Collection[int], held: Held, depth: int = 0) -> bool:
    """Give groups below that have a ``capped`` set that of their parent.

    Not below :data:`MAX_DEPTH`: what nests deeper would have us fail.
    """
    changed = False
    if depth > MAX_DEPTH:
        return False
    with os.scandir(directory) as entries:
        names = [entry.name for entry in entries
                 if entry.is_dir(follow_symlinks=False)]
    for name in names if capped else []:
        try:
            child = os.open(name, DIRECTORY, dir_fd=directory)
        except FileNotFoundError:
            continue
        try:
            if os.fstat(child).st_ino in named:
                continue
            own = _read(child, 'cpuset.cpus')
            cpus = parse_cpus(own)
            if cpus in capped and cpus != parse_cpus(text):
                own = _put(child, {'file': 'cpuset.cpus', 'text': text},
                           named, held)['text']
                changed = True
            changed |= _widen(child, capped, own, named, held, depth + 1)
        except OSError as exc:
            if exc.errno not in (errno.ENODEV, errno.ENOENT):
                raise
        finally:
            os.close(child)
    return changed
