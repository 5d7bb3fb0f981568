# SPDX-License-Identifier: Apache-2.0

"""The page from packages to enforce: what it says can be typed."""

from __future__ import annotations

from collections.abc import Iterator
import pathlib
import re
import shlex

import fixtures
from openstackclient import shell
from oslo_config import cfg
import testtools

from scavenger_openstack.cmd import manage
from scavenger_openstack.conductor import sessions
from scavenger_openstack import conf as conf_
from scavenger_openstack.db import connect
from scavenger_openstack.osc import plugin
from scavenger_openstack import rpc

PAGE = pathlib.Path(__file__).parents[3] / 'doc/source/install/cloud.rst'

OURS = ('antagonist', 'interference')


def blocks(ini: bool) -> Iterator[str]:
    """Its literal blocks, without their indent.

    :param ini: those that are files, else those that are commands
    """
    start = r'\.\. code-block:: ini' if ini else r'[^\n]*::'
    for found in re.finditer(
            rf'^{start}\n\n((?: {{4}}[^\n]*\n|\n)+)', PAGE.read_text(), re.M):
        yield re.sub('^ {4}', '', found[1], flags=re.M)


def commands(program: str) -> Iterator[list[str]]:
    """The words that follow it, of each line that begins with it."""
    for block in blocks(ini=False):
        for line in block.splitlines():
            words = shlex.split(line)
            if words[:1] == [program]:
                yield words[1:]


class Page(testtools.TestCase):

    def conf(self, text: str) -> cfg.ConfigOpts:
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'f')
        path.write_text(text)
        conf = cfg.ConfigOpts()
        conf_.register(conf)
        conf_.load(conf, ['--config-file', str(path)], 'scavenger-conductor')
        return conf

    def test_files(self) -> None:
        control, agent, protect, placement = blocks(ini=True)
        conf = self.conf(control + placement)
        self.assertTrue(conf.nova.enabled and conf.placement.enabled)
        self.assertEqual('https://controller:5000',
                         vars(sessions.make_session(conf).auth)['auth_url'])
        conf = self.conf(agent + protect)
        self.assertTrue(conf.conductor.enabled)
        self.assertEqual(['cpu'], conf.agent.protect)
        self.assertIsNone(conf.database.connection)

    def test_nothing_crosses_the_network_in_the_clear(self) -> None:
        """Broker and database show a certificate, which is checked."""
        for text in list(blocks(ini=True))[:2]:
            conf = self.conf(text)
            rpc.register(conf)
            self.assertIn(':5671/', conf.transport_url)
            self.assertTrue(conf.oslo_messaging_rabbit.ssl)
            self.assertTrue(conf.oslo_messaging_rabbit.ssl_ca_file)
            if conf.database.connection:
                engine = connect.engine(conf.database.connection)
                _, options = engine.dialect.create_connect_args(engine.url)
                self.assertEqual(conf.oslo_messaging_rabbit.ssl_ca_file,
                                 options['ssl']['ca'])

    def test_users_and_modes(self) -> None:
        """What has a password is for the user whose program reads it."""
        modes: dict[str, set[tuple[str, str]]] = {}
        for (mode, *files), (owner, *owned) in zip(
                commands('chmod'), commands('chown'), strict=True):
            self.assertEqual(files, owned)
            for path in files:
                modes.setdefault(path, set()).add((mode, owner))
        self.assertEqual(
            {'/etc/scavenger/scavenger.conf': {
                ('640', 'root:scavenger-control'),
                ('600', 'scavenger:scavenger')},
             '/etc/scavenger/token': {('600', 'scavenger:scavenger')}}, modes)

    def test_manage(self) -> None:
        found = list(commands('scavenger-manage'))
        self.assertIn(['db', 'upgrade'], found)
        for words in found:
            manage.parser().parse_args(words)

    def test_openstack(self) -> None:
        found = [words for words in commands('openstack')
                 if words[0] in OURS]
        self.assertGreater(len(found), 8)
        app = shell.OpenStackShell()
        app.command_manager.add_command_group(
            f'openstack.{plugin.API_NAME}.v1')
        for words in found:
            made, name, arguments = app.command_manager.find_command(words)
            made(app, None, cmd_name=name).get_parser(name).parse_args(
                arguments)
