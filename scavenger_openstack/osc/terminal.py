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

"""Text for a terminal: on one line, and without characters that it obeys."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text, with an escape for each character that is not printable.

    Each ``openstack`` command imports this module, and few need the types.
    """
    from scavenger_openstack import types
    return types.printable(text)
