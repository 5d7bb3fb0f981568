# SPDX-License-Identifier: Apache-2.0

"""Background work in the idle part of a cloud, and who disturbs whom."""


def version() -> str:
    """The installed version, or ``unknown`` in a bare checkout."""
    from importlib import metadata
    try:
        return metadata.version('scavenger-openstack')
    except metadata.PackageNotFoundError:
        return 'unknown'
