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

"""CPUs that go offline and come back, for real: in a guest with eight."""

from __future__ import annotations

import sys

from scavenger_openstack.tests.functional import guest
from scavenger_openstack.tests.functional import guest_cpus

GUEST = guest.Guest(tests=(f'{guest_cpus.__name__}.changes',),
                    cpus='8,sockets=2,cores=2,threads=2', deadline_s=1500)


@guest.reports(GUEST)
class TestGuestCpus(guest.GuestCase):
    """Each method is a test in ``guest_cpus/``."""


if __name__ == '__main__':
    sys.exit(guest.show(GUEST))
