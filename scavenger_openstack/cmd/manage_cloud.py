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

"""``scavenger-manage placement`` and ``flavors``: what is in other services
of OpenStack."""

from __future__ import annotations

import sys
import time

from oslo_config import cfg

from scavenger_openstack.conductor import leader
from scavenger_openstack.conductor import placement_api
from scavenger_openstack.conductor import placement_writer
from scavenger_openstack.conductor import sessions
from scavenger_openstack import conf_control
from scavenger_openstack.db import claims
from scavenger_openstack.db import connect
from scavenger_openstack.db import schema
from scavenger_openstack import errors

WORK_S = 900.0
HOLDER = 'scavenger-manage'


def remove(conf: cfg.ConfigOpts, prog: str) -> int:
    """Take away what conductors told Placement; 1 when some of it stays.

    :raises ConfigError: a conductor would write it again.
    """
    placement = placement_api.Placement(sessions.make_adapter(
        conf, sessions.make_session(conf), 'placement'))
    engine = connect.engine(conf_control.database(conf))
    try:
        with connect.reading(engine) as connection:
            schema.check(connection)
        now = time.time()
        if not connect.retried(engine, lambda connection: claims.take(
                connection, placement_writer.CLAIM, HOLDER, now,
                now + WORK_S), on_duplicate=True):
            raise errors.ConfigError(
                'a conductor keeps Placement up to date: set [placement] '
                'enabled = false, start all conductors again, and repeat '
                f'this {leader.HOLD_S:.0f} s later')
        try:
            stays = placement.remove()
        finally:
            connect.retried(engine, lambda connection: claims.extend(
                connection, placement_writer.CLAIM, HOLDER, time.time()),
                idempotent=True)
    finally:
        engine.dispose()
    for sentence in stays:
        print(f'{prog}: stays: {sentence}', file=sys.stderr)
    if not stays:
        print('Placement has no background providers, classes and traits')
    return 1 if stays else 0
