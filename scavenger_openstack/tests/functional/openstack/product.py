# SPDX-License-Identifier: Apache-2.0

"""Our own programs beside the OpenStack of the tests.

A conductor, the API with Keystone's tokens, and for each hypervisor an agent
with its watcher, all from this checkout and not from the environment of
OpenStack.
"""

from __future__ import annotations

from importlib import util
import os
import pathlib
import subprocess
import sys
from typing import NamedTuple

from scavenger_openstack.tests.functional import hypervisor
from scavenger_openstack.tests.functional.openstack import configuration
from scavenger_openstack.tests.functional.openstack import services

SERVICE = 'scavenger'
SYNC_S = 1.0
SUMMARY_S = 1.0
WINDOW_S = 3
"""For so long after its start an agent knows of no headroom."""
"""From one reading of the summary by nova-scheduler to the next."""
MANAGE_S = 60.0


class Program(NamedTuple):
    """One of our programs, and its configuration file."""

    service: services.Service
    file: pathlib.Path


def nova() -> dict[str, str]:
    """What ``nova.conf`` needs for what runs in Nova, by section; without
    the credentials, see :func:`credentials`."""
    return {
        'oslo_messaging_notifications': 'driver = scavenger',
        'notifications': 'notification_format = versioned',
        'filter_scheduler': """
available_filters = nova.scheduler.filters.all_filters
available_filters = scavenger_openstack.nova.filters.BackgroundFilter
enabled_filters = ComputeFilter,ComputeCapabilitiesFilter,\
ImagePropertiesFilter,ServerGroupAntiAffinityFilter,\
ServerGroupAffinityFilter,BackgroundFilter
weight_classes = nova.scheduler.weights.all_weighers
weight_classes = scavenger_openstack.nova.weights.InterferenceWeigher
""",
        # Of two hosts the smallest difference in free memory counts as much
        # as the largest, so ours has to outweigh the others.
        'scavenger': f'summary_s = {SUMMARY_S:g}\n'
                     'interference_weight_multiplier = 100\n'}


RECONCILES, RECONCILES_NOT = 'enabled = True', 'enabled = False'
"""What section ``[nova]`` of the conductor begins with, and might."""

REGULATES = '[scavenger]\nmode = enforce\n'
DETECTS = ('[attribution]\nmode = enforce\n'
           '[scavenger]\nmode = observe\n')
"""In the file of an agent: it limits background work at once, or what
disturbs others, by the shipped detector."""

TAKEN = 'calls are taken'
"""In the log of a conductor that works."""


def control(site: configuration.Site) -> str:
    """The file of the conductor and of the API."""
    return configuration.text({
        'DEFAULT': f'transport_url = {site.broker}',
        'database': configuration.database(site, SERVICE),
        'api': f'port = {site.ports[SERVICE]}',
        'placement': 'enabled = true\nsmooth_s = 2\ninterval_s = 2\n'
                     'silent_s = 20',
        'nova': f'{RECONCILES}\ninterval_s = 2' if has_novaclient() else '',
        'openstack': configuration.credentials(site, SERVICE),
        'keystone_authtoken': configuration.credentials(site, SERVICE)})


def conductor_of_tags(site: configuration.Site, broker: str) -> str:
    """The file of one more conductor: it takes what nova-compute tells over
    another broker, and asks no service of OpenStack.

    :param broker: for ``transport_url``
    """
    return configuration.text({
        'DEFAULT': f'transport_url = {broker}',
        'database': configuration.database(site, SERVICE)})


def has_novaclient() -> bool:
    """Whether our conductor can ask Nova."""
    return util.find_spec('novaclient') is not None


def agent(site: configuration.Site, host: hypervisor.Hypervisor,
          directory: pathlib.Path) -> str:
    """The file of the agent of one hypervisor.

    :param directory: for what it keeps
    """
    return configuration.text({
        'DEFAULT': f'transport_url = {site.broker}',
        'agent': f"""
host = {host.hostname}
interval_s = 0.5
stop_file = {directory}/stop
history_dir = {directory}/history
""",
        'scavenger': f'mode = enforce\nmemory_window_s = {WINDOW_S}',
        'cgroups': f'background_parents = {host.tree.name}/batch',
        'libvirt': f'uri = {host.uri}\nrun_dir = {host.run_dir}\n'
                   'timeout_s = 10',
        'conductor': f'enabled = true\nsync_s = {SYNC_S}\n'
                     f'allow_background = true\n'
                     f'token_file = {directory}/token'})


def program(name: str, kind: str, file: pathlib.Path, *words: str,
            ready: services.Ready = services.at_once) -> services.Service:
    """One of our programs.

    :param name: of its directory
    :param kind: its module in :mod:`scavenger_openstack.cmd`
    """
    return services.Service(
        name, [sys.executable, '-m', f'scavenger_openstack.cmd.{kind}',
               *words, '--config-file', str(file)],
        {name: os.environ[name] for name in ('PATH', 'PYTHONPATH')
         if name in os.environ}, ready)


def make_tables(file: pathlib.Path) -> list[str]:
    """The command that makes the tables of the control plane."""
    return [sys.executable, '-m', 'scavenger_openstack.cmd.manage',
            '--config-file', str(file), 'db', 'upgrade']


def manage(site: configuration.Site, *words: str) -> tuple[int, str]:
    """Exit code and output of scavenger-manage beside the conductor."""
    done = subprocess.run(
        [sys.executable, '-m', 'scavenger_openstack.cmd.manage',
         '--config-file', str(site.directory('scavenger')
                              / 'scavenger.conf'), *words],
        capture_output=True, text=True, timeout=MANAGE_S,
        stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout + done.stderr
