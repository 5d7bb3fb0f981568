# SPDX-License-Identifier: Apache-2.0


"""The way back, step by step, on real cgroups and network devices."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import shlex
import subprocess
import sys
import textwrap
import threading
from typing import Any
import uuid

import fixtures

from scavenger_openstack.restore import actions
from scavenger_openstack.restore import cgroup
from scavenger_openstack.restore import network
from scavenger_openstack.restore import program
from scavenger_openstack.restore import records
from scavenger_openstack.restore import restoration
from scavenger_openstack.tests.functional import base

MIB = 2 ** 20


class RestoreTestCase(base.FunctionalTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.tree = self.cgroups()
        self.state = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path, 'state')
        (self.state / 'leases').mkdir(parents=True)
        self.state.chmod(0o700)

    def step(self, controller: str, below: str, file: str, text: str,
             **more: Any) -> dict[str, Any]:
        path = self.tree.path(controller, below)
        return {'do': 'write', 'dir': str(path), 'file': file, 'text': text,
                'inode': path.stat().st_ino, **more}

    def limit(self, name: str, below: str, text: str) -> dict[str, Any]:
        """A step that writes a limit, given as version 1 writes it."""
        path = self.tree.file(name, below)
        return {'do': 'write', 'dir': str(path.parent), 'file': path.name,
                'text': self.tree.text(name, text),
                'inode': path.parent.stat().st_ino}

    def put(self, *steps_: dict[str, Any], knob: str = 'cpu_cores',
            **more: Any) -> records.Lease:
        lease = records.Lease(**{
            'workload': self.tree.name, 'knob': knob,
            'boot_id': records.boot_id(), 'actions': steps_,
            'name': f'{uuid.uuid4().hex}.json', **more})
        path = self.state / 'leases' / lease.name
        path.write_bytes(records.dump(lease))
        path.chmod(0o600)
        return lease

    def left(self) -> list[str]:
        return sorted(os.listdir(self.state / 'leases'))

    def main(self, *args: str) -> tuple[int, str]:
        errors = io.StringIO()
        with contextlib.redirect_stderr(errors):
            code = program.main(['--state-dir', str(self.state), *args])
        return code, errors.getvalue()

    def restore(self, *steps_: dict[str, Any], **more: Any) -> bool:
        return restoration.restore(self.put(*steps_, **more))


class Knobs(RestoreTestCase):
    """Each knob comes back, and a second time nothing is written."""

    def back(self, *steps_: dict[str, Any]) -> None:
        self.assertTrue(self.restore(*steps_))
        self.assertFalse(self.restore(*steps_))

    def test_quota(self) -> None:
        for text in ('-1', '150000'):
            self.tree.put('quota', '', '10000')
            self.back(self.limit('quota', '', text))
            self.assertEqual(text, self.tree.get('quota'))

    def test_quota_and_period(self) -> None:
        self.needs_v1('version 2 has them in one file')
        for text in ('-1', '150000'):
            self.tree.write('cpu', '', 'cpu.cfs_period_us', '20000')
            self.tree.put('quota', '', '10000')
            self.back(self.step('cpu', '', 'cpu.cfs_period_us', '100000'),
                      self.limit('quota', '', text))
            self.assertEqual(text, self.tree.get('quota'))
            self.assertEqual('100000', self.tree.read('cpu', '',
                                                      'cpu.cfs_period_us'))

    def test_idle_and_weight(self) -> None:
        steps_ = (self.limit('idle', '', '0'),
                  self.limit('weight', '', '3072'))
        self.tree.put('idle', '', '1')
        self.back(*steps_)
        self.assertEqual('3072', self.tree.get('weight'))

    def test_was_idle_before(self) -> None:
        """The kernel takes no weight then; it reads back right as it is."""
        self.tree.put('idle', '', '1')
        weight = self.tree.get('weight')
        steps_ = (self.limit('idle', '', '1'),
                  self.limit('weight', '', weight))
        self.tree.put('idle', '', '0')
        self.back(*steps_)

    def test_memory(self) -> None:
        no_limit = self.tree.get('memory')
        for text, expected in ((no_limit, no_limit), ('-1', no_limit),
                               (str(96 * MIB), str(96 * MIB))):
            self.tree.put('memory', '', str(64 * MIB))
            self.back(self.limit('memory', '', text))
            self.assertEqual(expected, self.tree.get('memory'))

    def test_memory_above_what_another_program_set(self) -> None:
        """The kernel takes no limit above that of memory and swap."""
        self.needs_v1('version 2 has no such limit')
        if not self.tree.path('memory').joinpath(
                'memory.memsw.limit_in_bytes').exists():
            self.skipTest('needs swap accounting')
        for text in ('-1', str(96 * MIB)):
            self.tree.put('memory', '', str(64 * MIB))
            self.tree.write('memory', '', 'memory.memsw.limit_in_bytes',
                            str(80 * MIB))
            self.assertTrue(self.restore(self.limit('memory', '', text)))
            self.assertEqual(str(80 * MIB), self.tree.get('memory'))
            self.tree.write('memory', '', 'memory.memsw.limit_in_bytes', '-1')

    def test_quota_above_that_of_a_cgroup_around(self) -> None:
        self.needs_v1('version 2 takes any')
        self.tree.make('/a')
        self.tree.put('quota', '/a', '10000')
        self.tree.put('quota', '', '50000')
        self.tree.write('cpu', '/a', 'cpu.cfs_period_us', '50000')
        own = self.put(self.limit('quota', '/a', '90000'))
        around = self.put(self.limit('quota', '', '50000'))
        # Ours: it is restored first.
        self.assertRaises(actions.RestoreError, restoration.restore, own,
                          others=[own, around])
        self.assertEqual('10000', self.tree.get('quota', '/a'))
        # Another program's.
        self.assertTrue(restoration.restore(own, others=[own]))
        self.assertEqual('25000', self.tree.get('quota', '/a'))

    def test_a_disk_that_went(self) -> None:
        """Its limit went with it."""
        self.needs_v1('version 2 is in guest_v2/disk.py')
        self.assertRaises(actions.Gone, self.restore, self.step(
            'blkio', '', 'blkio.throttle.read_bps_device', '1000000',
            device='240:77'))

    def test_block_device(self) -> None:
        found = [path.read_text().strip() for path in
                 sorted(pathlib.Path('/sys/block').glob('*/dev'))
                 if (path.parent / 'size').read_text().strip() != '0']
        if not found:
            self.skipTest('needs a block device')
        if self.tree.version == 2:
            for text in ('rbps=max wbps=max riops=max wiops=max',
                         'rbps=5000000 wbps=max riops=max wiops=77'):
                self.tree.write('io', '', 'io.max',
                                f'{found[0]} rbps=1000000')
                self.back(self.step('io', '', 'io.max', text,
                                    device=found[0]))
                self.assertEqual(
                    '' if 'rbps=max' in text else f'{found[0]} {text}',
                    self.tree.read('io', '', 'io.max'))
            return
        for way in ('read_bps', 'write_iops'):
            file = f'blkio.throttle.{way}_device'
            for text in ('0', '5000000'):
                self.tree.write('blkio', '', file, f'{found[0]} 1000000')
                self.back(self.step('blkio', '', file, text,
                                    device=found[0]))
                self.assertEqual(
                    '' if text == '0' else f'{found[0]} {text}',
                    self.tree.read('blkio', '', file))

    def test_freezer_below_a_frozen_parent(self) -> None:
        """What counts is the group's own state; the parent's is not ours."""
        self.tree.make('/a')
        for below in ('', '/a'):
            self.tree.put('frozen', below, 'FROZEN')
        self.back(self.limit('frozen', '/a', 'THAWED'))
        if self.tree.version == 1:
            self.assertEqual('0', self.tree.read('freezer', '/a',
                                                 'freezer.self_freezing'))
        else:
            self.assertEqual('THAWED', self.tree.get('frozen', '/a'))
        self.assertEqual('FROZEN', self.tree.get('frozen'))

    def test_unified(self) -> None:
        self.needs_v1('version 2 is beside it here')
        tops = [point for point, kind, _ in cgroup.mounts()
                if kind == 'cgroup2']
        if not tops:
            self.skipTest('needs a cgroup v2 mount')
        path = pathlib.Path(tops[0], self.tree.name.strip('/'))
        path.mkdir()
        self.addCleanup(path.rmdir)
        (path / 'cgroup.freeze').write_text('1')
        self.back({'do': 'write', 'dir': str(path), 'text': '0',
                   'inode': path.stat().st_ino, 'file': 'cgroup.freeze'})
        self.assertEqual('0\n', (path / 'cgroup.freeze').read_text())


class CpuSet(RestoreTestCase):
    """A v1 CPU set, and what was born under the capped one."""

    def setUp(self) -> None:
        super().setUp()
        self.needs_v1('in version 2 nothing copies a set')
        self.all = self.tree.get('cpus')
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest('needs two CPUs')
        self.tree.make('/named')
        self.named = [self.limit('cpus', below, self.all)
                      for below in ('', '/named')]
        for below in ('/named', ''):
            self.tree.put('cpus', below, '0')
        for below in ('/born', '/born/deeper', '/named/born'):
            self.tree.make(below)
        self.groups = ('', '/named', '/born', '/born/deeper', '/named/born')

    def sets(self) -> set[str]:
        return {self.tree.get('cpus', below)
                for below in self.groups}

    def test_subtree(self) -> None:
        self.assertEqual({'0'}, self.sets())
        self.assertTrue(self.restore(*self.named))
        self.assertEqual({self.all}, self.sets())
        self.assertFalse(self.restore(*self.named))

    def test_own_sets_stay(self) -> None:
        """The cap was 0; a set of 1 and an empty one are nobody's caps."""
        self.tree.make('/empty')
        self.tree.put('cpus', '/empty', '\n')
        for below in ('', '/born'):
            self.tree.put('cpus', below, self.all)
        self.tree.make('/born/own')
        self.tree.put('cpus', '/born/own', '1')
        self.restore(*self.named, note=(0, '0'))
        for below, expected in (('/born/own', '1'), ('/empty', ''),
                                ('/born/deeper', self.all)):
            self.assertEqual(expected, self.tree.get('cpus', below))

    def test_death_after_the_first_write(self) -> None:
        """The group is wide already; the note tells what its set was."""
        self.put(*self.named, knob='cpu_set')
        code = textwrap.dedent(f"""
            import os, signal
            from scavenger_openstack.restore import cgroup, program
            cgroup._widen = lambda *args: os.kill(os.getpid(), 9)
            program.main(['--all', '--state-dir', {str(self.state)!r}])
            """)
        self.assertEqual(-9, subprocess.run(
            [sys.executable, '-c', code], stderr=subprocess.DEVNULL,
            timeout=60, check=False).returncode)
        self.assertEqual({'0', self.all}, self.sets())
        self.assertEqual(self.all, self.tree.get('cpus'))
        self.assertEqual(0, self.main('--all')[0])
        self.assertEqual({self.all}, self.sets())
        self.assertEqual([], self.left())

    def test_renamed(self) -> None:
        """Version 1 lets a cgroup be called something else, limits and all."""
        inside = self.limit('cpus', '/named/born', '1')
        for path, now in ('/named', '/called'), ('/called/born', '/called/b'):
            self.tree.path('cpuset', path).rename(
                self.tree.path('cpuset', now))
        self.tree.make('/named')        # another one, with the set of ours
        self.assertTrue(self.restore(*self.named, inside))
        self.groups = ('', '/called', '/born', '/born/deeper', '/named')
        self.assertEqual({self.all}, self.sets())
        self.assertEqual('1', self.tree.get('cpus', '/called/b'))
        self.assertFalse(self.restore(*self.named, inside))

    def test_parent_and_child_under_two_leases(self) -> None:
        """The child's fits only when the parent is wide again."""
        self.put(self.named[1], knob='cpu_set', name='0.json')
        self.put(self.named[0], knob='cpu_set', name='1.json')
        code, text = self.main('--all')
        self.assertEqual(0, code, text)
        self.assertEqual({self.all}, self.sets())


class Egress(RestoreTestCase):
    """Our token bucket goes, nobody else's."""

    def setUp(self) -> None:
        super().setUp()
        self.netns = f'scv-{uuid.uuid4().hex[:8]}'
        self.ip('netns', 'add', self.netns, inside=False)
        self.addCleanup(self.remove)
        self.ip('link', 'add', 'd0', 'type', 'veth', 'peer', 'name', 'd9')
        self.ip('link', 'set', 'd0', 'up')
        index = int(self.ip('-o', 'link', 'show', 'd0').partition(':')[0])
        self.tc = {'do': 'tc', 'netns': self.netns, 'dev': 'd0',
                   'ifindex': index}

    def ip(self, *args: str, inside: bool = True, tool: str = 'ip') -> str:
        where = ['-n', self.netns] if inside else []
        return subprocess.run([tool, *where, *args], check=True, text=True,
                              stdout=subprocess.PIPE, timeout=60).stdout

    def remove(self) -> None:
        if os.path.exists(f'/run/netns/{self.netns}'):
            self.ip('netns', 'del', self.netns, inside=False)

    def bucket(self, handle: str) -> None:
        self.ip('qdisc', 'add', 'dev', 'd0', 'root', 'handle', handle, 'tbf',
                'rate', '1mbit', 'burst', '10k', 'latency', '50ms',
                tool='tc')

    def shown(self) -> str:
        return self.ip('qdisc', 'show', 'dev', 'd0', tool='tc')

    def test_ours(self) -> None:
        before = self.shown()
        self.bucket('5ca0:')
        self.assertTrue(self.restore(self.tc))
        self.assertEqual(before, self.shown())
        self.assertFalse(self.restore(self.tc))

    def test_alias_that_is_no_text(self) -> None:
        self.bucket('5ca0:')
        subprocess.run([b'ip', b'-n', self.netns.encode(), b'link', b'set',
                        b'd0', b'alias', b'caf\xe9'], check=True, timeout=60)
        self.assertTrue(self.restore(self.tc))

    def test_somebody_elses(self) -> None:
        self.bucket('77:')
        self.assertFalse(self.restore(self.tc))
        self.assertIn('tbf 77:', self.shown())

    def test_several(self) -> None:
        """One of them was renamed, and one is gone."""
        before = self.shown()
        self.bucket('5ca0:')
        other = int(self.ip('-o', 'link', 'show', 'd9').partition(':')[0])
        several = {**self.tc, 'ifindex': other, 'also': [self.tc['ifindex'],
                                                         4242]}
        self.ip('link', 'set', 'd0', 'down')
        self.ip('link', 'set', 'd0', 'name', 'd1')
        self.assertTrue(self.restore(several))
        self.ip('link', 'set', 'd1', 'name', 'd0')
        self.ip('link', 'set', 'd0', 'up')
        self.assertEqual(before, self.shown())
        self.assertFalse(self.restore(several))

    def test_one_that_stays_limited(self) -> None:
        """It keeps no other from being restored: tc cannot name it."""
        self.bucket('5ca0:')
        index = int(self.ip('-o', 'link', 'show', 'd9').partition(':')[0])
        subprocess.run([b'ip', b'-n', self.netns.encode(), b'link', b'set',
                        b'd9', b'name', b'd\xff'], check=True, timeout=60)
        several = {**self.tc, 'ifindex': index, 'also': [self.tc['ifindex']]}
        exc = self.assertRaises(actions.RestoreError, self.restore, several)
        self.assertIn('Cannot find device', str(exc))
        self.assertNotIn('tbf', self.shown())

    def test_noqueue_is_put_back(self) -> None:
        """Unless another program's qdisc came."""
        noqueue = {**self.tc, 'noqueue': [self.tc['ifindex']]}
        for _ in range(2):      # also after what was killed half-way
            self.assertTrue(self.restore(noqueue))
            self.assertRegex(self.shown(), 'qdisc noqueue [1-9a-f]')
            self.assertFalse(self.restore(noqueue))
            self.ip('qdisc', 'del', 'dev', 'd0', 'root', tool='tc')
            self.bucket('5ca0:')
        self.ip('link', 'set', 'd0', 'down')
        self.assertTrue(self.restore(noqueue))
        self.ip('link', 'set', 'd0', 'up')
        self.assertRegex(self.shown(), 'qdisc noqueue [1-9a-f]')
        self.ip('qdisc', 'del', 'dev', 'd0', 'root', tool='tc')
        self.bucket('77:')
        self.assertFalse(self.restore(noqueue))
        self.assertIn('tbf 77:', self.shown())

    def test_no_noqueue_for_hardware(self) -> None:
        """It would drop packets: a damaged lease does no harm."""
        self.assertFalse(self.restore({**self.tc, 'dev': 'lo', 'ifindex': 1,
                                       'noqueue': [1]}))
        self.assertNotRegex(self.ip('qdisc', 'show', 'dev', 'lo', tool='tc'),
                            'noqueue [1-9a-f]')

    def test_gone(self) -> None:
        self.bucket('5ca0:')
        self.assertIn('made again', str(self.assertRaises(
            actions.Gone, self.restore, {**self.tc, 'ifindex': 4242})))
        self.assertIn('tbf 5ca0:', self.shown())
        self.assertRaises(actions.Gone, self.restore, {
            **self.tc, 'dev': 'd1', 'ifindex': 4242})
        self.remove()
        self.assertRaises(actions.Gone, self.restore, self.tc)


class HungTool(RestoreTestCase):
    """A tool that waits in the kernel cannot be ended."""

    def hang(self) -> None:
        """Freeze what this process has started, as soon as it runs."""
        self.wait_for('the tool runs', lambda: any(
            words.startswith('ip ') for words in base.children().values()))
        pid = next(pid for pid, words in base.children().items()
                   if words.startswith('ip '))
        self.tree.write('freezer', '', 'cgroup.procs', str(pid))
        self.tree.put('frozen', '', 'FROZEN')

    def test_it_is_left_behind(self) -> None:
        self.needs_v1('there SIGKILL waits for a frozen process to be thawed')
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.restore.network._TOOL_TIMEOUT_S', 1.0))
        freezing = threading.Thread(target=self.hang)
        freezing.start()
        # A wait without an end would last until then.
        thawing = threading.Timer(20.0, self.tree.thaw)
        thawing.start()
        self.addCleanup(thawing.cancel)
        exc = self.assertRaises(actions.RestoreError, network.tool, 'ip', '',
                                'monitor')
        freezing.join()
        self.assertIn('ip has not ended within 1 s', str(exc))
        self.assertEqual('FROZEN', self.tree.get('frozen'))
        self.assertTrue(thawing.is_alive())


class BadInput(RestoreTestCase):
    """One line each, and nothing lost."""

    def setUp(self) -> None:
        super().setUp()
        self.tree.make('/a')
        self.tree.put('quota', '/a', '20000')
        self.good = self.limit('quota', '/a', '-1')
        self.weight = self.tree.file('weight', '/a')
        self.original = self.weight.read_text()

    def quota(self) -> str:
        return self.tree.get('quota', '/a')

    def test_a_lease_is_no_way_to_write(self) -> None:
        victim = self.state / 'victim'
        victim.mkdir()
        (victim / self.weight.name).write_text('untouched')
        link = self.state / 'link'
        link.symlink_to(self.tree.path('cpu', '/a'))
        inode = victim.stat().st_ino
        mount = self.tree.mounts['cpu']
        up = '/'.join(['..'] * len(mount.parts))
        for path in (str(victim), f'{mount}/{up}{victim}',
                     f'{mount}{self.tree.name}/../..', str(mount), '/proc',
                     str(link), f'{mount}/{self.tree.name}/a'):
            self.put({**self.good, 'dir': path, 'inode': inode,
                      'file': self.weight.name, 'text': '2'})
        for wrong in ({'file': 'cgroup.procs', 'text': str(os.getpid())},
                      {'file': f'../{self.weight.name}', 'text': '2'},
                      {'file': 'notify_on_release', 'text': '1'},
                      {'text': '-1; reboot'},
                      {'do': 'tc', 'dev': '$(reboot)'}):
            self.put({**self.good, **wrong})
        count = len(self.left())
        self.put(self.good)
        code, text = self.main('--all')
        self.assertEqual(1, code)
        self.assertEqual('-1', self.quota())
        self.assertEqual(count, text.count('refused, nothing in it'), text)
        self.assertEqual(count, len(self.left()))
        self.assertTrue(all(name.endswith('.refused')
                            for name in self.left()))
        self.assertEqual('untouched',
                         (victim / self.weight.name).read_text())
        self.assertEqual(self.original, self.weight.read_text())

    def test_one_wrong_step_stops_the_whole_lease(self) -> None:
        self.put(self.good, {**self.good, 'file': 'tasks'})
        self.assertEqual(1, self.main('--all')[0])
        self.assertEqual('20000', self.quota())

    def test_not_on_the_cgroup_mount(self) -> None:
        """Something else is mounted over a directory on the way."""
        self.put({**self.good, 'inode': 2})
        target = self.tree.path('cpu', '/a')
        result = self.private(f"""
            mount -t tmpfs none {target}
            touch {target}/{self.good['file']}
            {sys.executable} -m scavenger_openstack.restore.program --all \
                --state-dir {self.state}
            code=$?
            cat {target}/{self.good['file']}; exit $code""")
        self.assertEqual((1, ''), (result.returncode, result.stdout))
        self.assertIn('is not on the cgroup mount', result.stderr)

    def test_a_hidden_mount(self) -> None:
        """It keeps no other from being tried, and found."""
        self.needs_v1('its mounts lie below one directory')
        code = textwrap.dedent("""
            from scavenger_openstack.drivers.kernel import cgroup_mounts
            from scavenger_openstack.restore import abilities
            prober = abilities.Prober()
            prober.begin()
            prober.first.wait(60)
            print(len(prober.known()), *cgroup_mounts.find_mounts())
            """)
        show = f'{sys.executable} -c {shlex.quote(code)}'
        result = self.private(f"""
            {show}
            mount -t tmpfs none /mnt && mkdir /mnt/c
            mount -t cgroup -o cpu none /mnt/c
            mount -t tmpfs none /mnt && {show}
            mount -t cgroup2 none /sys/fs/cgroup && {show}""")
        before, after, version_2 = result.stdout.splitlines()
        self.assertEqual(before, after)
        self.assertEqual(['1', 'unified'], version_2.split()[:2])

    def private(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run a shell script in a mount namespace of its own."""
        return subprocess.run(
            ['unshare', '-m', '--propagation', 'private', 'sh', '-c',
             textwrap.dedent(script)], text=True, capture_output=True,
            stdin=subprocess.DEVNULL, timeout=60, check=False)

    def test_made_again_under_the_same_path(self) -> None:
        self.tree.delete('/a')
        self.tree.make('/a')
        self.tree.put('quota', '/a', '70000')
        self.put(self.good)
        code, text = self.main('--all')
        self.assertEqual(0, code)
        self.assertIn('deleted and made again', text)
        self.assertEqual('70000', self.quota())
        self.assertEqual([], self.left())

    def test_renamed(self) -> None:
        self.needs_v1('version 2 gives a cgroup no other name')
        self.tree.put('quota', '/a', '50000')
        path = self.tree.path('cpu', '/a')
        path.rename(path.with_name('b'))
        self.put(self.good)
        code, text = self.main('--all')
        self.assertEqual((0, []), (code, self.left()), text)
        self.assertEqual('-1', self.tree.get('quota', '/b'))

    def test_deleted(self) -> None:
        self.tree.delete('/a')
        self.put(self.good)
        code, text = self.main('--all')
        self.assertEqual((0, 1), (code, text.count('no longer there')))
        self.assertEqual([], self.left())

    def test_a_dead_step_among_living_ones(self) -> None:
        self.tree.make('/b')
        dead = self.limit('quota', '/b', '-1')
        self.tree.delete('/b')
        self.assertTrue(self.restore(dead, self.good))
        self.assertEqual('-1', self.quota())

    def test_no_cgroup_waits_for_a_domain(self) -> None:
        name = str(uuid.uuid4())
        # By its command line a QEMU is known.
        qemu = subprocess.Popen(['sh', '-c', 'read _', '-uuid', name],
                                stdin=subprocess.PIPE)
        self.addCleanup(qemu.communicate)
        own = pathlib.Path(f'/proc/{qemu.pid}/stat').read_text()
        self.put({'do': 'domain', 'uuid': name,
                  'uri': 'qemu:///system?socket=/no/such/socket',
                  'pid': qemu.pid, 'knob': 'cpu_cores',
                  'started': int(own.rpartition(') ')[2].split()[19]),
                  'values': {'vcpu_quota': '-1', 'vcpu_period': '100000'}},
                 name='0.json')
        self.put(self.good, name='1.json')
        _, said = self.main('--all')
        self.assertEqual('-1', self.quota())
        self.assertLess(said.index(': restored to its original'),
                        said.index(': NOT restored'))

    def test_another_boot(self) -> None:
        self.put(self.good, boot_id=str(uuid.uuid4()))
        code, text = self.main('--all')
        self.assertEqual(0, code)
        self.assertIn('stale lease of another boot', text)
        self.assertEqual('20000', self.quota())
        self.assertEqual([], self.left())

    def test_read_only_tree(self) -> None:
        self.put(self.good)
        target = self.tree.path('cpu')
        result = self.private(f"""
            mount --bind {target} {target}
            mount -o remount,bind,ro {target}
            exec {sys.executable} -m scavenger_openstack.restore.program \
                --all --state-dir {self.state}""")
        self.assertEqual(1, result.returncode)
        self.assertEqual(1, result.stderr.count('NOT restored'),
                         result.stderr)
        self.assertIn('Read-only file system', result.stderr)
        self.assertIn('mount the cgroup tree read-write', result.stderr)
        self.assertEqual(1, len(self.left()))
        self.assertEqual(0, self.main('--all')[0])
        self.assertEqual('-1', self.quota())

    def test_busy(self) -> None:
        """A limit below anonymous use: said once, kept, done later."""
        self.needs_v1('version 2 refuses no memory limit')
        process = self.spawn(
            f'x = bytearray({32 * MIB})\n'
            'for i in range(0, len(x), 4096): x[i] = 1\n'
            'print("full"); import time; time.sleep(60)\n',
            self.tree, '/a')
        assert process.stdout
        process.stdout.readline()
        self.put(self.limit('memory', '/a', str(8 * MIB)), knob='memory_bytes')
        self.put(self.good)
        code, text = self.main('--all')
        self.assertEqual(1, code)
        self.assertEqual(1, text.count('NOT restored'), text)
        self.assertIn('Device or resource busy', text)
        self.assertEqual(1, len(self.left()))
        self.assertEqual('-1', self.quota())
        process.kill()
        process.wait(30)
        self.assertEqual(0, self.main('--all')[0])
        self.assertEqual(str(8 * MIB), self.tree.get('memory', '/a'))
