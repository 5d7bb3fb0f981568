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

"""Starting a command with the rights that a unit gives."""

from __future__ import annotations


def confined(names: list[str]) -> list[str]:
    """Command that runs another the way systemd runs a unit's."""
    some = ','.join(['-all', *(f'+{name.removeprefix("CAP_").lower()}'
                               for name in names)])
    return ['setpriv', '--reuid=nobody', '--regid=nogroup', '--clear-groups',
            f'--bounding-set={some}', f'--inh-caps={some}',
            f'--ambient-caps={some}', '--no-new-privs', '--']
