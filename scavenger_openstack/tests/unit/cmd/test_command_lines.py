# SPDX-License-Identifier: Apache-2.0

"""Each program as its operator types it, with nothing to work on."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
import importlib
import io
import os
import pathlib
import subprocess
import sys

import fixtures
import testtools

from scavenger_openstack import command_line
from scavenger_openstack import version

NAMES = ('agent', 'standalone', 'manage', 'status', 'conductor', 'api',
         'demo', 'replay', 'simulate', 'ibench')
PARSED = NAMES[:6]
"""Those whose command line says what the program needs to know of a host."""

COMMANDS = {
    'agent': ('run', 'sample', 'status', 'metrics', 'history', 'stop-all',
              'resume'),
    'ibench': ('list', 'build', 'run', 'ramp', 'mix', 'serve', 'validate',
               'profile'),
    'standalone': ('run', 'env'),
    'manage': ('db upgrade', 'db version', 'db purge', 'host enroll',
               'host unenroll', 'host list', 'host remove',
               'aggregate set', 'aggregate unset', 'aggregate list',
               'placement remove', 'flavors create', 'archive'),
    'status': ('upgrade check',)}

TIMEOUT_S = 60.0


def program(name: str) -> Callable[[Sequence[str]], int]:
    found: Callable[[Sequence[str]], int] = importlib.import_module(
        f'scavenger_openstack.cmd.{name}').main
    return found


def typed(name: str, *words: str) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    out, err = io.StringIO(), io.StringIO()
    with (fixtures.MonkeyPatch('sys.stdout', out),
          fixtures.MonkeyPatch('sys.stderr', err)):
        code = program(name)(list(words))
    return code, out.getvalue(), err.getvalue()


class CommandLineTest(testtools.TestCase):

    def refused(self, name: str, *words: str) -> str:
        """The one line that says what is wrong."""
        code, out, err = typed(name, *words)
        self.assertEqual((2, '', 1), (code, out, err.count('\n')),
                         f'{name} {words}: {err}')
        self.assertThat(err, testtools.matchers.StartsWith(
            f'scavenger-{name}: '))
        return err.partition(': ')[2]

    def test_version(self) -> None:
        for name in NAMES:
            self.assertEqual(
                (0, f'scavenger-{name} {version()}\n', ''),
                typed(name, '--version'))

    def test_help_of_each_program_and_command(self) -> None:
        for name in NAMES:
            for command in ('', *COMMANDS.get(name, ())):
                code, out, err = typed(name, *command.split(), '--help')
                self.assertEqual((0, ''), (code, err))
                self.assertIn(f'usage: scavenger-{name} {command}'.rstrip(),
                              ' '.join(out.split()))

    def test_help_shows_only_what_the_command_takes(self) -> None:
        for command, has, lacks in (
                ('run', '--record --log-file --state-dir',
                 '--json --since --seconds --check'),
                ('status', '--json --check --state-dir',
                 '--record --since --log-file --use-syslog'),
                ('history', '--since --json', '--check --log-file'),
                ('stop-all', '--state-dir', '--json --debug')):
            words = typed('agent', command, '--help')[1].split()
            words = [word.strip('[],') for word in words]
            for option in has.split():
                self.assertIn(option, words, command)
            for option in lacks.split():
                self.assertNotIn(option, words, command)

    def test_unknown_options_and_words(self) -> None:
        for name in NAMES:
            words = {'replay': ['x']}.get(name, [])
            self.assertIn('no such option: --wibble; see ',
                          self.refused(name, *words, '--wibble'))
        self.assertEqual(
            'no such option: --sinse; did you mean --since?; see '
            'scavenger-agent history --help\n',
            self.refused('agent', 'history', '--sinse', '2h'))
        self.assertEqual(
            '--since is an option of scavenger-agent history only; see '
            'scavenger-agent status --help\n',
            self.refused('agent', 'status', '--since', '2h'))
        self.assertIn("'twice' is one word too many",
                      self.refused('agent', 'status', 'twice'))

    def test_commands(self) -> None:
        for words, what in (
                ([], 'a command is missing: one of run, sample, status, '
                     'metrics, history, stop-all, resume; see scavenger-agent '
                     '--help\n'),
                (['stats'], "'stats' is no command; did you mean status?; "
                            'see scavenger-agent --help\n'),
                (['wibble'], "'wibble' is no command; one of run, sample, ")):
            self.assertIn(what, self.refused('agent', *words))
        self.assertIn('a command is missing: one of upgrade, version, purge; '
                      'see scavenger-manage db --help',
                      self.refused('manage', 'db'))

    def test_wrong_values(self) -> None:
        for words, what in (
                (['agent', 'sample', '--seconds', 'x'],
                 "--seconds: 'x' is not a number; "),
                (['agent', 'sample', '--seconds', '-1'],
                 '--seconds: -1 is too small, the smallest is 0; '),
                (['agent', 'sample', '--seconds'], '--seconds needs a value'),
                (['agent', 'status', '--state-dir='],
                 '--state-dir needs a value'),
                (['agent', 'status', '--json=3'], '--json takes no value'),
                (['agent', 'status', '--json', '--config-file', '/nope',
                  '--debug'], '--debug is an option of scavenger-agent run '
                              'and scavenger-agent sample only'),
                (['manage', '--config-file', '/nope', 'db', 'version'],
                 'config files: /nope'),
                (['manage', 'host', 'enroll'], 'NAME is missing'),
                (['replay', 'x', '--cpus', '1.5'],
                 "--cpus: '1.5' is not a whole number"),
                (['replay', 'x', '--format', 'xml'],
                 "--format: 'xml' is not one of table, json"),
                (['api', '--parent', '0'], '--parent: 0 is too small')):
            self.assertIn(what, self.refused(*words))

    def test_a_check_with_wrong_words_is_unknown(self) -> None:
        """2 would be CRITICAL to what starts it."""
        for words in (['--wibble'], ['--json'], ['--state-dir']):
            code, out, err = typed('agent', 'status', '--check', *words)
            self.assertEqual((3, '', 1), (code, err, out.count('\n')))
            self.assertThat(out, testtools.matchers.StartsWith(
                'SCAVENGER UNKNOWN - '))

    def test_options_before_and_after_the_command(self) -> None:
        parser = importlib.import_module(
            'scavenger_openstack.cmd.agent').parser()
        options = command_line.parse(parser, [
            '--config-file', 'a', '--debug', 'run', '--config-file=b',
            '--record', 'r'])
        self.assertEqual(['--config-file=a', '--debug', '--config-file=b'],
                         command_line.configuration(options))
        self.assertEqual('r', options.record)


class DurationTest(testtools.TestCase):

    def test_durations(self) -> None:
        for text, duration_s in (
                ('10ms', 0.01), ('.5s', 0.5), ('90s', 90.0), ('2m', 120.0),
                ('1h30m', 5400.0), ('3d', 259200.0), ('1w', 604800.0),
                ('', None), ('5', None), ('ms', None), ('5y', None),
                ('-5s', None), ('1e3s', None), ('\u0663s', None)):
            self.assertEqual(duration_s, command_line.duration_s(text), text)


class ProcessTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)
        (self.directory / 'conf').touch()

    def test_help_imports_nothing_that_it_does_not_need(self) -> None:
        done = subprocess.run(
            [sys.executable, '-c', 'import contextlib, io, sys\n'
             'from importlib import import_module\n'
             f'for name in {PARSED!r}:\n'
             '    module = import_module(f"scavenger_openstack.cmd.{name}")\n'
             '    with contextlib.redirect_stdout(io.StringIO()):\n'
             '        module.main(["--help"])\n'
             'print(*sys.modules)'], capture_output=True, text=True,
            timeout=TIMEOUT_S, check=True)
        foreign = {'oslo_config', 'oslo_log', 'stevedore', 'sqlalchemy',
                   'flask', 'oslo_messaging', 'msgspec', 'eventlet'}
        self.assertEqual(set(), foreign & set(done.stdout.split()))

    def test_a_reader_that_ends(self) -> None:
        """As with "| head -1"; and a disk that is full."""
        script = (
            'import os, sys\n'
            'from scavenger_openstack.cmd import agent\n'
            'sys.exit(agent.main(sys.argv[1:]))')
        for reader, code, said in (
                ('', 0, ''),
                ('/dev/full', 1, 'No space left on device')):
            if reader:
                output = open(reader, 'w')
            else:
                read, write = os.pipe()
                os.close(read)
                output = open(write, 'w')
            with output:
                done = subprocess.run(
                    [sys.executable, '-c', script, '--version'], stdout=output,
                    stderr=subprocess.PIPE, text=True, timeout=TIMEOUT_S,
                    check=False)
            self.assertEqual(code, done.returncode, done.stderr)
            self.assertIn(said, done.stderr)
            self.assertLessEqual(done.stderr.count('\n'), 1, done.stderr)

    def test_no_agent(self) -> None:
        words = ['--config-file', f'{self.directory}/conf', '--state-dir',
                 f'{self.directory}/state']
        code, out, err = typed('agent', 'status', *words)
        self.assertEqual((1, ''), (code, out))
        self.assertIn(f'{self.directory}/state/status.json: no status: no '
                      'agent runs with this state directory, or it has only '
                      'just begun; ',
                      err)
        self.assertIn('no watcher runs', err)
        code, out, err = typed('agent', 'status', '--check', *words)
        self.assertEqual((2, ''), (code, err))
        self.assertIn('SCAVENGER CRITICAL - ', out)
        (self.directory / 'conf').write_text('[agent]\nlease_s = x\n')
        code, out, err = typed('agent', 'status', '--check', *words)
        self.assertEqual((2, ''), (code, err))
        self.assertIn('the agent would not start again: ', out)
        self.assertIn('[agent] lease_s: ', out)
        (self.directory / 'conf').write_text('[agent\n')
        code, out, err = typed('agent', 'status', '--check', *words[:2])
        self.assertEqual((3, ''), (code, err))
        self.assertIn('SCAVENGER UNKNOWN - the configuration cannot be read',
                      out)
        self.assertIn(f'{self.directory}/conf:1, ', out)
