# SPDX-License-Identifier: Apache-2.0

"""Ending programs that were started; standard library only."""

from __future__ import annotations

import contextlib
import subprocess
from typing import Any

PATIENCE_S = 1.0


def end(process: subprocess.Popen[Any]) -> None:
    """End a program, whatever it is doing, and close its pipes.

    One that hangs in the kernel ends when that lets it, and is reaped when
    another program is started after that: it is not waited for.
    """
    process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(PATIENCE_S)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe:
            with contextlib.suppress(OSError):      # it had more to read
                pipe.close()
