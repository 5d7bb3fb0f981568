# SPDX-License-Identifier: Apache-2.0

"""A Placement of the tests' own, on SQLite and without Keystone."""

from __future__ import annotations

import functools

from keystoneauth1 import adapter
from keystoneauth1 import session
from keystoneauth1 import token_endpoint

from scavenger_openstack.tests.functional.openstack import packages
from scavenger_openstack.tests.functional.openstack import services
from scavenger_openstack.tests.functional.servers import process

CONFIGURATION = """
[api]
auth_strategy = noauth2
[placement_database]
connection = sqlite:///{directory}/placement.sqlite
sync_on_startup = true
"""


@functools.cache
def server() -> tuple[services.Service, str]:
    """One for all tests of this process, and its URL.

    :raises packages.Unavailable: Placement cannot be had here.
    """
    programs = packages.environment()
    port = process.free_port()
    url = f'http://127.0.0.1:{port}'
    found = services.Service(
        'placement', [str(programs / 'bin/python'), '-P', str(services.SERVE),
                      'placement.wsgi.api', str(port)], {},
        lambda: services.answers(f'{url}/', port))
    found.variables['OS_PLACEMENT_CONFIG_DIR'] = str(found.directory)
    (found.directory / 'placement.conf').write_text(
        CONFIGURATION.format(directory=found.directory))
    found.begin()
    return found, url


def client(url: str) -> adapter.Adapter:
    return adapter.Adapter(
        session.Session(auth=token_endpoint.Token(url, 'admin')),
        service_type='placement', connect_retries=0)
