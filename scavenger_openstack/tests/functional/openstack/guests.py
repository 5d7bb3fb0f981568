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

"""What the servers of the tests do, said on their consoles.

They boot the image of :mod:`...domain_image`, and obey what is in
:mod:`...domain_console`; Nova gives them a pseudo terminal instead of a
socket.
"""

from __future__ import annotations

import os
import select
import time

from scavenger_openstack.tests.functional import hypervisor

OBEY_S = 60.0
ASK_AGAIN_S = 1.0
TAIL = 8192


def tell(host: hypervisor.Hypervisor, domain: str, order: str) -> None:
    """Have a guest do something, once it has booted.

    :param domain: its name on the hypervisor
    :raises TimeoutError: it does not obey.
    """
    path = host.virsh('ttyconsole', domain).strip()
    wanted = f'"obeyed": "{order}"'.encode()
    deadline = time.monotonic() + OBEY_S
    said = b''
    fd = os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    try:
        while time.monotonic() < deadline:
            os.write(fd, order.encode() + b'\n')        # lost while it boots
            until = time.monotonic() + ASK_AGAIN_S
            while (left := until - time.monotonic()) > 0:
                if select.select([fd], [], [], left)[0]:
                    said = (said + os.read(fd, 4096))[-TAIL:]
                if wanted in said:
                    return
    finally:
        os.close(fd)
    raise TimeoutError(f'{domain} does not obey: {said[-500:]!r}')
