# SPDX-License-Identifier: Apache-2.0

"""``scavenger-ibench``: load on one resource, at a chosen intensity."""

from __future__ import annotations

from collections.abc import Sequence
import sys

from scavenger_openstack.cmd import ending


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return 0, 1 (failed), 2 (usage) or 130."""
    return ending.code('scavenger-ibench', lambda: _main(argv))


def _main(argv: Sequence[str] | None) -> int:
    from scavenger_openstack.ibench import command
    return command.main(argv)


if __name__ == '__main__':
    sys.exit(main())
