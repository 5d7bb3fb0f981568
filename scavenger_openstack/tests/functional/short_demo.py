# SPDX-License-Identifier: Apache-2.0

"""``scavenger-demo`` with its times cut short.

Everything happens, but no figure of it means anything.
"""

from __future__ import annotations

import sys

from scavenger_openstack.cmd import demo
from scavenger_openstack.demo import play


def main() -> int:
    play.ALONE_S = play.UNMANAGED_S = play.NAMING_S = 3.0
    play.SETTLE_S = play.MANAGED_S = 2.0
    return demo.main()


if __name__ == '__main__':
    sys.exit(main())
