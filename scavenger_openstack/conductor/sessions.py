# SPDX-License-Identifier: Apache-2.0

"""The edge to keystoneauth: sessions for other services of OpenStack."""

from __future__ import annotations

from typing import TYPE_CHECKING

from keystoneauth1 import adapter
from keystoneauth1 import loading
from keystoneauth1 import session
from oslo_config import cfg

from scavenger_openstack import errors

if TYPE_CHECKING:
    from scavenger_openstack.conductor.nova import client as nova_client

SECTION = 'openstack'

TIMEOUT_S = 60.0
"""Of a request, unless ``timeout`` says another."""

OPTS: list[cfg.Opt] = [
    cfg.StrOpt('region_name'),
    cfg.ListOpt('valid_interfaces', default=['internal', 'public']),
]
"""Besides those of keystoneauth; the documentation lists them."""


def make_session(conf: cfg.ConfigOpts) -> session.Session:
    """Make a session by section ``[openstack]``; asks Keystone nothing yet.

    :raises ConfigError: it says too little, or what cannot be.
    """
    conf.register_opts(OPTS, SECTION)
    loading.register_session_conf_options(conf, SECTION)
    loading.register_auth_conf_options(conf, SECTION)
    try:
        auth = loading.load_auth_from_conf_options(conf, SECTION)
        if auth is None:
            raise errors.ConfigError(
                f'[{SECTION}] auth_type: not set, and [placement] or [nova] '
                'is enabled: write credentials of a user of Keystone, or '
                'auth_section = keystone_authtoken for those of the API')
        made = loading.load_session_from_conf_options(conf, SECTION,
                                                      auth=auth)
        made.timeout = made.timeout or TIMEOUT_S
        return made
    except errors.ConfigError:
        raise
    except Exception as exc:    # of keystoneauth, its plug-ins and oslo
        raise errors.ConfigError(f'[{SECTION}]: {exc}') from exc


def make_placement(conf: cfg.ConfigOpts, made: session.Session
                   ) -> adapter.Adapter:
    """Return a client of Placement."""
    return adapter.Adapter(
        made, service_type='placement', region_name=conf[SECTION].region_name,
        interface=conf[SECTION].valid_interfaces, connect_retries=0)


def make_nova(conf: cfg.ConfigOpts, made: session.Session) -> nova_client.Nova:
    """A client of Nova.

    :raises ConfigError: python-novaclient is not installed.
    """
    try:
        from scavenger_openstack.conductor.nova import client as nova_client
    except ImportError as exc:
        raise errors.ConfigError(
            f'[nova] enabled: {errors.missing_package(exc) or exc}') from exc
    return nova_client.Nova(made, region_name=conf[SECTION].region_name,
                         endpoint_type=conf[SECTION].valid_interfaces)
