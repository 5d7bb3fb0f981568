# SPDX-License-Identifier: Apache-2.0

"""Each program has a page in the documentation, which is a manual page, and
takes the commands that other pages name."""

from __future__ import annotations

import configparser
import importlib.util
import pathlib
import re
import runpy
import shlex
from types import ModuleType

from openstackclient import shell
import testtools

from scavenger_openstack.osc import plugin

TOP = pathlib.Path(__file__).parents[3]
SOURCE = TOP / 'doc/source'


def programs() -> list[str]:
    setup = configparser.ConfigParser()
    setup.read(TOP / 'setup.cfg')
    return [line.partition('=')[0].strip() for line in
            setup['entry_points']['console_scripts'].strip().splitlines()]


def extension(name: str) -> ModuleType:
    """A module of the documentation."""
    spec = importlib.util.spec_from_file_location(
        name, SOURCE / f'_ext/{name}.py')
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


class Pages(testtools.TestCase):

    def test_each_program_has_a_page_that_shows_its_help(self) -> None:
        for program in programs():
            page = SOURCE / f'reference/cli/{program}.rst'
            self.assertTrue(page.exists(), f'write {page}')
            text = page.read_text()
            self.assertIn(f'\n.. program-help:: {program}\n', text)
            for title in ('Description', 'Exit code', 'Examples'):
                self.assertIn(f'\n{title}\n===', text, page.name)

    def test_each_page_is_a_manual_page(self) -> None:
        pages = runpy.run_path(str(SOURCE / 'conf.py'))['man_pages']
        self.assertEqual(sorted((f'reference/cli/{name}', name)
                                for name in programs()),
                         sorted(page[:2] for page in pages))


class Commands(testtools.TestCase):
    """Of the openstack client, in the text and in the examples."""

    INLINE = re.compile(r'``openstack ((?:antagonist|interference) [^`]+)``')
    TYPED = re.compile(
        r'(?m)^ +(?:[$#] )?openstack ((?:antagonist|interference) .+)$')

    def test_each_is_taken(self) -> None:
        app = shell.OpenStackShell()
        app.command_manager.add_command_group(
            f'openstack.{plugin.API_NAME}.v1')
        typed = {
            (page.name, text) for page in SOURCE.rglob('*.rst')
            for pattern in (self.INLINE, self.TYPED)
            for text in pattern.findall(page.read_text())}
        self.assertGreater(len(typed), 30)
        for page, text in sorted(typed):
            command, name, arguments = app.command_manager.find_command(
                shlex.split(text))
            # The name of a command alone is no example of its arguments.
            if not arguments:
                continue
            try:
                command(app, None, cmd_name=name).get_parser(
                    name).parse_args(arguments)
            except SystemExit:
                self.fail(f'{page}: openstack {text}')


class Help(testtools.TestCase):

    def test_each_command_of_a_program(self) -> None:
        found = {' '.join(words): text for words, text in
                 extension('program_help').helps(['scavenger-manage'])}
        self.assertIn('scavenger-manage db purge', found)
        self.assertIn('--older-than', found['scavenger-manage db purge'])
        self.assertEqual([], [text for text in found.values()
                              if not text.startswith('usage: ')])

    def test_a_program_that_prints_nothing(self) -> None:
        self.assertRaises(ValueError, extension('program_help').help_of,
                          ['no-such-program'])
