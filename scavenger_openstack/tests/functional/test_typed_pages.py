# SPDX-License-Identifier: Apache-2.0

"""The commands of the pages of the operator's tasks, run one after another.

``openstack`` is the real one, against the API in this process;
``scavenger-manage`` and ``scavenger-status`` have the database of that API;
``scavenger-agent`` has an agent and its watcher beside real cgroups.  What is
not run is printed with its reason.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
import contextlib
import io
import os
import subprocess
import sys

from scavenger_openstack.cmd import manage
from scavenger_openstack.cmd import status
from scavenger_openstack.db import connect
from scavenger_openstack.db import tables
from scavenger_openstack.tests.functional import agents
from scavenger_openstack.tests.functional import openstack_shell
from scavenger_openstack.tests.unit import console

BATCH = '0a4f5a5e-1c1b-4f0e-9d57-0d1c6a3f7b21'
"""A background instance."""

NAMES = {'UUID': BATCH, 'db-1': BATCH, 'INCIDENT': openstack_shell.INCIDENT,
         'compute-7': 'compute-2'}
"""What the pages call by a name of their own; compute-2 reports no more."""

CLOUD = 'it takes a cloud, such as test_openstack has'
MACHINE = 'it changes the machine'
NOT_RUN: Mapping[tuple[str, ...], str] = {
    ('openstack', 'antagonist', 'evict'): 'test_openstack_evictions runs it',
    **{('openstack', noun): CLOUD for noun in (
        'compute', 'endpoint', 'flavor', 'role', 'server', 'service',
        'user')},
    ('scavenger-manage', 'flavors'): 'test_openstack_placement runs it',
    ('scavenger-manage', 'placement'): 'test_placement runs it',
    ('rabbitmqctl',): 'test_broker_rights runs it',
    ('ansible-playbook',): 'test_ansible runs it',
    ('scavenger-standalone',): 'test_embedded runs it',
    ('eval',): 'test_embedded runs it',
    ('apparmor_parser',): 'test_guest_packages runs it',
    ('scavenger-demo',): 'test_demo runs it',
    ('.venv/bin/scavenger-demo',): 'test_demo runs it',
    ('tools/demo.sh',): 'test_demo runs it',
    **{(name,): MACHINE for name in (
        '/opt/scavenger/bin/pip', 'apt-get', 'chmod', 'chown', 'cp',
        'dpkg-buildpackage', 'editor', 'install', 'ip', 'ln', 'mkdir', 'mysql',
        'pip', 'podman', 'python3', 'rm',
        'systemctl', 'systemd-run', 'systemd-sysusers', 'systemd-tmpfiles',
        'userdel')},
    ('source',): 'it changes the shell',
    **{(name,): 'it needs what other commands have installed' for name in (
        'curl', 'grep', 'journalctl', 'ls', 'pkg-config')}}

CODES: Mapping[tuple[str, ...], tuple[int, ...]] = {
    ('scavenger-agent', 'status', '--check'): (0, 1),
    ('scavenger-status', 'upgrade', 'check'): (0, 1)}
"""Exit codes, where others than 0 are right: both warn of this host."""


def reason(command: console.Command) -> tuple[str, ...]:
    """Return the key in NOT_RUN; empty where the command is run."""
    return next((key for key in NOT_RUN
                 if command.words[:len(key)] == key), ())


class Pages(agents.AgentTestCase):

    def setUp(self) -> None:
        super().setUp()
        self.plane = self.useFixture(openstack_shell.ControlPlane())
        with connect.writing(self.plane.engine) as connection:
            for host_id, uuid, name in ((1, BATCH, 'batch-a'),
                                        (2, BATCH[::-1], 'batch-c')):
                connection.execute(tables.workloads.insert().values(
                    host_id=host_id, name=uuid, instance=uuid,
                    display_name=name, kind='instance',
                    priority='background', source='flavor', project='p1',
                    vcpus=2.0, floor={}, since_s=1.0))
        self.control = self.directory / 'control.conf'
        self.control.write_text(
            '[database]\nconnection = '
            f'sqlite:///{self.plane.database}\n[api]\n'
            f'http_basic_file = {self.plane.top / "users"}\n'
            'auth_strategy = http_basic\n')
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.directory)
        self.typed('scavenger-manage', 'aggregate', 'set', 'ring2',
                   'compute-1')

    def typed(self, *words: str) -> openstack_shell.Result:
        """Run a command that a page has typed."""
        program, *rest = words
        if program == 'openstack':
            return openstack_shell.openstack(*rest)
        if program == 'scavenger-agent':
            done = self.run_agent(*rest)
            return openstack_shell.Result(done.returncode, done.stdout,
                                          done.stderr)
        main: Callable[[list[str]], int] = {
            'scavenger-manage': manage.main,
            'scavenger-status': status.main}[program]
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(['--config-file', str(self.control), *rest])
        return openstack_shell.Result(code, out.getvalue(), err.getvalue())

    def test_commands(self) -> None:
        self.start('standalone')
        self.wait_for('a status', lambda: not self.run_agent(
            'status').returncode, 60)
        failed, used, ran = [], set(), 0
        for command in sorted(console.everything(), key=lambda command:
                              command.page == 'operate/remove.rst'):
            key = reason(command)
            if key:
                used.add(key)
                print(f'not run: {command.text}: {NOT_RUN[key]}',
                      file=sys.stderr)
                continue
            if command.words[0] == 'scavenger-restore':
                continue
            words = [NAMES.get(word, word) for word in command.words]
            done = self.typed(*words)
            ran += 1
            # Another agent on this machine is none of this test's.
            if 'Traceback' in done.out + done.err or (
                    done.status not in CODES.get(command.words, (0,))
                    and 'ANOTHER AGENT is not stopped' not in done.out):
                failed.append(f'{command.text}: {done}')
        self.assertEqual([], failed)
        self.assertGreater(ran, 60)
        self.assertEqual(set(NOT_RUN), used, 'no page has these')

    def test_restore(self) -> None:
        """After the agent has ended, as the page of removal has it."""
        standalone = self.start('standalone')
        self.wait_for('a limit', lambda: bool(
            list(self.state_dir.glob('leases/*.json'))), 60)
        standalone.terminate()
        standalone.communicate(timeout=60)
        typed = [command for command in console.everything()
                 if command.words[0] == 'scavenger-restore']
        self.assertGreater(len(typed), 1)
        for command in typed:
            done = subprocess.run(
                [sys.executable, '-m', 'scavenger_openstack.restore.program',
                 *command.words[1:], '--state-dir', str(self.state_dir)],
                timeout=60, check=False, capture_output=True, text=True)
            self.assertEqual(0, done.returncode, str(done))
        self.assertEqual([], list(self.state_dir.glob('leases/*')))
