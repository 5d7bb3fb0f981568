# SPDX-License-Identifier: Apache-2.0

"""nova-compute on its hypervisor, and how one reaches another.

It sees the file system of its libvirtd, so that all have the same paths for
instances and none has the files of another.  They reach each other by an
address of loopback for each: libvirtd by its socket, QEMU by TCP, and where
Nova calls ``ssh`` and ``scp`` there are two scripts that enter the file
system of the other.
"""

from __future__ import annotations

from collections.abc import Sequence
import pathlib
import signal

from scavenger_openstack.tests.functional import hypervisor
from scavenger_openstack.tests.functional.openstack import configuration
from scavenger_openstack.tests.functional.openstack import services

SOCKETS, NAMESPACES, PROGRAMS = 'sockets', 'namespaces', 'bin'
"""Directories; the first two have an entry for each address."""

SCRIPTS = {'ssh': """#!/bin/sh
# ssh -o OPTION ADDRESS COMMAND...
shift 2
host=$1
shift
exec nsenter --mount="{namespaces}/$host" -- "$@"
""", 'scp': """#!/bin/bash -e
# scp OPTIONS SOURCE TARGET, one of them ADDRESS:FILE
set -o pipefail
while [ $# -gt 2 ]; do shift; done
on() {{
    case $1 in
        *:*) nsenter --mount="{namespaces}/${{1%%:*}}" -- "$2" "${{1#*:}}" ;;
        *) "$2" "$1" ;;
    esac
}}
on "$1" cat | on "$2" "{programs}/write"
""", 'write': """#!/bin/sh
exec cat >"$1"
"""}


class Compute(services.Service):
    """nova-compute of one hypervisor, named as its host."""

    def __init__(self, site: configuration.Site, host: hypervisor.Hypervisor,
                 file: pathlib.Path, plugins: pathlib.Path) -> None:
        variables = services.environment(site, plugins)
        variables['PATH'] = f'{site.top}/{PROGRAMS}:{variables["PATH"]}'
        super().__init__(
            host.hostname, [str(site.environment / 'bin/nova-compute'),
                            '--config-file', str(file)],
            variables, services.at_once)
        self._namespace = site.top / NAMESPACES / host.address
        self._namespace.symlink_to(f'/proc/{host.pid}/ns/mnt')
        (site.top / SOCKETS / host.address).symlink_to(
            host.directory / 'run/libvirt/libvirt-sock')
        (site.top / 'nova' / host.hostname).mkdir()
        pathlib.Path(host.directory, *pathlib.Path(
            configuration.INSTANCES).parts[2:]).mkdir(parents=True)

    def _wrapped(self, command: Sequence[str], end: signal.Signals
                 ) -> list[str]:
        return super()._wrapped(['nsenter', f'--mount={self._namespace}',
                                 '--', *command], end)


def prepare(site: configuration.Site) -> None:
    """Make what all of them use."""
    for name in (SOCKETS, NAMESPACES, PROGRAMS):
        (site.top / name).mkdir(mode=0o700)
    for name, text in SCRIPTS.items():
        path = site.top / PROGRAMS / name
        path.write_text(text.format(namespaces=site.top / NAMESPACES,
                                    programs=site.top / PROGRAMS))
        path.chmod(0o700)
