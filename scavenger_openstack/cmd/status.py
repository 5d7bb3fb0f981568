# SPDX-License-Identifier: Apache-2.0

"""``scavenger-status``: whether the control plane is ready for this
release."""

from __future__ import annotations

from collections.abc import Sequence
import logging
import sys
import traceback
import types

from scavenger_openstack.cmd import ending
from scavenger_openstack import command_line

PROG = 'scavenger-status'

FAULT = 255


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return 0, 1 (failed), 2 (usage) or 130."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    return ending.code(PROG, lambda: _main(arguments))


def parser() -> command_line.Parser:
    program = command_line.program(
        PROG, 'Whether the control plane is ready for this release. For an '
              'agent see scavenger-agent status.')
    command_line.add_configuration(program, host=False, before=True)
    add = command_line.add_commands(program)
    action = command_line.add_commands(
        add('upgrade', 'what an upgrade needs'), 'action')
    command = action(
        'check', 'look at database, policy, authentication and agents',
        epilog='Exit code: 0 nothing to do, 1 a warning, 2 a failure or a '
               'configuration that cannot work, 255 a fault.')
    command.add_argument('--json', action='store_true', help='print JSON')
    command_line.add_configuration(command, host=False)
    return program


def _main(arguments: Sequence[str]) -> int:
    options = command_line.parse(parser(), arguments)
    from oslo_upgradecheck import upgradecheck

    from scavenger_openstack.cmd import configuration
    from scavenger_openstack.cmd import upgrade_checks
    conf = configuration.load(PROG, options, has_log=False)
    # The table says what is wrong with a rule; this would add a traceback.
    logging.getLogger('oslo_policy').setLevel(logging.CRITICAL + 1)
    # Where it looks for --json.
    upgradecheck.CONF = types.SimpleNamespace(  # type: ignore[assignment]
        command=options)
    try:
        return int(upgrade_checks.Checks(conf).check())
    except Exception:
        traceback.print_exc()
        return FAULT


if __name__ == '__main__':
    sys.exit(main())
