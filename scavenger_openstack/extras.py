# SPDX-License-Identifier: Apache-2.0

"""Packages that only some programs need, and what installs them."""

from __future__ import annotations

from collections.abc import Mapping

EXTRAS: Mapping[str, tuple[str, ...]] = {
    'control': ('alembic', 'bcrypt', 'flask', 'jsonschema', 'keystoneauth1',
                'keystonemiddleware', 'microversion_parse', 'msgspec',
                'novaclient', 'oslo_messaging', 'oslo_middleware',
                'oslo_policy', 'oslo_reports', 'oslo_service',
                'oslo_upgradecheck', 'pymysql', 'sqlalchemy'),
    'rpc': ('msgspec', 'oslo_messaging', 'oslo_service'),
    'dashboard': ('horizon', 'keystoneauth1', 'openstack_dashboard'),
    'libvirt': ('libvirt',),
    'osc': ('openstackclient', 'osc_lib'),
    'parquet': ('pyarrow',),
    'postgresql': ('psycopg2',)}
"""Extra of this distribution -> the modules that it brings."""


def missing(exc: ImportError, first: str = 'control') -> str:
    """What to install for a module that is not there; '' when that is of no
    extra.

    :param first: the extra to name where several have it
    """
    if not isinstance(exc, ModuleNotFoundError):
        return ''
    module = (exc.name or '').partition('.')[0]
    extra = next((name for name in (first, *EXTRAS)
                  if module in EXTRAS[name]), None)
    return '' if extra is None else (
        f'the Python package {module} is missing: install '
        f'scavenger_openstack[{extra}]')
