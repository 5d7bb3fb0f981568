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

"""Unit tests: no server, no root, and no other machine than this one."""

import gc

# Before any test module makes a property of its own.
from scavenger_openstack.tests.unit import examples as examples

# Else a seventh of the time goes into looking at what all these modules made
# when they were imported, which stays.
gc.set_threshold(20_000, 20, 20)
