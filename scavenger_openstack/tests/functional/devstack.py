# SPDX-License-Identifier: Apache-2.0

"""Phases of the devstack plugin, with stand-ins of devstack's functions."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import fixtures

TOP = pathlib.Path(__file__).parents[3]
PLUGIN = TOP / 'devstack'
FUNCTIONS = pathlib.Path(__file__).with_name('devstack_functions.sh')
PHASE_S = 300

INI = """
import sys
command, file, section, option, *values = sys.argv[1:]
try:
    lines = open(file).read().splitlines()
except FileNotFoundError:
    lines = []
if f'[{section}]' not in lines:
    lines += [f'[{section}]']
first = lines.index(f'[{section}]') + 1
last = next((n for n in range(first, len(lines))
             if lines[n].startswith('[')), len(lines))
there = [n for n in range(first, last)
         if lines[n].partition('=')[0].strip() == option]
if command == 'get':
    print(*(lines[n].partition('=')[2].strip() for n in there))
else:
    if command == 'set':
        for n in reversed(there):
            del lines[n]
            last -= 1
    lines[last:last] = [f'{option} = {value}' for value in values]
    open(file, 'w').write('\\n'.join(lines) + '\\n')
"""


class PhaseFailed(Exception):
    """What the plugin has written."""


class Devstack(fixtures.Fixture):
    """A devstack with the plugin, in a directory of its own.

    ``nova`` is its ``nova.conf``; ``etc`` and ``state`` are directories of
    ours.
    """

    directory: pathlib.Path
    nova: pathlib.Path
    etc: pathlib.Path
    state: pathlib.Path

    def _setUp(self) -> None:
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)
        (self.directory / 'ini.py').write_text(INI)
        self.nova = self.directory / 'nova.conf'
        self.etc = self.directory / 'etc'
        self.state = self.directory / 'state'

    def phase(self, *words: str, services: str, **variables: str
              ) -> list[str]:
        """Run one; what it asked devstack to do, call by call.

        :param services: those of OpenStack that devstack has
        :param variables: what else the stand-ins and the settings read
        :raises PhaseFailed: the plugin ended with an error.
        """
        calls = self.directory / 'calls'
        calls.write_text('')
        done = subprocess.run(
            ['bash', str(FUNCTIONS), *words], capture_output=True, text=True,
            timeout=PHASE_S, stdin=subprocess.DEVNULL, env={
                'PATH': os.environ['PATH'], 'CALLS': str(calls),
                'DEST': str(self.directory), 'PLUGIN': str(PLUGIN),
                'BIN': str(pathlib.Path(sys.executable).parent),
                'PYTHON': sys.executable,
                'INI': str(self.directory / 'ini.py'),
                'ENABLED_SERVICES': services,
                'SCAVENGER_CONF_DIR': str(self.etc),
                'SCAVENGER_STATE_DIR': str(self.state), **variables})
        if done.returncode:
            raise PhaseFailed(done.stdout + done.stderr)
        return calls.read_text().splitlines()
