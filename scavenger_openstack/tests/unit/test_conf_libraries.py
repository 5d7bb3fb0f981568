# SPDX-License-Identifier: Apache-2.0

"""Files as deployment tools write them: what is of libraries is no fault."""

from __future__ import annotations

import contextlib
import io
import pathlib
from typing import Any

import fixtures
from oslo_config import cfg
import testtools

from scavenger_openstack.cmd import manage
from scavenger_openstack import conf as conf_
from scavenger_openstack.conf import check as conf_check
from scavenger_openstack.conf import libraries as conf_libraries
from scavenger_openstack import errors
from scavenger_openstack import rpc
from scavenger_openstack import state_report

KOLLA = """\
[DEFAULT]
debug = False
state_path = /var/lib/scavenger
log_dir = {top}
host = 192.0.2.11
transport_url = rabbit://openstack:secret@192.0.2.11:5672//

[database]
connection = sqlite:///{top}/database
connection_recycle_time = 10
max_pool_size = 1
max_retries = -1

[keystone_authtoken]
service_type = interference
www_authenticate_uri = http://192.0.2.10:5000
auth_url = http://192.0.2.10:5000
auth_type = password
project_domain_name = Default
user_domain_name = Default
project_name = service
username = scavenger
password = secret
service_token_roles_required = true
cafile =
region_name = RegionOne
memcache_security_strategy = ENCRYPT
memcache_secret_key = secret
memcached_servers = 192.0.2.11:11211

[openstack]
auth_section = service_user

[service_user]
send_service_user_token = true
auth_url = http://192.0.2.10:5000
auth_type = password
project_domain_id = default
user_domain_id = default
project_name = service
username = scavenger
password = secret

[oslo_concurrency]
lock_path = /var/lib/scavenger/tmp

[oslo_middleware]
enable_proxy_headers_parsing = true

[oslo_messaging_notifications]
transport_url = rabbit://openstack:secret@192.0.2.11:5672//
driver = noop

[oslo_messaging_rabbit]
heartbeat_in_pthread = false
ssl = true
rabbit_quorum_queue = true

[oslo_policy]
policy_file = policy.yaml

[profiler]
enabled = true
hmac_keys = secret

[coordination]
backend_url = redis://192.0.2.11:6379
"""
"""What the roles of kolla-ansible for services of this kind have in common.
"""

ANSIBLE = """\
[DEFAULT]
debug = True
auth_strategy = keystone
use_journal = True
fatal_deprecations = False
fatal_exception_format_errors = false
log_file = scavenger.log
my_ip = 172.29.236.100
rpc_response_timeout = 60
executor_thread_pool_size = 64
transport_url = rabbit://scavenger:secret@172.29.239.1:5671//scavenger?ssl=1

[api]
port = 8799

[cache]
enabled = true
backend = oslo_cache.memcache_pool

[database]
connection = sqlite:///{top}/database
max_overflow = 50
max_pool_size = 5
pool_timeout = 30
connection_recycle_time = 600

[keystone_authtoken]
auth_type = password
auth_url = https://172.29.236.101:5000/v3
www_authenticate_uri = https://172.29.236.101:5000
project_domain_id = default
user_domain_id = default
project_name = service
username = scavenger
password = secret
insecure = False
region_name = RegionOne
service_token_roles = service
service_type = interference
token_cache_time = 300
memcached_servers = 172.29.236.102:11211
memcache_security_strategy = ENCRYPT

[oslo_concurrency]
lock_path = /run/lock/scavenger

[oslo_messaging_rabbit]
ssl = True
rabbit_stream_fanout = True
rabbit_qos_prefetch_count = 1
use_queue_manager = True
"""
"""The same of openstack-ansible."""


class Files(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.file = self.top / 'scavenger.conf'
        self.log = self.useFixture(fixtures.FakeLogger(
            'scavenger_openstack.conf'))

    def load(self, text: str, *registrations: Any) -> cfg.ConfigOpts:
        self.file.write_text(text.format(top=self.top))
        conf = cfg.ConfigOpts()
        for register in (conf_.register, *registrations):
            register(conf)
        conf_.load(conf, ['--config-file', str(self.file)], 'test')
        return conf

    def test_they_are_taken_by_every_program(self) -> None:
        for text in (KOLLA, ANSIBLE):
            for registrations in ((), (rpc.register, state_report.register)):
                self.load(text, *registrations)

    def test_what_is_ignored_is_logged_with_what_to_use(self) -> None:
        for text, ignored, taken in (
                (KOLLA, ('[DEFAULT] host (use [agent] host)',
                         '[database] connection_recycle_time',
                         '[database] max_pool_size (use [database] '
                         'max_connections)', '[oslo_concurrency]',
                         '[profiler]'),
                 ('transport_url', '[service_user]', '[oslo_policy]',
                  '[keystone_authtoken]', 'secret')),
                (ANSIBLE, ('[cache]', '[DEFAULT] my_ip',
                           '[database] max_overflow'),
                 ('rpc_response_timeout', '[oslo_messaging_rabbit]',
                  'secret'))):
            sentence, = conf_libraries.unused(
                conf_check.files(self.load(text)))
            for words in (str(self.file), *ignored):
                self.assertIn(words, sentence)
            for words in taken:
                self.assertNotIn(words, sentence)
            conf_.log_unused(self.load(text))
            self.assertEqual(1, self.log.output.count(sentence))
        self.assertEqual([], list(conf_libraries.unused(
            conf_check.files(self.load('[agent]\nhost = x\n')))))

    def test_a_command_prints_it_and_works(self) -> None:
        self.file.write_text(KOLLA.format(top=self.top))
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = manage.main(['db', 'upgrade', '--config-file',
                                str(self.file)])
        self.assertEqual(0, code, err.getvalue())
        self.assertIn('the tables have version', out.getvalue())
        self.assertEqual(1, len(err.getvalue().splitlines()))
        self.assertIn('[oslo_concurrency]', err.getvalue())

    def test_sections_and_options_of_ours_are_still_checked(self) -> None:
        """Nor is an option of a library proposed."""
        for text, finding in (
                ('[database]\nconection = x', 'did you mean connection?'),
                ('[database]\nmax_pool_sizes = 1', 'no such option'),
                ('[DEFAULT]\nstate_pat = /x', 'did you mean state_dir?'),
                ('[api]\nhost = 192.0.2.1', '[agent] host is one'),
                ('[oslo_concurency]\nlock_path = /x', 'no such section'),
                ('[agent]\nlock_path = /x', 'no such option')):
            exc = self.assertRaises(errors.ConfigError, self.load, text)
            self.assertIn(finding, str(exc), text)
            for word in ('max_pool_size?', 'lock_path is', 'oslo_concurrency'):
                self.assertNotIn(word, str(exc))

    def test_a_section_that_keystoneauth_is_told_of(self) -> None:
        self.load('[openstack]\nauth_section = mine\n[mine]\nusername = x\n')
        self.assertRaises(errors.ConfigError, self.load,
                          '[mine]\nusername = x\n')
