# SPDX-License-Identifier: Apache-2.0


"""A VM is a workload once, wherever its cgroup is."""

from __future__ import annotations

import fixtures
import testtools

from scavenger_openstack.drivers.kernel.cgroup_mounts import Mount
from scavenger_openstack.drivers.qemu import cgroup_overlap
from scavenger_openstack.drivers.qemu import domain_cgroup
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadSample

SCOPE = r'machine-qemu\x2d1\x2done.scope'
PLAIN = 'qemu-2-two.libvirt-qemu'
MOUNTS = {'cpu': Mount('/cg/cpu', 1), 'memory': Mount('/cg/memory', 1),
          'unified': Mount('/cg', 2)}


def cgroup(path: str, group: str = '') -> WorkloadSample:
    return WorkloadSample(Workload(path, Priority.BACKGROUND,
                                   group=group or path))


def machine(text: str) -> domain_cgroup.DomainCgroup:
    found = domain_cgroup.machine(text, MOUNTS)
    assert found is not None
    return found


class TestWithout(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        self.cgroups = cgroup_overlap.DomainCgroups(MOUNTS)
        self.machines = {
            'one': machine(f'0::/machine.slice/{SCOPE}/libvirt/emulator\n'),
            'two': machine(f'2:cpu:/a/{PLAIN}/vcpu0\n'
                           f'1:memory:/b/{PLAIN}\n')}
        self.cgroups.follow(self.machines)

    def left(self, *samples: WorkloadSample) -> list[str]:
        return [one.workload.id for one in self.cgroups.without(samples)]

    def test_those_of_domains_are_left_out(self) -> None:
        slice_ = '/machine.slice'
        for path in (f'{slice_}/{SCOPE}', slice_, f'{slice_}/{SCOPE}/libvirt',
                     f'/a/{PLAIN}', f'/b/{PLAIN}', '/a', '/b',
                     f'/b/{PLAIN}/x/y'):
            self.assertEqual([], self.left(cgroup(path)), path)
        self.assertEqual([], self.left(cgroup(f'{slice_}/x.scope', slice_)))

    def test_others_are_not(self) -> None:
        others = ('/batch/a', '/machine.slice/x.scope', '/aa',
                  f'/c/{PLAIN}', f'/b/{PLAIN}2', '/machine.slice2')
        self.assertEqual(list(others), self.left(*map(cgroup, others)))
        self.assertEqual('', self.log.output)

    def test_directories(self) -> None:
        for workload, controller, directory in (
                ('two', 'memory', f'{MOUNTS["memory"].path}/b/{PLAIN}'),
                ('/b/x', 'memory', f'{MOUNTS["memory"].path}/b/x'),
                ('/b/x', 'none', None), ('three', 'memory', None)):
            self.assertEqual(directory, self.cgroups.directory(
                workload, controller), workload)

    def test_one_line_for_each_parent(self) -> None:
        for _ in range(2):
            self.left(cgroup(f'/machine.slice/{SCOPE}'),
                      cgroup(f'/b/{PLAIN}'),
                      cgroup('/machine.slice/y', '/machine.slice'))
        said = self.log.output.splitlines()
        self.assertEqual(2, len(said), self.log.output)
        self.assertIn('VM one, which is watched by [libvirt] uri; leave it '
                      'out of [cgroups] background_parents', said[0])

    def test_domains_come_and_go(self) -> None:
        found = cgroup(f'/b/{PLAIN}')
        self.cgroups.follow({'one': self.machines['one']})
        self.assertEqual([found.workload.id], self.left(found))
        self.cgroups.follow(self.machines)
        self.assertEqual([], self.left(found))
        self.cgroups.follow({})
        self.assertEqual([found.workload.id], self.left(found))
