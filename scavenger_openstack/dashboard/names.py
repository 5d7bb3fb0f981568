# SPDX-License-Identifier: Apache-2.0

"""Names of workloads, hosts and projects, as pages show them.

Tenants choose them: a name stays in one line, and where it is written from
right to left it does not move the words around it.  Other names have no
invisible characters, so that they may be copied from a page to a command.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
import unicodedata

from django.utils.translation import gettext as _

from scavenger_openstack import text
from scavenger_openstack.types import printable


def of_workload(row: Mapping[str, Any], workload: str = 'workload',
                name: str = 'name') -> str:
    """Return the name of a workload in a row of the API, else its id.

    :param workload: the field of the id
    :param name: the field of the name
    """
    return shown(row.get(name) or row.get(workload)
                 or _('another workload'))


def shown(name: str, columns: int | None = None) -> str:
    """Return a name for a page.

    Source: Unicode, annex 9 (isolates).

    :param columns: so many at most
    """
    line = printable(name)
    if columns is not None:
        line = text.cut(line, columns)
    return f'\u2068{line}\u2069' if is_right_to_left(name) else line


def is_right_to_left(name: str) -> bool:
    return any(unicodedata.bidirectional(char) in ('R', 'AL')
               for char in name)
