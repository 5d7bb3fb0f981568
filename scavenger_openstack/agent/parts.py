# SPDX-License-Identifier: Apache-2.0

"""The parts of an agent that the configuration names."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
import os
import pathlib
from typing import Any

from oslo_config import cfg
from oslo_log import log
from stevedore import driver as stevedore_driver
from stevedore import exception as stevedore_exception

from scavenger_openstack.agent.events import steady_clock
from scavenger_openstack.agent.events.store import Store
from scavenger_openstack.agent.profiling import budget
from scavenger_openstack.agent.profiling import profiling
from scavenger_openstack import conf as conf_package
from scavenger_openstack.conf import host as conf_host
from scavenger_openstack.decision.controller import Controller
from scavenger_openstack.decision.controller import is_detector
from scavenger_openstack.drivers import base
from scavenger_openstack import errors
from scavenger_openstack.events import Evidence
from scavenger_openstack.restore import abilities
from scavenger_openstack.restore import records
from scavenger_openstack.types import Incident
from scavenger_openstack.types import Mode

LOG = log.getLogger(__name__)


def load_driver(conf: cfg.ConfigOpts) -> base.Driver:
    """Return the configured driver.

    :raises ConfigError: there is none of that name.
    """
    cls = _plugin('scavenger.drivers', conf.agent.driver, '[agent] driver')
    driver: base.Driver = cls(conf)
    return driver


def load_controllers(conf: cfg.ConfigOpts,
                     params_of: Callable[[str, Any], Any]
                     ) -> list[tuple[Controller, Mode]]:
    """Return the configured controllers and their modes.

    :param params_of: the ``Params`` of a section, of this class
    :raises ConfigError: one of them does not exist.
    """
    controllers = []
    for name in conf.agent.controllers:
        cls = controller_type(name, '[agent] controllers')
        try:
            params = params_of(name, cls.params_type)
        except (cfg.Error, ValueError) as exc:
            raise errors.ConfigError(f'[{name}]: {exc}') from exc
        mode = conf_package.mode(conf, name)
        if mode is Mode.ENFORCE and name in conf_package.UNTRIED:
            LOG.warning(
                '[%s] mode: enforce: %s limits what its paper names and does '
                'not check that a limit helps; set mode = observe, and let '
                'attribution enforce, which checks', name, name)
        controllers.append((cls(params, interval_s=conf.agent.interval_s,
                                host=conf.agent.host,
                                boot_id=records.boot_id()),
                            mode))
    return controllers


def evidence(controllers: Sequence[tuple[Controller, Mode]]
             ) -> Callable[[str, Incident], Evidence]:
    """Return what returns the measurements of a controller, by its name, and
    one of its incidents."""
    detectors = {controller.name: controller for controller, _ in controllers
                 if is_detector(controller)}
    return lambda name, incident: (
        detectors[name].evidence(incident) if name in detectors else ())


def controller_type(name: str, where: str) -> Any:
    """Return the class behind a controller's entry point.

    :param where: what names it, for the message
    :raises ConfigError: there is none of that name.
    """
    return _plugin('scavenger.controllers', name, where)


def _plugin(namespace: str, name: str, option: str) -> Any:
    try:
        return stevedore_driver.DriverManager(
            namespace, name, invoke_on_load=False,
            warn_on_missing_entrypoint=False).driver
    except stevedore_exception.NoMatches:
        raise errors.ConfigError(
            f'{option}: {name!r} is not an entry point of {namespace}'
        ) from None


def load_profiling(conf: cfg.ConfigOpts,
                   controllers: Sequence[tuple[Controller, Mode]]
                   ) -> profiling.Profiling:
    """Return the measurement of profiles on this host."""
    return profiling.Profiling(
        conf.agent.profile_seconds_per_day, os.path.abspath(
            conf_package.stop_file(conf)), conf.agent.lease_s,
        frozenset(controller.name for controller, _ in controllers
                  if is_detector(controller)),
        conf_package.state_dir(conf) / budget.FILE)


def kinds(conf: cfg.ConfigOpts) -> list[str]:
    """Return the kinds of limits that may be set besides those of cgroups, as
    the watcher names them."""
    libvirt_uris = uris(conf)
    namespaces = {
        entry.rpartition('=')[2].partition('/')[0].rpartition(':')[0]
        for entry in conf.network.interfaces}
    if libvirt_uris:
        namespaces.add('')      # the taps
    return [*map(abilities.of_libvirt, libvirt_uris),
            *map(abilities.of_network, sorted(namespaces))]


def uris(conf: cfg.ConfigOpts) -> list[str]:
    """Return the URIs of the libvirtds of this host that are used: one or
    none."""
    return [uri] if (uri := conf_host.libvirt_uri(conf)) else []


def load_sync(conf: cfg.ConfigOpts, call: Callable[[bytes], bytes] | None,
              store: Store, clock: steady_clock.SteadyClock) -> Any:
    """Return the :class:`~.control_plane.sync.Sync` of this host; ``None``
    without a control plane, of which nothing is imported then.

    :param call: takes a report and returns the answer; ``None``: over HTTPS
        or RPC, as is configured
    :param store: and ``clock``: see :class:`~.control_plane.sync.Sync`
    :raises ConfigError: packages are missing, or ``transport_url`` is, or
        the name of this host is none.
    """
    if not conf.conductor.enabled:
        return None
    from scavenger_openstack import version
    try:
        from scavenger_openstack.agent.control_plane import sync
        from scavenger_openstack.wire import fit
        if not fit.is_host(conf.agent.host):
            raise errors.ConfigError(
                f'[agent] host: the control plane takes no host '
                f'{ascii(conf.agent.host)}: 1 to 255 letters, digits and '
                '"._-" make the name of one')
        token_file = pathlib.Path(conf.conductor.token_file)
        if call is None and conf.conductor.url:
            from scavenger_openstack.agent.control_plane import https
            call = https.caller(conf.conductor.url, conf.agent.host,
                                token_file, conf.conductor.ca_file)
        if call is None:
            from scavenger_openstack.agent.control_plane import host_token
            from scavenger_openstack import rpc
            call = rpc.Client(conf, identity=lambda: (
                fit.name(conf.agent.host), host_token.read(token_file)
                if token_file.exists() else '')).sync
            if not conf.transport_url:
                raise errors.ConfigError(
                    '[conductor] enabled: it takes transport_url in '
                    '[DEFAULT], such as rabbit://USER:PASSWORD@HOST:5672/')
    except ImportError as exc:
        raise errors.ConfigError(
            f'[conductor] enabled: {errors.missing_package(exc, "rpc") or exc}'
        ) from exc
    return sync.make(
        call, conf_package.sync_dir(conf), store, host=conf.agent.host,
        boot_id=records.boot_id(), version=version(),
        sync_s=conf.conductor.sync_s,
        allow_background=conf.conductor.allow_background,
        clock=clock)
