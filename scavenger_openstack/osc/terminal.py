# SPDX-License-Identifier: Apache-2.0

"""Text for a terminal: on one line, and without characters that it obeys."""

from __future__ import annotations

import sys


def printable(text: str) -> str:
    """The text, with an escape for each character that is not printable, or
    that the encoding of the standard output lacks.

    Each ``openstack`` command imports this module, and few need the types.
    """
    from scavenger_openstack import types
    encoding = getattr(sys.stdout, 'encoding', None) or 'utf-8'
    return types.printable(text).encode(
        encoding, 'backslashreplace').decode(encoding)
