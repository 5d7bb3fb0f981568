# SPDX-License-Identifier: Apache-2.0

"""What ``openstack`` loads at each start: one option, and the client later.

Every ``openstack`` command pays for what is imported here, so nothing is.
"""

from __future__ import annotations

import argparse
import os
import typing

if typing.TYPE_CHECKING:
    from osc_lib import clientmanager
    from osc_lib import shell

    from scavenger_openstack.osc import client

API_NAME = 'interference'
API_VERSION_OPTION = 'os_interference_api_version'
API_VERSIONS = ('1',)
DEFAULT_API_VERSION = '1'


def make_client(instance: clientmanager.ClientManager) -> client.Client:
    """The client, once a command asks for it."""
    from scavenger_openstack.osc import client
    return client.connect(instance)


def client_of(app: shell.OpenStackShell) -> client.Client:
    """Return the client of a running ``openstack``.

    :raises CommandError: there is no endpoint.
    """
    made: client.Client = getattr(app.client_manager, API_NAME)
    return made


def build_option_parser(parser: argparse.ArgumentParser
                        ) -> argparse.ArgumentParser:
    """Add the option of this service to those of ``openstack``."""
    parser.add_argument(
        '--os-interference-api-version',
        metavar='<interference-api-version>',
        default=os.environ.get('OS_INTERFERENCE_API_VERSION',
                               DEFAULT_API_VERSION),
        help='Version of the interference API. Only 1 exists. Default: 1 '
             '(Env: OS_INTERFERENCE_API_VERSION)')
    return parser
