# SPDX-License-Identifier: Apache-2.0

"""Lines of the file that ``[api] http_basic_file`` names."""

from __future__ import annotations

import bcrypt


def line(name: str, password: str) -> bytes:
    """Return the line that ``htpasswd -B`` writes."""
    return b'%s:%s\n' % (name.encode(), bcrypt.hashpw(
        password.encode(), bcrypt.gensalt()))
