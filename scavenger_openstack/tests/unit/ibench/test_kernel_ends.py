# SPDX-License-Identifier: Apache-2.0

"""What a kernel of iBench refuses, how it ends, and that nothing is left."""

from __future__ import annotations

import os
import pathlib
import random
import re
import subprocess
import time

import testtools

from scavenger_openstack.tests import tiers
from scavenger_openstack.tests.unit.ibench import kernels

LEAVE = ('storage_capacity', 'storage_bandwidth', 'network_bandwidth')
"""Kernels with most to leave behind."""


class Refused(testtools.TestCase):

    def test_status_2_and_a_sentence(self) -> None:
        kernels.needs_compiler(self)
        directory = kernels.directory()
        level = 'levels=10:0.1'
        llc = ('l1d=32768', 'l2=65536', 'size=1048576', 'ways=16')
        refused: tuple[tuple[str, ...], ...] = (
                (), ('nothing', level), ('integer',),
                ('integer', 'levels=50'), ('integer', 'levels=101:1'),
                ('integer', 'levels=-1:1'), ('integer', 'levels=nan:1'),
                ('integer', 'levels=10:0'), ('integer', 'levels=10:1,'),
                ('integer', level, 'every_s=0'), ('integer', level, 'x'),
                ('integer', level, 'color=1'), ('integer', level, 'line=63'),
                ('integer', level, 'cpus=1023'), ('integer', level, 'cpus='),
                ('integer', level, 'threads=0'),
                ('integer', level, 'threads=1.5'),
                ('integer', level, 'chunk_s=0'),
                ('memory_capacity', level),
                ('memory_capacity', 'levels=100:1', 'size=1e17'),
                ('memory_bandwidth', level),
                ('memory_bandwidth', level, 'size=1e7', 'sets=4096',
                 'ways=8'),
                ('storage_capacity', level, 'size=1e6'),
                ('storage_capacity', level, f'path={directory}'),
                ('storage_capacity', level, 'path=/nowhere', 'size=1e6'),
                ('storage_capacity', level, 'path=/proc', 'size=1e6'),
                ('storage_capacity', level, 'path=/dev/null', 'size=1e6'),
                ('storage_capacity', 'levels=100:1', f'path={directory}',
                 'size=1e17'),
                ('storage_bandwidth', level, f'path={directory}', 'size=1'),
                ('network_bandwidth', level),
                ('network_bandwidth', level, 'address=here:1'),
                ('network_bandwidth', level, 'address=127.0.0.1:1'),
                ('llc_capacity', level, 'size=1048576'),
                ('llc_capacity', level, *llc, 'sets=5'),
                ('llc_capacity', level, *llc, 'page=17179869184'),
                ('llc_bandwidth', level, 'size=100000', 'l2=1000000'),
                ('l2_capacity', level), ('l1d', level), ('l1i', level),
                ('tlb', level), ('tlb', level, 'entries=9', 'threads=2'),
                ('tlb', level, 'entries=9', 'page=17179869184'),
                ('prefetcher', level), ('interconnect', level),
                ('interconnect', level, 'cpus=0'),
                ('interconnect', level, 'cpus=0,0'), ('serve',),
                ('serve', 'address=192.0.2.1:1'))
        for command in refused:
            done = kernels.run(kernels.program(), *command)
            self.assertEqual((2, ''), (done.returncode, done.stdout),
                             str(command))
            self.assertTrue(re.fullmatch(r'scavenger-soi: .+\n', done.stderr),
                            (command, done.stderr))

    def test_the_cause(self) -> None:
        """Of what a later error hides: it is checked before.  It is named in
        the words of the command, which the operator typed."""
        kernels.needs_compiler(self)
        for cause, *command in (
                ('available memory', 'memory_capacity', 'size=1e17'),
                ('are free', 'storage_capacity', 'size=1e17',
                 f'path={kernels.directory()}'),
                ('cpuset', 'integer', 'cpus=1023'),
                ('in the cache', 'memory_bandwidth', 'size=1e7',
                 'sets=4096', 'ways=8'),
                ('--path', 'storage_capacity', 'size=1e6'),
                ('--cpus', 'interconnect', 'cpus=0'),
                ('scavenger-ibench serve --address', 'network_bandwidth',
                 'address=127.0.0.1:1')):
            done = kernels.run(kernels.program(), *command, 'levels=100:0.1')
            self.assertIn(cause, done.stderr)
            self.assertNotRegex(
                done.stderr, r'(cpus|size|path|address|threads)=')

    def test_more_than_the_memory_limit_of_its_cgroup(self) -> None:
        kernels.needs_compiler(self)
        for place, limit in (('memory', 'memory.limit_in_bytes'),
                             ('', 'memory.max')):
            top = pathlib.Path('/sys/fs/cgroup', place)
            cgroup = top / f'ibench-{os.getpid()}'
            try:
                cgroup.mkdir()
            except OSError:
                continue
            try:
                cgroup.joinpath(limit).write_text(str(64 * kernels.MIB))
                self.check_limit(cgroup)
                return
            except FileNotFoundError:        # not a hierarchy of cgroups
                continue
            finally:
                cgroup.rmdir()
        self.skipTest('no cgroup with a memory limit can be made here')

    def check_limit(self, cgroup: pathlib.Path) -> None:
        for size, status in ((32 * kernels.MIB, 0), (65 * kernels.MIB, 2)):
            done = kernels.run(
                kernels.program(), 'memory_capacity', f'size={size}',
                'levels=100:0.05', 'calibrate_s=0.01',
                preexec_fn=lambda: cgroup.joinpath(
                    'cgroup.procs').write_text('0'))
            self.assertEqual(status, done.returncode, done.stderr)
            self.assertEqual(status == 2, 'cgroup' in done.stderr)

    def test_a_directory_that_is_read_only(self) -> None:
        kernels.needs_compiler(self)
        where = kernels.directory()
        done = subprocess.run(
            ['unshare', '--mount', 'sh', '-c',
             f'mount --bind {where} {where} && '
             f'mount -o remount,bind,ro {where} && '
             f'{kernels.program()} storage_capacity levels=10:0.1 '
             f'size=1000000 path={where}'],
            capture_output=True, text=True, check=False, timeout=60)
        if 'unshare' in done.stderr or 'mount:' in done.stderr:
            self.skipTest(done.stderr.strip())
        self.assertEqual(2, done.returncode)
        self.assertIn(os.strerror(30), done.stderr)


class Ends(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        kernels.needs_compiler(self)
        self.program = kernels.program()

    def test_the_remote_end_is_gone(self) -> None:
        with kernels.started(self.program, 'serve',
                             'address=127.0.0.1:0') as server:
            assert server.stdout is not None
            port = kernels.events(server.stdout.readline())[0]['port']
            with kernels.started(
                    self.program, 'network_bandwidth', 'levels=50:60',
                    f'address=127.0.0.1:{port}', 'every_s=0.05',
                    'chunk_s=0.001', stderr=subprocess.PIPE) as process:
                assert process.stdout and process.stderr
                process.stdout.readline()
                server.kill()
                self.assertEqual(3, process.wait(60))
                self.assertIn('remote end', process.stderr.read())

    def test_killed_at_any_instant(self) -> None:
        """No file, process, thread or socket is left."""
        dice = random.Random(tiers.SEED)
        files = sorted(kernels.directory().iterdir())
        cpus = kernels.two_cpus(self)
        with kernels.remote_end(self.program) as (server, address):
            for turn in range(tiers.times(100, 10)):
                name = dice.choice(LEAVE if turn % 2 else
                                   sorted(kernels.KERNELS))
                with kernels.started(
                        self.program, name, 'levels=20:60,90:60',
                        'calibrate_s=0.05', *kernels.arguments(
                            name, address=address, cpus=cpus),
                        start_new_session=True) as process:
                    time.sleep(dice.uniform(0, 0.3))
                    process.kill()
                    process.wait()
                    self.assertRaises(ProcessLookupError, os.killpg,
                                      process.pid, 0)
            self.assertEqual(files, sorted(kernels.directory().iterdir()))
            connections = pathlib.Path(f'/proc/{server}/task')
            for _ in range(200):
                if len(list(connections.iterdir())) == 1:
                    break
                time.sleep(0.02)
            self.assertEqual(1, len(list(connections.iterdir())))

    def test_no_reader(self) -> None:
        """It ends with the reader of its lines."""
        with kernels.started(self.program, 'integer', 'levels=1:60',
                             'calibrate_s=0.01', 'every_s=0.02') as process:
            assert process.stdout is not None
            process.stdout.close()
            self.assertEqual(-13, process.wait(30))
