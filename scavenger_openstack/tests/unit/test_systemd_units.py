# SPDX-License-Identifier: Apache-2.0

"""The systemd units, as far as they can be judged without running them."""

from __future__ import annotations

import pathlib
import re
import shlex
import shutil
import subprocess

import fixtures
import testtools

from scavenger_openstack.cmd import standalone_files
from scavenger_openstack.conf import agent as conf_agent
from scavenger_openstack.conf import control as conf_control

ETC = pathlib.Path(__file__).parents[3] / 'etc'
UNITS = ETC / 'systemd'
PROFILES = ETC / 'apparmor.d'
AGENT = 'scavenger-agent.service'
WATCHER = 'scavenger-restore.service'
CONTROL = ('scavenger-conductor.service', 'scavenger-api.service.example',
           'scavenger-conductor-http.service.example')
"""Those of the control plane, which need nothing of their host."""

EXPOSURE = 25
"""Most that "systemd-analyze security" may find, in tenths (100 = worst)."""


def settings(unit: str) -> dict[str, list[str]]:
    """Every setting of a unit with all its values, in order."""
    found: dict[str, list[str]] = {}
    for line in (UNITS / unit).read_text().splitlines():
        name, equals, value = line.partition('=')
        if equals and not line.startswith('#'):
            found.setdefault(name, []).append(value)
    return found


def lines(name: str) -> list[list[str]]:
    """The words of each line of a file of sysusers.d or tmpfiles.d."""
    return [shlex.split(line) for line in (ETC / name).read_text().split('\n')
            if line and not line.startswith('#')]


def profile(name: str) -> str:
    """A profile of AppArmor with what of ours it includes."""
    text = (PROFILES / name).read_text()
    return text + ''.join(
        profile(included) for included in re.findall(
            r'^ *include <(abstractions/scavenger[\w-]*)>$', text, re.M))


class Units(testtools.TestCase):

    def installed(self) -> pathlib.Path:
        """The units, with programs that exist; systemd looks for them."""
        if not shutil.which('systemd-analyze'):
            self.skipTest('needs systemd-analyze (Debian package systemd)')
        where = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        for unit in (AGENT, WATCHER, *CONTROL):
            text = (UNITS / unit).read_text()
            (where / unit.removesuffix('.example')).write_text(re.sub(
                r'(?m)^(Exec\w+=)(scavenger-\w+|gunicorn|uwsgi)(?= |$)',
                r'\1/bin/true', text))
        return where

    def analyze(self, *args: str) -> str:
        done = subprocess.run(['systemd-analyze', '--no-pager', *args],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        self.assertEqual('', done.stderr)
        return done.stdout

    def test_systemd_understands_them(self) -> None:
        where = self.installed()
        self.analyze('verify', str(where / AGENT), str(where / WATCHER))

    def test_systemd_understands_the_namespace_drop_in(self) -> None:
        where = self.installed()
        for unit in (AGENT, WATCHER):
            drop_in = where / f'{unit}.d'
            drop_in.mkdir()
            shutil.copy(UNITS / 'network-namespaces.conf.example',
                        drop_in / 'network-namespaces.conf')
        self.analyze('verify', str(where / AGENT), str(where / WATCHER))

    def test_systemd_understands_the_drop_ins_of_the_agent(self) -> None:
        where = self.installed()
        drop_in = where / f'{AGENT}.d'
        drop_in.mkdir()
        for name in ('control-plane.conf', 'metrics.conf'):
            shutil.copy(UNITS / f'{name}.example', drop_in / name)
        self.analyze('verify', str(where / AGENT), str(where / WATCHER))

    def test_systemd_understands_those_of_the_control_plane(self) -> None:
        where = self.installed()
        for unit in CONTROL:
            path = where / unit.removesuffix('.example')
            self.analyze('verify', str(path))
            self.analyze('security', '--offline=true',
                         f'--threshold={EXPOSURE}', str(path))

    def test_what_the_control_plane_may_not_do(self) -> None:
        """No unit of it may do more than another."""
        conductor, *others = map(settings, CONTROL)
        first = list(conductor).index('UMask')
        hardened = dict(list(conductor.items())[first:])
        self.assertIn('NoNewPrivileges', hardened)
        for unit in others:
            self.assertEqual(hardened, {
                name: values for name, values in unit.items()
                if name in hardened})

    def test_the_control_plane_is_not_the_agent(self) -> None:
        """Its user may use no libvirt and remove no stop file."""
        of_agent = {settings(unit)['User'][0] for unit in (AGENT, WATCHER)}
        made = lines('sysusers.d/scavenger.conf')
        owners = {words[3] for words in lines('tmpfiles.d/scavenger.conf')}
        for unit in map(settings, CONTROL):
            [user] = unit['User']
            self.assertEqual([user], unit['Group'])
            self.assertNotIn(user, of_agent | owners | {'root'})
            self.assertIn(['u', user], [words[:2] for words in made])
            self.assertNotIn(['m', user], [words[:2] for words in made])
            self.assertNotIn('SupplementaryGroups', unit)
            self.assertEqual(user, standalone_files.USERS[0])

    def test_the_control_plane_sees_nothing_of_the_agent(self) -> None:
        [token_file] = [option.default for option in
                        conf_control.CONDUCTOR_OPTS
                        if option.name == 'token_file']
        agents = {str(pathlib.Path(conf_agent.DEFAULT_STOP_FILE).parent),
                  conf_agent.DEFAULT_STATE_DIR, token_file, '/run/libvirt'}
        for unit in map(settings, CONTROL):
            hidden = {path.removeprefix('-') for value in
                      unit['InaccessiblePaths'] for path in value.split()}
            self.assertThat(hidden, testtools.matchers.ContainsAll(agents))
            for name in ('RuntimeDirectory', 'StateDirectory',
                         'ReadWritePaths', 'AmbientCapabilities'):
                self.assertNotIn(name, unit)

    def test_exposure(self) -> None:
        where = self.installed()
        for unit in (AGENT, WATCHER):
            self.analyze('security', '--offline=true',
                         f'--threshold={EXPOSURE}', str(where / unit))

    def test_each_capability_has_its_reason(self) -> None:
        for unit in (AGENT, WATCHER):
            found = settings(unit)
            self.assertEqual(found['AmbientCapabilities'],
                             found['CapabilityBoundingSet'], unit)
            comments = [line for line in
                        (UNITS / unit).read_text().splitlines()
                        if line.startswith('#')]
            for capability in found['AmbientCapabilities']:
                self.assertTrue(
                    any(re.match(rf'#   {capability} {{2,}}\w', line)
                        for line in comments), f'{unit}: {capability}')

    def test_the_watcher_can_undo_what_the_agent_does(self) -> None:
        agent, watcher = settings(AGENT), settings(WATCHER)
        self.assertThat(
            set(agent['AmbientCapabilities']),
            testtools.matchers.ContainsAll(watcher['AmbientCapabilities']))
        for name in ('User', 'RuntimeDirectory', 'RuntimeDirectoryMode',
                     'RuntimeDirectoryPreserve', 'StateDirectory',
                     'ReadWritePaths'):
            self.assertEqual(agent[name], watcher[name], name)
        self.assertEqual(['yes'], agent['RuntimeDirectoryPreserve'])
        self.assertEqual(['scavenger-restore --all'], agent['ExecStopPost'])
        self.assertIn(WATCHER, agent['Requires'][0])
        self.assertEqual(['always'], watcher['Restart'])

    def test_systemd_ends_one_that_is_stuck(self) -> None:
        for unit in (AGENT, WATCHER):
            found = settings(unit)
            self.assertEqual((['notify'], ['main']),
                             (found['Type'], found['NotifyAccess']), unit)
            # Many beats of the watcher, many ticks of the agent.
            self.assertGreaterEqual(int(found['WatchdogSec'][0]), 30)

    def test_a_profile_that_is_not_loaded_keeps_no_unit_down(self) -> None:
        for unit in (AGENT, WATCHER, *CONTROL):
            [name] = settings(unit)['AppArmorProfile']
            self.assertThat(name, testtools.matchers.StartsWith('-'))
            name = name.removeprefix('-')
            self.assertIn(f'\nprofile {name} ', profile(name))

    def test_profiles_have_the_capabilities_of_their_units(self) -> None:
        for unit in (AGENT, WATCHER, *CONTROL):
            found = settings(unit)
            self.assertEqual(
                sorted(f'CAP_{name.upper()}' for name in re.findall(
                    r'^ *capability (\w+),$',
                    profile(found['AppArmorProfile'][0][1:]), re.M)),
                sorted(filter(None, found['CapabilityBoundingSet'])), unit)

    def test_apparmor_understands_the_profiles(self) -> None:
        if not shutil.which('apparmor_parser'):
            self.skipTest('needs apparmor_parser (Debian package apparmor)')
        for unit in (AGENT, WATCHER, CONTROL[0]):
            done = subprocess.run(
                ['apparmor_parser', '--skip-kernel-load', '--skip-cache',
                 '--Include', str(PROFILES),
                 str(PROFILES / settings(unit)['AppArmorProfile'][0][1:])],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                check=False, timeout=60)
            self.assertEqual(0, done.returncode, done.stdout)
