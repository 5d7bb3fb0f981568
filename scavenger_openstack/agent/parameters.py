# SPDX-License-Identifier: Apache-2.0

"""The parameters of controllers: the file's, and those that operators ask for.

A parameter that the control plane asks for takes the place of the file's.  It
is checked as one of the file is, and holds from the next tick on; those that
a controller cannot change while it runs hold from the next start on.
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

MOST_REFUSED = 200
"""So many are told; a report has no room for more."""
MOST_LINES = 10
"""So many of them go to the log each time."""
MOST_TEXT = 80
"""So much of a value, or a name, is shown."""

Asked = Mapping[str, float | str]
"""By ``section.option``."""


def parsed(option: cfg.Opt, value: float | str) -> Any:
    """Return the value as the option has it in a file.

    :raises ValueError: it is none, and why.
    """
    if not isinstance(value, str):
        value = str(int(value) if value.is_integer() else value)
    typed = option.type(value)
    if typed is None and option.default is not None:
        raise ValueError('there is no value')
    if isinstance(typed, float) and not math.isfinite(typed):
        raise ValueError('it is no finite number')
    return typed


def replaced(params: Any, asked: Asked) -> tuple[Any, dict[str, str]]:
    """The ``Params`` with what is asked for in place of its own, and by
    option what of that does not count, and why.

    :param asked: by option
    """
    options = {option.name: option
               for option in conf_params.opts_of(type(params))}
    del options['mode']
    values, refused = {}, {}
    for name, value in asked.items():
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
    """What holds on this host; for one thread.

    :param conf: that of the agent, as its files say it
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
        self._asked: Asked = {}
        self.refused: dict[str, str] = {}
        """Each that does not hold, as ``parameter section.option``: why."""

    def begin(self, asked: Asked) -> None:
        """Begin with these, also those that hold from the start on."""
        for name, params in self._take(asked).items():
            self._log(name, params)
            self._now[name] = params

    def of(self, section: str, kind: Any) -> Any:
        """The ``Params`` that hold; of a controller of another package those
        of the file.

        :param kind: their class
        :raises oslo_config.cfg.Error: a value of the file is wrong.
        :raises ValueError: the class refuses them together.
        """
        return (self._now.get(section)
                or conf_params.params_of(self._conf, section, kind))

    @property
    def now(self) -> Mapping[str, Any]:
        """The ``Params`` that hold, by section."""
        return self._now

    def follow(self, asked: Asked, controllers: Mapping[str, Tunable]
               ) -> None:
        """Go on with these.

        :param controllers: by section
        """
        if asked is self._asked or asked == self._asked:
            return
        for name, params in self._take(asked, controllers).items():
            if params != self._now[name]:
                try:
                    controllers[name].tune(params)
                except Exception:       # those before hold
                    LOG.exception('parameters of %s are not followed', name)
                    self.refused[f'parameter {name}'] = FAILED
                    continue
                self._log(name, params)
                self._now[name] = params

    def _take(self, asked: Asked,
              controllers: Mapping[str, Tunable] | None = None
              ) -> dict[str, Any]:
        """Return what is to hold by section."""
        self._asked = asked
        refused: dict[str, str] = {}
        by_section: dict[str, dict[str, float | str]] = {
            name: {} for name in self._file
            if controllers is None or name in controllers}
        for name, value in asked.items():
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
                kept = {name: value for name, value in _differences(
                    self._now[section], params)
                    if name in controllers[section].at_start}
                wrong |= {name: AT_START for name in kept
                          if name in own and name not in wrong}
                try:
                    params = dataclasses.replace(params, **kept)
                except ValueError as exc:       # what is new contradicts it
                    wrong |= dict.fromkeys(own, f'{exc}; {AT_START}')
                    params = self._now[section]
            new_params[section] = params
            refused |= {f'{section}.{name}': why
                        for name, why in wrong.items()}
        self._refuse(refused, asked)
        return new_params

    def _refuse(self, refused: Mapping[str, str], asked: Asked) -> None:
        shown = {printable(name[:MOST_TEXT]): (
            printable(str(asked[name])[:MOST_TEXT]), why)
            for name, why in refused.items()}
        reasons = {f'parameter {name}': why for name, (_, why)
                   in itertools.islice(shown.items(), MOST_REFUSED)}
        new = [f'{name} = {value}: {why}'
               for name, (value, why) in shown.items()
               if self.refused.get(f'parameter {name}') != why]
        for line in new[:MOST_LINES]:
            LOG.warning('a parameter that the control plane asks for is not '
                        'followed: %s', line)
        if len(new) > MOST_LINES:
            LOG.warning('more parameters that the control plane asks for '
                        'and that are not followed: %d',
                        len(new) - MOST_LINES)
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
