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

"""How long to wait after what did not help, or failed."""

LONGEST_S = 86400.0


def longer(before: float, *, first: float, most: float) -> float:
    """How long to wait after one more failure: twice as long each time.

    :param before: how long it was the last time, 0 if this is the first
    :param first: how long at first; same unit, as is ``most``
    """
    return min(most, max(first, 2 * before))
