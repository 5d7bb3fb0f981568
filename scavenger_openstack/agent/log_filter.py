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

"""What each line of the log goes through."""

from __future__ import annotations

import logging

from scavenger_openstack.agent import names
from scavenger_openstack.agent import status

NAMES = names.Names()
"""Of the process, as its log."""


class Filter(logging.Filter):
    """Puts the names of VMs into log lines, and keeps the control characters
    of tenants' names out of them."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = status.shown(NAMES.beside(record.getMessage()))
        record.args = None
        return True
