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

"""The demo: what the product does for a service beside batch work.

``stage`` is where it plays (cgroups, disk and uplink of its own), ``load``
what plays there (C programs).  ``filling`` is the first act: the service and
batch work in six ways, run round by round; ``who`` is the second: which job
disturbs which service.  The product takes part as an operator would use it:
as a process with a configuration file (``product``).
"""
