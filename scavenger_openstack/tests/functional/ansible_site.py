# SPDX-License-Identifier: Apache-2.0

"""Three hosts for the Ansible roles: a controller with broker, database and
Keystone, and two hypervisors; and Ansible itself."""

from __future__ import annotations

from collections.abc import Mapping
import configparser
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
from typing import Any

import fixtures
import yaml

from scavenger_openstack.tests.functional import debian_hosts

TOP = debian_hosts.TOP

ANSIBLE = 'ansible-core>=2.17,<2.20'
PACKAGES = ('python3-venv', 'python3-apt', 'python3-libvirt',
            'libvirt-clients', 'mariadb-server', 'rabbitmq-server',
            'haproxy', 'logrotate')
ON_CONTROLLER = ('mariadb', 'rabbitmq-server', 'epmd', 'haproxy')

CONTROLLER, FIRST, SECOND = NAMES = 'control-1', 'compute-1', 'compute-2'

BROKER = '''listeners.tcp = none
listeners.ssl.default = 5671
ssl_options.cacertfile = /etc/tls/ca.pem
ssl_options.certfile = /etc/tls/cert.pem
ssl_options.keyfile = /etc/tls/key.pem
'''
DATABASE = '''[mysqld]
bind-address = 0.0.0.0
ssl_ca = /etc/tls/ca.pem
ssl_cert = /etc/tls/cert.pem
ssl_key = /etc/tls/key.pem
'''
KEYSTONE = '''[database]
connection = sqlite:////srv/keystone.db
[fernet_tokens]
key_repository = /srv/fernet
[credential]
key_repository = /srv/credential
[cache]
enabled = false
'''
BOOTSTRAP = '''
set -e
python3 -m venv /srv/keystone
cd /srv/keystone/bin
./pip install -q --no-index --find-links /srv/keystone-wheels \
    keystone waitress
mkdir /srv/fernet /srv/credential
./keystone-manage db_sync
./keystone-manage fernet_setup --keystone-user root --keystone-group root
./keystone-manage bootstrap --bootstrap-password admin-password \
    --bootstrap-region-id RegionOne \
    --bootstrap-public-url http://controller:5000/v3 \
    --bootstrap-internal-url http://controller:5000/v3
systemd-run -q --unit keystone /srv/keystone/bin/python -W ignore -c '
import sys
sys.argv[1:] = []
from keystone.wsgi.api import application
import waitress
waitress.serve(application, listen="0.0.0.0:5000")'
'''
CERTIFICATES = '''
set -e
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
    -days 2 -subj /CN=ca -keyout ca.key -out ca.pem
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \
    -days 2 -subj /CN=controller -addext subjectAltName=DNS:controller \
    -addext basicConstraints=CA:FALSE -CA ca.pem -CAkey ca.key \
    -keyout key.pem -out cert.pem
cat cert.pem key.pem >both.pem
'''

SECRETS = {'broker': "bro'k er$5@", 'database': "d'b\\ pw%\"",
           'keystone': 'ks$pw', 'hosts': 'of-all-hosts'}
"""Passwords with what has to be quoted somewhere."""

RECAP = re.compile(r'^(\S+) +: ok=(\d+) +changed=(\d+) +unreachable=(\d+) '
                   r'+failed=(\d+)', re.M)


class Run:
    """What one run of ansible-playbook came to."""

    def __init__(self, code: int, output: str, took_s: float) -> None:
        self.code, self.output, self.took_s = code, output, took_s
        self.changed = {name: int(changed) for name, _, changed, _, _
                        in RECAP.findall(output)}
        self.failed = {name for name, _, _, gone, failed
                       in RECAP.findall(output) if int(gone) + int(failed)}


def wheels(name: str, constraints: str, *words: str) -> pathlib.Path:
    """Return a directory with wheels that pip downloads once.

    :param constraints: a file of ``tools``
    """
    file = TOP / 'tools' / constraints
    return debian_hosts.made_once(
        name, [sys.executable, '-m', 'pip', 'download', '-q', '-d', '.',
         '--constraint', file,
         '--only-binary', ':all:', '--python-version', '3.11', *words],
        [file.read_text(), *words])


def product(directory: pathlib.Path, version: str) -> pathlib.Path:
    """Build the wheel of this tree; return its path."""
    source = directory / f'source-{version}'
    shutil.copytree(TOP, source, symlinks=True,
                    ignore=lambda path, names: [
                        name for name in names if name.startswith('.')
                        or name in ('build', '__pycache__', 'tests')])
    (source / 'scavenger_openstack/tests').mkdir(exist_ok=True)
    subprocess.run(
        [sys.executable, '-m', 'pip', 'wheel', '-q', '--no-deps',
         '-w', directory, source], check=True, timeout=600,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        env={**os.environ, 'PBR_VERSION': version})
    return directory / f'scavenger_openstack-{version}-py3-none-any.whl'


class Site(fixtures.Fixture):
    """The hosts, without anything of ours, and Ansible beside them."""

    def _setUp(self) -> None:
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)
        self.ansible = debian_hosts.made_once(
            'ansible', [sys.executable, '-m', 'pip', 'install', '-q',
                        '--target', '.', ANSIBLE], [ANSIBLE, sys.version])
        self.wheel = product(self.directory, '0.1.0')
        found = wheels('libraries', 'test-constraints.txt',
                       *self._requirements(), 'gunicorn')
        keystone = wheels('keystone', 'openstack-constraints.txt',
                          'keystone==30.0.0', 'waitress')
        layers = debian_hosts.layers(PACKAGES)
        self.network = self.useFixture(debian_hosts.Network())
        self.hosts = {name: self.useFixture(debian_hosts.Host(
            self.network, name, 10 + number, layers,
            masked=() if name == CONTROLLER else ON_CONTROLLER))
            for number, name in enumerate(NAMES)}
        self._certificates()
        for host in self.hosts.values():
            host.write('/etc/hosts', '127.0.0.1 localhost\n' + ''.join(
                f'{other.address} {name}\n'
                for name, other in self.hosts.items())
                + f'{self.hosts[CONTROLLER].address} controller\n')
            host.write('/etc/tls/ca.pem',
                       (self.directory / 'ca.pem').read_text())
            host.copy(found, '/srv/wheels')
        self._start_services(keystone)
        self.variables: dict[str, Any] = self._variables()

    def _requirements(self) -> list[str]:
        """What the wheel needs, with the extra ``control``."""
        setup = configparser.ConfigParser()
        setup.read(TOP / 'setup.cfg')
        lines = ((TOP / 'requirements.txt').read_text()
                 + setup['extras']['control']).splitlines()
        return [words for line in lines
                if (words := line.partition('#')[0].strip())]

    def _certificates(self) -> None:
        subprocess.run(['sh', '-c', CERTIFICATES], cwd=self.directory,
                       check=True, capture_output=True, timeout=60)

    def _start_services(self, keystone: pathlib.Path) -> None:
        host = self.hosts[CONTROLLER]
        for name in ('cert.pem', 'key.pem'):
            host.write(f'/etc/tls/{name}',
                       (self.directory / name).read_text())
        host.run('chmod', '-R', 'a+rX', '/etc/tls')
        host.write('/etc/rabbitmq/rabbitmq.conf', BROKER)
        host.write('/etc/mysql/mariadb.conf.d/90-tls.cnf', DATABASE)
        host.run('systemctl', 'restart', 'mariadb', 'rabbitmq-server')
        host.copy(keystone, '/srv/keystone-wheels')
        host.write('/etc/keystone/keystone.conf', KEYSTONE)
        host.run('sh', '-c', BOOTSTRAP)
        host.run('sh', '-c', 'until ss -ltn | grep -q :5000; do sleep 0.2; '
                 'done')

    def _variables(self) -> dict[str, Any]:
        ssh = ('-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null '
               f'-o LogLevel=ERROR -o ControlPath={self.directory}/%C')
        return {
            'ansible_user': 'root',
            'ansible_python_interpreter': '/usr/bin/python3',
            'ansible_ssh_private_key_file': str(debian_hosts.image() / 'key'),
            'ansible_ssh_common_args': ssh,
            'scavenger_install_method': 'venv',
            'scavenger_install_wheel': str(self.wheel),
            'scavenger_install_pip_arguments':
                '--no-index --find-links /srv/wheels',
            'scavenger_control_brokers': ['controller:5671'],
            'scavenger_control_broker_password': SECRETS['broker'],
            'scavenger_control_database_host': 'controller',
            'scavenger_control_database_password': SECRETS['database'],
            'scavenger_control_ca_file': '/etc/tls/ca.pem',
            'scavenger_control_keystone_url': 'http://controller:5000',
            'scavenger_control_keystone_password': SECRETS['keystone'],
            'scavenger_control_keystone_admin_password': 'admin-password',
            'scavenger_control_keystone_project': 'admin',
            'scavenger_control_public_url': 'https://controller:8799',
            'scavenger_control_api_port': 18799,
            'scavenger_control_haproxy_bind': '*:8799',
            'scavenger_control_certificate': str(self.directory / 'both.pem'),
            'scavenger_host_brokers': ['controller:5671'],
            'scavenger_host_broker_secret': SECRETS['hosts'],
            'scavenger_host_ca_file': '/etc/tls/ca.pem',
            'scavenger_host_background_parents': ['/batch'],
            'scavenger_host_log_file': True,
            'scavenger_control_log_file': True}

    def play(self, playbook: str, *words: str, of: Mapping[
            str, Mapping[str, Any]] | None = None, **variables: Any) -> Run:
        """Run a playbook of the repository.

        :param of: variables by host
        :param variables: of all hosts, beside those of the site
        """
        hosts = {name: {'ansible_host': host.address, **(of or {}).get(
            name, {})} for name, host in self.hosts.items()}
        inventory = self.directory / f'inventory-{time.monotonic_ns()}.yml'
        inventory.write_text(yaml.safe_dump({
            'all': {'vars': {**self.variables, **variables}},
            'scavenger_control': {'hosts': {CONTROLLER: hosts[CONTROLLER]}},
            'scavenger_hosts': {'hosts': {
                name: hosts[name] for name in (FIRST, SECOND)}}}))
        began = time.monotonic()
        done = subprocess.run(
            self.network.command(
                sys.executable, '-m', 'ansible', 'playbook', '-v', '-i',
                str(inventory), playbook, *words),
            cwd=TOP / 'ansible', text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=1800,
            env={**os.environ, 'ANSIBLE_HOME': str(self.directory / 'home'),
                 'ANSIBLE_NOCOLOR': '1', 'PYTHONPATH': str(self.ansible)})
        return Run(done.returncode, done.stdout, time.monotonic() - began)
