# SPDX-License-Identifier: Apache-2.0

"""What signals do to the watcher.

SIGTERM and SIGINT end it.  SIGHUP does nothing, since it reads no options,
except on a terminal that is closed: that ends it, too.  SIGUSR2 has C code
write its stack to standard error, also when it hangs: not those of its other
threads, which run meanwhile, and whose frames may be gone.
"""

from __future__ import annotations

from collections.abc import Callable
import faulthandler
import io
import os
import signal
import sys
from types import FrameType


def install(end: Callable[[int], object], *, with_parent: bool) -> None:
    """Take the signals from now on; in the main thread.

    :param end: is called with the signal that is to end the watcher
    :param with_parent: a terminal is the parent's: it ends, and we after it
    """
    def ends(number: int, frame: FrameType | None) -> None:
        end(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ends)
    if (os.isatty(0) and not with_parent
            and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN):
        signal.signal(signal.SIGHUP, ends)
    else:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        faulthandler.register(signal.SIGUSR2, file=sys.stderr,
                              all_threads=False)
    except (io.UnsupportedOperation, AttributeError, ValueError,
            RuntimeError):
        # Standard error is no file or closed: that must not end the watcher.
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
