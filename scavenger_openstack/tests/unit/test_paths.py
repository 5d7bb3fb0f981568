# SPDX-License-Identifier: Apache-2.0

"""Agent, restorer and units look in the same places.

The restorer shares no module with the options, so that it runs when all
else is broken; the price is that both name the same directories.
"""

from __future__ import annotations

import pathlib

import fixtures
from oslo_config import cfg
import testtools

from scavenger_openstack import conf as conf_
from scavenger_openstack.conf import agent as conf_agent
from scavenger_openstack.ibench.host import lock
from scavenger_openstack.restore import program

ETC = pathlib.Path(__file__).parents[3] / 'etc'


class Paths(testtools.TestCase):

    def test_agent_and_restorer(self) -> None:
        self.assertEqual(program.STATE_DIR, conf_agent.DEFAULT_STATE_DIR)
        self.assertEqual(program.STOP_FILE, conf_agent.DEFAULT_STOP_FILE)

    def test_files_follow_the_state_directory(self) -> None:
        """However it is spelt: tab completion ends it with a slash."""
        default = ('/var/lib/scavenger/stop',
                   '/var/lib/scavenger/history')
        link = pathlib.Path(self.useFixture(fixtures.TempDir()).path) / 'run'
        link.symlink_to('/run')
        for state_dir, expected in (
                ('/run/scavenger', default), ('/run/scavenger/', default),
                ('/run//scavenger/.', default),
                ('/run/x/../scavenger', default),
                (f'{link}/scavenger', default),
                ('/x/', ('/x/stop', '/x/history')),
                ('/run/scavenger/x', ('/run/scavenger/x/stop',
                                      '/run/scavenger/x/history'))):
            conf = cfg.ConfigOpts()
            conf_.register(conf)
            conf(['--state-dir', state_dir], default_config_files=[],
                 default_config_dirs=[])
            self.assertEqual(expected, (str(conf_.stop_file(conf)),
                                        str(conf_.history_dir(conf))),
                             state_dir)
            self.assertEqual(expected[0],
                             program.default_stop_file(state_dir))

    def test_units_make_them(self) -> None:
        state = pathlib.Path(conf_agent.DEFAULT_STATE_DIR)
        stop = pathlib.Path(conf_agent.DEFAULT_STOP_FILE).parent
        for unit in ('scavenger-agent', 'scavenger-restore'):
            lines = (ETC / f'systemd/{unit}.service').read_text().split('\n')
            self.assertIn(f'RuntimeDirectory={state.relative_to("/run")}',
                          lines)
            self.assertIn(f'StateDirectory={stop.relative_to("/var/lib")}',
                          lines)
        made = {line.split()[1] for line in
                (ETC / 'tmpfiles.d/scavenger.conf').read_text().split('\n')
                if line.startswith('d ')}
        self.assertEqual({str(state), str(stop)}, made)

    def test_what_profiles_lock_is_there(self) -> None:
        """The unit of the agent lets it make no file in that directory."""
        self.assertIn(f'f {lock.FILE} 0644 root root -', (
            ETC / 'tmpfiles.d/scavenger.conf').read_text().split('\n'))
