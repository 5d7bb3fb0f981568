# SPDX-License-Identifier: Apache-2.0

"""One enforcing agent for what it limits: real agents beside each other."""

from __future__ import annotations

import pathlib
import signal
import subprocess
import sys

import fixtures

from scavenger_openstack.agent.lease import claims
from scavenger_openstack import errors
from scavenger_openstack.restore import state_directory
from scavenger_openstack.tests import descriptors
from scavenger_openstack.tests.functional import base


class ClaimsTestCase(base.FunctionalTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.tree = self.cgroups()
        for below in ('/batch/a', '/other/a'):
            self.tree.make(below)
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)

    def agent(self, name: str, parent: str, *before: str,
              mode: str = 'enforce', more: tuple[str, ...] = (
                  '[perfiso]', 'mode = off')) -> subprocess.Popen[str]:
        """Start one with a state directory of its own."""
        config = self.directory / f'{name}.conf'
        config.write_text('\n'.join((
            '[conductor]', 'enabled = false',
            '[agent]', 'interval_s = 0.2', '[cgroups]',
            f'background_parents = {self.tree.name}{parent}',
            '[scavenger]', f'mode = {mode}', *more)))
        process = subprocess.Popen(
            [*before, sys.executable, '-m',
             'scavenger_openstack.cmd.standalone', '--config-file',
             str(config), '--state-dir', str(self.directory / name)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process: subprocess.Popen[str]) -> str:
        assert process.stderr
        if process.stderr.closed:
            return ''
        process.terminate()
        return process.communicate(timeout=60)[1]

    def idle(self, parent: str) -> str:
        return self.tree.get('idle', parent)

    def turns(self, name: str) -> bool:
        return (self.directory / name / 'status.json').exists()

    def enforcing(self) -> subprocess.Popen[str]:
        first = self.agent('first', '/batch')
        self.wait_for('it limits', lambda: self.idle('/batch') == '1')
        return first


class TwoAgents(ClaimsTestCase):

    def test_the_second_says_which_is_the_first(self) -> None:
        first = self.enforcing()
        state = self.directory / 'first'
        for parent, before in (
                ('/batch', ()), ('', ()), ('/batch/a', ()),
                ('/batch', ('unshare', '-m', '-n', '-i', '-u'))):
            second = self.agent('second', parent, *before)
            said = second.communicate(timeout=60)[1]
            self.assertEqual(1, second.returncode, said)
            self.assertIn(f'process {first.pid} (state directory {state}) '
                          'already enforces limits there', said)
            self.assertNotIn('Traceback', said)
        self.assertEqual('1', self.idle('/batch'))
        self.assertIn((first.pid, str(state), str(state)),
                      state_directory.agents())

    def test_the_first_has_a_root_of_its_own(self) -> None:
        root = self.directory / 'root'
        root.mkdir()
        first = self.agent(
            'first', '/batch', 'unshare', '-m', 'sh', '-c',
            f'mount --rbind / {root}; exec chroot {root} "$@"', 'sh')
        self.wait_for('it limits', lambda: self.idle('/batch') == '1')
        said = self.agent('second', '/batch').communicate(timeout=60)[1]
        self.assertIn(f'process {first.pid} (state directory '
                      f'{self.directory / "first"}) already', said)

    def test_in_a_pid_namespace_it_is_one_that_is_not_seen(self) -> None:
        self.enforcing()
        second = self.agent('second', '/batch', 'unshare', '-p', '-f',
                            '--kill-child', '--mount-proc')
        said = second.communicate(timeout=60)[1]
        self.assertEqual(1, second.returncode, said)
        self.assertIn('not seen from this PID namespace', said)

    def test_one_that_observes(self) -> None:
        self.enforcing()
        second = self.agent('second', '/batch', mode='observe')
        self.wait_for('it turns', lambda: self.turns('second'))
        self.end(second)
        self.assertEqual(0, second.returncode)

    def test_blind_isolation_alone_enforces(self) -> None:
        """By [agent] protect, without a mode of its own."""
        first = self.enforcing()
        second = self.agent('second', '/batch', mode='observe',
                            more=('[agent]', 'protect = cpu'))
        said = second.communicate(timeout=60)[1]
        self.assertEqual(1, second.returncode, said)
        self.assertIn(f'process {first.pid} ', said)

    def test_beside_each_other(self) -> None:
        self.enforcing()
        self.agent('second', '/other')
        self.wait_for('it limits', lambda: self.idle('/other') == '1')
        self.assertEqual('1', self.idle('/batch'))

    def test_after_a_kill(self) -> None:
        first = self.enforcing()
        first.send_signal(signal.SIGKILL)
        first.communicate(timeout=60)
        self.agent('second', '/batch')
        self.wait_for('the first one\'s limit is restored, and set again by '
                      'the second', lambda: self.turns('second')
                      and self.idle('/batch') == '1')


class Directories(ClaimsTestCase):
    """In one process: each object is as one agent."""

    def claim(self, *parents: str, uris: tuple[str, ...] = ()
              ) -> claims.Claims:
        found = claims.Claims([self.tree.name + parent
                               for parent in parents], uris)
        self.addCleanup(found.release)
        return found

    def refused(self, other: claims.Claims) -> None:
        self.assertRaises(errors.AlreadyRunning, other.take)

    def test_parents(self) -> None:
        one = self.claim('/batch', '/batch/a')      # nested, of one agent
        for _ in range(2):
            one.take()
        for parent in ('', '/batch', '/batch/a'):
            self.refused(self.claim(parent))
        self.claim('/other').take()
        one.release()
        self.claim('/batch').take()

    def test_a_hierarchy_that_is_mounted_twice(self) -> None:
        """It is one and the same directory that both paths lead to."""
        where = self.directory / 'again'
        where.mkdir()
        subprocess.run(['mount', '--bind', str(self.tree.mounts['cpu']),
                        str(where)], check=True)
        self.addCleanup(subprocess.run, ['umount', str(where)], check=True)
        self.claim('/batch', '/batch/a').take()
        self.refused(self.claim('/batch'))

    def test_made_later_and_made_again(self) -> None:
        one, two = self.claim('/later'), self.claim('/later')
        one.take()
        two.take()
        self.tree.make('/later')
        one.take()
        self.refused(two)
        self.tree.delete('/later')
        self.tree.make('/later')
        two.take()
        self.refused(one)

    def test_libvirt(self) -> None:
        uris = tuple(f'qemu+unix:///system?socket={self.directory}/{name}/s'
                     for name in ('x', 'y'))
        one = self.claim(uris=uris[:1])
        one.take()          # before libvirtd has ever run
        for name in ('x', 'y'):
            (self.directory / name).mkdir()
        one.take()
        self.refused(self.claim(uris=uris))
        self.claim(uris=uris[1:]).take()

    def test_no_descriptor_is_left(self) -> None:
        before = descriptors.of_process()
        one = claims.Claims([f'{self.tree.name}/batch'], ())
        for _ in range(3):
            one.take()
        self.assertRaises(errors.AlreadyRunning,
                          self.claim('/batch').take)
        one.release()
        self.assertEqual(set(), descriptors.of_process() - before)


class AnotherUser(ClaimsTestCase):
    """Any user may open a directory and lock it."""

    NOBODY = 65534

    def lock(self, path: pathlib.Path) -> int:
        """Have a process of that user lock a directory; its id."""
        process = subprocess.Popen(
            [sys.executable, '-c', 'import fcntl, os, sys, time\n'
             f'os.setuid({self.NOBODY})\n'
             'fd = os.open(sys.argv[1], os.O_RDONLY)\n'
             'fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)\n'
             'print("locked", flush=True)\n'
             'time.sleep(600)', str(path)], stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        assert process.stdout
        self.assertEqual('locked\n', process.stdout.readline())
        return process.pid

    def claim(self, *args: tuple[str, ...]) -> claims.Claims:
        found = claims.Claims(*args)
        self.addCleanup(found.release)
        return found

    def test_version_2(self) -> None:
        top = base.unified()
        if not top:
            self.skipTest('no cgroup v2 here')
        path = pathlib.Path(f'{top}{self.tree.name}-claims')
        path.mkdir()
        self.addCleanup(path.rmdir)
        if not (path / 'cgroup.kill').exists():
            self.skipTest('this kernel has no cgroup.kill')
        self.lock(path)
        self.claim(('/' + path.name,), ()).take()
        self.assertRaises(errors.AlreadyRunning,
                          self.claim(('/' + path.name,), ()).take)

    def test_libvirt(self) -> None:
        self.directory.chmod(0o755)
        token = self.directory / 'common/system.token'
        token.parent.mkdir(mode=0o700)
        token.touch(mode=0o600)
        self.lock(self.directory)
        uris = (f'qemu+unix:///system?socket={self.directory}/s',)
        self.claim((), uris).take()
        self.assertRaises(errors.AlreadyRunning, self.claim((), uris).take)

    def test_nothing_that_is_for_root_alone(self) -> None:
        if self.tree.version != 1:
            self.skipTest('no cgroup v1 here')
        pid = self.lock(self.tree.path('cpu', '/batch'))
        exc = self.assertRaises(
            errors.AlreadyRunning,
            self.claim((f'{self.tree.name}/batch',), ()).take)
        self.assertIn(f'process {pid} of user {self.NOBODY} has locked it',
                      str(exc))
