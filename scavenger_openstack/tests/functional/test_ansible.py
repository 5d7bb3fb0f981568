# SPDX-License-Identifier: Apache-2.0

"""The Ansible roles, by Ansible, on three hosts with systemd.

It prints how long each run took.
"""

from __future__ import annotations

from concurrent import futures
import http.server
import json
import pathlib
import shutil
import threading
import time
from typing import Any

from testtools import content

from scavenger_openstack.tests.functional import ansible_site
from scavenger_openstack.tests.functional import base
from scavenger_openstack.tests.functional import debian_hosts
from scavenger_openstack.tests.functional import namespaces
from scavenger_openstack.tests import tiers

CONTROLLER, FIRST, SECOND = ansible_site.NAMES

LEFT = '''
{ find /etc /opt /usr/local /usr/lib/systemd /usr/lib/sysusers.d \
    /usr/lib/tmpfiles.d /var/lib/scavenger* /run/lock /run/scavenger \
    /var/log/scavenger* 2>/dev/null
  getent passwd; getent group
} | grep -v -e '-$' -e '/.pwd.lock$' -e '^libvirt:' | sort'''
"""What a host has that something of ours could be among; the group of libvirt
is for all."""

JOB = '''
cd /sys/fs/cgroup
setsid sleep infinity </dev/null >/dev/null 2>&1 &
for tree in cpu cpuacct cpuset memory freezer blkio; do
    mkdir -p $tree/batch/job
    if [ $tree = cpuset ]; then
        for below in batch batch/job; do
            cat cpuset/cpuset.cpus >cpuset/$below/cpuset.cpus
            cat cpuset/cpuset.mems >cpuset/$below/cpuset.mems
        done
    fi
    echo $! >$tree/batch/job/cgroup.procs
done'''
"""Runs a batch container, which is empty in no tree: systemd removes cgroups
of its trees that are."""

API = '''
import json, ssl, urllib.request
def ask(url, body=None, **headers):
    request = urllib.request.Request(url, json.dumps(body).encode() if body
        else None, {'Content-Type': 'application/json', **headers})
    answer = urllib.request.urlopen(request, timeout=60,
        context=ssl.create_default_context(cafile='/etc/tls/ca.pem'))
    return answer.headers, json.load(answer)
domain = {'name': 'Default'}
headers, token = ask('http://controller:5000/v3/auth/tokens', {'auth': {
    'identity': {'methods': ['password'], 'password': {'user': {
        'name': 'admin', 'domain': domain, 'password': 'admin-password'}}},
    'scope': {'project': {'name': 'admin', 'domain': domain}}}})
url, = [endpoint['url'] for service in token['token']['catalog']
        if service['type'] == 'interference'
        for endpoint in service['endpoints']
        if endpoint['interface'] == 'public']
_, hosts = ask(url + '/v1/hosts', **{
    'X-Auth-Token': headers['X-Subject-Token']})
print(*sorted(host['name'] for host in hosts['hosts']))
'''
"""Finds the API in the catalog and asks it for the hosts."""

OLD = '#!/bin/sh\necho 3.9\n'
"""What Python 3.9 prints when it is asked for its version."""

ENFORCES = '#!/bin/sh\necho Enforcing\n'
"""What getenforce of SELinux prints."""

OTHER = """raise ImportError("version 'LIBVIRT_11.1.0' not found")"""
"""What python3-libvirt says beside an older libvirt."""


class Proxy(http.server.BaseHTTPRequestHandler):
    """A proxy that has one file, of a host whose name no server knows."""

    file: pathlib.Path
    asked: list[str] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.file.read_bytes())

    def log_message(self, *_: Any) -> None:
        pass


@tiers.only_in_all('it boots three hosts, and runs Ansible a dozen times')
class Roles(base.FunctionalTestCase):

    def setUp(self) -> None:
        super().setUp()
        missing = [name for name in debian_hosts.NEEDED
                   if not shutil.which(name)]
        if missing:
            self.skipTest(f'needs {", ".join(missing)}: see bindep.txt')
        began = time.monotonic()
        self.site = self.useFixture(ansible_site.Site())
        self.hosts = self.site.hosts
        print(f'three hosts: {time.monotonic() - began:.0f} s')

    def play(self, what: str, *words: str, failed: tuple[str, ...] = (),
             **variables: Any) -> ansible_site.Run:
        """Run Ansible; print how long it took."""
        run = self.site.play(*(words or ('site.yml',)), **variables)
        print(f'{what}: {run.took_s:.0f} s, changed {run.changed}',
              flush=True)
        self.addDetail(what, content.text_content(run.output))
        self.assertEqual(set(failed), run.failed, run.output[-3000:])
        self.assertEqual(bool(failed), bool(run.code), run.output[-3000:])
        for secret in ansible_site.SECRETS.values():
            self.assertNotIn(secret, run.output)
        return run

    def left(self) -> dict[str, list[str]]:
        return {name: host.run('sh', '-c', LEFT).stdout.splitlines()
                for name, host in self.hosts.items()}

    def status(self, name: str) -> dict[str, Any]:
        found = json.loads(self.hosts[name].run(
            'scavenger-agent', 'status', '--json').stdout)
        assert isinstance(found, dict)
        return found

    def idle(self, name: str) -> str:
        return self.hosts[name].run(
            'cat', '/sys/fs/cgroup/cpu/batch/cpu.idle').stdout.strip()

    def test_from_the_first_run_to_away(self) -> None:
        before = self.left()
        self._nothing_is_there(before)
        self._first_and_second()
        self._enforce_and_observe()
        self._bad_input()
        self._two_at_once()
        self._half_an_upgrade_behind_a_proxy()
        self._away(before)

    def _nothing_is_there(self, before: dict[str, list[str]]) -> None:
        self.play('check mode', 'site.yml', '--check')
        self.assertEqual(before, self.left())
        for what, host, variables, words in (
                ('a token with an end of line', SECOND,
                 {'scavenger_host_token': 'one\ntwo'}, 'is no token'),
                ('a password that no URL takes', CONTROLLER,
                 {'scavenger_control_broker_password': 'a/b'},
                 'has a slash'),
                ('Python 3.9', SECOND,
                 {'scavenger_install_python': '/srv/python3.9'},
                 'Python 3.11 or newer is needed'),
                ('no such Python', SECOND,
                 {'scavenger_install_python': '/srv/python3.8'},
                 '/srv/python3.8 is not there')):
            self.hosts[host].write('/srv/python3.9', OLD)
            self.hosts[host].run('chmod', '+x', '/srv/python3.9')
            run = self.play(what, 'site.yml', '--limit', host, failed=(host,),
                            of={host: variables})
            self.assertIn(words, ' '.join(run.output.split()), what)
            self.assertEqual(before, self.left())
        second = self.hosts[SECOND]
        second.write('/usr/bin/getenforce', ENFORCES)
        second.run('chmod', '+x', '/usr/bin/getenforce')
        run = self.play('SELinux', 'site.yml', '--limit', SECOND,
                        failed=(SECOND,))
        self.assertIn(f'SELinux enforces on {SECOND}',
                      ' '.join(run.output.split()))
        self.assertEqual(before, self.left())
        second.run('rm', '/usr/bin/getenforce')

    def _first_and_second(self) -> None:
        self.hosts[FIRST].run('sh', '-c', JOB)
        self.play('first run')
        for name in (FIRST, SECOND):
            self.assertEqual(
                ['600 scavenger scavenger', '640 root scavenger'],
                self.hosts[name].run(
                    'stat', '-c', '%a %U %G', '/etc/scavenger/token',
                    '/etc/scavenger/scavenger.conf.d/50-ansible.conf'
                ).stdout.splitlines())
            status = self.status(name)
            self.assertEqual({'observe'}, set(status['own_modes'].values()))
            self.assertTrue(status['watcher']['running'])
        self.assertEqual('640 root scavenger-control', self.hosts[
            CONTROLLER].run(
                'stat', '-c', '%a %U %G',
                '/etc/scavenger/scavenger.conf.d/50-ansible.conf'
            ).stdout.strip())
        listed = self.hosts[CONTROLLER].run(
            'scavenger-manage', 'host', 'list').stdout.splitlines()[1:]
        self.assertEqual([FIRST, SECOND],
                         [line.split()[0] for line in listed])
        self.assertEqual({'yes'}, {line.split()[-1] for line in listed})
        self.wait_for('both hosts are at the API, by TLS and a token',
                      lambda: self.hosts[SECOND].run(
                          'python3', '-c', API, fail=False).stdout
                      == f'{FIRST} {SECOND}\n', 60)
        self._rotates(FIRST, 'scavenger', 'scavenger-agent')
        self._rotates(CONTROLLER, 'scavenger-control', 'scavenger-conductor')
        run = self.play('second run')
        self.assertEqual({0}, set(run.changed.values()), run.output)

    def _rotates(self, name: str, directory: str, program: str) -> None:
        host = self.hosts[name]
        path = f'/var/log/{directory}/{program}.log'
        before = host.run('stat', '-c', '%i', path).stdout
        host.run('logrotate', '--force', '/etc/logrotate.d/'
                 + ('scavenger-agent' if name == FIRST else directory))
        host.run('systemctl', 'reload', program)    # which is a line of it
        self.wait_for('it writes to another file', lambda: host.run(
            'stat', '-c', '%i', path, fail=False).stdout not in ('', before))

    def _enforce_and_observe(self) -> None:
        self.assertEqual('0', self.idle(FIRST))
        run = self.play(
            'one host enforces', 'site.yml', '--limit', FIRST,
            of={FIRST: {'scavenger_host_mode': 'enforce'}})
        self.assertEqual(2, run.changed[FIRST], run.output)
        self.wait_for('a limit is in force',
                      lambda: self.idle(FIRST) == '1', 60)
        pid = self.status(FIRST)['pid']
        run = self.play('it observes again', 'site.yml', '--limit', FIRST)
        self.wait_for('no limit is in force',
                      lambda: self.idle(FIRST) == '0', 60)
        # By SIGHUP: what the agent has learnt stays.
        self.assertEqual(pid, self.status(FIRST)['pid'])

    def _bad_input(self) -> None:
        host = self.hosts[FIRST]
        slower = {'scavenger_host_options': {'agent': {'interval_s': 2.0}}}
        modes = '/etc/scavenger/scavenger.conf.d/90-by-hand.conf'
        # As a kolla container has it: what the role writes is above it.
        host.write('/etc/scavenger/scavenger.conf',
                   '[DEFAULT]\ndebug = False\nstate_path = /var/lib/x\n'
                   'transport_url = rabbit://openstack:x@192.0.2.99:5672//\n'
                   '[oslo_concurrency]\nlock_path = /x\n')
        host.write(modes, '[scavenger]\nmode = observe\n')
        run = self.play(
            'a file by hand observes', 'site.yml', '--limit', FIRST,
            failed=(FIRST,), of={FIRST: {'scavenger_host_mode': 'enforce'}})
        self.assertIn('files in /etc/scavenger/scavenger.conf.d that come',
                      ' '.join(run.output.split()))
        host.write(modes, '[scavenger]\nmod = observe\n')
        pid = self.status(FIRST)['pid']
        run = self.play(
            'a file by hand is wrong', 'site.yml', '--limit', FIRST,
            failed=(FIRST,), of={FIRST: slower})
        self.assertIn('did you mean mode?', ' '.join(run.output.split()))
        self.assertEqual(pid, self.status(FIRST)['pid'])
        host.run('rm', modes)

        lock = '/run/lock/scavenger-ansible'
        host.write(lock, 'operator-2, process 7\n')
        run = self.play('another run is at work', 'site.yml', '--limit',
                        FIRST, failed=(FIRST,))
        self.assertIn('operator-2, process 7', run.output)
        host.run('test', '-e', lock)
        host.run('touch', '-d', '-2 hours', lock)
        self.play('that run has died', 'site.yml', '--limit', FIRST,
                  of={FIRST: slower})
        # What the run that failed has written is in use now.
        self.assertEqual(2.0, self.status(FIRST)['interval_s'])
        self.assertNotEqual(0, host.run('test', '-e', lock,
                                        fail=False).returncode)

    def _two_at_once(self) -> None:
        """One run is at work, the other names it and changes nothing."""
        with futures.ThreadPoolExecutor(2) as pool:
            runs = sorted(pool.map(lambda number: self.site.play(
                'site.yml', '--limit', SECOND, of={SECOND: {
                    'scavenger_host_options': {'agent': {
                        'interval_s': number}}}}), (2.0, 3.0)),
                key=lambda run: run.code)
        for run in runs:
            print(f'one of two runs: {run.took_s:.0f} s, code {run.code}')
        self.assertEqual([set(), {SECOND}], [run.failed for run in runs],
                         runs[0].output[-3000:])
        self.assertIn('Another run is at work', runs[1].output)
        self.assertEqual(0, runs[1].changed[SECOND])
        self.play('the last of two', 'site.yml', '--limit', SECOND)

    def _half_an_upgrade_behind_a_proxy(self) -> None:
        Proxy.file = ansible_site.product(self.site.directory, '0.1.1')
        url = f'http://wheels.invalid/{Proxy.file.name}'
        server = _served(self.site.network)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        proxy = f'http://{debian_hosts.GATEWAY}:{server.server_port}'
        host = self.hosts[SECOND]
        module = '/usr/lib/python3/dist-packages/libvirt.py'
        host.run('cp', module, '/srv/libvirt.py')
        host.write(module, OTHER)
        variables: dict[str, Any] = {
            'scavenger_install_wheel': url,
            'scavenger_install_environment': {'http_proxy': proxy}}
        # It ends between two steps: the release before stays in use.
        run = self.play('another libvirt', 'site.yml', '--limit', SECOND,
                        failed=(SECOND,), **variables)
        self.assertIn('LIBVIRT_11.1.0', run.output)
        self.assertEqual([f'{url}'], Proxy.asked)
        self.assertIn('0.1.0', host.run('scavenger-agent',
                                        '--version').stdout)
        self.assertTrue(self.status(SECOND)['watcher']['running'])
        host.run('cp', '/srv/libvirt.py', module)
        self.play('the upgrade goes on', 'site.yml', '--limit', SECOND,
                  **variables)
        self.assertIn('0.1.1', host.run('scavenger-agent',
                                        '--version').stdout)
        environment = host.run(
            'sh', '-c', 'cat /proc/$(systemctl show -P MainPID '
            'scavenger-agent)/environ').stdout
        self.assertNotIn('proxy', environment)
        self.assertEqual('2', host.run(
            'sh', '-c', 'ls /opt/scavenger/host/releases | wc -l'
        ).stdout.strip())

    def _away(self, before: dict[str, list[str]]) -> None:
        self.play('one host enforces once more', 'site.yml', '--limit',
                  FIRST, of={FIRST: {'scavenger_host_mode': 'enforce'}})
        self.wait_for('a limit is in force',
                      lambda: self.idle(FIRST) == '1', 60)
        purge: dict[str, Any] = {
            'scavenger_host_purge': True, 'scavenger_control_purge': True}
        self.play('away', 'remove.yml', **purge)
        self.assertEqual('0', self.idle(FIRST))
        self.assertEqual(before, self.left())
        host = self.hosts[CONTROLLER]
        users = host.run('rabbitmqctl', '--quiet', 'list_users').stdout
        for name in ('scavenger', FIRST, SECOND):
            self.assertNotIn(name, users)
        self.assertNotIn('scavenger', host.run(
            'rabbitmqctl', '--quiet', 'list_vhosts').stdout)
        self.assertEqual('', host.run(
            'mysql', '-NBe', "SELECT user FROM mysql.user WHERE user = "
            "'scavenger' UNION SELECT schema_name FROM "
            "information_schema.schemata WHERE schema_name = 'scavenger'"
        ).stdout)
        self.assertIn('ValueError', host.run(
            'python3', '-c', API, fail=False).stderr)
        run = self.play('away again', 'remove.yml', **purge)
        self.assertEqual({0}, set(run.changed.values()), run.output)


def _served(network: debian_hosts.Network
            ) -> http.server.ThreadingHTTPServer:
    """A proxy in the network of the hosts."""
    server = http.server.ThreadingHTTPServer(
        (debian_hosts.GATEWAY, 0), Proxy, bind_and_activate=False)
    server.socket.close()
    server.socket = namespaces.socket_in(network.name)
    server.server_bind()
    server.server_activate()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server
