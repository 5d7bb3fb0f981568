# SPDX-License-Identifier: Apache-2.0

"""The configurations of the papers, as operators use them."""

from __future__ import annotations

from oslo_config import cfg
import testtools

from scavenger_openstack import conf as conf_package
from scavenger_openstack.laboratory import presets

NAMES = {path.stem for path in conf_package.PRESETS.glob('*.conf')}


class PresetsTest(testtools.TestCase):

    def test_an_agent_takes_each(self) -> None:
        self.assertEqual({'cpi2', 'perfcloud', 'perfiso', 'scavenger_strict'},
                         NAMES)
        for name in NAMES:
            conf = cfg.ConfigOpts()
            conf_package.register(conf)
            conf_package.load(conf, [
                f'--config-file={conf_package.PRESETS / name}.conf'],
                'scavenger-agent')
            self.assertEqual(conf.agent.controllers,
                             list(presets.read(name).controllers))

    def test_none_sets_limits_by_itself(self) -> None:
        for name in NAMES:
            text = (conf_package.PRESETS / f'{name}.conf').read_text()
            self.assertNotIn('enforce', text)

    def test_the_paper_alone_has_nothing_of_ours(self) -> None:
        controllers, fast_loop = presets.read('scavenger_strict')
        self.assertIsNone(fast_loop)
        params = controllers['scavenger']
        self.assertEqual((0, 0, 0, 1), (
            params.min_headroom, params.ipc_min_cores,
            params.ipc_min_deviation, params.ipc_smoothing))
        self.assertEqual(('paper', 2, 60, 2, 30), (
            params.reserve_rule, params.memory_c, params.memory_window_s,
            params.network_c, params.network_window_s))
        self.assertFalse(params.use_cpu_idle or params.use_cpu_leftover)
        self.assertTrue(params.ipc_strict)

    def test_the_fast_loop_is_of_perfiso(self) -> None:
        self.assertIsNotNone(presets.read('perfiso').fast_loop)
        for name in 'cpi2', 'perfcloud':
            self.assertIsNone(presets.read(name).fast_loop)
