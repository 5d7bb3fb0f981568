# SPDX-License-Identifier: Apache-2.0


"""What the libvirt tests share: the driver and the actuator on a bench."""

from __future__ import annotations

from collections.abc import Mapping
import contextlib
import logging
import pathlib
import re
from typing import Any
from xml.etree import ElementTree

import fixtures
from oslo_config import cfg

from scavenger_openstack.agent.apply.actuator import Actuator
from scavenger_openstack.agent.apply.actuator import Outcome
from scavenger_openstack.agent.lease import leases as leases_
from scavenger_openstack.agent import parts
from scavenger_openstack import conf as conf_
from scavenger_openstack.decision import arbitrate
from scavenger_openstack.drivers import host as host_
from scavenger_openstack.drivers.libvirt import domains
from scavenger_openstack.tests.functional import domain_guest
from scavenger_openstack.tests.functional import hypervisor
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Value
from scavenger_openstack.types import WorkloadSample

BACKGROUND = {'scavenger:priority': 'background',
              'scavenger:floor_memory_mb': '32'}

ALL: Mapping[Knob, Value] = {
    Knob.CPU_CORES: 0.2, Knob.CPU_SET: '1', Knob.MEMORY_BYTES: 64 * 2**20,
    Knob.IO_BYTES_PER_S: 5_000_000, Knob.IO_OPS_PER_S: 200,
    Knob.PAUSED: 1}
"""A cap on each knob that is set through libvirt, and a CPU set."""

NEUTRAL = frozenset(('<quota>-1</quota>', '<period>100000</period>'))
"""How libvirt shows a quota that is none: nothing takes it out of the XML."""


def background(name: str, **more: Any) -> domain_guest.DomainGuest:
    """A guest that an operator calls background."""
    return domain_guest.DomainGuest(name=name, **{
        'nova': domain_guest.Nova(extra_specs=BACKGROUND), **more})


def tiny(name: str, **more: Any) -> domain_guest.DomainGuest:
    """The same, with nothing to run."""
    return domain_guest.tiny(name, **{
        'nova': domain_guest.Nova(extra_specs=BACKGROUND), **more})


def limits(host: hypervisor.Hypervisor, name: str, *options: str
           ) -> list[str]:
    """All limits of a domain, the CPU sets of its cgroups, and our records.

    Without what libvirt shows of limits that are none.
    """
    root = ElementTree.fromstring(host.virsh('dumpxml', name, *options))
    found = []
    for path in ('cputune/*', 'devices/disk/iotune', 'currentMemory'):
        for one in root.findall(path):
            text = re.sub(r'\s+', ' ', ElementTree.tostring(
                one).decode()).strip()
            if text not in NEUTRAL:
                found.append(text)
    if '--inactive' not in options:
        found += cpu_sets(host, name)
    found += [one.tag for one in root.find('metadata') or ()
              if 'scavenger' in one.tag]
    if '--inactive' not in options:
        found.append(host.virsh('domstate', name).strip())
    return found


def cpu_sets(host: hypervisor.Hypervisor, name: str) -> list[str]:
    """Those of a domain that runs; ``vcpu0: CPUs 0-1``."""
    found = []
    for group in host.tree.path('cpuset', '/machine').glob(
            f'qemu-*-{name}.libvirt-qemu'):
        for path in group.glob('**/cpuset.cpus'):
            with contextlib.suppress(OSError):
                cpus = path.read_text().strip()
                part = path.parent.name if path.parent != group else 'all'
                found.append(f'{part}: CPUs {cpus}')
    return sorted(found)


def xml(host: hypervisor.Hypervisor, name: str, *options: str) -> str:
    """The whole XML of a domain, but for the number of its run and for what
    libvirt shows of limits that are none."""
    root = ElementTree.fromstring(host.virsh('dumpxml', name, *options))
    root.attrib.pop('id', None)
    for tune in root.findall('cputune'):
        for one in list(tune):
            if f'<{one.tag}>{one.text}</{one.tag}>' in NEUTRAL:
                tune.remove(one)
    for parent in root.findall('cputune') + root.findall('metadata'):
        if not len(parent):
            root.remove(parent)
    ElementTree.indent(root)
    return ElementTree.tostring(root, 'unicode')


class Agent:
    """As much of an agent as puts caps in force on domains.

    :param directory: for its leases
    """

    def __init__(self, host: hypervisor.Hypervisor, directory: pathlib.Path,
                 *, deadline_s: float = 20.0, **options: Any) -> None:
        self.driver = domains.Domains(host.uri, run_dir=str(host.run_dir), **{
            'stats_ticks': 1, 'timeout_s': 10.0, **options})
        self.leases = leases_.Leases(directory, 600)
        self.leases.open()
        self.actuator = Actuator(self.driver, self.leases,
                                 deadline_s)

    def close(self) -> None:
        self.leases.close()
        self.driver.close()

    def sample(self) -> dict[str, WorkloadSample]:
        """What there is, by the id of the domain."""
        return {one.workload.id: one for one in self.driver.sample()}

    def read(self, uuid: str, knob: Knob) -> Value | None:
        """What a knob holds, by what its lease says."""
        return self.driver.read(uuid, knob,
                                self.leases.held().get((uuid, knob)))

    def tick(self, wanted: Mapping[str, Mapping[Knob, Value]] | None = None
             ) -> Outcome:
        """One turn with these caps, by domain."""
        self.sample()
        caps = [Cap(uuid, knob, value, 'test', 'the test says so')
                for uuid, knobs in (wanted or {}).items()
                for knob, value in knobs.items()]
        seen = self.actuator.read(caps)
        return self.actuator.reconcile(
            arbitrate.arbitrate(caps, seen.originals, {}), seen)


class HostAgent:
    """The same on a whole host: cgroups, network devices, and VMs.

    :param directory: for its configuration and its leases
    :param lines: more configuration
    """

    def __init__(self, host: hypervisor.Hypervisor, directory: pathlib.Path,
                 *lines: str, deadline_s: float = 20.0) -> None:
        self.config = directory / 'agent.conf'
        self.config.write_text('\n'.join((
            '[cgroups]', f'background_parents = {host.tree.name}/batch',
            '[libvirt]', f'uri = {host.uri}', f'run_dir = {host.run_dir}',
            'timeout_s = 10', *lines)))
        self.state_dir = directory / 'state'
        conf = cfg.ConfigOpts()
        conf_.register(conf)
        conf_.load(conf, ['--config-file', str(self.config), '--state-dir',
                          str(self.state_dir)], 'test')
        driver = parts.load_driver(conf)
        assert isinstance(driver, host_.Host)
        self.driver = driver
        self.leases = leases_.Leases(self.state_dir, 600)
        self.leases.open()
        self.actuator = Actuator(driver, self.leases, deadline_s)

    def close(self) -> None:
        self.leases.close()
        self.driver.close()

    def put(self, *wishes: tuple[str, Knob, Value]) -> Outcome:
        """Bring these caps in force, and no others."""
        caps = [Cap(*wish, 'test', 'the test says so') for wish in wishes]
        seen = self.actuator.read(caps)
        return self.actuator.reconcile(
            arbitrate.arbitrate(caps, seen.originals, {}), seen)


class VirtualHostTestCase(hypervisor.HypervisorTestCase):
    """A test with an agent on a bench."""

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger(
            level=logging.INFO, format='%(levelname)s %(message)s'))

    def agent(self, host: hypervisor.Hypervisor, **options: Any) -> Agent:
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        agent = Agent(host, directory / 'state', **options)
        self.addCleanup(agent.close)
        return agent

    def wait_for_domains(self, agent: Agent, *uuids: str) -> None:
        self.wait_for('these domains', lambda: set(agent.sample())
                      == set(uuids), timeout_s=20)

    def limits(self, host: hypervisor.Hypervisor, name: str, *options: str
               ) -> list[str]:
        """See :func:`limits`."""
        return limits(host, name, *options)

    def warned_of(self, *texts: str) -> None:
        """The log has one warning for each of these, and no other."""
        # Delay accounting is one switch, which other tests use.
        found = [line for line in self.log.output.splitlines()
                 if line.startswith(('WARNING', 'ERROR', 'CRITICAL'))
                 and 'delays are not measured' not in line]
        self.assertEqual(len(texts), len(found), self.log.output)
        for text, line in zip(texts, found, strict=True):
            self.assertIn(text, line)

    def said(self, text: str) -> int:
        """How often the log says this."""
        return self.log.output.count(text)
