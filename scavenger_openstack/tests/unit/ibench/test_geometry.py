# SPDX-License-Identifier: Apache-2.0

"""Sizes of a host, from a tree as the kernel shows it."""

from __future__ import annotations

import pathlib

import fixtures
import testtools

from scavenger_openstack import errors
from scavenger_openstack.ibench import arguments
from scavenger_openstack.ibench import catalogue
from scavenger_openstack.ibench import geometry
from scavenger_openstack.tests.unit import mount_files

CACHES = (
    (1, 'Data', '32K', 8, 64), (1, 'Instruction', '32K', 8, 64),
    (2, 'Unified', '1024K', 8, 2048), (3, 'Unified', '32768K', 16, 32768))


class HostTree(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.root = pathlib.Path(self.useFixture(fixtures.TempDir()).path)

    def write(self, path: str, text: str) -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def cache(self, number: int, level: int, kind: str, size: str,
              ways: int, sets: int) -> None:
        for name, value in (('level', level), ('type', kind), ('size', size),
                            ('ways_of_associativity', ways),
                            ('number_of_sets', sets),
                            ('coherency_line_size', 64),
                            ('shared_cpu_list', '0-3')):
            self.write(f'sys/devices/system/cpu/cpu1/cache/index{number}/'
                       f'{name}', f'{value}\n')

    def read(self, **overrides: int) -> geometry.Geometry:
        return geometry.read_geometry(1, overrides, str(self.root))


class Geometry(HostTree):

    def test_three_levels(self) -> None:
        for number, cache in enumerate(CACHES):
            self.cache(number, *cache)
        self.write('proc/cpuinfo', 'TLB size\t: 2560 4K pages\n')
        read = self.read()
        self.assertEqual(geometry.Cache(32768, 8, 64, 64),
                         read.cache('l1i'))
        self.assertEqual(geometry.Cache(1 << 20, 8, 2048, 64),
                         read.cache('l2'))
        self.assertEqual(geometry.Cache(32 << 20, 16, 32768, 64),
                         read.cache('llc'))
        self.assertEqual((2560, 64, ()), (read.tlb_entries, read.line_bytes,
                                          read.notes))

    def test_the_second_of_two_levels_is_the_last(self) -> None:
        for number, cache in enumerate(CACHES[:3]):
            self.cache(number, *cache)
        read = self.read()
        self.assertEqual(1 << 20, read.cache('llc').size_bytes)
        self.assertNotIn('l2', read.caches)
        chosen = arguments.Surroundings(
            read, geometry.Memory(1 << 32, 1 << 32, 'memory'), (1,))
        self.assertRaises(errors.ConfigError, arguments.plan_start,
                          catalogue.find_soi('6a'), chosen)
        self.assertIn('l2=32768', arguments.plan_start(
            catalogue.find_soi('6'), chosen).words)

    def test_nothing_to_read(self) -> None:
        """As in some containers: assumed, or a sentence with the option."""
        read = self.read()
        self.assertEqual({}, read.caches)
        self.assertEqual(2, len(read.notes))
        chosen = arguments.Surroundings(
            read, geometry.Memory(1 << 32, 1 << 32, 'memory'), (1,))
        for number, option in (('6', 'llc=SIZE'), ('7', 'llc=SIZE'),
                               ('6a', 'l2=SIZE'), ('8', 'l1i=SIZE'),
                               ('9', 'l1d=SIZE')):
            exc = self.assertRaises(
                errors.ConfigError, arguments.plan_start,
                catalogue.find_soi(number), chosen)
            self.assertIn(f'--geometry {option}', str(exc))

    def test_an_arm64_that_lists_caches_without_sizes(self) -> None:
        for name, text in (('level', '1'), ('type', 'Data')):
            self.write(f'sys/devices/system/cpu/cpu1/cache/index0/{name}',
                       text)
        self.assertEqual({}, self.read().caches)
        self.write('sys/devices/system/cpu/cpu1/cache/index0/size', '0K\n')
        self.assertEqual({}, self.read().caches)

    def test_overrides(self) -> None:
        for number, cache in enumerate(CACHES):
            self.cache(number, *cache)
        read = self.read(llc=8 << 20, tlb=64, page=2 << 20)
        self.assertEqual(geometry.Cache(8 << 20, 16, 8192, 64),
                         read.cache('llc'))
        self.assertEqual((64, 2 << 20), (read.tlb_entries, read.page_bytes))
        self.assertEqual(4, self.read(l2_ways=4).cache('l2').ways)
        self.assertRaises(errors.ConfigError, self.read, llc=64,
                          llc_ways=16)

    def test_ways_without_a_size(self) -> None:
        self.assertRaises(errors.ConfigError, self.read, llc_ways=16)

    def test_siblings_and_neighbours(self) -> None:
        self.assertIsNone(geometry.find_sibling(1, str(self.root)))
        self.assertEqual(frozenset(),
                         geometry.find_neighbours(1, str(self.root)))
        self.cache(3, *CACHES[3])
        self.write('sys/devices/system/cpu/cpu1/topology/'
                   'thread_siblings_list', '1,65\n')
        self.assertEqual(65, geometry.find_sibling(1, str(self.root)))
        self.assertEqual({0, 1, 2, 3},
                         geometry.find_neighbours(1, str(self.root)))


class Sizes(testtools.TestCase):

    def test_sizes(self) -> None:
        for text, size in (('1', 1), ('32K', 32768), ('1.5m', 3 << 19),
                           ('2GiB', 2 << 30), ('1024 kB', 1 << 20)):
            self.assertEqual(size, geometry.parse_bytes(text), text)
        for text in ('', '0', '-1', 'x', '1X', '1e9', '0.1', '99999999T'):
            self.assertRaises(ValueError, geometry.parse_bytes, text)


class Memory(HostTree):

    def host(self, *limits: tuple[str, str]) -> None:
        self.write('proc/meminfo',
                   'MemTotal: 4096 kB\nMemAvailable: 3072 kB\n')
        mount_files.mount(self.root, '/sys/fs/cgroup cgroup2 rw')
        self.write('proc/self/cgroup', '0::/a/b\n')
        self.write('sys/fs/cgroup/cgroup.controllers', 'memory cpu\n')
        for path, limit in limits:
            self.write(f'sys/fs/cgroup{path}/memory.max', limit)
            self.write(f'sys/fs/cgroup{path}/memory.current', '1000')

    def test_of_the_host(self) -> None:
        self.host(('/a', 'max'))
        read = geometry.read_memory(None, str(self.root))
        self.assertEqual((4096 << 10, 3072 << 10), read[:2])

    def test_a_limit_above_holds(self) -> None:
        self.host(('/a', '1000000'), ('/a/b', '2000000'))
        read = geometry.read_memory(None, str(self.root))
        self.assertEqual((1000000, 999000), read[:2])
        self.assertIn('/a', read.whole)

    def test_of_a_cgroup_that_was_named(self) -> None:
        self.host(('/a', '1000000'), ('/c', '500000'))
        self.assertEqual(500000, geometry.read_memory(
            '/c', str(self.root)).total_bytes)

    def test_no_proc(self) -> None:
        self.assertRaises(errors.ConfigError, geometry.read_memory, None,
                          str(self.root))
