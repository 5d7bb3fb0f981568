# SPDX-License-Identifier: Apache-2.0

"""What a domain's XML tells.

The XML is what libvirt 9.0 wrote for a running domain with the metadata of
Nova 34, but for what the tests are about.
"""

from __future__ import annotations

from collections.abc import Mapping

import testtools

from scavenger_openstack.drivers.libvirt import metadata
from scavenger_openstack.drivers.libvirt import xml
from scavenger_openstack.knobs import DEFAULT_FLOORS
from scavenger_openstack.tests.unit.drivers.libvirt.domain_texts import domain
from scavenger_openstack.tests.unit.drivers.libvirt.domain_texts import MIB
from scavenger_openstack.tests.unit.drivers.libvirt.domain_texts import nova
from scavenger_openstack.tests.unit.drivers.libvirt.domain_texts import PROJECT
from scavenger_openstack.tests.unit.drivers.libvirt.domain_texts import TUNE
from scavenger_openstack.tests.unit.drivers.libvirt.domain_texts import UUID
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority


class TestDomain(testtools.TestCase):

    def test_all_of_a_domain(self) -> None:
        one = xml.parse(domain(nova({
            'scavenger:priority': 'background',
            'scavenger:application': 'render farm',
            'scavenger:floor_cpu_cores': '0.5',
            'scavenger:floor_memory_mb': '64',
            'scavenger:floor_io_bytes_per_s': '2e6',
            'scavenger:floor_io_ops_per_s': '20',
            'scavenger:floor_egress_bytes_per_s': ' 250000 ',
            'scavenger:floor_ingress_bytes_per_s': '500000',
            'hw_rng:allowed': 'true'}), tune=TUNE))
        self.assertEqual((UUID, 'instance-00000001', Priority.BACKGROUND,
                          'flavor', PROJECT, f'{PROJECT}/render farm'),
                         (one.uuid, one.name, one.priority, one.source,
                          one.project, one.application))
        self.assertEqual({
            Knob.CPU_CORES: 0.5, Knob.MEMORY_BYTES: 64 * MIB,
            Knob.IO_BYTES_PER_S: 2e6, Knob.IO_OPS_PER_S: 20,
            Knob.EGRESS_BYTES_PER_S: 250000,
            Knob.INGRESS_BYTES_PER_S: 500000}, one.floor)
        self.assertEqual((2, 128 * MIB, 64 * MIB),
                         (one.vcpus, one.memory_allotment_bytes,
                          one.balloon_bytes))
        self.assertEqual(['vda', 'vdb', 'hdb'],
                         [disk.target for disk in one.disks])
        self.assertEqual({'total_bytes_sec': 10000000, 'read_iops_sec': 100},
                         one.disks[0].iotune)
        self.assertEqual(('total', 'split', None), (
            one.disks[0].family('bytes'), one.disks[0].family('iops'),
            one.disks[1].family('bytes')))
        self.assertEqual((('tap5c8a3f00-12', 'tap0'), 1),
                         (one.interfaces, one.other_interfaces))
        self.assertEqual(({0: {0}, 1: {1}}, {0, 1}, True),
                         (one.pins, one.allowed_cpus, one.dedicated))
        self.assertEqual((50000, 100000), (one.quota_us, one.period_us))
        self.assertEqual((True, 'Skylake-Server', 'kvm', True,
                          metadata.NOTHING, ()),
                         (one.has_balloon, one.cpu_model, one.virt_type,
                          one.specs_known, one.record, one.warnings))

    def test_no_metadata_is_foreground(self) -> None:
        text = domain().replace('<metadata></metadata>', '')
        for one in (xml.parse(text), xml.parse(domain())):
            self.assertEqual(
                (Priority.FOREGROUND, 'default', None, None, False, ()),
                (one.priority, one.source, one.project, one.application,
                 one.specs_known, one.warnings))
            self.assertEqual({**DEFAULT_FLOORS,
                              Knob.MEMORY_BYTES: 128.0 * MIB}, one.floor)

    def test_no_disks_and_no_interfaces(self) -> None:
        one = xml.parse(domain(devices=''))
        self.assertEqual(((), (), 0, False), (
            one.disks, one.interfaces, one.other_interfaces,
            one.has_balloon))
        one = xml.parse(domain(
            devices="<memballoon model='none'/>"))
        self.assertFalse(one.has_balloon)
        one = xml.parse(domain(devices="<memballoon model='virtio'/>"))
        self.assertEqual('', one.workload(created_s=1.0).memory_kept)

    def test_memory_that_cannot_be_given_back(self) -> None:
        for rest, wanted in (
                ('', None), ('<memoryBacking><nosharepages/><source '
                             "type='memfd'/></memoryBacking>", None),
                ('<memoryBacking><hugepages/></memoryBacking>',
                 'huge pages'),
                ("<memoryBacking><hugepages><page size='2048' unit='KiB' "
                 "nodeset='0'/></hugepages></memoryBacking>", 'huge pages'),
                ('<memoryBacking><locked/></memoryBacking>',
                 'locked memory'),
                ("<launchSecurity type='sev'/>", "encrypted memory ('sev')"),
                ("<launchSecurity type='tdx'/>", "encrypted memory ('tdx')")):
            one = xml.parse(domain(devices='', rest=rest))
            self.assertEqual(wanted, one.fixed_memory, rest)
            self.assertIn(wanted or 'no balloon',
                          one.workload(created_s=1.0).memory_kept)
        for device, wanted in (
                ("<hostdev mode='subsystem' type='pci'/>", 'hostdev pci'),
                ("<hostdev mode='subsystem' type='mdev'/>", 'hostdev mdev'),
                ("<hostdev mode='subsystem' type='usb'/>", None),
                ("<interface type='hostdev'/>", 'interface hostdev'),
                ("<interface type='vdpa'/>", 'interface vdpa'),
                ("<interface type='vhostuser'/>", None),
                ("<disk type='nvme'/>", 'disk nvme'),
                ("<disk type='block'/>", None)):
            one = xml.parse(domain(devices=device))
            self.assertEqual(
                wanted and f'a device passed through ({wanted})',
                one.fixed_memory, device)

    def test_realtime_vcpus(self) -> None:
        for how, wanted in (('fifo', 'fifo'), ('rr', 'rr'), ('batch', None),
                            ('idle', None)):
            self.assertEqual(wanted, xml.parse(domain(
                tune=f"<cputune><vcpusched vcpus='0-1' scheduler='{how}' "
                     "priority='1'/></cputune>")).realtime)

    def test_devices_that_are_no_file_names(self) -> None:
        for name in ('../../etc', '..', '.', 'a/b', 'x' * 16, '', 'a b'):
            one = xml.parse(domain(
                devices=f"<interface type='ethernet'><target dev='{name}'/>"
                        f"</interface><disk><target dev='{name}!'/></disk>"))
            self.assertEqual(((), 1, ()), (
                one.interfaces, one.other_interfaces, one.disks), name)

    def test_vcpus_are_those_that_are_there_now(self) -> None:
        one = xml.parse(domain(
            vcpu="<vcpu placement='static' current='1'>4</vcpu>"))
        self.assertEqual(1, one.vcpus)

    def test_where_vcpus_may_run(self) -> None:
        def of(vcpu: str, tune: str = '', specs: Mapping[str, str] = {}
               ) -> tuple[frozenset[int] | None, bool]:
            one = xml.parse(domain(nova(specs), vcpu=vcpu, tune=tune))
            return one.allowed_cpus, one.dedicated
        shared = "<vcpu cpuset='0-3'>2</vcpu>"
        self.assertEqual((None, False), of('<vcpu>2</vcpu>'))
        self.assertEqual(({0, 1, 2, 3}, False), of(shared))
        self.assertEqual(({0, 1}, True), of('<vcpu>2</vcpu>', TUNE))
        # Both in one place, or in one NUMA node: not their own CPUs.
        for cpus in ('0', '0-1'):
            pins = ''.join(f"<vcpupin vcpu='{vcpu}' cpuset='{cpus}'/>"
                           for vcpu in (0, 1))
            self.assertFalse(of('<vcpu>2</vcpu>',
                                f'<cputune>{pins}</cputune>')[1])
        one = "<cputune><vcpupin vcpu='0' cpuset='7'/></cputune>"
        self.assertEqual((None, False), of('<vcpu>2</vcpu>', one))
        self.assertEqual(({0, 1, 2, 3, 7}, False), of(shared, one))
        for specs in ({'hw:cpu_policy': 'dedicated'},
                      {'hw:cpu_policy': 'mixed'}, {'resources:PCPU': '2'}):
            self.assertEqual((None, True), of('<vcpu>2</vcpu>', '', specs))

    def test_numa(self) -> None:
        one = xml.parse(domain(
            rest="<numatune><memory mode='strict' nodeset='0,2'/></numatune>"))
        self.assertEqual({0, 2}, one.numa_nodes)

    def test_quota_that_limits_nothing(self) -> None:
        for text in ('-1', '0'):
            one = xml.parse(domain(
                tune=f'<cputune><quota>{text}</quota></cputune>'))
            self.assertIsNone(one.quota_us)

    def test_as_a_workload(self) -> None:
        shared = domain(vcpu="<vcpu cpuset='0-3'>2</vcpu>")
        one = xml.parse(shared).workload(created_s=7)
        self.assertEqual((UUID, UUID, {0, 1, 2, 3}, 2.0, 128.0 * MIB, 7),
                         (one.id, one.group, one.allowed_cpus, one.vcpus,
                          one.memory_allotment_bytes, one.created_s))
        self.assertEqual(('', '', ''), one.disks)     # where, is not known
        self.assertEqual(UUID, one.instance)
        one = xml.parse(domain(
            nova({'scavenger:priority': 'background'}),
            vcpu="<vcpu cpuset='0-3'>2</vcpu>")).workload(created_s=7)
        self.assertEqual({0, 1, 2, 3}, one.allowed_cpus)
        one = xml.parse(domain(tune=TUNE)).workload(created_s=7)
        self.assertEqual({0, 1}, one.allowed_cpus)

    def test_dedicated_cpus(self) -> None:
        def of(vcpu: str, tune: str = '', policy: str = ''
               ) -> frozenset[int] | None:
            specs = {'hw:cpu_policy': policy} if policy else {}
            return xml.parse(domain(
                nova(specs), vcpu=vcpu, tune=tune)).workload(
                    created_s=7).dedicated_cpus
        shared = "<vcpu cpuset='0-3'>2</vcpu>"
        self.assertEqual(set(), of('<vcpu>2</vcpu>'))
        self.assertEqual(set(), of(shared))
        self.assertEqual({0, 1}, of('<vcpu>2</vcpu>', TUNE))
        mixed = ("<cputune><vcpupin vcpu='0' cpuset='0-3'/>"
                 "<vcpupin vcpu='1' cpuset='7'/></cputune>")
        self.assertEqual({7}, of(shared, mixed, 'mixed'))
        self.assertEqual(set(), of(shared, mixed))
        unsaid = xml.parse(domain(nova(), vcpu=shared, tune=mixed))
        self.assertEqual({7}, unsaid.workload(created_s=7).dedicated_cpus)
        # Not as Nova pins: all of it, rather than none.
        self.assertEqual({0, 1, 2, 3}, of(shared, '', 'dedicated'))
