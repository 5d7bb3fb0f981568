# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""What ``openstack`` loads at each start: one option, and the client later.

Every ``openstack`` command pays for what is imported here, so nothing is.
"""

from __future__ import annotations

import argparse
import os
import typing

if typing.TYPE_CHECKING:
    from osc_lib import clientmanager

    from scavenger_openstack.osc import http

API_NAME = 'interference'
API_VERSION_OPTION = 'os_interference_api_version'
API_VERSIONS = ('1',)
DEFAULT_API_VERSION = '1'


def make_client(instance: clientmanager.ClientManager) -> http.Client:
    """The client, once a command asks for it."""
    from scavenger_openstack.osc import http
    return http.connect(instance)


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
