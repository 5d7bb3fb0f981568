# SPDX-License-Identifier: Apache-2.0

"""Options of controllers, made from the fields of their ``Params``."""

from __future__ import annotations

import dataclasses
from typing import TypeVar

from oslo_config import cfg

from scavenger_openstack.types import Mode

P = TypeVar('P')

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
        source = meta.get('source', '').replace(
            'DESIGN ', 'design page, section ')
        text = meta['help'] + (f'  Source: {source}.' if source else '')
        options.append(kind(field.name, default=field.default, help=text,
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
