# SPDX-License-Identifier: Apache-2.0

"""What ``openstack`` loads of ours when it starts."""

from __future__ import annotations

import argparse
import configparser
import importlib
import pathlib
import subprocess
import sys

from cliff import display
import fixtures
from osc_lib.command import command
import testtools

from scavenger_openstack import grounds
from scavenger_openstack.osc.commands import incident
from scavenger_openstack.osc import plugin

TOP = pathlib.Path(__file__).parents[4]


def entry_points() -> dict[str, str]:
    setup = configparser.ConfigParser()
    setup.read(TOP / 'setup.cfg')
    lines = setup['entry_points']['openstack.interference.v1']
    return dict(line.split(' = ') for line in lines.strip().splitlines())


class Start(testtools.TestCase):

    def test_it_is_light(self) -> None:
        """Each ``openstack`` command pays for what the plug-in imports."""
        loaded = subprocess.run(
            [sys.executable, '-c',
             'import argparse, os, sys, typing; before = set(sys.modules); '
             'import scavenger_openstack.osc.plugin; '
             'print(*sorted(set(sys.modules) - before))'],
            cwd=TOP, capture_output=True, text=True, timeout=60, check=True)
        self.assertEqual(['scavenger_openstack', 'scavenger_openstack.osc',
                          'scavenger_openstack.osc.plugin'],
                         loaded.stdout.split())

    def test_the_version(self) -> None:
        self.useFixture(fixtures.EnvironmentVariable(
            'OS_INTERFERENCE_API_VERSION', None))
        parser = plugin.build_option_parser(argparse.ArgumentParser())
        self.assertEqual('1', getattr(parser.parse_args([]),
                                      plugin.API_VERSION_OPTION))
        self.assertIn(plugin.DEFAULT_API_VERSION, plugin.API_VERSIONS)


class Commands(testtools.TestCase):

    def test_to_load_them_is_light(self) -> None:
        """cliff loads all commands at each start.  They need no library that
        ``openstack`` does not, and nothing of ours but this room
        and how amounts are typed."""
        modules = {target.partition(':')[0]
                   for target in entry_points().values()}
        loaded = subprocess.run(
            [sys.executable, '-W', 'ignore', '-c',
             'import importlib, sys; from openstackclient import shell; '
             'before = set(sys.modules); '
             'all(map(importlib.import_module, sys.argv[1:])); '
             'print(*sorted(set(sys.modules) - before))', *modules],
            cwd=TOP, capture_output=True, text=True, timeout=60, check=True)
        self.assertEqual([], [
            name for name in loaded.stdout.split()
            if not name.startswith('scavenger_openstack.osc')
            and name not in ('scavenger_openstack',
                             'scavenger_openstack.typed_amounts')])
        self.assertNotIn('drawing', loaded.stdout)

    def test_each_has_help_for_each_option(self) -> None:
        for name, target in entry_points().items():
            module, _, attribute = target.partition(':')
            factory = getattr(importlib.import_module(module), attribute)
            self.assertTrue(issubclass(factory, command.Command), name)
            one = factory(None, None)
            parser = one.get_parser(f'openstack {name}')
            self.assertTrue(one.get_description().endswith('.'), name)
            for action in self.ours(parser, one):
                where = f'{name} {action.dest}'
                self.assertTrue(str(action.help).rstrip().endswith(
                    ('.', '. ')) or 'xample: ' in str(action.help),
                    f'{where}: {action.help}')
                self.assertGreater(len(str(action.help).split()), 1, where)
            parser.format_help()

    def test_kinds_of_evidence(self) -> None:
        lister = incident.ListIncidents(
            None, None)    # type: ignore[arg-type]
        [action] = [action for action in lister.get_parser('x')._actions
                    if action.dest == 'evidence_kind']
        for kind in grounds.GroundKind:
            self.assertIn(kind, str(action.help))

    def ours(self, parser: argparse.ArgumentParser,
             one: command.Command) -> list[argparse.Action]:
        """Those that cliff adds are left out."""
        class Bare(type(one).__mro__[1]):    # type: ignore[misc]
            def take_action(self, parsed_args: argparse.Namespace) -> None:
                """Nothing."""

        theirs = {action.dest for action
                  in Bare(None, None).get_parser('x')._actions}
        found = [action for action in parser._actions
                 if action.dest not in theirs]
        if isinstance(one, display.DisplayCommandBase):
            self.assertIn('columns', theirs)
        return found
