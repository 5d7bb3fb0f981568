# SPDX-License-Identifier: Apache-2.0

"""What the tests of direct evidence share: an agent's driver that is asked."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any
import uuid

import fixtures
from testtools import content

from scavenger_openstack.agent import parts
from scavenger_openstack.drivers import base as drivers_base
from scavenger_openstack.drivers.direct import windows
from scavenger_openstack.drivers.kernel.cgroup_mounts import Mount
from scavenger_openstack.drivers.kernel import cpu_waits
from scavenger_openstack.drivers.qemu import cgroup_overlap
from scavenger_openstack import errors
from scavenger_openstack.tests import descriptors
from scavenger_openstack.tests.functional import base
from scavenger_openstack.tests.functional import bpf_programs
from scavenger_openstack.tests.functional.loops import LoopTestCase
from scavenger_openstack.types import DirectEvidence
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Resource
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadSample

OPTIONS = '[libvirt]', 'uri =', '[perf]', 'enabled = off'

TAKE_ID = '''
import ctypes, os, struct, time
libc, tid = ctypes.CDLL(None, use_errno=True), ctypes.c_int({tid})
# struct clone_args: SIGCHLD, and the id that the new process is to have.
arguments = struct.pack('=11Q', 0, 0, 0, 0, 17, 0, 0, 0,
                        ctypes.addressof(tid), 1, 0)
pid = libc.syscall(435, arguments, len(arguments))
if pid:
    print(pid)
time.sleep(60)
'''
ALONE = f'''
import json, sys, time
sys.path[:0] = {sys.path!r}
from oslo_config import cfg
from scavenger_openstack import conf as conf_
from scavenger_openstack.agent import parts
from scavenger_openstack.types import Resource
conf = cfg.ConfigOpts()
conf_.register(conf)
conf_.load(conf, ['--config-file', sys.argv[1], '--state-dir', sys.argv[2]],
           'test')
host = parts.load_driver(conf)
asks = [(victim, Resource(name)) for victim, name in json.loads(sys.argv[4])]
for _ in range(int(sys.argv[3])):
    host.sample()
    host.ask(asks)
    print('asked', flush=True)
    time.sleep(0.04)
host.sample()
host.ask(())
print(json.dumps([host.facts().grade['direct'],
                  host.facts().missing,
                  [answer._asdict() for answer in host.sample().direct]]))
host.close()
'''
"""An agent's driver in a process of its own: asks in so many ticks."""


def own_programs() -> set[tuple[int, str]]:
    """What this process has open of BPF."""
    return {(number, target) for number, target in descriptors.of_process()
            if 'bpf' in target}


class EvidenceCase(LoopTestCase):
    """A hog ``/batch/a`` and an innocent ``/batch/b`` beside a victim
    ``/services/s``, which waits for ``resource``."""

    resource = Resource.CPU

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        try:
            cpu_waits.CpuWaits({}).close()
        except errors.Unsupported as exc:
            self.skipTest(str(exc))
        self.hog, self.innocent, self.victim = map(
            self.id, ('/batch/a', '/batch/b', '/services/s'))

    def host(self) -> drivers_base.Driver:
        driver = parts.load_driver(self.configure(OPTIONS))
        self.addCleanup(driver.close)
        return driver

    def nothing_open(self) -> None:
        """Soon: the kernel takes its time."""
        self.wait_for('all programs are let go',
                      lambda: not own_programs())

    @staticmethod
    def end(*processes: subprocess.Popen[str]) -> None:
        for process in processes:
            process.kill()
            process.wait(30)

    def take_id(self, pid: int, below: str) -> None:
        """Another process has the id of one that ended."""
        new = self.spawn(TAKE_ID.format(tid=pid), self.tree, below)
        assert new.stdout is not None
        if new.stdout.readline() != f'{pid}\n':
            self.skipTest('needs Linux 5.5, and another id that is free')

    def open(self, host: drivers_base.Driver, *victims: str) -> None:
        self.assertEqual((), host.sample().direct)
        host.ask([(victim, self.resource)
                  for victim in victims or (self.victim,)])
        self.assertNotEqual(set(), own_programs())

    def answers(self, host: drivers_base.Driver
                ) -> tuple[DirectEvidence, ...]:
        """What the window that is open shows."""
        host.ask(())
        answers = host.sample().direct
        self.nothing_open()
        self.addDetail('answers', content.text_content(repr(answers)))
        self.assertEqual((), host.sample().direct)
        return answers

    def answer(self, host: drivers_base.Driver) -> DirectEvidence:
        answer, = self.answers(host)
        self.assertEqual((self.victim, self.resource, False),
                         (answer.workload, answer.resource, answer.shared))
        return answer

    def version_2(self, kind: type[windows.Windows[Any]]
                  ) -> tuple[windows.Windows[Any], pathlib.Path]:
        """Evidence for the workloads ``hog`` and ``victim`` below a directory
        of a tree of version 2, of which ``hog/inner`` is there, too."""
        top = base.unified()
        if top is None:
            self.skipTest('needs a cgroup tree of version 2')
        name = f'/scv-test-{uuid.uuid4().hex[:8]}'
        for below in ('', '/hog', '/hog/inner', '/victim'):
            path = pathlib.Path(f'{top}{name}{below}')
            path.mkdir()
            self.addCleanup(base.remove_cgroup, path)
        mounts = {'unified': Mount(str(top), 2)}
        made = kind(mounts, cgroup_overlap.DomainCgroups(mounts))
        self.addCleanup(made.close)
        made.follow(HostSample('h', 'b', 1.0, 1.0, tuple(
            WorkloadSample(Workload(f'{name}/{workload}',
                                    Priority.FOREGROUND))
            for workload in ('hog', 'victim'))))
        self.hog, self.victim = f'{name}/hog', f'{name}/victim'
        return made, top / name[1:]

    def alone(self, *by: str, ticks: int = 1) -> subprocess.Popen[str]:
        """An agent's driver in a process of its own, asked in so many
        ticks."""
        self.configure(OPTIONS)
        process = subprocess.Popen(
            [*by, sys.executable, '-c', ALONE,
             str(self.state_dir.parent / 'agent.conf'), str(self.state_dir),
             str(ticks), json.dumps([[self.victim, self.resource]])],
            stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        self.addCleanup(self._end, process, None)
        return process

    def report(self, process: subprocess.Popen[str]) -> list[Any]:
        """The state of the resource, what is missing, and the answers."""
        output, _ = process.communicate(timeout=60 * base.pace())
        states, *report = json.loads(output.splitlines()[-1])
        return [states[self.resource], *report]


class ElsewhereCase(EvidenceCase):
    """What is true of each resource, in a process of its own."""

    def test_killed_in_a_window(self) -> None:
        before = bpf_programs.loaded()
        process = self.alone(ticks=1000)
        assert process.stdout is not None
        self.assertEqual('asked\n', process.stdout.readline())
        programs = bpf_programs.loaded() - before
        self.assertNotEqual(set(), programs)
        process.kill()
        process.wait(30)
        self.wait_for('the programs leave the kernel',
                      lambda: not bpf_programs.loaded() & programs)

    def refused(self) -> DirectEvidence:
        """The answer without the right to more than shares of use."""
        process = self.alone('setpriv', '--bounding-set=-bpf,-perfmon,'
                             '-sys_admin', ticks=drivers_base.RESCAN_TICKS)
        state, missing, (answer,) = self.report(process)
        self.assertIs(False, state['on'])
        self.assertIn('CAP_BPF', state['why'])
        self.assertTrue(any('CAP_BPF' in line for line in missing
                            if line.startswith(f'{self.resource}: ')),
                        missing)
        self.assertEqual((self.victim, self.resource, True), (
            answer['workload'], answer['resource'], answer['shared']))
        return DirectEvidence(**answer)
