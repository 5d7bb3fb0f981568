# SPDX-License-Identifier: Apache-2.0

"""scavenger-standalone with its own control plane, and ``openstack`` on it."""

from __future__ import annotations

import os
import pathlib
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time

from oslo_config import cfg
import testtools

from scavenger_openstack.cmd import standalone_files
from scavenger_openstack.conductor import service
from scavenger_openstack import conf as conf_
from scavenger_openstack.db import connect
from scavenger_openstack.demo.stage import keep
from scavenger_openstack import errors
from scavenger_openstack.tests.functional import embedded
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import report

NOBODY = 65534
NO_PRIVILEGES = {'Groups': '', 'NoNewPrivs': '1', **dict.fromkeys(
    ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb'), '0' * 16)}


def privileges(path: pathlib.Path) -> dict[str, str]:
    """Users, groups and capabilities of a process or thread."""
    status = dict(line.split(':\t', 1) for line in (
        path / 'status').read_text().splitlines() if ':\t' in line)
    return {name: status[name].strip() for name in ('Uid', *NO_PRIVILEGES)}


class Whole(embedded.EmbeddedTestCase):
    """From its start to its end, as an operator meets it."""

    def setUp(self) -> None:
        super().setUp()
        self.process = self.begin()
        self.wait_for('background is idle class', lambda: self.idle() == '1',
                      embedded.START_S)

    def cores(self) -> float | None:
        text = self.tree.get('quota', '/batch/a')
        return None if text == '-1' else int(text) / 100_000

    def took(self, what: str, began: float) -> None:
        self.addDetail(what, testtools.content.text_content(
            f'{time.monotonic() - began:.2f} s'))

    def test_one_start(self) -> None:
        self.what_operators_type()
        self.a_shell_that_has_an_openrc_loaded()
        self.an_antagonist()
        self.its_processes()

    def what_operators_type(self) -> None:
        [host] = self.json('interference', 'host', 'list')
        self.wait_for('workloads', lambda: len(self.json(
            'interference', 'workload', 'list')) == 2)
        name = f'{self.tree.name}/batch/a'
        target = (host['name'], name, 'cpu_cores')
        self.text('interference', 'cap', 'set', *target, '0.5',
                  '--expires', '10m', '--reason', 'the test')
        began = time.monotonic()
        self.wait_for('in the cgroup', lambda: self.cores() == 0.5)
        self.took('override', began)
        self.wait_for('it is shown', lambda: [
            one for one in self.json('interference', 'cap', 'list')
            if one['owner'] == 'operator'])
        self.text('interference', 'cap', 'unset', *target, '--reason',
                  'the test')
        began = time.monotonic()
        self.wait_for('gone', lambda: self.cores() is None)
        self.took('no override', began)
        # It needs no token for the conductor in its own process.
        subprocess.run([sys.executable, '-P', '-m',
                        'scavenger_openstack.cmd.manage', '--config-file',
                        str(self.place / 'scavenger.conf'), 'host', 'enroll',
                        '--grace', '0h', host['name']], check=True,
                       timeout=60, capture_output=True)
        self.text('interference', 'protection', 'disable', '--cloud',
                  '--reason', 'test')
        began = time.monotonic()
        self.wait_for('no limit', lambda: self.idle() == '0'
                      and not self.leases())
        self.took('kill switch', began)
        self.text('interference', 'protection', 'enable', '--cloud',
                  '--reason', 'test')
        self.wait_for('limits again', lambda: self.idle() == '1')
        self.assertEqual(4, len([
            row for row in self.json('interference', 'audit', 'list')
            if row['actor'] == 'admin']))

    def a_shell_that_has_an_openrc_loaded(self) -> None:
        """The real program works in it, and the shell can be set back."""
        openrc = {
            'OS_AUTH_TYPE': 'password', 'OS_AUTH_URL': 'http://192.0.2.1/v3',
            'OS_CACERT': '/etc/ssl/certs/ca.pem', 'OS_CLOUD': 'ours',
            'OS_IDENTITY_API_VERSION': '3', 'OS_INTERFACE': 'internal',
            'OS_PASSWORD': 'a \'b\' "c" $d `e`', 'OS_PROJECT_ID': '0' * 32,
            'OS_PROJECT_DOMAIN_ID': 'default', 'OS_TENANT_NAME': 'admin',
            'OS_PROJECT_DOMAIN_NAME': 'Default', 'OS_PROJECT_NAME': 'admin',
            'OS_REGION_NAME': 'RegionOne', 'OS_TOKEN': 'gAAA',
            'OS_USERNAME': 'admin', 'OS_USER_DOMAIN_ID': 'default',
            'OS_USER_DOMAIN_NAME': 'Default', 'OS_VOLUME_API_VERSION': '3'}
        (self.directory / '.config/openstack').mkdir(parents=True)
        (self.directory / '.config/openstack/clouds.yaml').write_text(
            'clouds: {ours: {auth: {project_name: admin}}}\n')
        command = shlex.join(self.command('standalone', 'env'))
        listing = shlex.join([
            sys.executable, '-W', 'ignore', '-m', 'openstackclient.shell',
            'interference', 'host', 'list', '-f', 'value', '-c', 'name'])
        variables = "env | grep '^OS_' | sort"
        for shell in ('sh', 'bash'):
            done = subprocess.run(
                [shell, '-euc', f'{variables}; eval "$({command})"\n'
                 'export OS_PROJECT_NAME=other\n'   # of another openrc file
                 f'eval "$({command})"\n{listing}\n{variables} | wc -l\n'
                 f'eval "$({command} --undo)"\n{variables}\n'
                 'set | grep -c ^scavenger_ || :'],
                env={**{name: value for name, value in os.environ.items()
                        if not name.startswith('OS_')}, **openrc,
                     'HOME': str(self.directory)},
                capture_output=True, text=True, timeout=120, check=False)
            before = [f'{name}={value}' for name, value in openrc.items()]
            self.assertEqual(
                [*sorted(before), socket.gethostname(), '4', *sorted(before),
                 '0'], done.stdout.splitlines(), done.stderr)
            self.assertIn('standalone env --undo', done.stderr)

    def an_antagonist(self) -> None:
        """As an agent reports it, and who may see it."""
        now = time.time()
        engine = connect.engine(f'sqlite:///{self.place}/scavenger.sqlite')
        self.addCleanup(engine.dispose)
        service.Conductor(engine).answer(codec.encode(report.Report(
            host='other', boot_id='b', run_id='r', sent_s=now,
            entries=[report.Incident(
                sequence=1, time_s=now, id='a' * 32, what='began',
                begun_s=now - 60, victim='/services/s', signal='run_delay',
                value=3.0, threshold=1.0, cause='core',
                controller='attribution', suspects=[report.Suspect(
                    workload='/batch/x', score=0.9, antagonist=True)])])))
        [found] = self.json('antagonist', 'list')
        self.assertEqual(('/batch/x', 'other'),
                         (found['workload'], found['host']))
        [found] = self.json('interference', 'incident', 'list')
        self.assertEqual('a' * 32, found['id'])
        # The last screen of scavenger-demo --keep.
        screen = keep.Plane(self.directory, self.config.name).screen()
        self.assertEqual(2, screen.count('$ openstack '), screen)
        self.assertIn(f'incident show {"a" * 32}', screen)
        self.assertIn('/services/s', screen)
        self.assertIn('/batch/x', screen)
        # Nobody but root is given the password.
        done = subprocess.run(
            [sys.executable, '-c', 'import os, sys\n'
             'from scavenger_openstack.cmd import configuration\n'
             'from scavenger_openstack.cmd import standalone\n'
             'from scavenger_openstack.cmd import standalone_shell\n'
             f'os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})\n'
             'sys.exit(standalone.main())',
             *self.command('standalone', 'env')[3:]], check=False,
            timeout=60, capture_output=True, text=True)
        self.assertEqual((1, ''), (done.returncode, done.stdout), done.stderr)
        self.assertEqual(
            f'scavenger-standalone: {self.place}/password: only root may '
            'read the password: type it as root\n', done.stderr)

    def its_processes(self) -> None:
        """The API has no privileges, comes back, and ends with the rest."""
        self.assertEqual(
            [0o600, 0o600, 0o660], [
                (self.place / name).stat().st_mode & 0o777
                for name in ('password', 'users', 'scavenger.sqlite')])
        [first] = self.api()
        looked_at = 0
        for path in pathlib.Path(f'/proc/{first}/task').iterdir():
            try:
                found = privileges(path)
            except (FileNotFoundError, ProcessLookupError):
                continue        # a thread that has ended, before or after open
            self.assertNotIn('0', found.pop('Uid').split())
            self.assertEqual(NO_PRIVILEGES, found)
            looked_at += 1
        self.assertGreater(looked_at, 0)
        ticks = self.ticks()
        os.kill(first, signal.SIGKILL)
        self.wait_for('another API', lambda: self.api() not in ([], [first]))
        self.wait_for('it answers', lambda: not self.openstack(
            'interference', 'host', 'list').status, embedded.START_S)
        self.assertEqual('1', self.idle())
        self.assertGreater(self.ticks(), ticks)
        watcher = self.watcher()
        self.process.kill()
        self.wait_for('restored', lambda: self.idle() == '0'
                      and not self.leases())
        self.wait_for('no API', lambda: not self.api())
        self.wait_for('no watcher', lambda: not embedded.processes(
            'scavenger_openstack.restore.program', str(self.state_dir)))
        del watcher


class Ambient(embedded.EmbeddedTestCase):

    def test_the_api_has_no_capabilities_of_its_starter(self) -> None:
        """Where the agent's user starts it, with ambient capabilities."""
        if shutil.which('setpriv') is None:
            self.skipTest('needs setpriv: see bindep.txt')
        self.place.mkdir(mode=0o700)
        options = self.place / 'scavenger.conf'
        options.write_text(
            f'[database]\nconnection = sqlite:///{self.place}/database\n'
            f'[api]\nauth_strategy = noauth\nport = {self.port}\n')
        python = [sys.executable, '-m']
        subprocess.run(
            [*python, 'scavenger_openstack.cmd.manage', '--config-file',
             str(options), 'db', 'upgrade'], check=True, timeout=60,
            stdout=subprocess.DEVNULL)
        for path in (self.place, *self.place.iterdir()):
            os.chown(path, NOBODY, NOBODY)
        capabilities = '-all,+dac_override,+net_admin,+kill'
        process = subprocess.Popen(
            ['setpriv', '--reuid=nobody', '--regid=nogroup',
             '--clear-groups', f'--inh-caps={capabilities}',
             f'--ambient-caps={capabilities}', '--', *python,
             'scavenger_openstack.cmd.api', '--config-file', str(options)],
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.addCleanup(self._stop, process)
        assert process.stderr is not None
        said = ''
        while 'the API answers at' not in said:
            said = process.stderr.readline()
            self.assertTrue(said, 'it has ended')
        found = privileges(pathlib.Path(f'/proc/{process.pid}'))
        # To make this set empty takes a right that such a process has not;
        # by no_new_privs nothing comes of it.
        found.pop('CapBnd')
        self.assertEqual({str(NOBODY)}, set(found.pop('Uid').split()))
        self.assertEqual({name: what for name, what in NO_PRIVILEGES.items()
                          if name != 'CapBnd'}, found)


class Faults(embedded.EmbeddedTestCase):
    """The host is protected whatever becomes of the rest."""

    def test_a_database_that_is_none(self) -> None:
        self.place.mkdir(mode=0o700)
        (self.place / 'scavenger.sqlite').write_bytes(b'no database' * 999)
        process = self.start('standalone')
        self.wait_for('background is idle class', lambda: self.idle() == '1',
                      embedded.START_S)
        self.wait_for('the status says why', lambda: 'database' in str(
            dict(self.status().get('conductor') or {}).get('fault')),  # type: ignore[call-overload]
            embedded.START_S)
        process.terminate()
        _, err = process.communicate(timeout=60)
        self.assertEqual(0, process.returncode, err)
        self.assertEqual(1, err.count('no control plane here, '), err)
        self.assertNotIn('Traceback', err)

    def test_a_port_that_another_has(self) -> None:
        with socket.create_server(('127.0.0.1', self.port)):
            process = self.start('standalone')
            self.wait_for('background is idle class',
                          lambda: self.idle() == '1', embedded.START_S)
            self.wait_for('an API', self.api, embedded.START_S)
            self.wait_for('it ends', lambda: not self.api(), embedded.START_S)
            env = self.env()
            process.terminate()
            _, err = process.communicate(timeout=60)
        self.assertEqual(0, process.returncode, err)
        self.assertIn(
            f'scavenger-api: [api] port: 127.0.0.1:{self.port}: Address '
            'already in use; choose another port\n', err)
        # The password is for the API alone.
        self.assertEqual((1, ''), (env.returncode, env.stdout), env.stderr)
        self.assertIn(f'process {os.getpid()}', env.stderr)
        env = self.env()
        self.assertEqual((1, ''), (env.returncode, env.stdout), env.stderr)
        self.assertIn('no scavenger-standalone runs', env.stderr)
        self.assertEqual([], self.leases())

    def test_a_second_one(self) -> None:
        """It says what is wrong before anything is started."""
        first = self.start('standalone')
        self.wait_for('background is idle class', lambda: self.idle() == '1',
                      embedded.START_S)
        second = self.start('standalone')
        out, err = second.communicate(timeout=60)
        self.assertEqual((1, ''), (second.returncode, out))
        line, = err.splitlines()
        self.assertIn(f"is held by process '{first.pid}': one agent per host",
                      line)
        self.assertEqual('1', self.idle())

    def test_a_directory_of_another_user(self) -> None:
        self.place.mkdir()
        os.chown(self.place, NOBODY, NOBODY)
        process = self.start('standalone')
        self.wait_for('background is idle class', lambda: self.idle() == '1',
                      embedded.START_S)
        process.terminate()
        _, err = process.communicate(timeout=60)
        self.assertIn('is no directory that only user 0 can write to', err)

    def test_a_stop_file_that_the_api_could_remove(self) -> None:
        """Its directory is the API's user's, as /var/lib/scavenger was."""
        api = standalone_files.user()
        above = self.directory / 'theirs'
        above.mkdir()
        os.chown(above, api.pw_uid, api.pw_gid)
        self.config.write_text(self.config.read_text().replace(
            '[agent]', f'[agent]\nstop_file = {above}/stop'))
        process = self.start('standalone')
        why = (f'{above} belongs to user {api.pw_name}, which could remove '
               'the stop file, which is the kill switch: chown root '
               f'{above}')
        self.wait_for('the status says why', lambda: why in str(
            self.status().get('conductor')), embedded.START_S)
        self.assertEqual('1', self.idle())
        self.assertFalse(self.place.exists())
        # The group, or all, may write to it.
        os.chown(above, 0, api.pw_gid)
        files = standalone_files.Files(self.place)
        conf = cfg.ConfigOpts()
        conf_.register(conf)
        conf_.load(conf, ['--config-file', str(self.config), '--state-dir',
                          str(self.state_dir)], 'scavenger-standalone')
        for mode in (0o775, 0o757):
            above.chmod(mode)
            exc = self.assertRaises(errors.ScavengerError,
                                    standalone_files.make, files, conf, api)
            self.assertIn(f'{above} can be written to by user {api.pw_name} '
                          'of the API', str(exc))
        above.chmod(0o1777)     # each user removes its own files there
        standalone_files.make(files, conf, api)
        process.terminate()
        _, err = process.communicate(timeout=60)
        self.assertEqual(0, process.returncode, err)
        self.assertEqual(1, err.count(
            f'no control plane here, next try in 60 s: {why}'), err)

    def test_a_fault_that_nobody_expects(self) -> None:
        """No API can be started for a while; then all is there again."""
        python = self.directory / 'python'
        script = f'#!/bin/sh\nexec {sys.executable} "$@"\n'
        python.write_text(script)
        python.chmod(0o755)
        process = subprocess.Popen(
            [sys.executable, '-c', 'import sys\n'
             f'sys.executable = {str(python)!r}\n'
             'from scavenger_openstack.cmd import embedded, standalone\n'
             'embedded.RETRY_S = 1.0\n'
             'sys.exit(standalone.main())',
             *self.command('standalone')[3:]], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(self._stop, process)
        self.wait_for('an API', self.api, embedded.START_S)
        self.wait_for('a report', lambda: dict(
            self.status().get('conductor') or {}  # type: ignore[call-overload]
        ).get('answered_s'), embedded.START_S)
        python.unlink()
        self.end_api()
        self.wait_for('the status says so', lambda: (
            'the control plane failed (FileNotFoundError' in str(
                self.status().get('conductor'))), embedded.START_S)
        self.assertEqual('1', self.idle())
        python.write_text(script)
        python.chmod(0o755)
        self.wait_for('another API', self.api, embedded.START_S)
        self.wait_for('the status says so', lambda: not dict(
            self.status().get('conductor') or {}  # type: ignore[call-overload]
        ).get('fault'), embedded.START_S)
        process.terminate()
        _, err = process.communicate(timeout=60)
        self.assertEqual(0, process.returncode, err)
        self.assertIn('the control plane failed, it begins again in 1 s', err)

    def test_without_its_packages(self) -> None:
        self.configure('[scavenger]', 'mode = enforce')
        self.config.write_text(self.config.read_text().replace(
            'enabled = false', ''))
        process = subprocess.Popen(
            [sys.executable, '-c', 'import sys\n'
             'from scavenger_openstack.cmd import standalone\n'
             'standalone.NEEDED = ("flask", "not_there")\n'
             'sys.exit(standalone.main())',
             *self.command('standalone')[3:]], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(self._stop, process)
        self.wait_for('background is idle class', lambda: self.idle() == '1',
                      embedded.START_S)
        process.terminate()
        _, err = process.communicate(timeout=60)
        self.assertIn('no API here, not_there missing: install ', err)
        self.assertFalse(self.place.exists())
