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

"""Lines of the file that ``[api] http_basic_file`` names."""

from __future__ import annotations

import bcrypt


def line(name: str, password: str) -> bytes:
    """As ``htpasswd -B`` writes it."""
    return b'%s:%s\n' % (name.encode(), bcrypt.hashpw(
        password.encode(), bcrypt.gensalt()))
