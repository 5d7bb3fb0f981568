# SPDX-License-Identifier: Apache-2.0

"""The example for kolla: what its templates write is accepted here."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
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

KOLLA = pathlib.Path(__file__).parents[3] / 'contrib/kolla'
ROLE = KOLLA / 'role'

SERVICES = ('scavenger-api', 'scavenger-conductor', 'scavenger-watcher',
            'scavenger-agent')
ON_HOSTS = SERVICES[2:]

GLOBALS: dict[str, Any] = {
    'ansible_facts': {'nodename': 'compute-1'},
    'container_config_directory': '/var/lib/kolla/config_files',
    'default_project_domain_name': 'Default',
    'default_user_domain_name': 'Default',
    'groups': {'memcached': ['control-1', 'control-2']},
    'keystone_internal_url': 'https://192.0.2.10:5000',
    'keystone_public_url': 'https://cloud.example.org:5000',
    'kolla_copy_ca_into_containers': 'no',
    'memcache_secret_key': 'secret', 'memcache_security_strategy': 'ENCRYPT',
    'memcached_port': 11211, 'om_enable_rabbitmq_tls': 'no',
    'om_rabbitmq_cacert': '/etc/ssl/certs/ca-certificates.crt',
    'openstack_cacert': '', 'openstack_region_name': 'RegionOne',
    'rpc_transport_url': 'rabbit://openstack:secret@192.0.2.11:5672,'
                         'openstack:secret@192.0.2.12:5672//',
    'scavenger_database_address': '192.0.2.10:3306',
    'scavenger_database_name': 'scavenger',
    'scavenger_database_password': 'secret',
    'scavenger_database_user': 'scavenger',
    'scavenger_keystone_password': 'secret',
    'scavenger_keystone_user': 'scavenger',
    'scavenger_logging_debug': 'False', 'scavenger_mode': 'observe',
    'scavenger_protect': 'cpu'}
"""Of kolla-ansible and of the role's defaults."""

ALL = {'om_enable_rabbitmq_tls': 'yes', 'kolla_copy_ca_into_containers': 'yes',
       'scavenger_policy_file': 'policy.yaml', 'scavenger_mode': 'enforce',
       'openstack_cacert': '/etc/ssl/certs/ca-certificates.crt'}


def render(path: pathlib.Path, **variables: Any) -> str:
    """Return what a template writes, by filters as kolla-ansible has them."""
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True,
        keep_trailing_newline=True)
    environment.filters |= {
        'bool': lambda text: text in (True, 'yes', 'True'),
        'kolla_address': lambda network, host: f'{host}.{network}',
        'put_address_in_context': lambda address, context: address}
    return environment.from_string(path.read_text()).render(
        {**GLOBALS, **variables})


class Kolla(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.file = pathlib.Path(self.useFixture(
            fixtures.TempDir()).path) / 'scavenger.conf'

    def load(self, service: str, **variables: Any) -> cfg.ConfigOpts:
        """Return the configuration of a container, as its program reads
        it."""
        self.file.write_text(render(
            ROLE / 'templates/scavenger.conf.j2', service_name=service,
            **variables))
        conf = cfg.ConfigOpts()
        for register in (conf_.register, rpc.register, state_report.register):
            register(conf)
        conf_.load(conf, ['--config-file', str(self.file)], service)
        return conf

    def test_each_configuration_is_taken_and_nothing_is_ignored(self) -> None:
        for service in SERVICES:
            for variables in ({}, ALL):
                conf = self.load(service, **variables)
                self.assertEqual([], list(conf_libraries.unused(
                    conf_check.files(conf))), service)
                self.assertEqual('/var/log/kolla/scavenger', conf.log_dir)
                has_database = conf.database.connection is not None
                self.assertEqual(service not in ON_HOSTS, has_database)

    def test_hosts_observe_until_they_are_to_enforce(self) -> None:
        for mode in (Mode.OBSERVE, Mode.ENFORCE):
            conf = self.load('scavenger-agent', scavenger_mode=str(mode))
            for name in ('scavenger', 'perfiso'):
                self.assertIs(mode, conf_.mode(conf, name))
            self.assertIs(Mode.OBSERVE, conf_.mode(conf, 'attribution'))

    def findings(self) -> list[str]:
        """Return what "config_validate" reports of the file."""
        done = subprocess.run(
            [sys.executable, '-m', 'oslo_config.validator', '--config-file',
             KOLLA / 'docker/scavenger/scavenger-base/config-validator.conf',
             '--input-file', self.file],
            capture_output=True, text=True, timeout=120)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        return [line.split(':')[-1] for line in done.stderr.splitlines()
                if line.startswith('ERROR')]

    def test_config_validate_knows_the_options(self) -> None:
        # What keystoneauth reads there, it lists nowhere.
        right = ['openstack/auth_section is not part of the sample config']
        for service in SERVICES:
            self.load(service, **ALL)
            self.assertEqual([] if service in ON_HOSTS else right,
                             self.findings())
        self.file.write_text('[agent]\nprotekt = cpu\n')
        finding, = self.findings()
        self.assertIn('protekt', finding)

    def test_each_container_starts_a_program_with_its_files(self) -> None:
        programs = {'scavenger-api': 'uwsgi',
                    'scavenger-watcher': 'scavenger-restore'}
        for service in SERVICES:
            for variables in ({}, ALL):
                document = json.loads(render(
                    ROLE / f'templates/{service}.json.j2', **variables))
                self.assertEqual(programs.get(service, service),
                                 document['command'].split()[0])
                files = [file['dest'] for file in document['config_files']]
                self.assertEqual(conf_.DEFAULT_CONFIG, files[0])
                for file in document['config_files']:
                    self.assertEqual('0600', file['perm'])

    def test_each_service_of_the_role_has_image_and_template(self) -> None:
        defaults = yaml.safe_load((ROLE / 'defaults/main.yml').read_text())
        self.assertEqual(set(SERVICES), set(defaults['scavenger_services']))
        names = [*defaults['scavenger_services']]
        # Started in this order: no agent without a watcher.
        self.assertLess(names.index('scavenger-watcher'),
                        names.index('scavenger-agent'))
        for name, service in defaults['scavenger_services'].items():
            image = service['image'].split('}}')[1].split(':')[0]
            self.assertTrue(
                (KOLLA / f'docker/scavenger/{image}/Dockerfile.j2').exists())
            self.assertTrue(
                (ROLE / f'templates/{name}.json.j2').exists())
        self.assertEqual(
            conf_.DEFAULT_CONFIG,
            defaults['scavenger_config_validation'][0]['config'])

    def test_all_that_is_a_template_is_one(self) -> None:
        paths = [*KOLLA.rglob('*.j2')]
        self.assertGreater(len(paths), 8)
        for path in paths:
            jinja2.Environment().parse(path.read_text())
