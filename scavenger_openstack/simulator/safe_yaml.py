# SPDX-License-Identifier: Apache-2.0

"""YAML from outside: plain values, and not too many."""

from __future__ import annotations

import yaml

LARGEST_INT = 1 << 64
MOST_KEYS = 1000


class Loader(yaml.SafeLoader):     # type: ignore[misc]
    """Plain values only: a scenario must not be able to make objects, nor
    a few lines to become what fills the memory or cannot be printed."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        if len(node.value) > MOST_KEYS:
            raise yaml.constructor.ConstructorError(
                None, None, f'more than {MOST_KEYS} keys', node.start_mark)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        value: int = super().construct_yaml_int(node)
        if not -LARGEST_INT < value < LARGEST_INT:
            raise yaml.constructor.ConstructorError(
                None, None, 'too large a number', node.start_mark)
        return value


Loader.add_constructor('tag:yaml.org,2002:int', Loader.construct_yaml_int)
