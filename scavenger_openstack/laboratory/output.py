# SPDX-License-Identifier: Apache-2.0


"""Where results go: whole files, and readers that may stop reading."""

from __future__ import annotations

import os
import pathlib
import sys
import tempfile

STDOUT = '-'


def show(text: str) -> int:
    """Print; the reader may have seen enough.  Always 0."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


class Target:
    """A file that appears complete or not at all.

    Whether it can be written shows at the start, before the long work.

    :param name: a path; ``None`` or ``-`` for no file
    :raises OSError: it cannot be written
    """

    def __init__(self, name: str | None) -> None:
        self._path: pathlib.Path | None = None
        self._new: pathlib.Path | None = None
        if name is None or name == STDOUT:
            return
        path = self._path = pathlib.Path(name)
        if path.is_dir():
            raise IsADirectoryError(f'{path}: is a directory')
        if path.exists() and not path.is_file():
            return      # such as a pipe: written, not replaced
        if path.is_symlink() and path.lstat().st_uid not in (
                0, os.geteuid()):
            raise PermissionError(f'{path}: is a symbolic link of another '
                                  'user, who may not say where to write')
        path = self._path = path.resolve()
        descriptor, new = tempfile.mkstemp(
            prefix=f'.{path.name}.', dir=path.parent)
        umask = os.umask(0)
        os.umask(umask)
        os.fchmod(descriptor, 0o666 & ~umask)
        os.close(descriptor)
        self._new = pathlib.Path(new)

    def __enter__(self) -> Target:
        return self

    def __exit__(self, *exc: object) -> None:
        if self._new is not None:
            self._new.unlink(missing_ok=True)

    def write(self, text: str) -> None:
        """Put the text there.

        :raises OSError: there is no room
        """
        if self._path is None:
            return
        if self._new is None:
            self._path.write_text(text, encoding='utf-8')
            return
        self._new.write_text(text, encoding='utf-8')
        self._new.replace(self._path)
        self._new = None
