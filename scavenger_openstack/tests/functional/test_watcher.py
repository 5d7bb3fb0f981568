# SPDX-License-Identifier: Apache-2.0

"""What the real watcher publishes, in whatever surroundings it runs."""

from __future__ import annotations

from collections.abc import Mapping
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
from typing import Any

import fixtures

from scavenger_openstack.agent.lease import leases
from scavenger_openstack import errors
from scavenger_openstack.restore import abilities
from scavenger_openstack.restore import cgroup
from scavenger_openstack.restore import records
from scavenger_openstack.restore import watcher
from scavenger_openstack.tests.functional import base
from scavenger_openstack.types import Knob

LEASE_S = 3.0
NOBODY = 65534
NET = abilities.of_network()


class WatcherTestCase(base.FunctionalTestCase):

    def setUp(self) -> None:
        super().setUp()
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        directory.chmod(0o755)
        self.state = directory / 'state'
        self.state.mkdir(mode=0o700)
        self.reader = watcher.Reader(self.state / watcher.NAME)

    def watch(self, *before: str, **more: Any) -> subprocess.Popen[str]:
        """The real one; ``before`` is what runs it."""
        process = subprocess.Popen(
            [*before, sys.executable, '-m',
             'scavenger_openstack.restore.program', '--watch', '--state-dir',
             str(self.state)], text=True, stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE, **more)
        self.addCleanup(self.end, process)
        return process

    def watch_after(self, *shell: str, **more: Any
                    ) -> subprocess.Popen[str]:
        """In a mount namespace of its own, after these commands."""
        return self.watch('unshare', '-m', '--propagation', 'private', 'sh',
                          '-c', ' && '.join((*shell, 'exec "$0" "$@"')),
                          **more)

    @staticmethod
    def end(process: subprocess.Popen[str]) -> str:
        """End it with whatever runs it; what it said."""
        assert process.stderr
        if process.stderr.closed:
            return ''
        process.send_signal(signal.SIGCONT)
        process.kill()
        return process.communicate(timeout=60)[1]

    def published(self) -> Mapping[str, str]:
        return self.reader.read(records.now_s(), 60.0) or {}

    def want(self, *kinds: str) -> None:
        watcher.write_wanted(self.state, list(kinds))

    def answer(self, kind: str) -> str:
        """What the watcher says of a kind, once it has tried."""
        self.wait_for(f'it has tried {kind}',
                      lambda: kind in self.published())
        return self.published()[kind]


class Answers(WatcherTestCase):

    def test_on_this_host(self) -> None:
        self.want(NET)
        self.watch()
        self.assertEqual('', self.answer(NET))
        mounts = {abilities.of_mount(mount[0])
                  for mount in cgroup.mounts()}
        self.assertEqual({NET: '', **dict.fromkeys(mounts, '')},
                         self.published())
        # Asked for while it runs.
        netns = abilities.of_network('scv-no-such-one')
        self.want(NET, netns)
        self.assertIn('Cannot open network namespace', self.answer(netns))
        self.assertEqual('', self.answer(NET))

    def test_no_libvirtd(self) -> None:
        kind = abilities.of_libvirt(
            f'qemu+unix:///system?socket={self.state}/none')
        self.want(kind)
        self.watch()
        self.assertIn('No such file', self.answer(kind))

    def test_a_libvirtd_that_refuses_it(self) -> None:
        """Its socket is there, and not for the user of the watcher."""
        if not shutil.which('setpriv'):
            self.skipTest('needs setpriv (Debian package util-linux)')
        for path in (self.state.parent, self.state):
            os.chown(path, NOBODY, NOBODY)
        path = self.state.parent / 'libvirt-sock'
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen()
            path.chmod(0o700)
            os.chown(path, 0, 0)
            kind = abilities.of_libvirt(
                f'qemu+unix:///system?socket={path}')
            self.want(kind)
            os.chown(self.state / watcher.WANTED, NOBODY, NOBODY)
            self.watch('setpriv', f'--reuid={NOBODY}', f'--regid={NOBODY}',
                       '--clear-groups', '--inh-caps=-all',
                       '--bounding-set=-all')
            # Root believes the owner of the directory.
            why = self.answer(kind)
        self.assertIn('Permission denied', why)
        self.assertIn(f'uid {NOBODY}', why)

    def test_without_virsh(self) -> None:
        virsh = shutil.which('virsh')
        if not virsh:
            self.skipTest('needs virsh, to hide it')
        kind = abilities.of_libvirt('qemu:///system')
        self.want(kind, NET)
        self.watch_after(f'mount --bind /dev/null {virsh}')
        self.assertIn('install libvirt-clients', self.answer(kind))
        self.assertEqual('', self.answer(NET))

    def test_without_tc(self) -> None:
        self.want(NET)
        self.watch_after('mount --bind /dev/null '
                         f'{os.path.realpath(str(shutil.which("tc")))}')
        self.assertIn('install iproute2', self.answer(NET))

    def test_not_permitted_to_change_devices(self) -> None:
        if not shutil.which('setpriv'):
            self.skipTest('needs setpriv (Debian package util-linux)')
        self.want(NET)
        self.watch('setpriv', '--bounding-set=-net_admin',
                   '--inh-caps=-net_admin')
        self.assertIn('not permitted', self.answer(NET))

    def test_a_mount_that_is_read_only_or_missing(self) -> None:
        mounts = [mount[0] for mount in cgroup.mounts()
                  if mount[1] == 'cgroup']
        if len(mounts) < 3:
            self.skipTest('needs three cgroup v1 hierarchies')
        fine, fixed, missing = map(abilities.of_mount, mounts[:3])
        self.want(missing)
        self.watch_after(
            f'mount -o remount,bind,ro {mounts[1]}', f'umount {mounts[2]}')
        self.assertIn('Read-only file system', self.answer(fixed))
        self.assertIn('that hierarchy', self.answer(missing))
        self.assertEqual('', self.answer(fine))

    def test_a_mount_that_becomes_read_only(self) -> None:
        process = self.watch_after('true')
        point = cgroup.mounts()[0][0]
        kind = abilities.of_mount(point)
        self.assertEqual('', self.answer(kind))
        subprocess.run(['nsenter', '--mount', '--root', '-t',
                        str(process.pid), 'mount', '-o', 'remount,bind,ro',
                        point], check=True)
        self.wait_for('it has tried again', lambda: 'Read-only file system'
                      in self.published().get(kind, ''))

    def test_stopped_and_continued(self) -> None:
        held = leases.Leases(self.state, LEASE_S)
        process = self.watch()
        self.wait_for('it turns', held.watched)
        process.send_signal(signal.SIGSTOP)
        self.wait_for('it counts as none', lambda: not held.watched())
        self.assertRaises(errors.NotRestorable, self.hold, held)
        process.send_signal(signal.SIGCONT)
        self.wait_for('it turns again', held.watched)
        self.hold(held)

    def hold(self, held: leases.Leases) -> None:
        point = cgroup.mounts()[0][0]
        if held.state_dir.exists() and not (self.state / 'leases').exists():
            held.open()
            self.addCleanup(held.close)
            held.watched()
        held.hold('/batch/a', Knob.CPU_SET, [
            {'do': 'write', 'dir': f'{point}/scv-no-such-group', 'inode': 7,
             'file': 'cpuset.cpus', 'text': '0'}], '0')

    def test_a_stuck_loop_does_not_feed_the_watchdog(self) -> None:
        """It waits for a program; its other threads go on."""
        ip = shutil.which('ip')
        if not ip:
            self.skipTest('needs ip (Debian package iproute2)')
        path, slow = (self.state.parent / name for name in ('notify', 'ip'))
        slow.write_text('#!/bin/sh\nexec sleep 8\n')
        slow.chmod(0o755)
        leases_ = self.state / 'leases'
        leases_.mkdir(mode=0o700)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
            listener.settimeout(30)
            listener.bind(str(path))
            process = self.watch_after(
                f'mount --bind {slow} {os.path.realpath(ip)}',
                env={**os.environ, 'NOTIFY_SOCKET': str(path)})
            self.assertEqual(b'READY=1\nWATCHDOG=1', listener.recv(100))
            self.assertEqual(b'WATCHDOG=1', listener.recv(100))
            draft = leases_ / 'draft'
            draft.write_bytes(records.dump(records.Lease(
                'lo', 'egress_bytes_per_s', records.boot_id(), [
                    {'do': 'tc', 'netns': '', 'dev': 'lo', 'ifindex': 1}],
                name='a.json')))
            draft.chmod(0o600)
            draft.rename(leases_ / 'a.json')
            listener.settimeout(3 * watcher.BEAT_S)
            try:
                for _ in range(30):
                    listener.recv(100)
                self.fail('its loop hangs, and it feeds the watchdog')
            except TimeoutError:
                pass
            self.assertIsNone(process.poll())
            # The call ends, and the loop goes on.
            listener.settimeout(30)
            self.assertEqual(b'WATCHDOG=1', listener.recv(100))

    def test_systemd_waits_for_the_first_pass(self) -> None:
        (self.state / 'leases').mkdir(mode=0o700)
        lease = records.Lease('/batch/a', 'cpu_set', records.boot_id(), [
            {'do': 'write', 'inode': 7, 'file': 'cpuset.cpus', 'text': '0',
             'dir': f'{cgroup.mounts()[0][0]}/scv-no-such-group'}],
            name='a.json')
        file = self.state / 'leases' / lease.name
        file.write_bytes(records.dump(lease))
        file.chmod(0o600)
        path = self.state.parent / 'notify'
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
            listener.settimeout(30)
            listener.bind(str(path))
            self.watch(env={**os.environ, 'NOTIFY_SOCKET': str(path)})
            self.assertIn(b'EXTEND_TIMEOUT_USEC=', listener.recv(100))
            self.assertEqual(b'READY=1\nWATCHDOG=1', listener.recv(100))

    def test_a_hierarchy_that_the_watcher_does_not_see(self) -> None:
        """The lease in it stays; the others are restored."""
        tree = self.cgroups()
        self.needs_v1('version 2 has one mount for all limits')
        for controller in ('cpu', 'freezer'):
            path = tree.path(controller)
            lease = records.Lease(
                tree.name, controller, records.boot_id(), [
                    {'do': 'write', 'dir': str(path),
                     'inode': path.stat().st_ino,
                     **({'file': 'cpu.cfs_quota_us', 'text': '-1'}
                        if controller == 'cpu' else
                        {'file': 'freezer.state', 'text': 'THAWED'})}],
                name=f'{controller}.json')
            (self.state / 'leases').mkdir(mode=0o700, exist_ok=True)
            file = self.state / 'leases' / lease.name
            file.write_bytes(records.dump(lease))
            file.chmod(0o600)
        tree.write('cpu', '', 'cpu.cfs_quota_us', '50000')
        tree.write('freezer', '', 'freezer.state', 'FROZEN')
        process = self.watch_after(f'umount {tree.mounts["cpu"]}')
        self.wait_for('the other one is restored', lambda: os.listdir(
            self.state / 'leases') == ['cpu.json'])
        self.assertEqual('THAWED', tree.read('freezer', '', 'freezer.state'))
        self.assertIn('below no cgroup mount now', self.end(process))
        self.assertEqual('50000', tree.read('cpu', '', 'cpu.cfs_quota_us'))
        self.watch()
        self.wait_for('it is restored where it is mounted', lambda:
                      not os.listdir(self.state / 'leases'))
        self.assertEqual('-1', tree.read('cpu', '', 'cpu.cfs_quota_us'))
