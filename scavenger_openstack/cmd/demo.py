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

"""``scavenger-demo``: see on one machine what the agent does."""

from __future__ import annotations

from collections.abc import Sequence
import sys

from scavenger_openstack.cmd import exit as exit_


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; the exit code is 0, 1 (failed), 2 (usage) or 130."""
    return exit_.code('scavenger-demo', lambda: _main(argv))


def _main(argv: Sequence[str] | None) -> int:
    from scavenger_openstack.demo import command
    return command.main(argv)


if __name__ == '__main__':
    sys.exit(main())
