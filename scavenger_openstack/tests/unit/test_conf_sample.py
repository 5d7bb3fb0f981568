# SPDX-License-Identifier: Apache-2.0

"""The sample of the configuration, which oslo-config-generator writes."""

from __future__ import annotations

import difflib
import io
import os
import pathlib
import socket

from oslo_config import cfg
from oslo_config import generator
import testtools

from scavenger_openstack import conf as conf_

TOP = pathlib.Path(__file__).parents[3]
SAMPLE = TOP / 'etc/scavenger/scavenger.conf.sample'
STARTER = TOP / 'etc/scavenger/scavenger.conf.starter'
STARTER_LINES = 15
GENERATOR = TOP / 'etc/scavenger/scavenger-config-generator.conf'


def generated() -> str:
    conf = cfg.ConfigOpts()
    generator.register_cli_opts(conf)
    conf(['--config-file', str(GENERATOR)], default_config_files=[],
         default_config_dirs=[])
    made = io.StringIO()
    generator.generate(conf, output_file=made)
    return made.getvalue()


class Sample(testtools.TestCase):

    def test_it_is_of_today(self) -> None:
        made = generated()
        self.assertIn('\n[conductor]\n', made)
        self.assertEqual('', '\n'.join(difflib.unified_diff(
            SAMPLE.read_text().split('\n'), made.split('\n'), SAMPLE.name,
            'the options of now', lineterm='')),
            f'{SAMPLE.name} is not what the options are now; type '
            '"tox -e genconfig", or oslo-config-generator --config-file '
            f'etc/scavenger/{GENERATOR.name}')

    def test_it_says_nothing_of_this_machine(self) -> None:
        for name in (socket.gethostname(), str(TOP), str(pathlib.Path.home())):
            if len(name) > 5:   # not "/" or "host"
                self.assertNotIn(name, SAMPLE.read_text())
        self.assertEqual([], [
            line for line in SAMPLE.read_text().splitlines()
            if line and not line.startswith(('#', '['))])


def loaded(*arguments: str) -> dict[str, object]:
    """What the agent takes from its configuration: option -> value."""
    conf = cfg.ConfigOpts()
    conf_.register(conf)
    conf_.load(conf, ['--config-file', os.devnull, *arguments], 'agent')
    return {f'[{section or "DEFAULT"}] {option.dest}':
            getattr(conf[section] if section else conf, option.dest)
            for section, options in conf_.list_opts() for option in options}


class Starter(testtools.TestCase):

    def test_it_is_short(self) -> None:
        lines = STARTER.read_text().splitlines()
        self.assertLessEqual(len(lines), STARTER_LINES)
        self.assertEqual([], [line for line in lines if len(line) > 79])

    def test_the_agent_takes_it_and_only_observes(self) -> None:
        """It says what holds without it, so it hides no other default."""
        self.assertEqual(loaded(), loaded('--config-file', str(STARTER)))
