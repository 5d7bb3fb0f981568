# SPDX-License-Identifier: Apache-2.0

"""Private members of the product that tests use all the same."""

from __future__ import annotations

import ast
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
import re

PRIVATE: Mapping[str, tuple[Collection[str], str]] = {
    'tests/functional/test_delay_accounting.py': (
        {'_kernel', '_known', '_socket', '_talk'},
        'makes the kernel lose an answer; what is followed shows nowhere'),
    'tests/functional/test_libvirt_counters.py': (
        {'_known', '_perf'}, 'counts with other settings than a host has'),
    'tests/functional/test_libvirt_versions.py': (
        {'_libvirt'}, 'one call of libvirt, without what is above it'),
    'tests/functional/test_perf.py': (
        {'_groups', '_known'}, 'sets a counter of the kernel back'),
    'tests/unit/agent/apply/test_trees.py': (
        {'_let_go'}, 'a cgroup that vanishes for a moment cannot be made'),
    'tests/unit/agent/lease/test_leases.py': (
        {'_clock'}, 'moves the clock of leases'),
    'tests/unit/agent/test_domain_limits.py': (
        {'_health'}, 'a fault that libvirtd has only in a race'),
    'tests/unit/agent/test_loop.py': (
        {'_clock'}, 'moves the clock of leases'),
    'tests/unit/algorithms/attribution/test_controller.py': (
        {'_disturbances'}, 'a base that is wrong from the start'),
    'tests/unit/decision/test_tags.py': (
        {'_done', '_orders', '_tagged'}, 'that nothing piles up'),
    'tests/unit/drivers/kernel/test_sched_switch.py': (
        {'_memory', '_open', '_visit'}, 'a kernel without BPF'),
    'tests/unit/drivers/libvirt/test_tracked.py': (
        {'_made', '_wanted'}, 'that nothing piles up'),
    'tests/unit/libvirtd.py': (
        {'_cache', '_libvirt'}, 'what the driver knows, and has logged'),
    'tests/unit/nova/test_notifier.py': (
        {'_shared'}, 'one of a process; each test begins without'),
    'tests/unit/restore/test_pause.py': (
        {'_changes'}, 'a kernel without inotify'),
}
"""Tests that use private members of the product: which, and what for."""

TUPLES = {'_asdict', '_fields', '_make', '_replace'}
"""Public names of named tuples."""


def private(name: str) -> bool:
    return name[:1] == '_' and name[1:2] not in ('', '_') \
        and name not in TUPLES


def defined(tree: ast.AST) -> set[str]:
    """Private names that a module gives to something of its own."""
    return {name for node in ast.walk(tree) if private(name := (
        node.name if isinstance(
            node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        else node.id if isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Store)
        else node.attr if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store) and _own(node) else ''))}


def used(tree: ast.AST) -> Iterator[tuple[str, int, bool]]:
    """Private names that are reached through something, in which line, and
    whether through ``self``: as attributes, and in a name for a patch."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            name, own = node.attr, _own(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found = re.fullmatch(r'(?:\w+\.)*(_\w+)', node.value)
            name, own = found[1] if found else '', False
        else:
            continue
        if private(name):
            yield name, node.lineno, own


def _own(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in (
        'self', 'cls')
