# SPDX-License-Identifier: Apache-2.0

"""Print the confirmed incidents of a cloud: an example of the SDK."""

from __future__ import annotations

import openstack

from scavenger_openstack import sdk


def confirmed_incidents(cloud: openstack.connection.Connection) -> list[str]:
    """Return a line for each incident whose cause a limit confirmed."""
    sdk.register(cloud)
    return [f'{incident.begun_at} {incident.host} {incident.victim}'
            for incident in cloud.interference.incidents(
                outcome='confirmed')]


if __name__ == '__main__':
    print(*confirmed_incidents(openstack.connect()), sep='\n')
