# SPDX-License-Identifier: Apache-2.0

"""Options of controllers, made from the fields of their ``Params``.

An option that was called something else before is taken by its old name, too:
the field says so in its metadata, as ``deprecated_name``.
"""

from __future__ import annotations

from collections.abc import Mapping
import dataclasses
from typing import TypeVar

from oslo_config import cfg

from scavenger_openstack.types import Mode

P = TypeVar('P')
V = TypeVar('V')

MODES = {Mode.OFF: 'nothing is computed',
         Mode.OBSERVE: 'decisions are made and shown, nothing is touched',
         Mode.ENFORCE: 'limits are set'}


def mode_opt() -> cfg.Opt:
    """The option ``mode``, which every controller has."""
    return cfg.StrOpt('mode', default=str(Mode.OBSERVE), mutable=True,
                      choices=[(str(mode), text)
                               for mode, text in MODES.items()],
                      help='How far this controller may go.  Where it is '
                           'not set, a regulator of a resource that [agent] '
                           'protect lists enforces.')


def opts_of(params: type) -> list[cfg.Opt]:
    """The mode and one option per field of a ``Params`` dataclass."""
    kinds = {'bool': cfg.BoolOpt, 'int': cfg.IntOpt, 'float': cfg.FloatOpt,
             'str': cfg.StrOpt}
    options = [mode_opt()]
    for field in dataclasses.fields(params):
        kind = kinds[getattr(field.type, '__name__', str(field.type))]
        meta = field.metadata
        bounds = {name: meta[name] for name in ('min', 'max', 'choices')
                  if meta.get(name) is not None}
        source = meta.get('source')
        text = meta['help'] + (f'  Source: {source}.' if source else '')
        options.append(kind(field.name, default=field.default, help=text,
                            deprecated_name=meta.get('deprecated_name'),
                            **bounds))
    return options


def params_of(conf: cfg.ConfigOpts, section: str, params: type[P]) -> P:
    """Fill a ``Params`` dataclass from its section.

    :raises oslo_config.cfg.Error: a value is not of its kind, or out of
        bounds
    :raises ValueError: the dataclass refuses them together
    """
    conf.register_opts(opts_of(params), section)
    group = conf[section]
    return params(**{field.name: getattr(group, field.name)
                     for field in dataclasses.fields(params)})  # type: ignore[arg-type]


def old_names(params: type) -> dict[str, str]:
    """What options of a ``Params`` dataclass were called before -> what they
    are called now."""
    return {field.metadata['deprecated_name']: field.name
            for field in dataclasses.fields(params)
            if 'deprecated_name' in field.metadata}


def by_new_names(values: Mapping[str, V], names: Mapping[str, str]
                 ) -> dict[str, V]:
    """Values of options by what these are called now.

    :param names: old name -> new name; where a value is given by either, that
        by the new one counts
    """
    return {**{names[name]: value for name, value in values.items()
               if name in names},
            **{name: value for name, value in values.items()
               if name not in names}}


def laid_over(values: Mapping[str, V], more: Mapping[str, V],
              names: Mapping[str, str]) -> dict[str, V]:
    """``values`` with ``more`` in their place, by whichever name of an option
    either has it; each stays under the name that it is given by.

    :param names: old name -> new name
    """
    given = {names.get(name, name) for name in more}
    return {**{name: value for name, value in values.items()
               if names.get(name, name) not in given}, **more}
