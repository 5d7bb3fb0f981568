# SPDX-License-Identifier: Apache-2.0

"""The agent without any configuration, on a host with libvirt: it only looks.

What it does is seen by strace and by libvirt's own log; neither shares code
with the agent.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
from typing import Any

import fixtures
from testtools import content

from scavenger_openstack.tests.functional import base
from scavenger_openstack.tests.functional import domain_guest
from scavenger_openstack.tests.functional import hypervisor
from scavenger_openstack.tests.functional import virtual_host

STATE = '/run/scavenger'

CHANGES = ('creat', 'mkdir', 'mkdirat', 'rename', 'renameat', 'renameat2',
           'unlink', 'unlinkat', 'rmdir', 'link', 'linkat', 'symlink',
           'symlinkat', 'chmod', 'fchmodat', 'chown', 'lchown', 'fchownat',
           'truncate', 'mknod', 'mknodat', 'setxattr', 'lsetxattr')
"""System calls that change what their path names."""

NEVER = ('execve', 'execveat', 'fork', 'vfork', 'kill', 'tkill', 'tgkill',
         'pidfd_send_signal', 'mount', 'umount2', 'setns', 'unshare', 'bpf',
         'ptrace', 'process_vm_writev', 'setpriority', 'sched_setaffinity',
         'sched_setscheduler', 'sched_setattr', 'ioprio_set', 'reboot',
         'swapon', 'swapoff', 'sethostname', 'init_module', 'finit_module')
"""System calls that only looking never takes."""

TRACED = ('open', 'openat', 'openat2', 'sendto', 'sendmsg', *CHANGES, *NEVER)

WRITES = re.compile(r'O_WRONLY|O_RDWR|O_CREAT|O_TRUNC')
PATH = re.compile(r'(?:(?:AT_FDCWD|\d+)<([^>]*)>, )?"((?:[^"\\]|\\.)*)"')
NETLINK = re.compile(r'nlmsg_type=(RTM_(?:NEW|DEL|SET)\w+)')

LIMIT = re.compile(r'quota|shares|idle|cpuset\.cpus$|limit_in_bytes'
                   r'|throttle.*device|freezer\.state')
"""Files of cgroups that hold one."""

LIBVIRT_CALL = re.compile(r'debug : (vir(?:Connect|Domain|Node)\w+):\d+')
LIBVIRT_LOOKS = re.compile(
    r'vir(Connect(Open\w*|Close|Ref|Unref|IsAlive|SetKeepAlive|Get\w+|List\w+'
    r'|RegisterCloseCallback|UnregisterCloseCallback|Domain\w+Event\w*'
    r'|DomainEvent\w+)|Domain(Get\w+|LookupBy\w+|ListGetStats|StatsRecord\w+'
    r'|Ref|Free|IsActive|InterfaceAddresses))')
"""Calls of libvirt that change nothing."""

OWN = (STATE, '/var/lib/scavenger', os.path.join(
    os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache'),
    'python-entrypoints'))
"""The state, the history, and what stevedore keeps of the entry points."""

CHANGE = """
import libvirt, sys
domain = libvirt.open(sys.argv[1]).lookupByName(sys.argv[2])
domain.setSchedulerParametersFlags({'vcpu_quota': 50000}, 1)
"""


def changes(trace: str, *allowed: str) -> list[str]:
    """The lines of a trace that change something outside of the agent's
    own directories and of files that are ``allowed``."""
    found = []
    for line in trace.splitlines():
        call = line.split(None, 1)[-1]
        name = call.partition('(')[0]
        if name in NEVER:
            found.append(line)
        elif name in CHANGES or (name.startswith('open')
                                 and WRITES.search(call)):
            paths = [os.path.normpath(os.path.join(top, path))
                     for top, path in PATH.findall(call)]
            if not all(path in ('/dev/null', *OWN, *allowed)
                       or path.startswith(tuple(f'{own}/' for own in OWN))
                       for path in paths):
                found.append(line)
        elif NETLINK.search(call):
            found.append(line)
    return found


def libvirt_changes(log: str) -> list[str]:
    """The calls of libvirt in a log that may have changed something."""
    return sorted({name for name in LIBVIRT_CALL.findall(log)
                   if not LIBVIRT_LOOKS.fullmatch(name)})


def fresh(libvirt: pathlib.Path) -> list[str]:
    """Runs a command on a host whose ``/run/libvirt`` is this directory, and
    which has no configuration, state or stop file of ours."""
    hidden = (' && mount -t tmpfs none /etc/scavenger'
              if os.path.isdir('/etc/scavenger') else '')
    return ['unshare', '--mount', '--propagation', 'private', 'sh', '-c',
            'mount -t tmpfs none /run && mount -t tmpfs none /var/lib && '
            f'mkdir /run/libvirt{hidden} && '
            f'mount --bind {libvirt} /run/libvirt && exec "$@"', 'sh']


class WithoutLibvirt(base.FunctionalTestCase):

    def said(self, libvirt: pathlib.Path, **env: str) -> str:
        """What an agent without configuration logs as missing."""
        if shutil.which('unshare') is None:
            self.skipTest('needs unshare: see bindep.txt')
        process = subprocess.Popen(
            [*fresh(libvirt), sys.executable, '-m',
             'scavenger_openstack.cmd.agent', 'run'],
            env={**os.environ, **env}, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        status = pathlib.Path(f'/proc/{process.pid}/root{STATE}/status.json')
        try:
            self.wait_for('it turns', status.exists)
        finally:
            process.terminate()
            _, said = process.communicate(timeout=60)
        self.assertEqual(0, process.returncode, said)
        self.assertNotIn('Traceback', said)
        line, = [line for line in said.splitlines() if 'missing: ' in line]
        return line

    def test_no_libvirt_is_one_sentence(self) -> None:
        empty = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.assertIn(
            'missing: no libvirt on this host and no [cgroups] '
            "background_parents: only the host's own use is measured",
            self.said(empty))

    def test_no_libvirt_python_is_one_sentence(self) -> None:
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (directory / 'libvirt.py').write_text(
            'raise ImportError("No module named \'libvirt\'")')
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(directory / 'libvirt-sock'))
            line = self.said(directory, PYTHONPATH=str(directory))
        self.assertIn(
            'missing: the VMs of this host are not watched, and their load '
            "counts as foreground: libvirt-python cannot be used (No module "
            f"named 'libvirt'); install libvirt-python for {sys.executable} "
            '(see Installation)', line)


class FreshInstall(hypervisor.HypervisorTestCase):

    def setUp(self) -> None:
        super().setUp()
        for tool in ('strace', 'unshare', 'nsenter'):
            if shutil.which(tool) is None:
                self.skipTest(f'needs {tool}: see bindep.txt')
        self.host = self.hypervisor()
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)
        self.trace = self.directory / 'trace'
        self.calls = self.directory / 'libvirt.log'
        self.env = {**os.environ, 'PYTHONDONTWRITEBYTECODE': '1'}
        self.libvirt_env = {
            **self.env, 'LIBVIRT_LOG_FILTERS': '1:libvirt',
            'LIBVIRT_LOG_OUTPUTS': f'1:file:{self.calls}'}

    def start(self, *words: str) -> subprocess.Popen[str]:
        """The agent under strace, on a host with the libvirt of the test."""
        log = open(self.directory / 'log', 'w')
        process = subprocess.Popen(
            [*fresh(self.host.directory / 'run/libvirt'),
             'strace', '-f', '-qq', '-y', '-s', '4096', '--seccomp-bpf',
             '-e', f'trace={",".join(TRACED)}', '-e', 'signal=none',
             '-o', str(self.trace), sys.executable, '-m',
             'scavenger_openstack.cmd.agent', 'run', *words],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=log, text=True, env=self.libvirt_env)
        log.close()
        self.root = pathlib.Path(f'/proc/{process.pid}/root')
        self.addCleanup(self.end, process)
        return process

    def end(self, process: subprocess.Popen[str]) -> None:
        """End the agent, by which strace ends."""
        if process.poll() is None:
            pid = self.status().get('pid')
            if isinstance(pid, int):
                os.kill(pid, signal.SIGTERM)
            else:
                process.kill()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self.addDetail('log', content.text_content(self.log()))

    def status(self) -> dict[str, Any]:
        try:
            found = json.loads(
                (self.root / 'run/scavenger/status.json').read_text())
        except (FileNotFoundError, ValueError):
            return {}
        assert isinstance(found, dict)
        return found

    def changes(self) -> list[str]:
        """What the agent changed, after it was executed."""
        return changes(self.trace.read_text().partition('\n')[2],
                       str(self.calls))

    def log(self) -> str:
        return (self.directory / 'log').read_text()

    def texts(self) -> dict[str, str]:
        """All that a limit could be in, of guests and of their cgroups."""
        found = {name: self.host.virsh('dumpxml', name) for name in
                 self.host.virsh('list', '--name').split()}
        for controller in self.host.tree.mounts:
            for path in self.host.tree.path(controller).rglob('*'):
                if LIMIT.search(path.name):
                    try:
                        found[str(path)] = path.read_text()
                    except OSError:
                        continue
        return found

    def test_every_vm_is_shown_and_nothing_is_written(self) -> None:
        self.host.start_all([
            virtual_host.tiny('batch'),
            domain_guest.DomainGuest(name='tenant', paused=True)])
        before = self.texts()
        process = self.start()
        self.wait_for('two VMs over some ticks', lambda: (
            self.status().get('workloads') == {'foreground': 1,
                                               'background': 1}
            and self.status()['counters']['ticks'] >= 8), 120)
        shown = subprocess.run(
            ['nsenter', '--mount', '--root', '-t', str(process.pid),
             sys.executable, '-m', 'scavenger_openstack.cmd.agent',
             'status'], env=self.env, capture_output=True, text=True,
            timeout=60)
        self.end(process)
        self.assertEqual(0, shown.returncode, shown.stderr)
        for words in ('state      running', 'libvirt    answers; libvirtd ',
                      'workloads  1 foreground, 1 background',
                      'attribution observe', 'scavenger  observe',
                      'io_shares  observe', 'limits that would be set'):
            self.assertIn(words, shown.stdout)
        self.assertNotIn('limits in force', shown.stdout)
        self.assertEqual(0, process.returncode, self.log())
        self.assertNotIn('Traceback', self.log())
        trace = self.trace.read_text()
        self.assertIn('/sys/fs/cgroup/', trace)     # it did look
        self.assertEqual([], self.changes())
        calls = self.calls.read_text()
        self.assertIn('virDomainGetXMLDesc', calls)
        self.assertEqual([], libvirt_changes(calls))
        self.assertEqual(before, self.texts())

    def test_what_is_changed_is_seen(self) -> None:
        """What the other test rests on: of an agent that limits, and of a
        call that changes a VM."""
        self.host.tree.make('/batch/a')
        self.host.start_all([virtual_host.tiny('batch')])
        config = self.directory / 'scavenger.conf'
        config.write_text('\n'.join((
            '[agent]', 'protect = cpu, memory', 'require_watcher = false',
            '[cgroups]', f'background_parents = {self.host.tree.name}/batch')))
        process = self.start('--config-file', str(config))
        self.wait_for('limits of the cgroup and of the VM', lambda: len({
            cap['workload'] for cap in self.status().get('caps', ())}) >= 2,
            120)
        self.end(process)
        self.assertIn(f'{self.host.tree.name}/batch',
                      '\n'.join(self.changes()))
        subprocess.run(
            [sys.executable, '-c', CHANGE, self.host.uri, 'batch'],
            env=self.libvirt_env, check=True, timeout=60)
        self.assertEqual(['virDomainSetSchedulerParametersFlags'],
                         libvirt_changes(self.calls.read_text()))
