# SPDX-License-Identifier: Apache-2.0

"""What a configuration comes to, and what is said of one that is wrong."""

from __future__ import annotations

import pathlib
import socket
import subprocess
import sys
from typing import Any

import fixtures
from oslo_config import cfg
import testtools

from scavenger_openstack.agent import parameters
from scavenger_openstack.agent import parts
from scavenger_openstack import conf as conf_
from scavenger_openstack.conf import host as conf_host
from scavenger_openstack import errors
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Mode


class ConfTestCase(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)
        self.file = self.directory / 'scavenger.conf'
        # As on a host without any configuration.
        self.patch(conf_, 'DEFAULT_CONFIG', str(self.file))
        self.patch(conf_, 'DEFAULT_CONFIG_DIR', str(self.file) + '.d')

    def load(self, *lines: str, argv: tuple[str, ...] = ()
             ) -> cfg.ConfigOpts:
        if lines:
            self.file.write_text('\n'.join(lines))
        conf = cfg.ConfigOpts()
        conf_.register(conf)
        conf_.load(conf, argv, 'test')
        return conf

    def findings(self, *lines: str) -> Any:
        """What is said of a file, without its path."""
        exc = self.assertRaises(errors.ConfigError, self.load, *lines)
        return [str(one).removeprefix(f'{self.file}: ') for one in exc.args]


class TestWrong(ConfTestCase):

    def test_the_right_section_is_named(self) -> None:
        self.assertEqual(
            ['[agent] memory_c: no such option; [scavenger] memory_c is one'],
            self.findings('[agent]', 'memory_c = 3'))
        self.assertEqual(
            ['[DEFAULT] uri: no such option; [libvirt] uri is one'],
            self.findings('[DEFAULT]', 'uri ='))
        self.assertEqual(
            ['[scavenger] min-effect: no such option; [attribution] '
             'min_effect is one'],
            self.findings('[scavenger]', 'min-effect = 1'))

    def test_the_right_name_is_proposed(self) -> None:
        self.assertEqual(
            ['[cgroups] backgroud_parents: no such option; did you mean '
             'background_parents?'],
            self.findings('[cgroups]', 'backgroud_parents = /batch'))
        self.assertEqual(
            ['[DEFAULT] state_dirr: no such option; did you mean state_dir?'],
            self.findings('[DEFAULT]', 'state_dirr = /x'))
        self.assertEqual(
            ['[agent] interval-s: no such option; did you mean interval_s?'],
            self.findings('[agent]', 'interval-s = 2'))
        self.assertEqual(
            ['[agent] backgroud_parents: no such option; did you mean '
             '[cgroups] background_parents?'],
            self.findings('[agent]', 'backgroud_parents = /batch'))

    def test_unknown_sections(self) -> None:
        self.assertEqual(
            ['[scavanger]: no such section; did you mean [scavenger]?'],
            self.findings('[scavanger]', 'mode = off'))
        found, = self.findings('[another_service]', 'x = 1')
        self.assertIn('no such section; one of ', found)
        self.assertIn('io_shares', found)

    def test_sections_of_libraries(self) -> None:
        """All programs read one file; not all use each library."""
        self.load('[DEFAULT]', 'transport_url = rabbit://u:p@h/',
                  '[keystone_authtoken]', 'auth_url = http://h/',
                  '[oslo_messaging_rabbit]', 'ssl = true')

    def test_all_is_said_at_once(self) -> None:
        found = self.findings(
            '[cgroups]', 'backgroud_parents = /batch', '[agent]',
            'memory_c = 1', 'interval_s = often', 'lease_s = nan',
            '[scavenger]', 'mode = enfroce')
        self.assertEqual(5, len(found), found)
        for number, words in enumerate((
                '[agent] memory_c', '[cgroups] backgroud_parents',
                '[agent] interval_s', "[agent] lease_s: 'nan'",
                "[scavenger] mode: Valid values are [off, observe, enforce], "
                "but found 'enfroce'",
        )):
            self.assertIn(words, found[number])

    def test_wrong_values(self) -> None:
        for section, line, what in (
                ('scavenger', 'mode = enforced',
                 'Valid values are [off, observe, enforce], but found '
                 "'enforced'"),
                ('scavenger', 'mode =',
                 "Valid values are [off, observe, enforce], but found ''"),
                ('agent', 'protect = cpu, mem',
                 'Valid values are [cpu, memory, network, disk], but found '
                 "'mem'"),
                ('agent', 'interval_s = fast',
                 "could not convert string to float: 'fast'"),
                ('agent', 'interval_s =', 'there is no value; write one, or '
                 'remove the line'),
                ('agent', 'interval_s = 100',
                 '100: Should be less than or equal to 10'),
                ('agent', 'interval_s = 0.01',
                 '0.01: Should be greater than or equal to 0.1'),
                ('agent', 'lease_s = nan', "'nan' is not a number"),
                ('agent', 'history_mib = 1.5',
                 "invalid literal for int() with base 10: '1.5'"),
                ('agent', 'require_watcher = maybe',
                 "Unexpected boolean value 'maybe'"),
                ('DEFAULT', 'debug = maybe', 'Invalid Boolean value: maybe'),
                ('agent', 'host = $nope', '$nope: no such option; '
                 'for a dollar sign write $$'),
                ('agent', 'controllers = scavenger, cpi3',
                 "'cpi3' is not one of attribution, cpi2, io_shares, "
                 'perfcloud, scavenger'),
                ('agent', 'driver = hosts', "'hosts' is not one of host, "
                                            'replay')):
            self.assertEqual(
                [f'[{section}] {line.partition(" ")[0]}: {what}'],
                self.findings(f'[{section}]', line))
        found, = self.findings('[agent]', 'mode = off')
        self.assertIn('; it is one of [attribution], [cpi2], ', found)

    def test_lines_that_are_no_options(self) -> None:
        for lines, line in (
                (['mode = off'], 1), (['[agent'], 1), (['[]'], 1),
                (['[agent]', 'protect'], 2), (['[agent]', '= 3'], 2),
                (['[agent]', ' a = 3'], 2)):
            finding, = self.findings(*lines)
            self.assertIn(f'{self.file}:{line}, ', finding)

    def test_files_that_are_not_there(self) -> None:
        self.file.touch()
        for word in ('--config-file=/nope', '--config-dir=/nope',
                     f'--config-dir={self.file}'):
            exc = self.assertRaises(errors.ConfigError, self.load,
                                    argv=(word,))
            self.assertIn(word.partition('=')[2], str(exc))

    def test_a_file_of_the_directory_is_checked_too(self) -> None:
        drop_in = pathlib.Path(conf_.DEFAULT_CONFIG_DIR)
        drop_in.mkdir()
        (drop_in / 'a.conf').write_text('[agent]\nprotekt = disk\n')
        exc = self.assertRaises(errors.ConfigError, self.load)
        self.assertIn(f'{drop_in}/a.conf: [agent] protekt', str(exc))

    def test_enforce_but_not_listed(self) -> None:
        self.assertEqual(
            ['[io_shares] mode = enforce, but [agent] controllers does not '
             'list io_shares: add it there, or remove this mode'],
            self.findings('[agent]', 'controllers = scavenger',
                          '[io_shares]', 'mode = enforce'))

    def test_protect_and_a_mode_that_contradicts_it(self) -> None:
        found, = self.findings('[agent]', 'protect = disk', '[scavenger]',
                               'mode = enforce')
        self.assertIn('[agent] protect does not list cpu or memory or '
                      'network', found)
        for lines in (['controllers = scavenger'],
                      ['[io_shares]', 'mode = off']):
            found, = self.findings('[agent]', 'protect = disk', *lines)
            self.assertIn('disk takes the controller io_shares', found)

    def test_links(self) -> None:
        self.assertEqual({'eth0': None, 'eth1': 1.25e9}, conf_host.links(
            self.load('[network]', 'links = eth0, eth1=1.25e9')))
        for wrong in ('=5', 'eth0=', 'eth0=x', 'eth0=0', 'eth0=-1',
                      'eth0=nan', 'eth0=inf'):
            self.assertEqual(
                [f'[network] links: {wrong!r} is neither DEVICE nor '
                 'DEVICE=BYTES_PER_S'],
                self.findings('[network]', f'links = {wrong}'))

    def test_old_names_of_logging_are_taken(self) -> None:
        self.load('[DEFAULT]', 'logfile = /x', 'debug = true')

    def test_what_cannot_be_read(self) -> None:
        self.file.write_bytes(b'[agent]\n\xff')
        for argv in ((), ('--config-file', str(self.file)),
                     (f'--config-file={self.file}',)):
            exc = self.assertRaises(errors.ConfigError, self.load, argv=argv)
            self.assertIn(f'{self.file}: not UTF-8', str(exc))
        self.file.unlink()
        drop_in = pathlib.Path(conf_.DEFAULT_CONFIG_DIR)
        drop_in.mkdir()
        (drop_in / 'a.conf').write_text('[agent]\n')
        (drop_in / 'b.conf').write_bytes(b'[agent]\n\xff')
        for argv in ((), ('--config-dir', str(drop_in)),
                     (f'--config-dir={drop_in}',)):
            exc = self.assertRaises(errors.ConfigError, self.load, argv=argv)
            self.assertIn(f'{drop_in}/b.conf: not UTF-8', str(exc))
        (drop_in / 'b.conf').unlink()
        self.file.mkdir()
        exc = self.assertRaises(errors.ConfigError, self.load)
        self.assertEqual(f'{self.file}: the configuration cannot be read: '
                         'Is a directory', str(exc))


class TestModes(ConfTestCase):

    def modes(self, *lines: str) -> dict[str, Mode]:
        conf = self.load(*lines)
        return {**{controller.name: mode for controller, mode
                   in parts.load_controllers(
                       conf, parameters.Parameters(conf).of)},
                'perfiso': conf_.mode(conf, 'perfiso')}

    def test_with_nothing_configured_all_observe(self) -> None:
        self.assertEqual(
            dict.fromkeys(('scavenger', 'io_shares', 'attribution',
                           'perfiso'), Mode.OBSERVE), self.modes())

    def test_one_switch_per_resource(self) -> None:
        for resource, enforcing in (
                ('disk', {'io_shares'}), ('memory', {'scavenger'}),
                ('network', {'scavenger'}), ('cpu', {'scavenger', 'perfiso'}),
                ('cpu, memory, disk, network',
                 {'scavenger', 'perfiso', 'io_shares'})):
            found = self.modes('[agent]', f'protect = {resource}')
            self.assertEqual(enforcing, {
                name for name, mode in found.items()
                if mode is Mode.ENFORCE})

    def test_a_mode_that_is_set_comes_first(self) -> None:
        found = self.modes('[agent]', 'protect = cpu', '[perfiso]',
                           'mode = off')
        self.assertEqual((Mode.ENFORCE, Mode.OFF),
                         (found['scavenger'], found['perfiso']))

    def test_the_detectors_of_the_papers_enforce_with_a_warning(self) -> None:
        for name, warned in (('cpi2', True), ('perfcloud', True),
                             ('attribution', False)):
            with self.assertLogs(parts.__name__) if warned else (
                    self.assertNoLogs(parts.__name__)) as logged:
                found = self.modes('[agent]', f'controllers = {name}',
                                   f'[{name}]', 'mode = enforce')
            self.assertIs(Mode.ENFORCE, found[name])
            if logged is not None:
                [record] = logged.records
                self.assertEqual(('WARNING', (name, name)),
                                 (record.levelname, record.args))

    def test_the_detectors_of_the_papers_set_limits_on_what(self) -> None:
        lines = ('[agent]', 'controllers = scavenger, cpi2',
                 'protect = memory', '[cpi2]', 'mode = enforce')
        self.assertIn('[agent] protect does not list cpu', str(
            self.assertRaises(errors.ConfigError, self.modes, *lines)))

    def test_which_knobs(self) -> None:
        self.assertEqual(set(Knob), conf_.limited_knobs([]))
        conf = self.load('[agent]', 'protect = memory, disk')
        self.assertEqual(
            {Knob.MEMORY_BYTES, Knob.PAUSED, Knob.IO_BYTES_PER_S,
             Knob.IO_OPS_PER_S}, conf_.limited_knobs(conf.agent.protect))


class TestLibvirt(ConfTestCase):

    def uri(self, *lines: str, argv: tuple[str, ...] = ()) -> str:
        return conf_host.libvirt_uri(self.load(*lines, argv=argv))

    def test_the_hosts_own_libvirt_is_found_by_its_socket(self) -> None:
        for name in ('libvirt-sock', 'virtqemud-sock'):
            path = self.directory / name
            self.patch(conf_host, 'LIBVIRT_SOCKETS',
                       ('/nowhere', str(path)))
            self.assertEqual('', self.uri())
            path.write_text('')
            self.assertEqual('', self.uri())
            path.unlink()
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(str(path))
                self.assertEqual('qemu:///system', self.uri())
                self.assertEqual('', self.uri(argv=('--root-dir', '/mnt')))
                self.assertEqual('', self.uri('[libvirt]', 'uri ='))
                self.assertEqual('x', self.uri('[libvirt]', 'uri = x'))
                self.file.unlink()


LINES = '''
import logging
import sys
from oslo_config import cfg
from scavenger_openstack import conf as conf_
conf = cfg.ConfigOpts()
conf_.register(conf)
conf_.load(conf, ['--config-file', sys.argv[1]], 'scavenger')
conf_.set_up_log(conf)
logging.getLogger('scavenger_openstack').warning('%s', 'a\\x1b[2J\\nb')
logging.getLogger('sqlalchemy').error('c\\u2028d')
from alembic import command
'''


class TestLog(testtools.TestCase):

    def test_what_terminals_obey(self) -> None:
        """Others choose what is in a line, and do not begin one; a library
        that logs that it was loaded has none."""
        file = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'conf')
        file.write_text('[agent]\nhost = h\n')
        ended = subprocess.run(
            [sys.executable, '-c', LINES, str(file)], text=True,
            capture_output=True, timeout=60, check=True)
        ours, theirs = ended.stderr.splitlines()
        self.assertIn(r'a\x1b[2J\nb', ours)
        self.assertIn(r'c\u2028d', theirs)

    def test_all_programs_set_it_up_so(self) -> None:
        package = pathlib.Path(conf_.__file__).parents[1]
        self.assertEqual(['conf/__init__.py'], [
            str(path.relative_to(package)) for path in package.rglob('*.py')
            if 'tests' not in path.relative_to(package).parts
            and 'log.setup(' in path.read_text()])
