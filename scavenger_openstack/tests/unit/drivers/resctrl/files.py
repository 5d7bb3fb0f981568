# SPDX-License-Identifier: Apache-2.0

"""The files of resctrl, which few machines have."""

from __future__ import annotations

import os
import pathlib
import shutil

import fixtures


class Resctrl(fixtures.Fixture):
    """A mounted resctrl of two caches: directories that are made in
    ``mon_groups`` have their files at once, and are removed with them.

    :ivar top: where it is
    :ivar tasks: what threads are written to; '': a file of each group
    """

    def __init__(self, ids: int = 8, *,
                 features: str = 'llc_occupancy\nmbm_total_bytes\n') -> None:
        self._ids, self._features = ids, features
        self.tasks = ''

    def _setUp(self) -> None:
        self.top = pathlib.Path(self.useFixture(fixtures.TempDir()).path,
                                'resctrl')
        self._mkdir, self._rmdir = os.mkdir, os.rmdir
        (self.top / 'info/L3_MON').mkdir(parents=True)
        (self.top / 'info/L3_MON/mon_features').write_text(self._features)
        (self.top / 'info/L3_MON/num_rmids').write_text(f'{self._ids}\n')
        (self.top / 'mon_groups').mkdir()
        self._fill(self.top)
        self.useFixture(fixtures.MonkeyPatch('os.mkdir', self._made))
        self.useFixture(fixtures.MonkeyPatch('os.rmdir', self._removed))

    def _fill(self, group: pathlib.Path) -> None:
        if self.tasks:
            (group / 'tasks').symlink_to(self.tasks)
        else:
            (group / 'tasks').write_text('')
        for cache in ('mon_L3_00', 'mon_L3_01'):
            (group / 'mon_data' / cache).mkdir(parents=True)
            (group / 'mon_data' / cache / 'mbm_total_bytes').write_text('0\n')

    def _is_group(self, path: object) -> bool:
        return os.path.realpath(os.path.dirname(str(path))) == str(
            self.top.resolve() / 'mon_groups')

    def _made(self, path: str, *args: int, **options: int) -> None:
        if self._is_group(path) and len(self.names()) >= self._ids - 1:
            raise OSError(28, os.strerror(28), path)
        self._mkdir(path, *args, **options)
        if self._is_group(path):
            self._fill(pathlib.Path(path))

    def _removed(self, path: str, **options: int) -> None:
        if self._is_group(path) and os.path.isdir(path):
            for name in os.listdir(path):
                left = pathlib.Path(path, name)
                if left.is_dir():
                    shutil.rmtree(left)
                else:
                    left.unlink()
        self._rmdir(path, **options)

    def names(self) -> list[str]:
        return sorted(os.listdir(self.top / 'mon_groups'))

    def count(self, group: str, text: str) -> None:
        """Bytes of one cache of a group; '': of what is in no group."""
        path = self.top / 'mon_groups' / group if group else self.top
        (path / 'mon_data/mon_L3_01/mbm_total_bytes').write_text(f'{text}\n')
