# SPDX-License-Identifier: Apache-2.0

"""Where the cgroups of a domain are, by what /proc says of its QEMU."""

from __future__ import annotations

import testtools

from scavenger_openstack.drivers.kernel.cgroup_mounts import Mount
from scavenger_openstack.drivers.kernel.perf_event import Place
from scavenger_openstack.drivers.qemu import domain_cgroup

PLAIN = 'qemu-1-instance-00000001.libvirt-qemu'
SCOPE = r'machine-qemu\x2d1\x2dinstance\x2d00000001.scope'

V1 = {name: Mount(f'/cg/{name}', 1)
      for name in ('cpu', 'cpuacct', 'cpuset', 'memory', 'blkio')}
V2 = Mount('/cg', 2)


class TestMachine(testtools.TestCase):

    def find(self, text: str, mounts: dict[str, Mount]
             ) -> tuple[str | None, ...] | None:
        """Name, and for some controllers the machine's own directory."""
        found = domain_cgroup.machine(text, mounts)
        if found is None:
            return None
        return (found.name, *(found.path(name) for name in mounts))

    def test_version_1(self) -> None:
        text = (f'4:memory:/machine/{PLAIN}\n'
                f'3:cpuset:/machine/{PLAIN}/emulator\n'
                f'2:cpuacct,cpu:/machine/{PLAIN}/emulator\n'
                '1:name=systemd:/\n7:blkio:/\n')
        self.assertEqual(
            (PLAIN, *(f'/cg/{name}/machine/{PLAIN}' for name in
                      ('cpu', 'cpuacct', 'cpuset', 'memory')), None),
            self.find(text, V1))

    def test_names_that_python_takes_for_several_lines(self) -> None:
        for odd in '\r\x0b\x0c\x1c\x85\u2028':
            name = f'qemu-1-a{odd}b.libvirt-qemu'
            self.assertEqual((name, f'/cg/memory/machine/{name}'), self.find(
                f'4:memory:/machine/{name}\n', {'memory': V1['memory']}))

    def test_version_1_with_systemd(self) -> None:
        scope = f'/machine.slice/{SCOPE}'
        text = (f'2:cpu,cpuacct:{scope}/libvirt/emulator\n'
                f'4:memory:{scope}/libvirt\n3:cpuset:{scope}/emulator\n'
                f'7:blkio:{scope}\n')
        found = domain_cgroup.machine(text, V1)
        assert found is not None
        self.assertEqual({f'/cg/{name}{scope}' for name in V1},
                         {found.path(name) for name in V1})
        self.assertEqual(
            {'cpu': f'/cg/cpu{scope}/libvirt',
             'cpuset': f'/cg/cpuset{scope}'},
            {name: found.parts[name] for name in ('cpu', 'cpuset')})

    def test_version_2_below_any_parent(self) -> None:
        mounts = {'unified': V2, 'cpu': V2, 'memory': V2}
        for above in ('', '/machine.slice', '/test/of a/scope.scope',
                      '/machine.partition/gold.partition'):
            for below in ('', '/libvirt', '/libvirt/emulator',
                          '/libvirt/vcpu12', '/libvirt/iothread1',
                          '/emulator'):
                for name in (SCOPE, PLAIN):
                    self.assertEqual(
                        (name, *[f'/cg{above}/{name}'] * 3),
                        self.find(f'0::{above}/{name}{below}\n', mounts))

    def test_where_it_is_counted(self) -> None:
        """Where perf counts by; of an emulated guest all of QEMU."""
        text = f'2:cpu:/{PLAIN}\n3:perf_event:/{PLAIN}\n0::/a/{SCOPE}\n'
        for mount, name in ((Mount('/cg/perf_event', 1), PLAIN),
                            (V2, f'a/{SCOPE}')):
            found = domain_cgroup.machine(text, {'perf_event': mount})
            assert found is not None
            for virt_type, guest_only in (('kvm', True), ('qemu', False),
                                          ('', False)):
                self.assertEqual(Place(f'{mount.path}/{name}', guest_only),
                                 found.place(virt_type))
        found = domain_cgroup.machine(text, V1)
        assert found is not None
        self.assertIsNone(found.place('kvm'))

    def test_which_cgroups_are_machines(self) -> None:
        for name, expected in (
                (f'/machine/{PLAIN}', True),
                (f'/machine.slice/{SCOPE}', True),
                (f'/machine.slice/{SCOPE}/libvirt', True),
                (f'/machine.slice/{SCOPE}/libvirt/vcpu0', False),
                ('/batch/qemu-build', False), ('/batch/a', False)):
            self.assertEqual(expected, domain_cgroup.is_machine(name), name)

    def test_both_versions(self) -> None:
        """As libvirt 9 does it: cpuacct stays where it was."""
        text = (f'4:memory:/machine/{PLAIN}\n2:cpuacct:/\n'
                f'1:cpu:/machine/{PLAIN}/emulator\n'
                f'0::/machine/{PLAIN}/emulator\n')
        self.assertEqual(
            (PLAIN, f'/cg/cpu/machine/{PLAIN}', None,
             f'/cg/unified/machine/{PLAIN}'),
            self.find(text, {'cpu': V1['cpu'], 'cpuacct': V1['cpuacct'],
                             'unified': Mount('/cg/unified', 2)}))

    def test_no_machine_of_its_own(self) -> None:
        for path in ('/', '', '/user.slice/user-1000.slice/session-2.scope',
                     '/libvirt', '/emulator', '/libvirt/emulator',
                     '/system.slice/libvirtd.service',
                     f'/machine/{PLAIN} (deleted)', f'/../machine/{PLAIN}',
                     r'/machine.slice/machine-lxc\x2d1\x2dx.scope',
                     f'/machine/{PLAIN}/other'):
            text = f'0::{path}\n2:cpu:{path}\ngarbage\n:::\n'
            self.assertIsNone(self.find(text, {'unified': V2, **V1}), path)
        self.assertIsNone(self.find('', V1))

    def test_another_machine_in_another_hierarchy(self) -> None:
        other = PLAIN.replace('qemu-1', 'qemu-2')
        self.assertEqual(
            (PLAIN, f'/cg/cpu/{PLAIN}', None),
            self.find(f'1:cpu:/{PLAIN}\n2:memory:/{other}\n',
                      {'cpu': V1['cpu'], 'memory': V1['memory']}))
