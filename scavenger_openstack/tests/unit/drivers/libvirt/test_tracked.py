# SPDX-License-Identifier: Apache-2.0

import dataclasses
import pathlib

import fixtures
import testtools

from scavenger_openstack.drivers.libvirt import tracked
from scavenger_openstack.tests.unit.drivers.libvirt import seen_domains
from scavenger_openstack.types import Floor
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload

MIB = 2.0 ** 20
HOSTS = {Knob.CPU_CORES: 0.1, Knob.MEMORY_BYTES: 64 * MIB,
         Knob.IO_OPS_PER_S: 10.0}
"""What the file of the host says."""

VM = Workload('vm', Priority.FOREGROUND, instance='vm', vcpus=2.0,
              floor={**HOSTS, Knob.MEMORY_BYTES: 1024 * MIB},
              memory_allotment_bytes=1024 * MIB)


class AllowedTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.allowed = tracked.Allowed(HOSTS)

    def priority(self, workload: Workload = VM) -> Priority:
        return self.allowed.of(workload, specs_known=False).priority

    def floor(self, asked: Floor, *, specs_known: bool = False,
              workload: Workload = VM) -> dict[Knob, float]:
        """What is not the host's of the floor when this is asked for."""
        self.allowed.want({'vm': asked})
        found = self.allowed.of(workload, specs_known=specs_known).floor
        self.assertEqual(workload.floor.keys(), found.keys())
        return {knob: value for knob, value in found.items()
                if value != workload.floor[knob]}

    def test_what_the_flavor_says_stays(self) -> None:
        self.allowed.want({'vm': {}})
        for source in ('flavor', 'parent'):
            self.assertIs(Priority.FOREGROUND, self.priority(
                Workload('vm', Priority.FOREGROUND, source)))
        self.assertIs(Priority.BACKGROUND, self.priority())
        self.assertEqual('override', self.allowed.of(
            VM, specs_known=False).source)

    def test_until_it_ends(self) -> None:
        """A limit that it has must not hang when it is withdrawn."""
        self.assertIs(Priority.FOREGROUND, self.priority())
        self.assertEqual({'vm'}, self.allowed.want({'vm': {}}))
        self.assertIs(Priority.BACKGROUND, self.priority())
        self.assertEqual(set(), self.allowed.want({'vm': {}}))
        self.allowed.want({})
        self.assertIs(Priority.BACKGROUND, self.priority())
        self.allowed.forget('vm')
        self.assertIs(Priority.FOREGROUND, self.priority())

    def test_the_floor_of_a_flavor_that_is_not_known_here(self) -> None:
        """Memory may then be limited, which has its RAM as its floor."""
        self.assertEqual({}, self.floor({}))
        self.assertEqual(
            {Knob.CPU_CORES: 0.5, Knob.MEMORY_BYTES: 512 * MIB,
             Knob.IO_OPS_PER_S: 1e6},
            self.floor({Knob.CPU_CORES: 0.5, Knob.MEMORY_BYTES: 512 * MIB,
                        Knob.IO_OPS_PER_S: 1e6}))

    def test_no_floor_is_below_that_of_the_host(self) -> None:
        """Nor above what the VM has."""
        for low in (0.0, 1e-9, 0.09):
            self.assertEqual({Knob.MEMORY_BYTES: 64 * MIB}, self.floor(
                dict.fromkeys(HOSTS, low)))
        self.assertEqual(
            {Knob.CPU_CORES: 2.0, Knob.IO_OPS_PER_S: 2.0 ** 53},
            self.floor(dict.fromkeys(HOSTS, 2.0 ** 53)))

    def test_the_floor_of_a_flavor_that_is_known_here(self) -> None:
        """Its definition says it, and nothing lowers that."""
        self.assertEqual({}, self.floor(
            {Knob.MEMORY_BYTES: 64 * MIB}, specs_known=True))
        one = dataclasses.replace(VM, floor={
            **HOSTS, Knob.MEMORY_BYTES: 512 * MIB})
        self.assertEqual({}, self.floor({Knob.MEMORY_BYTES: 256 * MIB},
                                        specs_known=True, workload=one))
        self.assertEqual(
            {Knob.MEMORY_BYTES: 768 * MIB},
            self.floor({Knob.MEMORY_BYTES: 768 * MIB}, specs_known=True,
                       workload=one))

    def test_another_floor(self) -> None:
        """It counts at once, and stays when the priority is withdrawn."""
        self.floor({})
        self.assertEqual({'vm'}, self.allowed.want(
            {'vm': {Knob.CPU_CORES: 0.5}}))
        self.priority()
        self.assertEqual(set(), self.allowed.want(
            {'vm': {Knob.CPU_CORES: 0.5}}))
        self.allowed.want({})
        self.assertEqual(0.5, self.allowed.of(
            VM, specs_known=False).floor[Knob.CPU_CORES])

    def test_many_that_are_not_here_leave_nothing(self) -> None:
        for number in range(100_000):
            self.allowed.want({f'{number}': {}, 'vm': {}})
        self.priority()
        self.assertGreater(5, len(self.allowed._wanted)
                           + len(self.allowed._made))


class DisksTest(testtools.TestCase):

    def test_disks_are_those_of_the_host(self) -> None:
        """Once each; a network disk is somewhere, an empty drive nowhere."""
        root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (root / 'proc/self').mkdir(parents=True)
        (root / 'proc/self/mountinfo').write_text(
            '22 1 8:0 / / rw - ext4 /dev/sda rw\n'
            '23 22 8:16 / /slow rw - ext4 /dev/sdb rw\n')
        for number in ('8:0', '8:16'):
            place = root / 'sys/dev/block' / number
            place.mkdir(parents=True)
            (place / 'dev').write_text(f'{number}\n')
        allowed = tracked.Allowed(HOSTS, str(root))
        for sources, wanted in (
                (('file="/a"', 'file="/b"'), ('8:0',)),
                (('file="/a"', 'file="/slow/b"'), ('8:0', '8:16')),
                (('file="/slow/b"', 'protocol="rbd" name="volumes/x"'),
                 ('8:16', '')),
                (('pool="p" volume="v"',), ('',)), ((), ())):
            workload = allowed.workload(seen_domains.seen(disks=''.join(
                f'<disk><source {source}/><target dev="vd{letter}"/></disk>'
                for source, letter in zip(sources, 'ab', strict=False))
                + '<disk device="cdrom"><target dev="hda"/></disk>'))
            self.assertEqual(wanted, workload.disks)
