# SPDX-License-Identifier: Apache-2.0

"""Text for a terminal: on one line, and without characters that it obeys."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text, with an escape for each character that is not printable.

    Each ``openstack`` command imports this module, and few need the types.
    """
    from scavenger_openstack import types
    return types.printable(text)
