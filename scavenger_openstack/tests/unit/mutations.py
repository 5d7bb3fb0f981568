# SPDX-License-Identifier: Apache-2.0

"""Files and answers with something wrong in them: the same in each run."""

from __future__ import annotations

from collections.abc import Iterator
import copy
import json
import random
import re
from typing import Any

from scavenger_openstack.tests.unit import examples

NUMBER = examples.EXAMPLES or 60
FEW = examples.EXAMPLES or 12
"""For readers that take long."""

TOKENS = (
    b'', b'null', b'true', b'-1', b'0', b'1.5', b'1e-320', b'1e400', b'NaN',
    b'-Infinity', b'9' * 400, b'9' * 5000, b'"\\ud800"', b'"\\u0000"',
    b'[]', b'{}', b'[[]]', b'[' * 2000, b'{"a":' * 2000, b'"' + b'x' * 5000,
    b'\0', b'\n', b'\r', b'\xff', b'\xed\xa0\x80', b'\xef\xbf\xbd', b',', b':',
    b'"', b'/', b'0-65535,' * 500, b'!!int ""', b'!!bool x',
    b'!!timestamp x', b'&a [*a]', b'$one', b'<', b'&x;', b'=', b'%')
VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 3, 1.5, 1e308, -1e308, 5e-324, 10 ** 400,
    float('nan'), float('inf'), '', 'x', '\ud800', '\0', '-1', 'x' * 5000,
    '0-65535,' * 500, [], [[]], [None], {}, {'a': 1}, {'type': []}, [1, 2])
_WORDS = re.compile(rb'[A-Za-z_]+|[0-9.+-]+|\s+|.', re.DOTALL)


def texts(good: bytes, seed: object = '', number: int = NUMBER
          ) -> Iterator[bytes]:
    """Good bytes, then these with some words changed."""
    yield good
    dice = random.Random(f'{examples.SEED} {seed}')
    for _ in range(number):
        words = _WORDS.findall(good)
        for _ in range(dice.choice((1, 1, 2, 5))):
            at = dice.randrange(len(words) + 1)
            to = min(len(words), at + dice.choice((0, 1, 1, 1, 2, 8)))
            words[at:to] = dice.choice((
                [dice.choice(TOKENS)], [dice.choice(TOKENS)], [],
                words[at:to] * 2, [dice.choice(words or [b''])]))
        found = b''.join(words)
        yield found[:dice.randrange(len(found) + 1)] if dice.random() < 0.1 \
            else found


def documents(good: Any, seed: object = '', number: int = NUMBER
              ) -> Iterator[Any]:
    """A good document, then this with some values changed."""
    yield good
    dice = random.Random(f'{examples.SEED} {seed}')
    for _ in range(number):
        found = [copy.deepcopy(good)]
        for _ in range(dice.choice((1, 1, 2, 4))):
            inside, key = dice.choice(_places(found))
            if isinstance(inside, dict) and dice.random() < 0.2:
                if dice.random() < 0.5:
                    del inside[key]
                else:
                    inside[dice.choice(('', 'x', 'id'))] = inside[key]
            else:
                inside[key] = copy.deepcopy(dice.choice(VALUES))
        yield found[0]


def as_json(good: Any, seed: object = '', number: int = NUMBER
            ) -> Iterator[bytes]:
    """A good document in JSON, with something wrong in either."""
    for document in documents(good, seed, number):
        yield json.dumps(document).encode()
    yield from texts(json.dumps(good).encode(), seed, number)


def _places(found: Any) -> list[tuple[Any, Any]]:
    """All that a value can be put into."""
    places, todo = [], [found]
    while todo:
        one = todo.pop()
        for key, value in (one.items() if isinstance(one, dict)
                           else enumerate(one)):
            places.append((one, key))
            if isinstance(value, dict | list):
                todo.append(value)
    return places
