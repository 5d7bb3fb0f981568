# SPDX-License-Identifier: Apache-2.0

"""The agent's signals: end, read the configuration again, write stacks.

A handler only notes that its signal came; the loop acts between two ticks.
The stacks of all threads are written by C code at once, also when the loop
hangs.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
import contextlib
import faulthandler
import io
import os
import signal
import sys
import threading
from types import FrameType

from oslo_config import cfg
from oslo_log import log

from scavenger_openstack import conf as conf_package
from scavenger_openstack.decision import orders as operator_orders
from scavenger_openstack import errors
from scavenger_openstack.types import Mode

LOG = log.getLogger(__name__)


class StopRequest:
    """The request that the process ends.

    A handler makes it in the middle of any instruction of the thread that
    waits.  A :class:`threading.Event` would then wait for a lock that its own
    thread holds; :class:`queue.SimpleQueue` waits for ever if a handler still
    runs when the time is over (CPython 3.11).  A lock that is released does
    neither.
    """

    def __init__(self) -> None:
        self.requested = False
        self._until_requested = threading.Lock()
        self._until_requested.acquire()

    def request(self) -> None:
        """Request the end, from any thread or a signal handler."""
        self.requested = True
        with contextlib.suppress(RuntimeError):     # it is released
            self._until_requested.release()

    def wait(self, timeout_s: float) -> None:
        """Wait until the end is requested, at most ``timeout_s``."""
        if not self.requested:
            self._until_requested.acquire(timeout=timeout_s)


class Signals:
    """The signals since the last tick, and the modes of the file since then.

    :param conf: the configuration in force; only mutable options change
    :param modes: those that the agent started with
    """

    def __init__(self, conf: cfg.ConfigOpts,
                 modes: Mapping[str, Mode]) -> None:
        self._conf = conf
        self._start_modes = dict(modes)
        self._reload = self._show = False
        self._modes: Mapping[str, Mode] = {}

    def install(self, stop: Callable[[int, FrameType | None], None]) -> None:
        """Install the handlers; called in the main thread.

        From a terminal SIGHUP means that it is closed, and ends the agent; a
        SIGHUP that the parent ignored (nohup) stays ignored.
        """
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)
        terminals = [fd for fd in (1, 2) if os.isatty(fd)]

        def closed(number: int, frame: FrameType | None) -> None:
            null = os.open(os.devnull, os.O_WRONLY)
            for fd in terminals:    # writing to it would fail
                os.dup2(null, fd)
            os.close(null)
            stop(number, frame)

        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            signal.signal(signal.SIGHUP, closed if os.isatty(0)
                          else self._asked_to_reload)
        signal.signal(signal.SIGUSR2, self._asked_to_show)
        try:
            faulthandler.register(signal.SIGUSR2, file=sys.stderr,
                                  all_threads=True, chain=True)
        except (io.UnsupportedOperation, AttributeError, ValueError,
                RuntimeError):
            pass    # no file, or closed: only the loop writes its line

    def _asked_to_reload(self, number: int, frame: FrameType | None) -> None:
        self._reload = True

    def _asked_to_show(self, number: int, frame: FrameType | None) -> None:
        self._show = True

    @property
    def modes(self) -> Mapping[str, Mode]:
        """Return the modes of the file, as far as they hold without a
        restart."""
        return {**self._start_modes, **self._modes}

    def orders(self, orders: operator_orders.Orders) -> operator_orders.Orders:
        """The orders, with the modes of the file where these do less."""
        if not self._modes:
            return orders
        return orders._replace(modes={**orders.modes, **{
            name: operator_orders.mode(name, mode, orders)
            for name, mode in self._modes.items()}})

    def act(self, ticks: int, age_s: float) -> None:
        """Act on the signals since the last call.

        :param ticks: the number of ticks so far
        :param age_s: time since the end of the last tick, in seconds
        """
        if self._show:
            self._show = False
            LOG.info('SIGUSR2: the stacks of all threads are on standard '
                     'error; %d ticks, the last ended %.1f s ago', ticks,
                     age_s)
        if self._reload:
            self._reload = False
            self._read_again()

    def _read_again(self) -> None:
        try:
            conf_package.check_files(self._conf)
            self._conf.mutate_config_files()
            wanted = {name: conf_package.mode(self._conf, name)
                      for name in self._start_modes}
        except (errors.ScavengerError, cfg.Error, ValueError, OSError) as exc:
            LOG.error('the configuration cannot be read again, what was '
                      'read before holds: %s',
                      '; '.join(str(arg) for arg in exc.args) or exc)
            return
        limit = operator_orders.Orders(modes=wanted)
        self._modes = {name: operator_orders.mode(name, mode, limit)
                       for name, mode in self._start_modes.items()}
        later = [f'[{name}] mode = {mode}' for name, mode in wanted.items()
                 if self._modes[name] is not mode]
        LOG.info('read the configuration again: log level and modes hold '
                 'now (%s)%s; other options after a restart',
                 ', '.join(f'{name} {mode}'
                           for name, mode in self._modes.items()),
                 f', but not {", ".join(later)}, which enforces more than '
                 'at the start and takes a restart' if later else '')
