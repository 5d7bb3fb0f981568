# SPDX-License-Identifier: Apache-2.0

"""The parameters of controllers: those of the file, and those that operators
request.

A parameter that the control plane requests replaces that of the file.  It
is checked in the same way, and holds from the next tick on; a parameter that
a controller cannot change while it runs holds from the next start on.
"""

from __future__ import annotations

from collections.abc import Mapping
import contextlib
import dataclasses
import itertools
import math
from typing import Any

from oslo_config import cfg
from oslo_log import log

from scavenger_openstack.algorithms.perfiso import perfiso
from scavenger_openstack import conf as conf_package
from scavenger_openstack.conf import params as conf_params
from scavenger_openstack.decision.controller import Tunable
from scavenger_openstack.types import printable

LOG = log.getLogger(__name__)

AT_START = 'it holds from the next start of the agent on'
NOT_HERE = 'no controller of that name runs on this host'
NO_OPTION = 'there is no such option'
FAILED = 'the controller fails at it, the log has more'

MAX_REFUSED = 200
"""Most refused parameters in a report, which has no room for more."""
MAX_LINES = 10
"""Most of them that are logged at once."""
MAX_CHARS = 80
"""Most characters of a value, or a name, that are shown."""

Requested = Mapping[str, float | str]
"""Values by ``section.option``."""


def parsed(option: cfg.Opt, value: float | str) -> Any:
    """Return the value as an option of the file would have it.

    :raises ValueError: it is no value of this option.
    """
    if not isinstance(value, str):
        value = str(int(value) if value.is_integer() else value)
    typed = option.type(value)
    if typed is None and option.default is not None:
        raise ValueError('there is no value')
    if isinstance(typed, float) and not math.isfinite(typed):
        raise ValueError('it is no finite number')
    return typed


def replaced(params: Any, requested: Requested) -> tuple[Any, dict[str, str]]:
    """Return the ``Params`` with the requested values in place of their own,
    and by option why a value does not count.

    :param requested: by option
    """
    options = {option.name: option
               for option in conf_params.opts_of(type(params))}
    del options['mode']
    values, refused = {}, {}
    for name, value in requested.items():
        if name not in options:
            refused[name] = NO_OPTION
            continue
        try:
            values[name] = parsed(options[name], value)
        except (ValueError, OverflowError) as exc:
            refused[name] = printable(str(exc))
    try:
        return dataclasses.replace(params, **values), refused
    except ValueError as exc:       # one contradicts another
        return params, refused | dict.fromkeys(values, str(exc))


class Parameters:
    """The parameters in force on this host; for one thread.

    :param conf: the agent's, of its files
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._conf = conf
        self._file: dict[str, Any] = {}
        for name in conf_package.PARAMS.keys() & {*conf.agent.controllers,
                                                  perfiso.Controller.name}:
            # A fault of the file is reported by the program that reads it.
            with contextlib.suppress(cfg.Error, ValueError):
                self._file[name] = conf_params.params_of(
                    conf, name, conf_package.PARAMS[name])
        self._now = dict(self._file)
        self._requested: Requested = {}
        self.refused: dict[str, str] = {}
        """Reasons of those not in force, by ``parameter section.option``."""

    def begin(self, requested: Requested) -> None:
        """Set these at the start, which sets all of them."""
        for name, params in self._resolve(requested).items():
            self._log(name, params)
            self._now[name] = params

    def of(self, section: str, kind: Any) -> Any:
        """Return the ``Params`` that hold; of a controller of another package
        those of the file.

        :param kind: the class of the ``Params``
        :raises oslo_config.cfg.Error: a value of the file is wrong.
        :raises ValueError: the class refuses them together.
        """
        return (self._now.get(section)
                or conf_params.params_of(self._conf, section, kind))

    @property
    def now(self) -> Mapping[str, Any]:
        """Return the ``Params`` that hold, by section."""
        return self._now

    def follow(self, requested: Requested, controllers: Mapping[str, Tunable]
               ) -> None:
        """Change the running controllers to these parameters.

        :param controllers: by section
        """
        if requested is self._requested or requested == self._requested:
            return
        for name, params in self._resolve(requested, controllers).items():
            if params != self._now[name]:
                try:
                    controllers[name].tune(params)
                except Exception:       # the old parameters hold
                    LOG.exception('parameters of %s are not followed', name)
                    self.refused[f'parameter {name}'] = FAILED
                    continue
                self._log(name, params)
                self._now[name] = params

    def _resolve(self, requested: Requested,
                 controllers: Mapping[str, Tunable] | None = None
                 ) -> dict[str, Any]:
        """Return the ``Params`` that are to hold, by section."""
        self._requested = requested
        refused: dict[str, str] = {}
        by_section: dict[str, dict[str, float | str]] = {
            name: {} for name in self._file
            if controllers is None or name in controllers}
        for name, value in requested.items():
            section, dot, option = name.partition('.')
            if not dot:
                refused[name] = NO_OPTION
            elif section in by_section:
                by_section[section][option] = value
            else:
                refused[name] = NOT_HERE
        new_params = {}
        for section, own in by_section.items():
            params, wrong = replaced(self._file[section], own)
            if controllers is not None:
                fixed = {name: value for name, value in _differences(
                    self._now[section], params)
                    if name in controllers[section].at_start}
                wrong |= {name: AT_START for name in fixed
                          if name in own and name not in wrong}
                try:
                    params = dataclasses.replace(params, **fixed)
                except ValueError as exc:       # new values contradict it
                    wrong |= dict.fromkeys(own, f'{exc}; {AT_START}')
                    params = self._now[section]
            new_params[section] = params
            refused |= {f'{section}.{name}': why
                        for name, why in wrong.items()}
        self._record_refused(refused, requested)
        return new_params

    def _record_refused(self, refused: Mapping[str, str],
                        requested: Requested) -> None:
        shown = {printable(name[:MAX_CHARS]): (
            printable(str(requested[name])[:MAX_CHARS]), why)
            for name, why in refused.items()}
        reasons = {f'parameter {name}': why for name, (_, why)
                   in itertools.islice(shown.items(), MAX_REFUSED)}
        new = [f'{name} = {value}: {why}'
               for name, (value, why) in shown.items()
               if self.refused.get(f'parameter {name}') != why]
        for line in new[:MAX_LINES]:
            LOG.warning('a parameter that the control plane asks for is not '
                        'followed: %s', line)
        if len(new) > MAX_LINES:
            LOG.warning('more parameters that the control plane asks for '
                        'and that are not followed: %d',
                        len(new) - MAX_LINES)
        self.refused = reasons

    def _log(self, section: str, params: Any) -> None:
        for name, value in _differences(params, self._now[section]):
            own = getattr(self._file[section], name)
            LOG.info('[%s] %s is %s now: %s', section, name, value,
                     'as in the file' if value == own else
                     f'the control plane asks for it (file: {own})')


def _differences(params: Any, other: Any) -> list[tuple[str, Any]]:
    """Return the options of ``params`` that differ in ``other``."""
    return [(field.name, value) for field in dataclasses.fields(params)
            if (value := getattr(params, field.name))
            != getattr(other, field.name)]
