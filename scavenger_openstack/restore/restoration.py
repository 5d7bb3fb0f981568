# SPDX-License-Identifier: Apache-2.0


"""What is done with leases: each knob goes back to its original.

The agent does it, too, with what an earlier one left and with each limit
that it removes.  Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import contextlib
import functools
import os

from scavenger_openstack.restore import actions
from scavenger_openstack.restore.actions import Gone
from scavenger_openstack.restore.actions import Refused
from scavenger_openstack.restore.actions import RestoreError
from scavenger_openstack.restore import cgroup
from scavenger_openstack.restore import cpuset
from scavenger_openstack.restore.files import DIRECTORY
from scavenger_openstack.restore.messages import Say
from scavenger_openstack.restore import records
from scavenger_openstack.restore.records import boot_id
from scavenger_openstack.restore.records import Lease
from scavenger_openstack.restore import state_directory


def restore(lease: Lease, *, directory: int | None = None,
            mounts: Sequence[cgroup.Mount] | None = None,
            others: Iterable[Lease] = ()) -> bool:
    """Restore the original of a knob; return whether that changed anything.

    Every action is tried, in order, whatever became of those before it.
    ``directory`` holds the lease's file; ``mounts`` saves reading them;
    ``others`` are leases of which the knobs are to be restored, too.

    :raises Refused: an action is not in the closed set; nothing was done.
    :raises Gone: all that the lease names has died.
    :raises RestoreError: not everything reads back as the original.
    """
    mounts = cgroup.mounts() if mounts is None else mounts
    for action in lease.actions:
        actions.validate(action, mounts)
    named = {cgroup.inode(action) for action in lease.actions}
    pending = set(named)
    changed, gone, problems = False, [], []

    def held() -> set[tuple[object, object]]:
        files: set[tuple[object, object]] = {
            (action.get('file'), action.get('inode'))
            for other in others if other is not lease
            for action in other.actions}
        return files | {(cpuset.FILE, inode) for inode in pending}

    for index, action in enumerate(cgroup.follow(lease.actions)):
        capped = lease.note[1] if lease.note and lease.note[0] == index else ''
        try:
            changed |= actions.run(
                action, mounts, named=named, capped=capped,
                remember=functools.partial(records.remember, lease, index,
                                           directory),
                held=held)
            pending.discard(cgroup.inode(action))
        except Gone as exc:
            gone.append(str(exc))
        except RestoreError as exc:
            problems.append(str(exc))
    if problems:
        raise RestoreError('; '.join(problems))
    if len(gone) == len(lease.actions):
        raise Gone(gone[0])
    return changed


def prepare(leases: Iterable[Lease],
            progress: Callable[[], object] = bool) -> None:
    """Begin what takes a while, for all leases that are about to be
    restored: packets that wait behind limits go on their way meanwhile."""
    for lease in leases:
        for action in lease.actions if lease.boot_id == boot_id() else ():
            kind = actions.PROGRAMS.get(action['do'])
            if kind is None or kind.prepare is None:
                continue
            try:
                kind.validate(action)
                kind.prepare(action)
            except (Gone, Refused):
                pass
            except Exception:   # restoring it says why
                return
            progress()


def restore_all(state_dir: int, say: Say, *, delete: bool,
                progress: Callable[[], object] = bool,
                due: Callable[[], bool] = lambda: True) -> list[Lease]:
    """Restore the knobs of all leases below an open state directory; return
    the leases that are left.

    With ``delete``, which needs ``flock(lock)``, a lease whose knob is
    restored, or that is of another boot, is deleted, and a refused one is
    renamed to ``*.refused``.
    ``say.unread`` counts those that cannot be read now; ``progress`` is
    called after each lease.  What is no longer ``due`` is left as it is, and
    none returned: an agent that had been stopped goes on, and may set its
    limits again.
    """
    say.unread = 0
    try:
        here = os.open('leases', DIRECTORY, dir_fd=state_dir)
    except FileNotFoundError:
        return []
    try:
        left, mounts = [], cgroup.mounts()
        owners = {os.geteuid(), 0, os.fstat(state_dir).st_uid}
        for name in sorted(os.listdir(here)):
            if name.endswith('.tmp') and delete:
                with contextlib.suppress(OSError):  # no lease: not renamed
                    os.unlink(name, dir_fd=here)
            elif name.endswith('.json'):
                try:
                    left.append(records.load(here, name, owners))
                except FileNotFoundError:
                    pass
                except Refused as exc:
                    _refuse(here, name, exc, say, delete)
                except OSError as exc:
                    say.unread += 1
                    say.problem(name, f'lease {name} cannot be read now, it '
                                f'will be tried again: {exc}')
        # A parent before its children; last what takes a program that may
        # hang: the others must not wait for it.
        left.sort(key=lambda lease: (
            lease.actions[0]['do'] in actions.PROGRAMS,
            str(lease.actions[0]).count('/')))
        if due():
            prepare(left, progress)
        before = None
        while left and len(left) != before:     # a parent frees its children
            before = len(left)
            every, left = left, []
            for index, lease in enumerate(every, 1):
                with state_directory.restoring(here):
                    if not due():
                        say.problems.pop('why', None)
                        return []
                    if not _restore_one(
                            here, lease, mounts, say, delete,
                            [*left, *every[index:]]):
                        left.append(lease)
                progress()
        return left
    finally:
        os.close(here)


def _restore_one(here: int, lease: Lease, mounts: Sequence[cgroup.Mount],
                 say: Say, delete: bool,
                 others: Iterable[Lease]) -> bool:
    what = f'{lease.knob} of {lease.workload}'
    try:
        if lease.boot_id != boot_id():
            if delete:
                say.event(lease.name, f'{what}: stale lease of another boot '
                          'deleted; its limit ended with that boot')
        elif restore(lease, directory=here, mounts=mounts, others=others):
            say.event(lease.name, f'{what}: restored to its original')
    except Gone as exc:
        say.problem(lease.name, f'{what}: nothing to restore, {exc}')
    except Refused as exc:
        _refuse(here, lease.name, exc, say, delete)
        return True
    except (RestoreError, OSError, ValueError, RecursionError) as exc:
        say.problem(lease.name, f'{what}: NOT restored: {exc}')
        return False
    except Exception as exc:    # a fault of ours must not stop the others
        say.problem(lease.name, f'{what}: NOT restored: {exc!r:.199}; please '
                    'report this')
        return False
    try:
        if delete:
            os.unlink(lease.name, dir_fd=here)
            say.problems.pop(lease.name, None)
    except FileNotFoundError:
        pass
    except OSError as exc:
        say.problem(lease.name, f'{what}: restored, but its lease stays: '
                    f'{exc}')
    return True


def _refuse(here: int, name: str, exc: Refused, say: Say,
            rename: bool) -> None:
    say.refused += 1
    say.problem(name, f'lease {name} refused, nothing in it was done: {exc}. '
                'Look at it, restore that knob by hand, delete the file')
    if rename:
        try:
            os.rename(name, name + '.refused', src_dir_fd=here,
                      dst_dir_fd=here)
        except OSError as error:
            say.problem(name + ' kept', f'{name} keeps its name: {error}')
