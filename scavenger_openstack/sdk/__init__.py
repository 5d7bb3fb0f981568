# SPDX-License-Identifier: Apache-2.0

"""The interference API for programs that use openstacksdk."""

from __future__ import annotations

from openstack import connection
from openstack import service_description

from scavenger_openstack.sdk.v1 import _proxy


def register(
        cloud: connection.Connection,
        proxy: type[_proxy.Proxy] = _proxy.Proxy) -> None:
    """Add the attribute ``interference`` to a connection.

    This is also a vendor hook: ``vendor_hook:
    scavenger_openstack.sdk:register`` in ``clouds.yaml`` or in a profile.

    :param proxy: the class of the attribute
    """
    cloud.add_service(service_description.ServiceDescription(
        _proxy.SERVICE_TYPE, {'1': proxy}))
