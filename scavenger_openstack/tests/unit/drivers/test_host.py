# SPDX-License-Identifier: Apache-2.0

"""A host on which links and libvirt come after the agent, and floors."""

from __future__ import annotations

import os
import pathlib
import socket
import time

import fixtures
from oslo_config import cfg
import testtools

from scavenger_openstack import conf as conf_
from scavenger_openstack.drivers import base
from scavenger_openstack.drivers.host import Host
from scavenger_openstack import errors
from scavenger_openstack.tests.unit import host_tree
from scavenger_openstack.tests.unit import libvirtd
from scavenger_openstack.tests.unit import mount_files
from scavenger_openstack.types import Floor
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Knob


class TestFloors(testtools.TestCase):

    def test_of_a_vm(self) -> None:
        """Those of the configuration, but for its memory."""
        daemon = self.useFixture(libvirtd.Libvirtd())
        where = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (where / 'conf').write_text('\n'.join((
            '[cgroups]', 'floor_cpu_cores = 0.3', 'floor_io_ops_per_s = 7',
            'floor_memory_bytes = 5', '[perf]', 'enabled = off', '[libvirt]',
            'uri = qemu:///system', f'run_dir = {daemon.path}', '')))
        conf = cfg.ConfigOpts()
        conf_.register(conf)
        conf_.load(conf, ['--config-file', str(where / 'conf'),
                          '--state-dir', str(where / 'state')], 'test')
        host = Host(conf)
        self.addCleanup(host.close)
        end_s = time.monotonic() + libvirtd.DEADLINE_S
        floors: list[Floor] = []
        while not floors:
            self.assertLess(time.monotonic(), end_s)
            time.sleep(0.01)
            floors = [one.workload.floor for one in host.sample().workloads
                      if one.workload.instance]
        [floor] = floors
        self.assertEqual((0.3, 7.0), (floor[Knob.CPU_CORES],
                                      floor[Knob.IO_OPS_PER_S]))
        self.assertEqual(daemon.snapshot.domain.memory_allotment_bytes,
                         floor[Knob.MEMORY_BYTES])


class TestLinks(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.logs = self.useFixture(fixtures.FakeLogger())
        self.tree = self.useFixture(host_tree.Host())
        for path in ('/batch', '/batch/a'):
            self.tree.cgroup(path)

    def host(self, *network: str) -> Host:
        where = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (where / 'conf').write_text('\n'.join((
            '[cgroups]', 'background_parents = /batch', '[perf]',
            'enabled = off', '[network]', *network, '')))
        conf = cfg.ConfigOpts()
        conf_.register(conf)
        conf_.load(conf, [
            '--config-file', str(where / 'conf'), '--state-dir',
            str(where / 'state'), '--root-dir', str(self.tree.root)], 'test')
        conf.set_override('protect', ['network'], 'agent')
        self.conf = conf
        found = Host(conf)
        self.addCleanup(found.close)
        return found

    def link(self, name: str, state: str, speed: str = '1000') -> None:
        top = f'sys/class/net/{name}'
        self.tree.put(f'{top}/device/vendor', '')
        self.tree.put(f'{top}/operstate', state)
        self.tree.put(f'{top}/speed', speed)

    def turn(self, one: Host) -> HostSample:
        for _ in range(base.RESCAN_TICKS + 1):
            sample = one.sample()
        return sample

    def missing(self, one: Host) -> bool:
        return any(sentence.startswith('network: the device')
                   for sentence in one.facts().missing)

    def test_a_link_that_comes_up_later(self) -> None:
        self.link('ens9f0', 'down')
        one = self.host('interfaces = /batch/a=scv-none')
        sample = self.turn(one)
        self.assertEqual(({}, {}), (sample.links, sample.link_of))
        self.assertTrue(self.missing(one))
        self.link('ens9f0', 'up')
        sample = self.turn(one)
        self.assertEqual({'ens9f0': 125e6}, sample.links)
        self.assertEqual({'scv-none': 'ens9f0'}, sample.link_of)
        self.assertFalse(self.missing(one))
        self.assertEqual(1, self.logs.output.count('link is now: ens9f0'))
        # Down for a while: it is the link all the same.
        self.link('ens9f0', 'down', '-1')
        self.assertEqual({'ens9f0': 125e6}, self.turn(one).links)
        # Another comes up beside it: which of them is not known.
        self.link('ens9f0', 'up')
        self.link('ens9f1', 'up')
        sample = self.turn(one)
        self.assertEqual(({}, {}), (sample.links, sample.link_of))
        self.assertTrue(self.missing(one))

    def test_a_link_that_is_configured_stays(self) -> None:
        self.link('ens9f0', 'up')
        one = self.host('links = eth7=5e6', 'interfaces = /batch/a=scv-none')
        for _ in range(2):
            sample = self.turn(one)
            self.assertEqual({'eth7': 5e6}, sample.links)
            self.assertEqual({'scv-none': 'eth7'}, sample.link_of)
        self.assertRaises(errors.ConfigError, self.host, 'links = eth7=5e6',
                          'interfaces = /batch/a=scv-none/eth8')

    def test_page_cache_that_version_1_does_not_count(self) -> None:
        """So no rule takes what background reads again for the foreground's.
        """
        mount_files.mount(self.tree.root, '/m cgroup rw,memory',
                          '/u cgroup2 rw')
        for text, counted in (('total_workingset_refault_file 1', True),
                              ('total_cache 1', False)):
            self.tree.put('m/memory.stat', text)
            self.assertEqual(counted, self.host().sample().refault_bytes
                             is not None)

    def test_page_cache_that_is_read_again(self) -> None:
        """That of workloads is read while the host's count grows."""
        mount_files.mount(self.tree.root, '/m cgroup rw,memory',
                          '/c cgroup rw,cpuacct')
        key = 'workingset_refault_file'
        self.tree.put('m/memory.stat', f'total_{key} 0\n')
        self.tree.put('m/batch/a/memory.usage_in_bytes', '1\n')
        one, counts = self.host(), []
        for tick in range(9):
            self.tree.put('proc/vmstat', f'nr 1\n{key} {tick // 6}\n')
            self.tree.put('m/batch/a/memory.stat',
                          f'total_cache 1\ntotal_{key} {tick}\n')
            self.tree.put('c/batch/a/cpuacct.usage', f'{tick}\n')
            workload, = one.sample().workloads
            counts.append((workload.refault_bytes or 0)
                          // os.sysconf('SC_PAGE_SIZE'))
        self.assertEqual([0, 1, 2, 2, 2, 2, 6, 7, 8], counts)

    def test_libvirt_that_is_started_later(self) -> None:
        one = self.host()
        self.turn(one)
        self.assertNotIn('libvirt', ''.join(one.facts().missing))
        path = str(self.tree.root / 'libvirt-sock')
        libvirtd = socket.socket(socket.AF_UNIX)
        self.addCleanup(libvirtd.close)
        libvirtd.bind(path)
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.conf.host.LIBVIRT_SOCKETS', (path,)))
        self.conf.set_override('root_dir', '/')
        self.turn(one)
        self.assertIn('restart scavenger-agent', ''.join(one.facts().missing))
