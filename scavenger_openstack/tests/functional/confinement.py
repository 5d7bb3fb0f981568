# SPDX-License-Identifier: Apache-2.0

"""Starting a command with the rights that a unit gives."""

from __future__ import annotations


def confined(names: list[str]) -> list[str]:
    """Command that runs another the way systemd runs a unit's."""
    some = ','.join(['-all', *(f'+{name.removeprefix("CAP_").lower()}'
                               for name in names)])
    return ['setpriv', '--reuid=nobody', '--regid=nogroup', '--clear-groups',
            f'--bounding-set={some}', f'--inh-caps={some}',
            f'--ambient-caps={some}', '--no-new-privs', '--']
