# SPDX-License-Identifier: Apache-2.0

"""A conductor that answers with whatever JSON, and with what is none.

Each field of each type of :class:`.report.Answer` is made by its type, with
values at and beyond its bounds, and by its name: names of workloads that are
there, of controllers and their parameters, of knobs.

``python -m scavenger_openstack.tests.functional.hostile COUNT SEED NAMES
[OPTION...]`` starts so many agents, one after the other: with a file of
directives like that, or with what the agent before has kept, and each gets
such answers until it is told to end.  The options are those of an agent.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
import copy
import json
import random
import re
import sys
import threading
import time
from typing import Any

import msgspec
from msgspec import inspect
from oslo_config import cfg

from scavenger_openstack.agent.control_plane import directives
from scavenger_openstack.agent import service
from scavenger_openstack import conf
from scavenger_openstack.conf import params as conf_params
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Mode
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import patterns
from scavenger_openstack.wire import report as wire

PARAMETERS = [f'{section}.{option.name}' for section, params
              in sorted(conf.PARAMS.items())
              for option in conf_params.opts_of(params)]
SECTIONS = sorted(conf.PARAMS)

ODD: tuple[Any, ...] = (
    None, True, 0, -1, 0.05, 0.5, 2, -0.0, 1e-300, 5e-324, 1e308,
    float('nan'), float('inf'), 10 ** 30, 10 ** 4000, '', '0', '0-1', '9-',
    '65535', 'x', 'enforce', '\ud800', '\0', '../..', 'a' * 5000, [], {},
    [[]], {'a': 1}, [None], {'': None})
"""In place of anything."""
NAMES = ('x', '.', '..', '../..', '/', '-1', '0', 'None', 'é', 'x ', ' x',
         'a' * 255, '\u202ex', '\x1b[2J', 'a\nb', '\ufffd', '%s', '{}',
         '$(id)', '__class__', 'mode', 'directives', 'operator', *SECTIONS)
"""That are taken, and are of nothing that is there, or of something else."""
KEYS = ('', '\ud800', '\0', 'a' * 256, *NAMES)
"""In place of names."""
NUMBERS = (0.0, -0.0, 1.0, -1.0, 0.05, 0.3, 2.0, 60.0, 5e-324, 1e-300, 1e9,
           2.0 ** 26, 2.0 ** 53, 1e300, 1e308, 1.7976931348623157e308)
TEXTS = ('', '0', '0-1', '1', '0,0', '0-99999999', '-', 'x', 'nan', '-inf',
         'true', '1e400', '0x10', '١', 'why', 'a\nb', '\x1b[2J', 'x' * 1999,
         '%(x)s', '$x')
FIELDS = sorted(
    f'{kind.__name__}.{field}' for kind in (
        wire.Directives, wire.Tag, wire.Override, wire.Spec, wire.Budget,
        wire.ProfilingOrder, wire.Answer) for field in kind.__struct_fields__)
"""All of an answer."""
ANSWER = inspect.type_info(wire.Answer)
DIRECTIVES = inspect.type_info(wire.Directives)
MOST = 2000
"""Entries of a long list: the longest that an agent takes."""


class Hostile:
    """Answers with directives that are as wrong as can be.

    :param names: of workloads and groups that are there, or nearly
    :param controllers: names of those that run, besides all that there are
    """

    def __init__(self, chance: random.Random, names: list[str],
                 controllers: list[str]) -> None:
        self._chance = chance
        self._names = names
        self._controllers = [*controllers, *SECTIONS]
        self._count = 0
        self._now = time.time()
        self._made = {
            'modes': lambda: self._choice(
                (*Mode, *Mode, *Mode, 'later', *NAMES[:3])),
            'knob': lambda: self._choice((*Knob, *Knob, 'io_weight', 'x')),
            'signal': lambda: self._choice(('cpi', 'run_delay', 'x')),
            'source': lambda: self._choice(
                ('instance', 'flavor', 'project', 'aggregate', 'default',
                 '')),
            'digest': self._digest, 'workloads_digest': self._digest,
            'schema': lambda: wire.SCHEMA if chance.random() < 0.97 else 2,
            'protection': lambda: chance.random() < 0.8,
            'issued_s': self._time, 'expires_s': self._time,
            'until_s': self._time, 'time_s': self._time,
            'parameters': lambda: self._choice((*NUMBERS, *TEXTS)),
            'value': lambda: self._choice((None, *NUMBERS, *TEXTS))}
        self._made |= dict.fromkeys(
            ('instance', 'workload', 'exempt', 'id', 'application',
             'project', 'cpu_model'), self._name)
        self._keys: dict[str, Callable[[], str]] = {
            'modes': lambda: self._choice(self._controllers),
            'parameters': self._parameter,
            'floor': lambda: self._choice((*Knob, 'x'))}
        self.last = b''
        """The last answer."""
        self.kept: Any = None
        """Its directives."""
        self.filled: collections.Counter[str] = collections.Counter()
        """How often each field was there, as ``Type.field``."""

    @property
    def stops(self) -> bool:
        """Whether the last answer has a kill switch, whatever else it is."""
        try:
            answer = json.loads(self.last)
        except (ValueError, RecursionError):
            return False
        found = answer.get('directives') if isinstance(answer, dict) else None
        return isinstance(found, dict) and found.get('protection') is False

    def __call__(self, report: bytes) -> bytes:
        """
        :raises WireError: the agent's report is one that no conductor takes.
        """
        codec.decode(report, wire.Report, wire.MAX_REPORT_BYTES)
        chance = self._chance
        self._count += 1
        self._now = time.time()
        answer = self._of(ANSWER, 'answer')
        found = answer['directives'] = self._of(DIRECTIVES, 'directives')
        for _ in range(chance.choice((0, 0, 0, 0, 1, 2))):
            self._spoil(found if chance.random() < 0.8 else answer)
        self.kept = answer.get('directives')
        self.last = self._text_of(answer)
        if chance.random() < 0.03:
            self.last = self._torn(self.last)
        return self.last

    def _choice(self, those: Any) -> Any:
        return self._chance.choice(those)

    def _of(self, kind: inspect.Type, name: str) -> Any:
        """A value of a type.

        :param name: the field that it is in
        """
        chance = self._chance
        if isinstance(kind, inspect.Metadata):
            kind = kind.type
        if isinstance(kind, inspect.StructType):
            found = {}
            for field in kind.fields:
                if field.required or chance.random() < 0.5:
                    found[field.encode_name] = self._of(
                        field.type, field.name)
                    self.filled[f'{kind.cls.__name__}.{field.name}'] += 1
            return found
        if isinstance(kind, inspect.ListType):
            return [self._of(kind.item_type, name)
                    for _ in range(self._length(kind.max_length))]
        if isinstance(kind, inspect.DictType):
            return {self._key(name): self._of(kind.value_type, name)
                    for _ in range(self._length(kind.max_length))}
        if name in self._made and chance.random() < 0.9:
            return self._made[name]()
        if isinstance(kind, inspect.UnionType):
            return self._of(self._choice(kind.types), name)
        if isinstance(kind, inspect.LiteralType):
            return self._choice(kind.values)
        if isinstance(kind, inspect.BoolType):
            return chance.random() < 0.5
        if isinstance(kind, inspect.IntType):
            return self._choice((kind.ge or 0, 1, 2, 9, kind.le or 2 ** 53))
        if isinstance(kind, inspect.FloatType):
            return self._choice([
                number for number in NUMBERS
                if (kind.ge is None or number >= kind.ge)
                and (kind.le is None or number <= kind.le)])
        if isinstance(kind, inspect.StrType):
            return self._choice([
                text for text in (*TEXTS, *NAMES)
                if (kind.min_length or 0) <= len(text)
                <= (kind.max_length or 255)
                and re.search(kind.pattern or '', text)])
        return None

    def _length(self, most: int | None) -> int:
        """Some; now and then as many as are taken, or one more."""
        if self._chance.random() < 0.002:
            return min(most or MOST, MOST) + self._choice((0, 0, 1))
        return self._choice((0, 0, 1, 2, 3))

    def _key(self, name: str) -> str:
        if self._chance.random() < 0.1 or name not in self._keys:
            return self._choice(NAMES)
        return str(self._keys[name]())

    def _name(self) -> Any:
        return self._choice(
            self._names if self._chance.random() < 0.7 else NAMES)

    def _time(self) -> float:
        return float(self._choice(
            (self._now, self._now, self._now + 60, self._now + 1e9,
             max(0.0, self._now - 1e9), 0, patterns.LAST_S)))

    def _digest(self) -> str:
        """Another one each time."""
        return f'{self._count}-{self._chance.random()}'

    def _parameter(self) -> str:
        """The name of one, or one that is nearly such a name."""
        chance = self._chance
        name = chance.choice(PARAMETERS)
        if chance.random() < 0.7:
            return name
        section, _, option = name.partition('.')
        return chance.choice((
            section, option, f'{section}.', f'.{option}', '.', '..', 'x',
            f'{name}.x', f'{section}.{section}.{option}', f'{name} ',
            f'{section}.mode', f'{section}.__class__', name.upper(),
            f'{chance.choice(SECTIONS)}.{option}', f'{section}\n.{option}',
            f'{section}.{chance.choice(NAMES)}', chance.choice(NAMES)))

    def _spoil(self, value: Any) -> None:
        """Put something odd anywhere in it."""
        while True:
            keys = list(value) if isinstance(value, dict) else list(
                range(len(value)))
            if not keys:
                return
            key = self._chance.choice(keys)
            inner = value[key]
            if isinstance(value, dict) and self._chance.random() < 0.1:
                value[self._chance.choice((*KEYS, *keys))] = value.pop(key)
                return
            if (not isinstance(inner, dict | list)
                    or self._chance.random() < 0.3):
                value[key] = copy.deepcopy(self._chance.choice(ODD))
                return
            value = inner

    def _text_of(self, answer: Any) -> bytes:
        """As one encoder or another writes it."""
        if self._chance.random() < 0.5:
            try:
                return msgspec.json.encode(answer)
            except (ValueError, TypeError, OverflowError):
                pass
        return json.dumps(answer).encode()

    def _torn(self, text: bytes) -> bytes:
        """Another text, as long or shorter."""
        chance = self._chance
        at = chance.randrange(max(1, len(text)))
        return chance.choice((
            b'', b'null', b'[' * 100_000, chance.randbytes(200), text[:at],
            text[:at] + chance.randbytes(1) + text[at + 1:], text + text,
            b'\xef\xbb\xbf' + text))


RUN_S = 0.6
"""So long an agent goes on after the first answer: some ticks."""


def run(configuration: cfg.ConfigOpts, hostile: Hostile) -> int:
    """Run an agent for some ticks; its exit code."""
    def call(report: bytes) -> bytes:
        if ending.ident is None:
            ending.start()
        return hostile(report)

    agent = service.Service(configuration, call=call)
    ending = threading.Timer(RUN_S, agent.stop)
    code = agent.run()
    ending.join()
    return code


def main(arguments: list[str]) -> None:
    count, seed, names, *options = arguments
    configuration = cfg.ConfigOpts()
    conf.register(configuration)
    conf.load(configuration, options, 'test')
    service.set_up_log(configuration)
    chance = random.Random(seed)
    hostile = Hostile(chance, names.split(','), [])
    path = conf.sync_dir(configuration) / directives.FILE
    for number in range(int(count)):
        if path.exists() and chance.random() < 0.7:
            path.write_text(json.dumps(hostile.kept))
        code = run(configuration, hostile)
        if code:
            sys.exit(f'agent {number}: {code}')
    print(json.dumps(hostile.filled))


if __name__ == '__main__':
    main(sys.argv[1:])
