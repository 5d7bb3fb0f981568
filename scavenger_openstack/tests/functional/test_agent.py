# SPDX-License-Identifier: Apache-2.0

"""The commands as an operator types them, on real cgroups."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess

import fixtures

from scavenger_openstack.tests.functional import agents
from scavenger_openstack.tests.functional.agents import BUSY

NO_RIGHTS = '-dac_override,-dac_read_search'
"""Then root is bound by the modes of files."""

FAULTY = """
import os
from scavenger_openstack.drivers import host

class Faulty(host.Host):

    def facts(self):
        os.mkdir(os.environ['STATUS'])      # which the agent cannot delete
        raise ZeroDivisionError('ours')
"""


class AgentTest(agents.AgentTestCase):

    def test_standalone_limits_and_ends_clean(self) -> None:
        self.spawn(BUSY, self.tree, '/batch/a')
        standalone = self.start('standalone')
        self.wait_for('background is idle class', lambda: self.idle() == '1')
        self.wait_for('it tells', self.status)
        self.wait_for('the memory window is learnt', lambda: self.status()[
            'controllers']['scavenger']['facts']['memory']  # type: ignore
            ['rule'] == 'holding')
        done = self.run_agent('status')
        self.assertEqual(0, done.returncode, done.stderr)
        for word in ('running', 'enforce', 'cpu_idle', 'memory_bytes',
                     'leaves'):
            self.assertIn(word, done.stdout)
        standalone.send_signal(signal.SIGINT)
        out, err = standalone.communicate(timeout=60)
        self.assertEqual(0, standalone.returncode, err)
        self.assertEqual('0', self.idle())
        self.assertNotIn('Traceback', err)
        # The agent gave it back itself: nothing was left to the watcher.
        self.assertNotIn('scavenger-restore', err)
        self.assertEqual([], list((self.state_dir / 'leases').iterdir()))

    def test_standalone_killed_leaves_nothing_not_even_a_watcher(self
                                                                 ) -> None:
        standalone = self.start('standalone')
        self.wait_for('background is idle class', lambda: self.idle() == '1')
        watcher = self.watcher()
        standalone.kill()
        self.wait_for('all is back', lambda: self.idle() == '0')
        self.wait_for('the watcher has ended',
                      lambda: select.select([watcher], [], [], 0)[0])

    def test_a_killed_watcher_comes_back(self) -> None:
        self.start('standalone')
        self.wait_for('background is idle class', lambda: self.idle() == '1')
        lock = self.state_dir / 'watcher.lock'
        first = lock.read_text()
        watcher = int(first.split()[0])
        os.kill(watcher, signal.SIGKILL)
        self.wait_for('another watcher', lambda: lock.read_text() != first)
        self.wait_for('limits are there', lambda: self.idle() == '1')

    def test_blind_isolation_in_the_agent(self) -> None:
        """The fast loop moves the set, and what ends it restores the set."""
        self.configure('[perfiso]', 'mode = enforce', 'buffer_cores = 1')
        cpus = self.tree.get('cpus', '/batch')
        if cpus in ('0', ''):
            self.skipTest('needs two CPUs')
        for _ in range(2):
            self.spawn(BUSY, self.tree, '/batch/a')

        def narrowed() -> bool:
            return self.tree.get('cpus', '/batch') != cpus

        for end, code in (('terminate', 0), ('kill', -9)):
            standalone = self.start('standalone')
            self.wait_for('the set is narrowed', narrowed)
            self.wait_for('it tells', self.status)
            isolation = self.status()['isolation']
            assert isinstance(isolation, dict)
            self.assertIn('running', isolation['state'])
            getattr(standalone, end)()
            _, err = standalone.communicate(timeout=60)
            self.assertEqual(code, standalone.returncode, err)
            self.wait_for('the set is back', lambda: not narrowed())
            self.assertEqual(cpus, self.tree.get('cpus', '/batch/a'))

    def isolate(self) -> subprocess.Popen[str]:
        """Start with the fast loop on; returns when it has narrowed."""
        self.configure('[perfiso]', 'mode = enforce', 'buffer_cores = 1')
        self.cpus = self.tree.get('cpus', '/batch')
        if self.cpus in ('0', ''):
            self.skipTest('needs two CPUs')
        for _ in range(2):
            self.spawn(BUSY, self.tree, '/batch/a')
        standalone = self.start('standalone')
        self.wait_for('the set is narrowed',
                      lambda: self.cpu_set('/batch') != self.cpus)
        return standalone

    def cpu_set(self, below: str) -> str:
        return self.tree.get('cpus', below)

    def test_what_an_operator_sets_under_the_fast_loop_stays(self) -> None:
        standalone = self.isolate()

        def narrow_to_0() -> bool:
            try:
                for cpus, order in ((self.cpus, ('/batch', '/batch/a')),
                                    ('0', ('/batch/a', '/batch'))):
                    for below in order:
                        self.tree.put('cpus', below, cpus)
            except OSError:     # the fast loop came between
                return False
            return True

        self.wait_for('the set of the operator stays', narrow_to_0)
        self.wait_for('it is adopted', lambda: any(
            json.loads(path.read_text().splitlines()[0]).get('original')
            == '0' for path in (self.state_dir / 'leases').glob('*.json')))
        standalone.terminate()
        _, err = standalone.communicate(timeout=60)
        self.assertEqual('0', self.cpu_set('/batch'))
        self.assertIn('another program', err)

    def test_a_group_made_again_under_the_fast_loop(self) -> None:
        standalone = self.isolate()
        self.tree.delete('/batch')
        self.tree.make('/batch/a')
        for _ in range(2):
            self.spawn(BUSY, self.tree, '/batch/a')
        self.wait_for('the new set is narrowed',
                      lambda: self.cpu_set('/batch') != self.cpus)
        standalone.kill()
        self.wait_for('the new set is back',
                      lambda: self.cpu_set('/batch') == self.cpus)
        self.assertEqual(self.cpus, self.cpu_set('/batch/a'))

    def test_foreground_born_in_a_narrowed_group_is_freed(self) -> None:
        """It copies the capped set before the group is known as mixed."""
        self.needs_v1('in version 2 nothing copies a set')
        standalone = self.isolate()
        self.tree.make('/batch/a/late')
        standalone.terminate()
        standalone.communicate(timeout=60)
        self.assertEqual(self.cpus, self.cpu_set('/batch/a/late'))

    def test_observe_is_the_default_and_touches_nothing(self) -> None:
        self.configure()
        untouched = self.limits()
        self.start('standalone')
        self.wait_for('it would limit', lambda: self.status().get('would'))
        self.assertEqual(untouched, self.limits())
        self.assertEqual([], list((self.state_dir / 'leases').iterdir()))
        self.assertIn('would be set', self.run_agent('status').stdout)

    def test_a_second_agent_refuses(self) -> None:
        first = self.start('standalone')
        self.wait_for('it runs', self.status)
        done = self.run_agent('run')
        self.assertEqual(1, done.returncode)
        self.assert_one_line(done.stderr, str(first.pid), 'one agent')

    def test_a_state_directory_of_another_user(self) -> None:
        self.state_dir.mkdir(mode=0o700)
        os.chown(self.state_dir, 65534, 65534)
        done = self.run_agent('run')
        self.assertEqual((1, '0'), (done.returncode, self.idle()))
        self.assertIn(f'{self.state_dir} belongs to user 65534, and this is '
                      'user 0: no limit is set without it; run as that user, '
                      'or give --state-dir', done.stderr)
        self.assertNotIn('free space', done.stderr)

    def test_sample_prints_what_is_measured_and_touches_nothing(self
                                                                ) -> None:
        self.spawn(BUSY, self.tree, '/services/s')
        untouched = self.limits()
        done = self.run_agent('sample', '--json', '--seconds', '0.5')
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertGreaterEqual(len(lines), 2)
        found = {one['workload']['id']: one for one in lines[-1]['workloads']}
        self.assertGreater(found[f'{self.tree.name}/services/s']['cpu_s'], 0)
        # For people: what it uses, with units; unknown is not 0.
        done = self.run_agent('sample')
        row, = (line.split() for line in done.stdout.splitlines()
                if line.startswith(f'{self.tree.name}/services/s '))
        self.assertEqual('foreground', row[1])
        self.assertGreater(float(row[3]), 0.05)
        self.assertIn('MiB', row)
        self.assertIn('-', row)
        self.assertFalse(self.state_dir.exists())
        self.assertEqual(untouched, self.limits())

    def limits(self) -> list[str]:
        """What the background may use, as the kernel tells it."""
        return [self.tree.get(limit, below)
                for below in ('/batch', '/batch/a')
                for limit in ('idle', 'quota', 'cpus', 'memory', 'frozen')]

    def assert_one_line(self, text: str, *words: str) -> None:
        """One line for a person that says all of ``words``."""
        lines = text.strip().splitlines()
        self.assertEqual(1, len(lines), text)
        for word in words:
            self.assertIn(word, lines[0])

    def test_a_wrong_option_names_itself_and_the_right_one(self) -> None:
        self.configure('[scavenger]', 'memory_windows_s = 3')
        done = self.run_agent('run')
        self.assertEqual(2, done.returncode)
        self.assert_one_line(done.stderr, str(self.config),
                             '[scavenger] memory_windows_s',
                             'did you mean memory_window_s?')

    def test_a_wrong_value(self) -> None:
        for lines, words in (
                (['[scavenger]', 'memory_c = lots'], ['memory_c', 'lots']),
                (['[scavenger]', 'mode = enfroce'], ['mode', 'enfroce']),
                (['[agent]', 'interval_s = 0'], ['interval_s']),
                (['[agent]', 'lease_s = nan'], ['lease_s', 'nan']),
                (['[network]', 'links = eth0=fast'], ['links', 'eth0=fast']),
                (['[agent]', 'driver = windows'], ['driver', 'windows']),
                (['[scavanger]', 'mode = off'], ['did you mean']),
                (['[cpi2]', 'signal = ipc'], ['signal', 'ipc', 'run_delay']),
        ):
            self.configure(*lines)
            done = self.run_agent('run')
            self.assertEqual(2, done.returncode, done.stderr)
            self.assert_one_line(done.stderr, *words)

    def test_detectors_as_published_may_enforce(self) -> None:
        names = ('cpi2', 'perfcloud')
        self.configure('[agent]', f'controllers = {",".join(names)}', *(
            line for name in names for line in (
                f'[{name}]', 'mode = enforce')))
        standalone = self.start('standalone')
        self.wait_for('it tells', self.status)
        controllers = self.status()['controllers']
        assert isinstance(controllers, dict)
        standalone.terminate()
        _, err = standalone.communicate(timeout=60)
        for name in names:
            self.assertEqual('enforce', controllers[name]['mode'])
            self.assertEqual(1, err.count(f'[{name}] mode: enforce'), err)

    def test_a_config_file_that_cannot_be_read(self) -> None:
        self.config.write_bytes(b'[agent]\n\xff')
        done = self.run_agent('run')
        self.assertEqual(2, done.returncode)
        self.assert_one_line(done.stderr, f'{self.config}: not UTF-8')
        self.config.chmod(0)
        done = subprocess.run(
            ['setpriv', f'--bounding-set={NO_RIGHTS}',
             f'--inh-caps={NO_RIGHTS}', '--', *self.command('agent', 'run')],
            timeout=60, capture_output=True, text=True)
        self.assertEqual(2, done.returncode, done.stderr)
        self.assert_one_line(done.stderr, f'open some config files: '
                                          f'{self.config}')
        self.config.unlink()
        self.config.mkdir()
        done = self.run_agent('run')
        self.assertEqual(2, done.returncode)
        self.assert_one_line(done.stderr, f'{self.config}: the configuration '
                             'cannot be read: Is a directory')
        self.assertFalse(self.state_dir.exists())

    def test_all_that_is_wrong_is_one_line_each(self) -> None:
        self.configure('backgroud_parents = /batch', '[agent]',
                       'memory_c = 3', '[io_shares]', 'mode = enforced')
        done = self.run_agent('run')
        self.assertEqual(2, done.returncode)
        self.assertEqual(
            [f'scavenger-agent: {self.config}: {what}' for what in (
                '[agent] memory_c: no such option; [scavenger] memory_c is '
                'one',
                '[cgroups] backgroud_parents: no such option; did you mean '
                'background_parents?',
                '[io_shares] mode: Valid values are [off, observe, enforce], '
                "but found 'enforced'")], done.stderr.splitlines())

    def test_with_nothing_to_look_at(self) -> None:
        self.config.write_text('[libvirt]\nuri =\n')
        agent = self.start('agent', 'run')
        self.wait_for('it tells', self.status)
        self.assertIn(
            'missing    [libvirt] uri is empty and no [cgroups] '
            "background_parents: only the host's own use is measured, ",
            self.run_agent('status').stdout)
        agent.terminate()
        _, err = agent.communicate(timeout=60)
        self.assertEqual(1, err.count('missing: '), err)

    def test_only_what_is_protected_is_limited(self) -> None:
        """And what protecting takes that this cgroup has not is said."""
        self.configure('[agent]', 'protect = memory, disk', '[scavenger]',
                       'memory_window_s = 3')
        if self.tree.version == 1:
            self.tree.path('blkio', '/batch/a').rmdir()
        else:
            (self.tree.path('io', '/batch') / 'cgroup.subtree_control'
             ).write_text('-io')
        self.start('standalone')
        self.wait_for('the memory limit is there', lambda: [
            cap for cap in self.status().get('caps', ())  # type: ignore
            if cap['knob'] == 'memory_bytes'])
        self.assertEqual('0', self.idle())
        shown = self.run_agent('status').stdout
        for words in ('protects   memory, disk', 'scavenger  enforce',
                      'io_shares  enforce', 'limits that would be set',
                      'missing    disk: '
                      f'{self.tree.path("blkio", "/batch/a")}',
                      'does not exist'):
            self.assertIn(words, shown)
        self.wait_for('only limits of CPUs are not set', lambda: {
            cap['knob'] for cap in self.status()['would']  # type: ignore
        } == {'cpu_cores', 'cpu_idle'})

    def test_status_without_an_agent_or_with_garbage(self) -> None:
        done = self.run_agent('status')
        self.assertEqual(1, done.returncode)
        self.assertIn('no status: no agent runs with this', done.stderr)
        self.state_dir.mkdir()
        (self.state_dir / 'status.json').write_text('{garbage')
        done = self.run_agent('status')
        self.assertEqual(1, done.returncode)
        self.assertIn('not readable', done.stderr)

    def test_a_missing_parent_is_one_warning_and_is_found_later(self
                                                                ) -> None:
        self.configure('[scavenger]', 'mode = enforce')
        self.tree.delete('/batch')
        standalone = self.start('standalone')
        self.wait_for('it has looked more than once', lambda: self.ticks() > 3)
        self.assertEqual([], self.status()['caps'])
        self.tree.make('/batch/a')
        self.wait_for('it is limited', lambda: self.idle() == '1')
        standalone.terminate()
        _, err = standalone.communicate(timeout=60)
        self.assertEqual(1, err.count(
            f'cannot read the cgroup {self.tree.name}/batch:'), err)
        self.assertNotIn('Traceback', err)

    def test_without_a_command_or_with_a_wrong_one(self) -> None:
        for words in ([], ['jump']):
            done = self.run_agent(*words)
            self.assertEqual(2, done.returncode)
            self.assertIn('scavenger-agent', done.stderr)
        self.assert_one_line(done.stderr, 'jump', 'run', 'sample', 'status',
                             'stop-all', 'resume')

    def test_a_fault_of_ours_and_then_one_of_the_host(self) -> None:
        """The log has the first, too."""
        plugins = self.directory / 'plugins'
        about = plugins / 'faulty-0.dist-info'
        about.mkdir(parents=True)
        (about / 'METADATA').write_text(
            'Metadata-Version: 2.1\nName: faulty\nVersion: 0\n')
        (about / 'entry_points.txt').write_text(
            '[scavenger.drivers]\nfaulty = faulty:Faulty\n')
        (plugins / 'faulty.py').write_text(FAULTY)
        path = ':'.join(filter(None, (str(plugins),
                                      os.environ.get('PYTHONPATH'))))
        for name, value in (
                ('PYTHONPATH', path),
                ('STATUS', str(self.state_dir / 'status.json'))):
            self.useFixture(fixtures.EnvironmentVariable(name, value))
        self.config.write_text('[agent]\ndriver = faulty\n'
                               '[conductor]\nenabled = false\n')
        found = self.run_agent('run')
        self.assertEqual(1, found.returncode)
        self.assertIn('status.json: Is a directory', found.stderr)
        self.assertIn('Traceback', found.stderr)
        self.assertIn('ZeroDivisionError: ours', found.stderr)
