# SPDX-License-Identifier: Apache-2.0

"""The kill switch works, and what it prints is true."""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

from scavenger_openstack.restore import records
from scavenger_openstack.tests.functional import agents
from scavenger_openstack.tests import tiers

NOBODY = 65534

AS_NOBODY = f"""
import os, sys
from scavenger_openstack.agent import check, instances
from scavenger_openstack.agent.events import history
from scavenger_openstack.cmd import agent, configuration, stop
from scavenger_openstack import version
version()
os.setgroups([])
os.setresgid(*3 * [{NOBODY}])
os.setresuid(*3 * [{NOBODY}])
sys.exit(agent.main(sys.argv[1:]))
"""
"""Python itself may be where only root can read."""


class StopTest(agents.AgentTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.configure('[scavenger]', 'mode = enforce')

    def limited(self, *words: str) -> subprocess.Popen[str]:
        """An agent that has set its limits."""
        standalone = self.start('standalone', *words)
        self.wait_for('background is idle class', lambda: self.idle() == '1')
        return standalone

    def assert_one_warning(self, text: str, *words: str) -> None:
        [line] = text.strip().splitlines()
        for word in ('warning: the configuration cannot be used', *words):
            self.assertIn(word, line)

    def test_and_resume(self) -> None:
        # So slow that it has not turned before stop-all looks.
        self.configure('[scavenger]', 'mode = enforce',
                       '[agent]', 'interval_s = 2')
        standalone = self.limited()
        only = self.only(standalone)
        done = self.run_agent('stop-all', only)
        self.assertEqual((0, '0', [], ''), (
            done.returncode, self.idle(), self.leases(), done.stderr))
        for text in (f'stop file made: {self.state_dir}/stop\n',
                     f'state directory: {self.state_dir}\n',
                     'no limit is in force (state directory '
                     f'{self.state_dir}); '):
            self.assertIn(text, done.stdout)
        self.assertTrue(re.search('^limits removed: [1-3]$', done.stdout,
                                  re.MULTILINE), done.stdout)
        self.assertIn('stopped', self.run_agent('status').stdout)
        done = self.run_agent('resume', only)
        self.assertEqual((0, f'stop file removed: {self.state_dir}/stop; '
                             'limits may be set again\n'),
                         (done.returncode, done.stdout))
        self.wait_for('limits are back', lambda: self.idle() == '1')
        done = self.run_agent('resume', only)
        self.assertIn(f'there is no stop file {self.state_dir}/stop',
                      done.stdout)

    def test_when_the_agent_hangs(self) -> None:
        """The watcher does it, long before the leases run out; it looks
        for the stop file where the configuration says."""
        self.configure('[scavenger]', 'mode = enforce',
                       '[agent]', 'lease_s = 60',
                       f'stop_file = {self.directory}/elsewhere')
        standalone = self.limited()
        only = self.only(standalone)
        standalone.send_signal(signal.SIGSTOP)
        try:
            stop_all = self.start('agent', 'stop-all', only)
            # Before stop-all would do it itself.
            self.wait_for('all is back', lambda: self.idle() == '0', 8)
            # Its agent may still write once: it has not come to an end.
            self.assertIsNone(stop_all.poll())
        finally:
            standalone.send_signal(signal.SIGCONT)
        out, err = stop_all.communicate(timeout=60)
        self.assertEqual((0, '0'), (stop_all.returncode, self.idle()), err)
        self.assertIn('no limit is in force', out)
        self.run_agent('resume', only)
        self.wait_for('limits are back', lambda: self.idle() == '1')

    def test_when_the_watcher_hangs_too(self) -> None:
        """Then it restores the limits itself, after some patience."""
        self.configure('[scavenger]', 'mode = enforce',
                       '[agent]', 'lease_s = 60',
                       f'stop_file = {self.directory}/elsewhere')
        standalone = self.limited()
        only = self.only(standalone)
        watcher = self.watcher()
        standalone.send_signal(signal.SIGSTOP)
        signal.pidfd_send_signal(watcher, signal.SIGSTOP)
        try:
            done = self.run_agent('stop-all', only)
            self.assertEqual((0, '0'), (done.returncode, self.idle()))
            self.assertIn(f'the agent (process {standalone.pid}) did not '
                          'answer within 10 s, every limit was restored',
                          done.stdout)
            self.assertNotIn('no limit is in force', done.stdout)
        finally:
            signal.pidfd_send_signal(watcher, signal.SIGCONT)
            standalone.send_signal(signal.SIGCONT)
        self.run_agent('resume', only)
        self.wait_for('limits are back', lambda: self.idle() == '1')

    def test_a_tick_that_has_not_seen_the_stop_file(self) -> None:
        """It may be about to set a limit, and the status says "stopped", of
        the last time."""
        standalone = self.limited()
        only = self.only(standalone)
        self.run_agent('stop-all', only)
        self.wait_for('it says so', lambda: self.status()['stopped'])
        standalone.send_signal(signal.SIGSTOP)
        try:
            self.run_agent('resume', only)
            done = self.run_agent('stop-all', only)
            self.assertEqual('', done.stderr)
            self.assertNotIn('no limit is in force', done.stdout)
            self.assertIn(
                f'the agent (process {standalone.pid}) did not answer within '
                '10 s; scavenger-restore --watch restores what it may still '
                'set. To be sure, kill it', done.stdout)
        finally:
            standalone.send_signal(signal.SIGCONT)
        done = self.run_agent('stop-all', only)
        self.assertEqual(0, done.returncode)
        self.assertIn('no limit is in force', done.stdout)

    @contextlib.contextmanager
    def each_broken(self) -> Iterator[Iterator[str]]:
        """The configuration file, broken in one way after the other."""
        whole = self.config.read_text()

        def remove() -> None:
            if self.config.is_dir() and not self.config.is_symlink():
                self.config.rmdir()
            else:
                self.config.unlink(missing_ok=True)

        def ways() -> Iterator[str]:
            for name, make in (
                    ('backgroud_parents', lambda: self.config.write_text(
                        f'{whole}\n[cgroups]\nbackgroud_parents = /x\n')),
                    ('lots', lambda: self.config.write_text(
                        f'{whole}\n[agent]\ninterval_s = lots\n')),
                    ('not UTF-8', lambda: self.config.write_bytes(
                        whole.encode() + b'\n# \xff\xfe\n')),
                    ('Invalid section', lambda: self.config.write_text(
                        f'{whole}\n[scavenger\nmode\n')),
                    ('directory', lambda: self.config.mkdir()),
                    ('symbolic links', lambda: self.config.symlink_to(
                        self.config)),
                    ('scavenger.conf', lambda: None)):
                remove()
                make()
                yield name
            remove()
            self.config.write_text(whole)

        yield ways()

    def test_with_a_broken_configuration(self) -> None:
        standalone = self.limited()
        only = self.only(standalone)
        with self.each_broken() as ways:
            for number, word in enumerate(ways):
                # These read the file as stop-all does, which gets each.
                if number == 0 or tiers.ALL:
                    done = self.run_agent('run')
                    self.assertEqual(2, done.returncode, word)
                    for command in ('status', 'history'):
                        done = self.run_agent(command)
                        self.assertEqual(0, done.returncode, done.stderr)
                        self.assert_one_warning(done.stderr, word)
                        self.assertIn('cpu_idle', done.stdout)
                done = self.run_agent('stop-all', only)
                self.assertEqual((0, '0', []), (
                    done.returncode, self.idle(), self.leases()), word)
                self.assert_one_warning(
                    done.stderr, word, f'state directory {self.state_dir} '
                    f'and stop file {self.state_dir}/stop')
                self.assertIn('no limit is in force', done.stdout)
                done = self.run_agent('resume', only)
                self.assertEqual(0, done.returncode, word)
                self.assert_one_warning(done.stderr, word)
                self.wait_for('limits are back', lambda: self.idle() == '1')

    def test_places_that_only_a_broken_file_names(self) -> None:
        stop_file = self.directory / 'elsewhere' / 'stop'
        self.config.write_text(
            f'[DEFAULT]\nstate_dir = {self.state_dir}\n[agent]\n'
            f'stop_file = $state_dir/../elsewhere/stop\n'
            + self.config.read_text())
        standalone = self.limited()
        only = self.only(standalone)
        with self.config.open('a') as file:
            file.write('\nnonsense\n')
        command = [word for word in self.command('agent', 'stop-all', only)
                   if word not in ('--state-dir', str(self.state_dir))]
        done = subprocess.run(command, timeout=60, check=False, text=True,
                              capture_output=True)
        self.assertEqual((0, '0'), (done.returncode, self.idle()),
                         done.stderr)
        self.assertTrue(stop_file.exists())
        self.assert_one_warning(done.stderr, str(stop_file))

    def test_the_agent_looks_for_another_stop_file(self) -> None:
        """It was started before the configuration was changed."""
        standalone = self.limited()
        only = self.only(standalone)
        self.configure('[scavenger]', 'mode = enforce', '[agent]',
                       f'stop_file = {self.directory}/new')
        done = self.run_agent('stop-all', only)
        self.assertEqual((0, '0'), (done.returncode, self.idle()),
                         done.stdout)
        for name in (self.directory / 'new', self.state_dir / 'stop'):
            self.assertIn(f'stop file made: {name}\n', done.stdout)
        self.run_agent('resume', only)
        self.wait_for('limits are back', lambda: self.idle() == '1')

    def test_another_agent_is_named_and_not_stopped(self) -> None:
        standalone = self.limited()
        mine = self.state_dir
        self.state_dir = self.directory / 'other'
        self.configure()    # it observes: one agent limits these
        other = self.start('standalone')
        self.wait_for('it runs', self.status)
        only = self.only(standalone, other)
        done = self.run_agent('stop-all', only)
        self.assertEqual((1, '1'), (done.returncode, self.idle()))
        self.assertTrue(re.search(
            f'ANOTHER AGENT is not stopped: process {standalone.pid}, state '
            f'directory {mine}, limits in force: [1-3]. scavenger-agent '
            f'stop-all --state-dir {mine}', done.stdout), done.stdout)
        self.run_agent('resume', only)
        self.state_dir = mine
        done = self.run_agent('stop-all', only)
        self.assertEqual((1, '0'), (done.returncode, self.idle()))
        self.assertIn(f'process {other.pid}', done.stdout)
        # The status of no agent names those that there are.
        self.state_dir = self.directory / 'none'
        done = self.run_agent('status', only)
        self.assertIn(f'add --state-dir {mine}', done.stderr)

    def test_an_agent_in_another_mount_namespace(self) -> None:
        self.state_dir.mkdir(mode=0o700)
        process = subprocess.Popen(
            ['unshare', '-m', '--propagation', 'private', 'sh', '-c',
             f'mount -t tmpfs -o mode=700 none {self.state_dir} && '
             'exec "$@"', 'sh', *self.command('standalone')],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)
        self.addCleanup(self._stop, process)
        self.wait_for('background is idle class', lambda: self.idle() == '1')
        done = self.run_agent('stop-all', self.only(process))
        self.assertEqual((1, '1'), (done.returncode, self.idle()))
        self.assertIn(f'process {process.pid}', done.stdout)
        self.assertIn('It has another mount namespace', done.stdout)

    def test_nothing_names_the_state_directory(self) -> None:
        """Then the agents that run are found, and stopped."""
        holder = subprocess.Popen(
            ['unshare', '--pid', '--fork', '--kill-child', '--mount-proc',
             '--mount', '--propagation', 'private', 'sh', '-c',
             'mount -t tmpfs none /run && mount -t tmpfs none /var/lib && '
             'exec "$@"', 'sh', *self.command('standalone')],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, text=True)
        self.addCleanup(self._stop, holder)
        self.wait_for('background is idle class', lambda: self.idle() == '1')
        pid = pathlib.Path(f'/proc/{holder.pid}/task/{holder.pid}/children'
                           ).read_text().split()[0]
        self.config.write_text('nonsense')

        def inside(word: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                ['nsenter', f'--target={pid}', '--pid', '--mount', '--root',
                 *self.command('agent', word)[:-2]], timeout=60, text=True,
                check=False, capture_output=True)

        done = inside('stop-all')
        self.assertEqual((0, '0'), (done.returncode, self.idle()),
                         done.stdout + done.stderr)
        self.assert_one_warning(
            done.stderr, '/run/scavenger (the default; it may be another)')
        self.assertIn(f'no limit is in force (state directory '
                      f'{self.state_dir})', done.stdout)
        done = inside('resume')
        self.wait_for('limits are back', lambda: self.idle() == '1')
        os.kill(int(pid), signal.SIGTERM)
        self.assertEqual(0, holder.wait(60))
        # With no agent to ask, nothing is promised, also where the units
        # have made the default directory.
        for make in ('true', 'mkdir -m 700 /run/scavenger'):
            done = subprocess.run(
                ['unshare', '--pid', '--fork', '--mount-proc', '--mount',
                 '--propagation', 'private', 'sh', '-c', 'mount -t tmpfs '
                 f'none /run && mount -t tmpfs none /var/lib && {make} && '
                 'exec "$@"', 'sh', *self.command('agent', 'stop-all')[:-2]],
                timeout=60, check=False, text=True, capture_output=True)
            self.assertEqual((1, make == 'true'), (
                done.returncode, 'it does not exist' in done.stdout),
                done.stdout + done.stderr)
            self.assertNotIn('no limit is in force', done.stdout)
            self.assertIn('limit is recorded', done.stdout)
            self.assertIn('whether your agent uses another state directory '
                          'is not known', done.stdout)

    def test_refused_records(self) -> None:
        standalone = self.limited()
        only = self.only(standalone)
        refused = self.state_dir / 'leases' / 'a.json.refused'
        refused.write_text('{}')
        done = self.run_agent('stop-all', only)
        self.assertEqual((1, '0'), (done.returncode, self.idle()))
        self.assertNotIn('no limit is in force', done.stdout)
        self.assertIn(f'not known: {refused}', done.stdout)
        self.assertIn(f'refused lease: {refused}',
                      self.run_agent('status', only).stdout)
        standalone.terminate()
        standalone.communicate(timeout=60)
        self.assertIn(f'refused lease: {refused}',
                      self.run_agent('status', only).stderr)

    def test_what_cannot_be_restored_is_named(self) -> None:
        """A memory limit that was below what is in use by now."""
        self.needs_v1('version 2 refuses no memory limit')
        standalone = self.limited()
        watcher = self.watcher()
        standalone.kill()
        signal.pidfd_send_signal(watcher, signal.SIGKILL)
        standalone.wait(30)
        process = self.spawn(
            'x = bytearray(32 << 20)\n'
            'for i in range(0, len(x), 4096): x[i] = 1\n'
            'print(); import time; time.sleep(600)', self.tree, '/batch/a')
        assert process.stdout
        process.stdout.readline()
        directory = self.tree.path('memory', '/batch/a')
        path = self.state_dir / 'leases' / f'{"0" * 32}.json'
        path.write_bytes(records.dump(records.Lease(
            f'{self.tree.name}/batch/a', 'memory_bytes', records.boot_id(), [{
                'do': 'write', 'dir': str(directory),
                'inode': directory.stat().st_ino,
                'file': 'memory.limit_in_bytes', 'text': str(8 << 20)}])))
        path.chmod(0o600)
        done = self.run_agent('stop-all', self.only())
        self.assertEqual(1, done.returncode, done.stdout)
        self.assertIn('NOT removed, see above: memory_bytes of '
                      f'{self.tree.name}/batch/a', done.stdout)
        self.assertIn('NOT restored', done.stderr)
        self.assertEqual('0', self.idle())

    def test_a_parent_that_is_narrower_by_now(self) -> None:
        """Of its set what the parent has is set again: on version 1 the
        kernel takes no more."""
        self.needs_v1('version 2 takes a set wider than the parent has')
        self.configure('[perfiso]', 'mode = enforce', 'buffer_cores = 1')
        if self.tree.get('cpus', '/batch') in ('0', ''):
            self.skipTest('needs two CPUs')
        standalone = self.start('standalone')
        self.wait_for('the set is leased', self.leases)
        watcher = self.watcher()
        standalone.kill()
        signal.pidfd_send_signal(watcher, signal.SIGKILL)
        left = self.tree.get('cpus', '/batch')[0]
        for below in ('/batch/a', '/services/s', '/batch', '/services', ''):
            self.tree.put('cpus', below, left)
        done = self.run_agent('stop-all', self.only())
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.assertEqual(left, self.tree.get('cpus', '/batch'))

    def test_the_stop_file_cannot_be_made(self) -> None:
        standalone = self.limited()
        only = self.only(standalone)
        done = subprocess.run(
            ['unshare', '-m', '--propagation', 'private', 'sh', '-c',
             f'mount --bind {self.directory} {self.directory} && '
             f'mount -o remount,bind,ro {self.directory} && exec "$@"',
             'sh', *self.command('agent', 'stop-all', only)], timeout=60,
            check=False, text=True, capture_output=True)
        self.assertEqual((1, '1'), (done.returncode, self.idle()))
        self.assertIn(f'the stop file {self.state_dir}/stop cannot be made: '
                      'Read-only file system. Nothing was stopped.',
                      done.stderr)

    def test_without_rights(self) -> None:
        self.state_dir.mkdir(mode=0o700)
        (self.state_dir / 'status.json').write_text('{}')
        (self.state_dir / 'history').mkdir(mode=0o700)
        directory = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, directory)
        directory.chmod(0o755)
        self.directory.chmod(0o755)
        self.config.chmod(0o000)
        self.state_dir.rename(directory / 'state')
        self.state_dir = directory / 'state'
        for command in ('stop-all', 'resume', 'status', 'history'):
            done = subprocess.run(
                [sys.executable, '-c', AS_NOBODY,
                 *self.command('agent', command)[3:]], timeout=60,
                check=False, text=True, capture_output=True)
            self.assertEqual((1, ''), (done.returncode, done.stdout),
                             done.stderr)
            self.assertIn('must run as root', done.stderr)
            self.assertNotIn('Traceback', done.stderr)
        self.assertFalse((self.state_dir / 'stop').exists())

    def test_a_state_directory_of_another_user(self) -> None:
        standalone = self.limited()
        only = self.only(standalone)
        self.directory.chmod(0o777)
        os.chown(self.state_dir, NOBODY, NOBODY)
        done = self.run_agent('stop-all', only)
        self.assertEqual(1, done.returncode)
        self.assertNotIn('no limit is in force', done.stdout)
        self.assertTrue(re.search(
            r'it is not used: user 65534 made it .* \(owner: nobody, user '
            r'65534\)\. Limits of it may be in force', done.stdout),
            done.stdout)
        self.assertNotIn('Traceback', done.stderr)
