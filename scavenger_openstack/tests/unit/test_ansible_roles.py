# SPDX-License-Identifier: Apache-2.0

"""The Ansible roles: what they write is accepted, what they name is there.

They are run by :mod:`..functional.test_ansible`.
"""

from __future__ import annotations

import configparser
import pathlib
from typing import Any

import fixtures
import jinja2
from oslo_config import cfg
import testtools
import yaml

from scavenger_openstack import conf as conf_
from scavenger_openstack.conf import check as conf_check
from scavenger_openstack.conf import libraries as conf_libraries
from scavenger_openstack import rpc
from scavenger_openstack import state_report
from scavenger_openstack.types import Mode

TOP = pathlib.Path(__file__).parents[3]
ROLES = TOP / 'ansible/roles'

SECRET = "p@ss/w:rd$x%'"
"""With what has to be quoted in a URL or a file."""

VARIABLES: dict[str, Any] = {
    'scavenger_host_attribution': 'observe',
    'scavenger_host_background_parents': ['/batch.slice', '/other'],
    'scavenger_host_broker_password': SECRET,
    'scavenger_host_broker_user': 'compute-1',
    'scavenger_host_broker_vhost': 'scavenger',
    'scavenger_host_brokers': ['one:5671', 'two:5671'],
    'scavenger_host_ca_file': '/etc/ssl/certs/ca-certificates.crt',
    'scavenger_host_conductor_url': '', 'scavenger_host_debug': False,
    'scavenger_host_foreground_parents': [],
    'scavenger_host_log_file': True, 'scavenger_host_mode': 'observe',
    'scavenger_host_name': 'compute-1',
    'scavenger_host_options': {'libvirt': {'stats_ticks': 5}},
    'scavenger_host_protect': ['cpu', 'disk'],
    'scavenger_host_reports': True, 'scavenger_host_tls': True,
    'scavenger_control_broker_password': SECRET,
    'scavenger_control_broker_tls': True,
    'scavenger_control_broker_user': 'scavenger',
    'scavenger_control_broker_vhost': 'scavenger',
    'scavenger_control_brokers': ['one:5671'],
    'scavenger_control_ca_file': '/etc/ssl/certs/ca-certificates.crt',
    'scavenger_control_database_url':
        'mysql+pymysql://scavenger:x@controller/scavenger',
    'scavenger_control_debug': True,
    'scavenger_control_keystone_domain': 'Default',
    'scavenger_control_keystone_password': SECRET,
    'scavenger_control_keystone_project': 'service',
    'scavenger_control_keystone_url': 'https://controller:5000',
    'scavenger_control_keystone_user': 'scavenger',
    'scavenger_control_log_file': True,
    'scavenger_control_options': {'nova': {'enabled': 'true'}},
    'scavenger_control_region': 'RegionOne',
    'scavenger_control_require_token': True}


class Roles(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)

    def load(self, *templates: str, **variables: Any) -> cfg.ConfigOpts:
        """Return the configuration that these templates write."""
        environment = jinja2.Environment(
            undefined=jinja2.StrictUndefined, trim_blocks=True,
            keep_trailing_newline=True)
        environment.filters['bool'] = bool
        environment.tests['match'] = str.startswith
        for name in templates:
            (self.directory / pathlib.Path(name).stem).write_text(
                environment.from_string((ROLES / name).read_text()).render(
                    {**VARIABLES, **variables}))
        conf = cfg.ConfigOpts()
        for register in (conf_.register, rpc.register, state_report.register):
            register(conf)
        conf_.load(conf, ['--config-dir', str(self.directory)], 'test')
        self.assertEqual([], list(conf_libraries.unused(
            conf_check.files(conf))))
        return conf

    def test_a_host_observes_or_enforces(self) -> None:
        templates = ('scavenger_host/templates/50-ansible.conf.j2',
                     'scavenger_host/templates/60-ansible-modes.conf.j2')
        for mode in (Mode.OBSERVE, Mode.ENFORCE):
            conf = self.load(*templates, scavenger_host_mode=str(mode))
            for name in ('scavenger', 'perfiso', 'io_shares'):
                self.assertIs(mode, conf_.mode(conf, name), name)
            self.assertIs(Mode.OBSERVE, conf_.mode(conf, 'attribution'))
        self.assertEqual(['/batch.slice', '/other'],
                         conf.cgroups.background_parents)
        self.assertEqual(5, conf.libvirt.stats_ticks)
        import oslo_messaging       # after rpc has chosen its threads
        hosts = oslo_messaging.TransportURL.parse(conf).hosts
        self.assertEqual(
            [('one', 5671, 'compute-1', SECRET),
             ('two', 5671, 'compute-1', SECRET)],
            [(host.hostname, host.port, host.username, host.password)
             for host in hosts])
        conf = self.load(
            *templates, scavenger_host_brokers=[],
            scavenger_host_conductor_url='https://control.example.org')
        self.assertEqual('https://control.example.org', conf.conductor.url)
        self.assertEqual('rabbit://', conf.transport_url)

    def test_the_control_plane(self) -> None:
        conf = self.load('scavenger_control/templates/control.conf.j2')
        self.assertTrue(conf.conductor.require_token)
        self.assertTrue(conf.nova.enabled)
        conf.register_opts([cfg.StrOpt('password')], 'keystone_authtoken')
        self.assertEqual(SECRET, conf.keystone_authtoken.password)

    def test_each_program_and_unit_is_there(self) -> None:
        setup = configparser.ConfigParser()
        setup.read(TOP / 'setup.cfg')
        scripts = setup['entry_points']['console_scripts']
        units = setup['files']['data_files']
        for role in ('scavenger_host', 'scavenger_control'):
            tasks = yaml.safe_load(
                (ROLES / role / 'tasks/present.yml').read_text())
            install = tasks[0]['vars']
            for name in install['scavenger_install_programs']:
                self.assertIn(f'{name} = ', scripts)
            for name in install['scavenger_install_units']:
                self.assertIn(f'etc/systemd/{name}.service', units)
        unit = ROLES / 'scavenger_control/files/scavenger-api.service'
        self.assertIn('ExecStart=', unit.read_text())

    def test_what_has_a_secret_is_not_printed(self) -> None:
        """A task that names a password or token says no_log, or prints
        nothing of it: an assertion."""
        wrong = []
        for path in ROLES.rglob('tasks/*.yml'):
            for task in _tasks(yaml.safe_load(path.read_text())):
                module = next((name for name in task
                               if name.startswith('ansible.builtin.')), '')
                text = yaml.safe_dump(task.get(module))
                if (module.rpartition('.')[2] in (
                        'command', 'copy', 'template', 'uri', 'debug')
                        and any(word in text for word in (
                            '_password }}', '.password }}', '_token }}',
                            '_password |', 'subject_token',
                            'control.conf.j2', '50-ansible'))
                        and not task.get('no_log')):
                    wrong.append(f'{path.name}: {task["name"]}')
        self.assertEqual([], wrong)


def _tasks(tasks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return all tasks of a file, also those in blocks."""
    return [part for task in tasks for part in (
        [task] if 'block' not in task else
        _tasks(task['block'] + task.get('always', [])))]
