# SPDX-License-Identifier: Apache-2.0

"""Servers with limits on them, as Nova, our API and their hosts have them."""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import time
from typing import Any
from xml.etree import ElementTree

from testtools import content

from scavenger_openstack.drivers.libvirt import metadata
from scavenger_openstack.restore import records
from scavenger_openstack.tests.functional import hypervisor
from scavenger_openstack.tests.functional.openstack import case
from scavenger_openstack.tests.functional.openstack.case import BACKGROUND
from scavenger_openstack.tests.functional.openstack.case import SOON_S
from scavenger_openstack.tests.functional.openstack import guests
from scavenger_openstack.tests.functional.openstack import watching
from scavenger_openstack.tests.functional import virtual_host
from scavenger_openstack.types import Knob

AGAIN_S = 0.3
AGENT = 'agent-'
APPLICATION = BACKGROUND['scavenger:application']


class LimitedCase(case.Case):

    def setUp(self) -> None:
        super().setUp()
        self._began = {name: service.log.stat().st_size for name, service
                       in self.stack.services.items()
                       if name.startswith(AGENT)}

    def hog(self, vcpus: int = 1) -> str:
        """A background server that has booted, with a limit on it."""
        found = self.boot('hog', BACKGROUND, vcpus=vcpus)
        host = self.cloud.server(found)['OS-EXT-SRV-ATTR:host']
        guests.tell(self.stack.host(host), self.domain(found), 'rest')
        self.settle(found, 'boot')
        return found

    def caps(self, server: str) -> list[dict[str, Any]]:
        """The limits on a server, as our API has them."""
        caps: list[dict[str, Any]] = self.cloud.interference(
            'GET', f'/v1/caps?instance={server}')['caps']
        return caps

    def settle(self, server: str, after: str, application: str = APPLICATION
               ) -> None:
        """Wait until all agree about a server that runs.

        :param after: what was done to it
        :param application: of a background server with limits; '' of one in
            the foreground, without
        """
        self._wait(after, lambda: self._disagreeing(server, application))

    def at_rest(self, server: str, after: str) -> None:
        """Wait until a server that does not run has no limit anywhere."""
        self._wait(after, lambda: [*self._left(server),
                                   *self._unleased(server)])

    def _wait(self, after: str, wrong: Any) -> None:
        until_s = time.monotonic() + SOON_S
        while found := self._look(wrong):
            if time.monotonic() > until_s:
                self.fail(f'{SOON_S:.0f} s after {after}: '
                          + '; '.join(found))
            time.sleep(AGAIN_S)

    @staticmethod
    def _look(wrong: Any) -> list[str]:
        try:
            return list(wrong())
        except (hypervisor.HypervisorError, FileNotFoundError) as exc:
            return [str(exc)]       # a domain that comes or goes

    def _disagreeing(self, server: str, application: str) -> Iterator[str]:
        now = self.cloud.server(server)
        host = now['OS-EXT-SRV-ATTR:host']
        priority = 'background' if application else 'foreground'
        tags = self.tags(server)
        # Of a flavor that says nothing there may be none.
        if tags != [(priority, application, host)] and (application or tags):
            yield f'its tags are {tags}'
        shown = [(one['host'], one['priority'],
                  one['application'].rpartition('/')[2])
                 for one in self.cloud.interference(
                     'GET', f'/v1/workloads?instance={server}')['workloads']]
        # Without a name it is that of flavor and image.
        if len(shown) != 1 or shown[0][:2] != (host, priority) or not (
                shown[0][2] == application if application else
                shown[0][2].endswith(f'@{now["image"]["id"]}')):
            yield f'our API shows {shown}'
        limited = {one['host'] for one in self.caps(server)}
        if limited != ({host} if application else set()):
            yield f'our API shows limits on {limited}'
        yield from self._left(server, but=host if application else '')
        yield from self._unleased(server)

    def _left(self, server: str, but: str = '') -> Iterator[str]:
        """Leases for a server on hosts that should have none."""
        for host in self.stack.hypervisors:
            leased = self.leased(host, server)
            if leased and host.hostname != but:
                yield f'{host.hostname} has leases for {leased}'

    def _unleased(self, server: str) -> Iterator[str]:
        """Limits without a lease, and those of persistent definitions."""
        name = self.domain(server)
        for host in self.stack.hypervisors:
            if name not in host.virsh('list', '--all', '--name').split():
                continue
            kept = limited(host, name, '--inactive')
            if kept:
                yield f'the definition on {host.hostname} has {kept}'
            if name in host.virsh('list', '--name').split():
                over = limited(host, name) - self.leased(host, server)
                if over:
                    yield f'{host.hostname} has no lease for {over}'

    def domain(self, server: str) -> str:
        """Its name on its hypervisor."""
        name: str = self.cloud.server(server)[
            'OS-EXT-SRV-ATTR:instance_name']
        return name

    def leased(self, host: hypervisor.Hypervisor, server: str) -> set[str]:
        """The knobs of a server that the agent of a host has leases for."""
        found = set()
        directory = (self.stack.agent_directory(host.hostname)
                     / 'state/leases')
        for path in directory.glob('*.json'):
            with contextlib.suppress(FileNotFoundError):    # returned now
                lease = records.parse(path.read_bytes())
                if lease.workload == server:
                    found.add(lease.knob)
        return found

    def nothing_stays(self, server: str) -> None:
        """With limits switched off a server has none, whatever set them."""
        self.addCleanup(self.protect, True)
        self.protect(False)
        name = self.domain(server)
        host = self.stack.host(self.cloud.server(server)[
            'OS-EXT-SRV-ATTR:host'])
        everywhere = 'CPUs ' + host.tree.read('cpuset', '', 'cpuset.cpus')

        def left() -> Iterator[str]:
            yield from self._left(server)
            yield from self._unleased(server)
            for line in virtual_host.cpu_sets(host, name):
                if not line.endswith(everywhere):
                    yield line

        self._wait('limits were switched off', left)
        self.protect(True)

    def no_errors(self) -> None:
        """Agents have written no error since the test began."""
        for name, began in self._began.items():
            said = watching.since(self.stack.services[name], began)
            self.addDetail(f'{name} since', content.text_content(said))
            self.assertNotIn('Traceback', said)
            self.assertNotIn(' ERROR ', said)


def limited(host: hypervisor.Hypervisor, name: str, *options: str
            ) -> set[str]:
    """The knobs that are limited in a domain's XML, or have our record."""
    root = ElementTree.fromstring(host.virsh('dumpxml', name, *options))
    found = {str(knob) for knob in metadata.find(root).records}
    if any(int(one.text or -1) > 0 for path in (
            'quota', 'global_quota', 'emulator_quota', 'iothread_quota')
            for one in root.findall(f'cputune/{path}')):
        found.add(str(Knob.CPU_CORES))
    if root.findall('cputune/vcpupin') + root.findall('cputune/emulatorpin'):
        found.add(str(Knob.CPU_SET))
    if root.findtext('currentMemory') != root.findtext('memory'):
        found.add(str(Knob.MEMORY_BYTES))
    for one in root.findall('devices/disk/iotune/*'):
        if int(one.text or 0) > 0:
            found.add(str(Knob.IO_OPS_PER_S if 'iops' in one.tag
                          else Knob.IO_BYTES_PER_S))
    return found
