# SPDX-License-Identifier: Apache-2.0

"""The devstack plugin, phase by phase, with stand-ins of devstack."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

from oslo_config import cfg
import testtools

from scavenger_openstack.conductor import sessions
from scavenger_openstack import conf as conf_
from scavenger_openstack.db import connect
from scavenger_openstack.db import schema
from scavenger_openstack.restore import records
from scavenger_openstack.tests.functional import base
from scavenger_openstack.tests.functional import devstack

CONTROLLER = 'n-api,n-cpu,nova,keystone'
SHELLCHECK_S = 300


class Phases(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.devstack = self.useFixture(devstack.Devstack())
        self.devstack.nova.write_text(
            '[oslo_messaging_notifications]\ndriver = messagingv2\n')
        self.services = CONTROLLER

    def phase(self, *words: str, **variables: str) -> list[str]:
        return self.devstack.phase(*words, services=self.services,
                                   **variables)


class Plugin(Phases):

    def option(self, section: str, name: str) -> list[str]:
        """All values that nova.conf has."""
        sections: dict[str, dict[str, list[str]]] = {}
        cfg.ConfigParser(str(self.devstack.nova), sections).parse()
        return sections.get(section, {}).get(name, [])

    def loaded(self) -> cfg.ConfigOpts:
        """What our programs make of their file, which they check."""
        conf = cfg.ConfigOpts()
        conf_.register(conf)
        file = self.devstack.etc / 'scavenger.conf'
        conf_.load(conf, ['--config-file', str(file)], 'scavenger-conductor')
        return conf

    def test_install(self) -> None:
        [line] = self.phase('stack', 'install')
        self.assertEqual(
            f'setup_develop {self.devstack.directory}/scavenger-openstack '
            'control,osc,libvirt', line)

    def test_configured(self) -> None:
        """Twice is the same as once."""
        for _ in range(2):
            calls = self.phase('stack', 'post-config',
                               SCAVENGER_MODE='enforce')
            self.assertEqual([
                'ComputeFilter,ImagePropertiesFilter,BackgroundFilter'],
                self.option('filter_scheduler', 'enabled_filters'))
            self.assertEqual([
                'nova.scheduler.filters.all_filters',
                'scavenger_openstack.nova.filters.BackgroundFilter'],
                self.option('filter_scheduler', 'available_filters'))
            self.assertEqual([
                'nova.scheduler.weights.all_weighers',
                'scavenger_openstack.nova.weights.InterferenceWeigher'],
                self.option('filter_scheduler', 'weight_classes'))
            self.assertEqual(['messagingv2', 'scavenger'], self.option(
                'oslo_messaging_notifications', 'driver'))
            self.assertEqual(['scavenger'], self.option('scavenger',
                                                        'username'))
        self.assertIn('get_or_create_endpoint interference RegionOne '
                      'http://localhost/interference', calls)
        self.assertIn('create_service_user scavenger admin', calls)
        etc = self.devstack.etc
        self.assertIn(f'env = SCAVENGER_CONFIG_FILE={etc}/scavenger.conf',
                      (etc / 'scavenger-uwsgi.ini').read_text())
        conf = self.loaded()
        self.assertEqual(str(self.devstack.state), conf.state_dir)
        self.assertEqual(
            (True, True, True, 'enforce'),
            (conf.nova.enabled, conf.placement.enabled,
             conf.conductor.enabled, conf.scavenger.mode))
        session = sessions.make_session(conf)
        self.assertEqual('http://localhost/identity',
                         vars(session.auth)['auth_url'])
        engine = connect.engine(conf.database.connection)
        self.addCleanup(engine.dispose)
        with connect.reading(engine) as connection:
            schema.check(connection)

    def test_a_further_compute_node(self) -> None:
        """It has no database, and no credentials of ours but in Nova."""
        settings = (devstack.PLUGIN / 'settings').read_text()
        plugin = self.devstack.directory / 'devstack'
        shutil.copytree(devstack.PLUGIN, plugin)
        (plugin / 'settings').write_text(settings.replace(
            'enable_service scavenger-api scavenger-conductor\n', ''))
        self.services = 'n-cpu,nova'
        calls = self.phase('stack', 'post-config', PLUGIN=str(plugin))
        self.assertEqual([], calls)
        conf = self.loaded()
        self.assertIsNone(conf.database.connection)
        self.assertFalse(conf.nova.enabled)
        calls = self.phase('stack', 'extra', PLUGIN=str(plugin))
        self.assertEqual(['scavenger-restore', 'scavenger-agent'],
                         [line.split()[1] for line in calls])

    def test_started_and_ended(self) -> None:
        self.phase('stack', 'post-config')
        # Without Nova's API no flavors are made, which needs a cloud.
        self.services = 'n-cpu,nova'
        calls = self.phase('stack', 'extra')
        names = ['scavenger-api', 'scavenger-conductor', 'scavenger-restore',
                 'scavenger-agent']
        self.assertEqual(names, [line.split()[1] for line in calls])
        self.assertEqual([False, False, True, True], [
            line.endswith(' root root') for line in calls])
        for line in calls[1:]:
            self.assertTrue(pathlib.Path(line.split()[2]).exists(), line)
        self.assertEqual(
            sorted(f'stop_process {name}' for name in names),
            sorted(self.phase('unstack')))
        self.phase('clean')
        self.assertFalse(self.devstack.etc.exists())
        self.assertFalse(self.devstack.state.exists())

    def test_shellcheck(self) -> None:
        program = shutil.which('shellcheck')
        if program is None:
            self.skipTest('needs shellcheck')
        done = subprocess.run(
            [program, '-x', str(devstack.PLUGIN / 'plugin.sh'),
             str(devstack.PLUGIN / 'settings'), str(devstack.FUNCTIONS)],
            capture_output=True, text=True, timeout=SHELLCHECK_S,
            stdin=subprocess.DEVNULL)
        self.assertEqual('', done.stdout)


class Unstack(Phases, base.FunctionalTestCase):

    def test_what_a_killed_agent_left_is_restored(self) -> None:
        tree = self.cgroups()
        tree.make('/batch/a')
        before = tree.get('quota', '/batch/a')
        path = tree.file('quota', '/batch/a')
        lease = records.Lease(
            workload=f'{tree.name}/batch/a', knob='cpu_cores',
            boot_id=records.boot_id(), name='a.json', actions=({
                'do': 'write', 'dir': str(path.parent), 'file': path.name,
                'text': tree.text('quota', before),
                'inode': path.parent.stat().st_ino},))
        (self.devstack.state / 'leases').mkdir(parents=True)
        self.devstack.state.chmod(0o700)
        written = self.devstack.state / 'leases' / lease.name
        written.write_bytes(records.dump(lease))
        written.chmod(0o600)
        tree.put('quota', '/batch/a', '50000')
        self.phase('unstack')
        self.assertEqual(before, tree.get('quota', '/batch/a'))
        self.assertFalse(written.exists())
