# SPDX-License-Identifier: Apache-2.0



"""With which controllers and parameters something is replayed."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import difflib
import math
from typing import Any

from oslo_config import cfg

from scavenger_openstack.agent import parts
from scavenger_openstack.algorithms.perfiso import perfiso
from scavenger_openstack import conf as conf_package
from scavenger_openstack.conf import params as conf_params
from scavenger_openstack.decision.controller import is_detector
from scavenger_openstack.decision.controller import UNUSABLE
from scavenger_openstack.decision.decider import Decider
from scavenger_openstack import errors
from scavenger_openstack.recording import line_format
from scavenger_openstack.types import Mode
from scavenger_openstack.types import Resource


@dataclasses.dataclass(frozen=True, slots=True)
class Setting:
    """One controller: its class, mode, parameters and state at the start.

    ``params`` has every parameter by name.
    """

    name: str
    kind: Any
    mode: Mode
    params: Mapping[str, Any]
    state: Any = None

    @property
    def regulates(self) -> bool:
        """Return whether it gives idle capacity away, and needs to know how
        much."""
        return not is_detector(self.kind)


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """All controllers, and what each host's own are made with.

    ``protect``: the resources that limits are set on; empty: all.
    ``isolation`` is the mode of the fast loop: without any controller that
    enforces, nothing is limited.  ``fixed`` are the parameters, by controller
    and name, that are not as they were recorded, whatever is asked for later.
    """

    controllers: tuple[Setting, ...]
    interval_s: float = 1.0
    boot_id: str = ''
    loaded_s: float = 0.0
    protect: tuple[Resource, ...] = ()
    isolation: Mode = Mode.OFF
    fixed: frozenset[tuple[str, str]] = frozenset()

    @property
    def what_if(self) -> bool:
        """Return whether a parameter is not as it was recorded."""
        return bool(self.fixed)

    def params(self, name: str) -> Any:
        """The ``Params`` of a controller.

        :raises ConfigError: they contradict each other.
        """
        [setting] = (setting for setting in self.controllers
                     if setting.name == name)
        try:
            return setting.kind.params_type(**setting.params)
        except (TypeError, ValueError) as exc:
            raise errors.ConfigError(f'{name}: {exc}') from exc

    def tuned(self, name: str, values: Mapping[str, Any]) -> Settings:
        """Return the settings with other parameters of a controller, as they
        are recorded.

        :raises ConfigError: it has no such parameter, or not this value.
        """
        return dataclasses.replace(self, controllers=tuple(
            setting if setting.name != name else dataclasses.replace(
                setting, params={**setting.params, **{
                    option: _checked(_options(setting.kind.params_type), name,
                                     option, value)
                    for option, value in values.items()
                    if (name, option) not in self.fixed}})
            for setting in self.controllers))

    def decider(self, host: str, interval_s: float | None = None) -> Decider:
        """New controllers for one host.

        :raises ConfigError: a controller does not take its parameters.
        """
        made = []
        for controller in self.controllers:
            if controller.mode is Mode.OFF:
                continue
            made.append((controller.kind(
                self.params(controller.name), host=host, boot_id=self.boot_id,
                interval_s=interval_s or self.interval_s), controller.mode))
        enforcing = Mode.ENFORCE in (
            self.isolation, *(setting.mode for setting in self.controllers))
        decider = Decider(made, conf_package.limited_knobs(self.protect)
                          if enforcing else ())
        try:
            decider.load({setting.name: setting.state
                          for setting in self.controllers
                          if setting.state is not None}, self.loaded_s)
        except UNUSABLE:
            pass        # as the agent did: it learnt again
        return decider


def of_header(header: line_format.Header) -> tuple[Settings, list[str]]:
    """Return what a recording was made with, and what an operator should know.

    :raises ConfigError: a controller is not installed here, or does not
        know a parameter or its value.
    """
    notes: list[str] = []
    settings = []
    for controller in header.controllers:
        kind = parts.controller_type(controller.name, 'the recording')
        params = {}
        options = _options(kind.params_type)
        for name, value in controller.params.items():
            params[name] = _checked(options, controller.name, name, value)
        for name in sorted(options.keys() - params.keys() - {'mode'}):
            params[name] = options[name].default
            notes.append(f'{controller.name}.{name} is not in the recording: '
                         f'{params[name]} is taken')
        settings.append(Setting(controller.name, kind, controller.mode,
                                params, controller.state))
    return Settings(tuple(settings), header.interval_s, header.boot_id,
                    header.loaded_s, header.protect,
                    header.isolation.mode), notes


def of_options(conf: cfg.ConfigOpts, regulators: bool) -> Settings:
    """Return what is configured: for tables, which say nothing of settings.

    All controllers that are not off decide as if they enforced.

    :param regulators: there are capacities, so that regulators can run
    :raises ConfigError: a controller is not installed.
    """
    settings = []
    for name in conf.agent.controllers:
        kind = parts.controller_type(name, '[agent] controllers')
        params: Any = conf_params.params_of(conf, name, kind.params_type)
        mode = conf_package.mode(conf, name)
        setting = Setting(
            name, kind, Mode.OFF if mode is Mode.OFF else Mode.ENFORCE,
            {field.name: getattr(params, field.name)
             for field in dataclasses.fields(params)})
        if regulators or not setting.regulates:
            settings.append(setting)
    return Settings(tuple(settings), boot_id='table')


def changed(settings: Settings, changes: Sequence[str]) -> Settings:
    """The settings with each ``section.option=value`` in place.

    :raises ConfigError: no such section, option or value.
    """
    by_name = {setting.name: setting for setting in settings.controllers}
    fixed = set(settings.fixed)
    for change in changes:
        where, equals, value = change.partition('=')
        section, dot, name = where.strip().partition('.')
        if not (equals and dot and section and name):
            raise errors.ConfigError(
                f'--set {change}: not section.option=value, such as '
                'scavenger.memory_c=3')
        if section == perfiso.Controller.name and section not in by_name:
            raise errors.ConfigError(
                f'--set {change}: the fast loop is not replayed; what it '
                'did stays as recorded')
        if section not in by_name:
            raise errors.ConfigError(
                f'--set {change}: no controller {section} is replayed'
                + _meant(section, by_name))
        setting = by_name[section]
        options = _options(setting.kind.params_type)
        name = name.replace('-', '_')
        if name not in options:
            raise errors.ConfigError(
                f'--set {change}: {section} has no option {name}'
                + _meant(name, options))
        value = _checked(options, f'--set {section}', name, value.strip())
        fixed.add((section, name))
        if name == 'mode':
            by_name[section] = dataclasses.replace(setting, mode=Mode(value))
        else:
            by_name[section] = dataclasses.replace(
                setting, params={**setting.params, name: value})
    return dataclasses.replace(settings, controllers=tuple(by_name.values()),
                               fixed=frozenset(fixed))


def _options(params_type: type) -> dict[str, cfg.Opt]:
    return {option.name: option for option in conf_params.opts_of(params_type)}


def _checked(options: Mapping[str, cfg.Opt], section: str, name: str,
             value: Any) -> Any:
    option = options.get(name)
    if option is None:
        raise errors.ConfigError(
            f'{section}.{name}: no such parameter in this version'
            + _meant(name, options))
    try:
        parsed = option.type(value)
        if parsed is None:
            raise ValueError('empty')
        if isinstance(parsed, float) and not math.isfinite(parsed):
            raise ValueError('not a finite number')
        return parsed
    except (TypeError, ValueError, OverflowError, AttributeError) as exc:
        raise errors.ConfigError(
            f'{section}.{name}: {value!r:.60}: {exc}') from None


def _meant(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(names), 1)
    return f'; did you mean {close[0]}?' if close else ''
