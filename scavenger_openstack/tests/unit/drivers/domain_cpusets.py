# SPDX-License-Identifier: Apache-2.0

"""A VM whose CPU set is limited, on file trees of both versions of cgroups."""

from __future__ import annotations

from collections.abc import Sequence

import fixtures
import testtools

from scavenger_openstack.drivers import base
from scavenger_openstack.drivers.kernel import cgroup_mounts
from scavenger_openstack.drivers.qemu import cpuset
from scavenger_openstack.drivers.qemu import domain_cgroup
from scavenger_openstack.restore import actions
from scavenger_openstack.tests.unit import cpusets
from scavenger_openstack.types import Value

ONE = '/machine/qemu-1-one.libvirt-qemu'
ALL = frozenset(range(8))


class Knobs:
    """That one knob, as a driver has it."""

    def __init__(self, cpus: cpuset.CpuSet) -> None:
        self._cpus = cpus

    def read(self, *_: object) -> Value | None:
        return self._cpus.read()

    def restore_actions(self, *_: object) -> list[base.RestoreAction]:
        return self._cpus.actions()


class CpuSetCase(testtools.TestCase):
    """A VM whose CPU set is limited, on version 1 if not said otherwise."""

    version = 1
    parts = ('emulator', 'iothread1', 'vcpu0', 'vcpu1')
    line = '5:cpuset:'

    def setUp(self) -> None:
        super().setUp()
        self.useFixture(fixtures.FakeLogger())
        self.host = self.useFixture(cpusets.Host(8, self.version))
        for path in ('/machine', ONE):
            self.host.cgroup(path)
        for part in self.parts:
            self.host.cgroup(f'{ONE}/{part}')
        self.root = str(self.host.root)
        self.machine = domain_cgroup.machine(
            f'{self.line}{ONE}/emulator', cgroup_mounts.find_mounts(self.root))
        self.cpus = self.open()
        self.state: base.KnobState | None = None

    def open(self) -> cpuset.CpuSet:
        return cpuset.CpuSet('one', self.machine, self.root)

    def restore(self, taken: Sequence[base.RestoreAction]) -> None:
        kind = 'cgroup' if self.version == 1 else 'cgroup2'
        mounts = [(str(self.host.sets), kind,
                   self.host.sets.stat().st_dev)]
        for step in taken:
            actions.validate(step, mounts)
            actions.run(step, mounts, named={one['inode'] for one in taken})

    def sets(self, *parts: str) -> list[set[int]]:
        return [self.host.set_of(f'{ONE}/{part}')
                for part in parts or self.parts]
