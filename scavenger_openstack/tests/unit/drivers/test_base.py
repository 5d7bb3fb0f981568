# SPDX-License-Identifier: Apache-2.0


"""Every driver has the whole contract."""

from __future__ import annotations

from collections.abc import Callable
import inspect
from typing import Any

import testtools

from scavenger_openstack.drivers import base
from scavenger_openstack.drivers.cgroup import cgroups
from scavenger_openstack.drivers import host
from scavenger_openstack.drivers.libvirt import domains
from scavenger_openstack.drivers.network import limits
from scavenger_openstack.recording import replay
from scavenger_openstack.recording import writer
from scavenger_openstack.simulator import driver as simulator


def contract(of: type) -> set[str]:
    """Return the methods; what is no method mypy checks."""
    return {name for name, kind in vars(of).items()
            if not name.startswith('_') and callable(kind)}


def parameters(of: Callable[..., Any]) -> list[tuple[str, Any]]:
    """Each name, and its default."""
    return [(name, one.default) for name, one
            in inspect.signature(of).parameters.items()]


class TestContract(testtools.TestCase):

    def test_nothing_is_optional(self) -> None:
        knobs = contract(base.Knobs)
        every = knobs | contract(base.CpuSets) | contract(base.Driver)
        self.assertIn('notify', knobs)
        self.assertIn('sample', every)
        for names, parts in (
                (knobs, (cgroups.Cgroups, domains.Domains, limits.Network)),
                (every, (host.Host, replay.Replay, simulator.Simulator))):
            for name in names:
                wanted = parameters(getattr(base.Driver, name))
                for part in parts:
                    self.assertEqual(wanted, parameters(getattr(part, name)),
                                     f'{part} {name}')
        self.assertEqual(parameters(base.Knobs.write),
                         parameters(writer.RecordedKnobs.write))

    def test_types(self) -> None:
        """Checked by mypy: each can stand where the contract is asked for."""
        kinds: tuple[type[base.Driver], ...] = (
            host.Host, replay.Replay, simulator.Simulator)
        parts: tuple[type[base.Knobs], ...] = (
            *kinds, cgroups.Cgroups, domains.Domains, limits.Network)
        self.assertEqual(6, len(parts))
