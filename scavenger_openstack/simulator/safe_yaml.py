# SPDX-License-Identifier: Apache-2.0

"""YAML from outside: plain values, and not too many."""

from __future__ import annotations

from typing import Any

import yaml

LARGEST_INT = 1 << 64
MOST_DEPTH = 50
MOST_DIGITS = 100
MOST_KEYS = 1000

_FAULTS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What PyYAML raises for a value that is not of the type that it says."""


class Loader(yaml.SafeLoader):     # type: ignore[misc]
    """Plain values only: a scenario must not be able to make objects, nor
    a few lines to become what fills the memory or cannot be printed."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> Any:
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise yaml.composer.ComposerError(
                None, None, f'nested deeper than {MOST_DEPTH} levels',
                self.peek_event().start_mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except _FAULTS as exc:
            value = (f'{node.value!a:.40}'
                     if isinstance(node, yaml.ScalarNode) else 'this')
            raise yaml.constructor.ConstructorError(
                None, None, f'{value} is not of type '
                + node.tag.rpartition(':')[2], node.start_mark) from exc

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        if len(node.value) > MOST_KEYS:
            raise yaml.constructor.ConstructorError(
                None, None, f'more than {MOST_KEYS} keys', node.start_mark)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        value: int = super().construct_yaml_int(_short(node))
        if not -LARGEST_INT < value < LARGEST_INT:
            raise _too_large(node)
        return value

    def construct_yaml_float(self, node: yaml.ScalarNode) -> float:
        value: float = super().construct_yaml_float(_short(node))
        return value

    def construct_yaml_str(self, node: yaml.ScalarNode) -> str:
        value: str = super().construct_yaml_str(node)
        value.encode()      # or there is half of a surrogate pair
        return value


def _short(node: yaml.ScalarNode) -> yaml.ScalarNode:
    """The node, if it is short enough to be a number: one of base 60 takes
    the square of its length."""
    if len(node.value) > MOST_DIGITS:
        raise _too_large(node)
    return node


def _too_large(node: yaml.Node) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(
        None, None, 'too large a number', node.start_mark)


for kind in ('int', 'float', 'str'):
    Loader.add_constructor(f'tag:yaml.org,2002:{kind}',
                           getattr(Loader, f'construct_yaml_{kind}'))
