# SPDX-License-Identifier: Apache-2.0

"""What Nova's metadata in a domain's XML decides, and what it cannot."""

from __future__ import annotations

import testtools

from scavenger_openstack.drivers.libvirt import nova_metadata
from scavenger_openstack.drivers.libvirt import xml
from scavenger_openstack.knobs import DEFAULT_FLOORS
from scavenger_openstack.tests.unit.drivers.libvirt.domain_texts import domain
from scavenger_openstack.tests.unit.drivers.libvirt.domain_texts import MIB
from scavenger_openstack.tests.unit.drivers.libvirt.domain_texts import nova
from scavenger_openstack.tests.unit.drivers.libvirt.domain_texts import PROJECT
from scavenger_openstack.tests.unit.drivers.libvirt.domain_texts import UUID
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority


class TestNovaMetadata(testtools.TestCase):

    def specs(self, **specs: str) -> xml.Domain:
        """Parsed with extra specs; ``_`` of a name stands for ``:``."""
        return xml.parse(domain(nova(
            {f'scavenger:{key}': value for key, value in specs.items()})))

    def test_as_its_operator_knows_it(self) -> None:
        for version in ('1.0', '1.1'):
            one = xml.parse(domain(nova(
                {'scavenger:priority': 'backgroud'}, name=' web 1 ',
                version=version))).instance
            self.assertEqual(
                (UUID, 'instance-00000001', 'web 1', 'm1.small',
                 Priority.FOREGROUND, 'default', True),
                (one.uuid, one.name, one.display_name, one.flavor,
                 one.priority, one.source, one.specs_known))
            self.assertEqual((
                "extra spec 'scavenger:priority' = 'backgroud' is ignored: "
                'it has to be foreground or background',), one.ignored)
        one = xml.parse(domain(nova(name='x' * 5000))).instance
        self.assertEqual(128, len(one.display_name))
        one = xml.parse(domain(nova(name='web\n\u202e\x851').replace(
            'm1.small', 'm1&#10;x'))).instance
        self.assertEqual(('web\\n\\u202e\\x851', 'm1\\nx'),
                         (one.display_name, one.flavor))
        one = xml.parse(domain()).instance
        self.assertEqual(('', '', False),
                         (one.display_name, one.flavor, one.specs_known))

    def test_extra_specs_that_are_not_ours_change_nothing(self) -> None:
        one = xml.parse(domain(nova({
            'hw:mem_page_size': 'large', 'priority': 'background',
            'scavenger_priority': 'background', 'scavengers:priority': 'x'})))
        self.assertEqual((Priority.FOREGROUND, 'default', True, False, ()),
                         (one.priority, one.source, one.specs_known,
                          one.dedicated, one.warnings))

    def test_nova_before_it_told_extra_specs(self) -> None:
        one = xml.parse(domain(nova(version='1.0')))
        self.assertEqual((PROJECT, False, Priority.FOREGROUND),
                         (one.project, one.specs_known, one.priority))

    def test_wrong_extra_specs_are_named_and_the_rest_is_used(self) -> None:
        wrong = {'scavenger:priority': 'batch',
                 'scavenger:application': 'two\nlines',
                 'scavenger:floor_cpu_cores': '-1',
                 'scavenger:floor_memory_mb': 'nan',
                 'scavenger:floor_io_ops_per_s': '0',
                 'scavenger:floor_io_bytes_per_s': '1e400',
                 'scavenger:prioriti': 'background'}
        one = xml.parse(domain(nova(
            {**wrong, 'scavenger:floor_egress_bytes_per_s': '9'})))
        self.assertEqual((Priority.FOREGROUND, 'default', None),
                         (one.priority, one.source, one.application))
        self.assertEqual({**DEFAULT_FLOORS, Knob.MEMORY_BYTES: 128.0 * MIB,
                          Knob.EGRESS_BYTES_PER_S: 9}, one.floor)
        self.assertEqual(len(wrong), len(one.warnings), str(one.warnings))
        for said, (key, value) in zip(one.warnings, wrong.items(),
                                      strict=True):
            for word in ('instance-00000001', UUID, key, repr(value)):
                self.assertIn(word, said)
            self.assertNotIn('\n', said)

    def test_numbers_that_are_none(self) -> None:
        for text in ('', 'inf', '-inf', 'nan', '0x10', '1_000', '٣', '1 2',
                     '1' * 4000, '0e5', '1e-999', '1,5', '+1'):
            one = self.specs(floor_cpu_cores=text)
            self.assertEqual(0.1, one.floor[Knob.CPU_CORES], text)
            self.assertEqual(1, len(one.warnings), text)

    def test_tenants_cannot_change_the_priority(self) -> None:
        """Whatever the image says, and wherever else a word may stand."""
        claims = {'scavenger:priority': 'background',
                  'scavenger_priority': 'background',
                  'scavenger:floor_cpu_cores': '64',
                  'scavenger_application': 'mine'}
        one = xml.parse(domain(nova({}, claims, name='background')))
        self.assertEqual((Priority.FOREGROUND, 'default', 0.1, ()),
                         (one.priority, one.source,
                          one.floor[Knob.CPU_CORES], one.warnings))
        self.assertEqual(f'{PROJECT}/mine', one.application)
        spec = ('<nova:extraSpec name="scavenger:priority">background'
                '</nova:extraSpec>')
        meta = nova({}, {})
        for place in ('<nova:extraSpecs></nova:extraSpecs>',
                      '<nova:ports/>', '<nova:properties></nova:properties>'):
            # The same element, but not where Nova writes extra specs.
            text = domain(meta.replace(place, place + spec))
            self.assertIn(spec, text)
            one = xml.parse(text)
            self.assertEqual(Priority.FOREGROUND, one.priority, place)

    def test_the_status_says_what_of_an_image_is_ignored(self) -> None:
        """And not the log, which tenants would fill."""
        one = xml.parse(domain(nova({}, {
            'scavenger_priority': 'background', 'hw_vif_model': 'virtio',
            'scavenger:floor_memory_mb': '1', 'scavenger_application': '',
            'scavenger_x': 'y'})))
        self.assertEqual(
            ("image property 'scavenger_priority' = 'background' is ignored: "
             'only an extra spec of the flavor can say that',
             "image property 'scavenger:floor_memory_mb' = '1' is ignored: "
             'only an extra spec of the flavor can say that',
             "image property 'scavenger_application' = '' is ignored: the "
             'project is not known, or the name has not 1 to 128 printable '
             'characters'), one.instance.ignored)
        self.assertEqual((), one.warnings)

    def test_text_that_looks_like_xml_stays_text(self) -> None:
        inject = ('</nova:name><nova:flavor><nova:extraSpecs><nova:extraSpec '
                  'name="scavenger:priority">background</nova:extraSpec>')
        one = xml.parse(domain(nova(
            {}, {'scavenger_application': inject}, name=inject)))
        self.assertEqual(Priority.FOREGROUND, one.priority)

    def test_applications_of_two_projects_never_meet(self) -> None:
        found = [xml.parse(domain(nova(
            specs, properties, project=project))).application
            for project in ('a', 'b') for specs, properties in (
                ({'scavenger:application': 'web'}, {}),
                ({}, {'scavenger_application': 'b/web'}))]
        self.assertEqual(['a/web', 'a/b/web', 'b/web', 'b/b/web'], found)

    def test_without_a_project_there_is_no_application(self) -> None:
        for project in (None, '', 'a/b', 'x' * 65):
            one = xml.parse(domain(nova(
                {'scavenger:application': 'web'}, {}, project=project)))
            self.assertEqual((None, None), (one.project, one.application))
            self.assertIn('project', one.warnings[0])

    def test_the_flavor_names_the_application_before_the_image(self) -> None:
        image = {'scavenger_application': 'mine'}
        one = xml.parse(domain(nova(
            {'scavenger:application': 'web'}, image)))
        self.assertEqual(f'{PROJECT}/web', one.application)

    def test_protection(self) -> None:
        """The flavor alone takes it away."""
        for specs, properties, protected in (
                (None, {}, True), ({}, {}, True),
                ({'scavenger:protect': 'true'}, {}, True),
                ({'scavenger:protect': 'false'}, {}, False),
                ({'scavenger:protect': 'no'}, {}, True),
                ({}, {'scavenger_protect': 'false',
                      'scavenger:protect': 'false'}, True)):
            one = xml.parse(domain(nova(specs, properties)))
            self.assertIs(protected, one.protected)
            self.assertIs(protected, one.workload(created_s=0.0).protected)
        self.assertEqual(2, len(one.ignored_properties))

    def test_flavor_and_image_name_the_application_at_last(self) -> None:
        """Also below Nova 2025.2, whose definitions have both."""
        root = f'<nova:root type="image" uuid="{UUID}"/>'
        made = f'{PROJECT}/m1.small@{UUID}'
        for version in ('1.0', '1.1'):
            for specs, properties, wanted in (
                    (None, None, made), ({}, {}, made),
                    ({'scavenger:application': 'a\nb'},
                     {'scavenger_application': ''}, made),
                    ({}, {'scavenger_application': 'mine'},
                     f'{PROJECT}/mine'),
                    ({'scavenger:application': 'web'}, {},
                     f'{PROJECT}/web')):
                self.assertEqual(wanted, xml.parse(domain(nova(
                    specs, properties, version=version, root=root)
                )).application)
        self.assertIsNone(xml.parse(domain(nova(
            root=root, project=None))).application)

    def test_a_vm_that_boots_from_a_volume(self) -> None:
        """It has no image, and nothing else that tells what it does."""
        for root in ('', f'<nova:root type="volume" uuid="{UUID}"/>',
                     '<nova:root type="image" uuid=""/>',
                     '<nova:root type="image"/>',
                     '<nova:root type="image" uuid="../x"/>'):
            self.assertIsNone(xml.parse(domain(nova(root=root))).application)

    def test_names_of_tenants_stay_on_one_short_line(self) -> None:
        long = 'n' * 100_000
        for bad in (long, 'a\u202eb', 'line\nbreak', '', '\u2028'):
            one = xml.parse(domain(nova(
                {'scavenger:application': bad, 'scavenger:priority': bad},
                {'scavenger_application': bad}, name=bad)))
            self.assertIsNone(one.application)
            self.assertEqual(2, len(one.warnings))
            for said in one.warnings:
                self.assertLess(len(said), 400)
                self.assertTrue(said.isprintable(), ascii(said))

    def test_malformed_metadata_is_foreground(self) -> None:
        begin = f'<nova:instance xmlns:nova="{nova_metadata.NOVA[0]}">'
        for inner in ('', '<nova:flavor/>', '<nova:owner/>', '<nova:owner>'
                      '<nova:project/></nova:owner>', '<nova:extraSpecs>'
                      '<nova:extraSpec name="scavenger:priority">background'
                      '</nova:extraSpec></nova:extraSpecs>',
                      '<nova:flavor><nova:extraSpecs><nova:extraSpec/>'
                      'background</nova:extraSpecs></nova:flavor>'):
            one = xml.parse(domain(f'{begin}{inner}</nova:instance>'))
            self.assertEqual((Priority.FOREGROUND, None),
                             (one.priority, one.application), inner)
