# SPDX-License-Identifier: Apache-2.0


"""Calls to libvirt, and nothing else; the only module that imports it.

A call may hang: in libvirtd, on a job of a domain, in a QEMU that does not
answer.  So nothing here is called by the tick, and each thread has a
connection of its own: a few calls that hang stop all others of the same
one.  What libvirt says comes out as an error of this project.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
import logging
import re
import sys
import threading
import time
from typing import Any

from scavenger_openstack.drivers import calls
from scavenger_openstack.drivers.kernel import cgroup_mounts
from scavenger_openstack.drivers.libvirt import handle
from scavenger_openstack.drivers.libvirt import versions
from scavenger_openstack import errors
from scavenger_openstack import log_once
from scavenger_openstack.restore import grammar

LOG = logging.getLogger(__name__)

KEEPALIVE_S = 5
KEEPALIVE_COUNT = 3
"""A libvirtd that answers nothing for so many times that long is gone."""

MAX_IDLE = 4
"""So many connections for writes are kept open: as many as are used at once,
if nothing hangs."""

RETRY_S = 1.0
NS_PER_S = 1e9

EVENTS: Mapping[str, bool] = {
    'LIFECYCLE': True, 'REBOOT': True, 'BALLOON_CHANGE': False,
    'DEVICE_ADDED': False, 'DEVICE_REMOVED': False, 'TUNABLE': False,
    'METADATA_CHANGE': False, 'JOB_COMPLETED': False}
"""What is listened to, and whether a guest can make it happen as often as it
likes.  Of balloons QEMU itself tells once a second at most."""

ENDS: Mapping[str, str] = {
    'SHUTDOWN': 'the VM shut down', 'DESTROYED': 'the VM was powered off',
    'CRASHED': 'its QEMU crashed or was killed',
    'MIGRATED': 'the VM migrated to another host',
    'SAVED': 'the VM was saved to disk', 'FAILED': 'its QEMU failed',
    'FROM_SNAPSHOT': 'the VM went back to a snapshot'}
"""The details of libvirt's event ``STOPPED``."""

Blocks = tuple[float, int, int]
"""Seconds that all finished operations took, operations, and bytes."""


class Unreachable(errors.DriverError):
    """There is no connection to libvirt, or it broke."""


class Missing(errors.ConfigError):
    """libvirt-python cannot be used."""


class Loop:
    """libvirt-python and the thread that runs its event loop."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._module: Any = None
        self._turns = False

    def begin(self) -> None:
        """Have the event loop run: without it no connection hears of
        anything.

        :raises DriverError: no thread can be started.
        """
        with self._mutex:
            if self._module is not None and not self._turns:
                calls.start(threading.Thread(
                    target=self._turn, args=(self._module,), daemon=True,
                    name='libvirt-events'))
                self._turns = True

    def module(self) -> Any:
        """libvirt-python, ready for its event loop.

        :raises Missing: it is not installed.
        """
        with self._mutex:
            if self._module is None:
                try:
                    import libvirt
                except ImportError as exc:
                    raise Missing(
                        f'libvirt-python cannot be used ({exc}); install '
                        f'libvirt-python for {sys.executable} (see '
                        'Installation), or set [libvirt] uri to nothing'
                    ) from None
                libvirt.registerErrorHandler(lambda *_: None, None)
                libvirt.virEventRegisterDefaultImpl()
                self._module = libvirt
            return self._module

    @staticmethod
    def _turn(libvirt: Any) -> None:
        while True:
            try:
                libvirt.virEventRunDefaultImpl()
            except libvirt.libvirtError as exc:
                LOG.warning('event loop of libvirt: %s', exc)
                time.sleep(RETRY_S)     # it may say so at once, for ever


LOOP = Loop()
"""Of the process: libvirt knows one event loop."""


class Libvirt:
    """One libvirtd.

    :param uri: how it is reached, see :data:`.grammar.URI`
    :param cpu: where the controller of that name is, if there is one
    :raises Missing: libvirt-python is.
    :raises ConfigError: the URI is of another kind.
    """

    def __init__(self, uri: str, cpu: cgroup_mounts.Mount | None = None
                 ) -> None:
        if not re.fullmatch(grammar.URI, uri):
            raise errors.ConfigError(
                f'[libvirt] uri: {uri!r:.199} cannot work: it has to be '
                'qemu:///system, or with another socket '
                'qemu+unix:///system?socket=/PATH')
        self.uri = uri
        self.versions = versions.UNKNOWN
        self._logged = log_once.LogOnce()
        self._cgroup_version = cpu.version if cpu else None
        self._api = LOOP.module()
        self._mutex = threading.Lock()
        self._idle: list[Any] = []

    @contextlib.contextmanager
    def _converted(self, doing: str) -> Iterator[None]:
        """What libvirt raises, in our words."""
        try:
            yield
        except self._api.libvirtError as exc:
            raise self._error(exc, doing) from None

    def _error(self, exc: Any, doing: str) -> errors.DriverError:
        api, code = self._api, exc.get_error_code()
        message = ' '.join(str(exc.get_error_message()).split())
        text = f'{doing}: libvirt says: {message}'
        if code == api.VIR_ERR_NO_DOMAIN:
            return errors.WorkloadGone(text)
        if code in (api.VIR_ERR_CONFIG_UNSUPPORTED, api.VIR_ERR_NO_SUPPORT,
                    api.VIR_ERR_ARGUMENT_UNSUPPORTED,
                    api.VIR_ERR_OPERATION_UNSUPPORTED):
            return errors.Unsupported(text)
        if code in (api.VIR_ERR_OPERATION_DENIED, api.VIR_ERR_ACCESS_DENIED,
                    api.VIR_ERR_OPERATION_INVALID, api.VIR_ERR_INVALID_ARG):
            return errors.Denied(text)
        if code == api.VIR_ERR_OPERATION_TIMEOUT:
            return handle.Busy(f'{text}; see virsh domjobinfo')
        if exc.get_error_domain() == api.VIR_FROM_RPC or code in (
                api.VIR_ERR_NO_CONNECT, api.VIR_ERR_INVALID_CONN,
                api.VIR_ERR_AUTH_FAILED, api.VIR_ERR_AUTH_CANCELLED,
                api.VIR_ERR_RPC):
            return Unreachable(text)
        return errors.DriverError(text)

    def open(self) -> Any:
        """A connection of its own.

        :raises Unreachable: there is no libvirtd, or it does not let us in.
        """
        try:
            connection = self._api.open(self.uri)
            connection.setKeepAlive(KEEPALIVE_S, KEEPALIVE_COUNT)
            return connection
        except self._api.libvirtError as exc:
            message = ' '.join(str(exc.get_error_message()).split())
            raise Unreachable(
                f'{self.uri}: libvirt says: {message}; see that libvirtd (or '
                'virtqemud) runs and that the agent may use its socket'
            ) from None

    def watch(self, changed: Callable[[str, bool], None],
              lost: Callable[[bool], None],
              ended: Callable[[str, str], None]) -> Watch:
        """Be told of all that happens to domains; see :class:`Watch`.

        :raises DriverError: there is no connection, or no thread for what
            it hears.
        """
        LOOP.begin()
        connection = self.open()
        self.versions = versions.Versions(
            self._version(self._api.getVersion),
            self._version(connection.getLibVersion), None)
        return Watch(self._api, self._converted, connection, changed, lost,
                     ended)

    def log_versions(self, watch: Watch) -> None:
        """Log which libvirt and QEMU there are, if they are new.

        libvirtd may have to start QEMU for that, which takes a second.
        """
        self.versions = self.versions._replace(
            qemu=self._version(watch.qemu_version))
        if self._logged.due('versions', self.versions):
            LOG.info('libvirt %s: %s', self.uri, self.versions)

    def _version(self, ask: Callable[[], Any]) -> int | None:
        try:
            return int(ask())
        except self._api.libvirtError as exc:
            LOG.debug('version: libvirt says: %s', exc)
            return None

    @property
    def no_quota_us(self) -> int:
        """The CPU quota that is none: what this libvirtd takes for it."""
        return versions.no_quota_us(self.versions.daemon,
                                    self._cgroup_version)

    @contextlib.contextmanager
    def domain(self, uuid: str) -> Iterator[handle.Handle]:
        """A domain to be written to, over a connection of its own.

        :raises Unreachable: there is no connection.
        :raises WorkloadGone: there is no such domain.
        """
        with self._mutex:
            connection = self._idle.pop() if self._idle else None
        if connection is not None and not self._alive(connection):
            self.end(connection)
            connection = None
        if connection is None:
            connection = self.open()
        try:
            with self._converted(f'domain {uuid}'):
                domain = connection.lookupByUUIDString(uuid)
            yield handle.Handle(self._api, self._converted, domain, uuid,
                  self.no_quota_us)
        finally:
            alive = self._alive(connection)
            with self._mutex:
                if alive and len(self._idle) < MAX_IDLE:
                    self._idle.append(connection)
                    connection = None
            if connection is not None:
                self.end(connection)

    def blocks(self, connection: Any) -> dict[str, Blocks]:
        """Return what the disks of each running domain have done since its
        start.

        A domain with a job, also one that hangs, is left out instead of being
        waited for.

        :raises DriverError: libvirt does not tell.
        """
        api = self._api
        with self._converted('block statistics'):
            rows = connection.getAllDomainStats(
                api.VIR_DOMAIN_STATS_BLOCK,
                api.VIR_CONNECT_GET_ALL_DOMAINS_STATS_ACTIVE
                | api.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT)
            return {domain.UUIDString(): blocks for domain, values in rows
                    if (blocks := total(values)) is not None}

    def _alive(self, connection: Any) -> bool:
        try:
            return bool(connection.isAlive())
        except self._api.libvirtError:
            return False

    def end(self, connection: Any) -> None:
        """Close a connection, broken or not."""
        with contextlib.suppress(self._api.libvirtError):
            connection.close()

    def close(self) -> None:
        """Close what is kept open."""
        with self._mutex:
            idle, self._idle = self._idle, []
        for connection in idle:
            self.end(connection)


def total(values: Mapping[str, Any]) -> Blocks | None:
    """Return the sums over all disks of a domain, ``None`` without any."""
    took_ns = ops = size = 0
    counted = False
    for number in range(int(values.get('block.count', 0))):
        key = f'block.{number}.'
        for way in ('rd', 'wr'):
            if f'{key}{way}.reqs' in values:
                counted = True
                ops += values[f'{key}{way}.reqs']
                size += values.get(f'{key}{way}.bytes', 0)
                took_ns += values.get(f'{key}{way}.times', 0)
    return (took_ns / NS_PER_S, ops, size) if counted else None


class Watch:
    """A connection that tells what happens, and is asked what is.

    :param changed: called with the UUID of each domain of which anything
        changed, and whether its guest may have made that; in the thread of
        the event loop
    :param lost: called when the connection broke, and whether libvirtd is
        there and does not answer
    :param ended: called with the UUID of each domain of which a run ended,
        and why it did; before ``changed``
    """

    def __init__(self, api: Any, converted: Callable[[str], Any],
                 connection: Any, changed: Callable[[str, bool], None],
                 lost: Callable[[bool], None],
                 ended: Callable[[str, str], None]) -> None:
        self._api = api
        self._converted = converted
        self._connection = connection
        self._events: list[int] = []

        ends = {(api.VIR_DOMAIN_EVENT_STOPPED,
                 getattr(api, f'VIR_DOMAIN_EVENT_STOPPED_{detail}')): why
                for detail, why in ENDS.items()}

        def pass_on(_: Any, domain: Any, *more: Any) -> None:
            name = more[-1]
            if name == 'LIFECYCLE' and more[:2] in ends:
                ended(domain.UUIDString(), ends[more[:2]])
            changed(domain.UUIDString(), EVENTS[name])

        try:
            with converted('events'):
                connection.registerCloseCallback(lambda _, why, *__: lost(
                    why == api.VIR_CONNECT_CLOSE_REASON_KEEPALIVE), None)
                for name in EVENTS:
                    self._events.append(connection.domainEventRegisterAny(
                        None, getattr(api, f'VIR_DOMAIN_EVENT_ID_{name}'),
                        pass_on, name))
        except errors.DriverError:
            self.close()
            raise

    def qemu_version(self) -> int:
        """Return the version of the QEMU that libvirt starts for the CPUs of
        this host.

        :raises libvirtError: libvirt does not tell.
        """
        return int(self._connection.getVersion())

    def running(self) -> list[str]:
        """The UUIDs of all domains that run.

        :raises DriverError: libvirt does not tell.
        """
        with self._converted('list of domains'):
            return [domain.UUIDString() for domain in
                    self._connection.listAllDomains(
                        self._api.VIR_CONNECT_LIST_DOMAINS_ACTIVE)]

    def read(self, uuid: str) -> handle.DomainReading | None:
        """Return what a domain is now; ``None`` when it does not run.

        :raises DriverError: libvirt does not tell.
        """
        try:
            with self._converted(f'domain {uuid}'):
                domain = self._connection.lookupByUUIDString(uuid)
            return handle.Handle(self._api, self._converted, domain,
                                 uuid).read()
        except errors.WorkloadGone:
            return None

    def close(self) -> None:
        """Deregister from all events."""
        for event in self._events:
            with contextlib.suppress(self._api.libvirtError):
                self._connection.domainEventDeregisterAny(event)
        with contextlib.suppress(self._api.libvirtError):
            self._connection.unregisterCloseCallback()
        with contextlib.suppress(self._api.libvirtError):
            self._connection.close()
