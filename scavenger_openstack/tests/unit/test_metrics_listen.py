# SPDX-License-Identifier: Apache-2.0

"""Where metrics may be served."""

from __future__ import annotations

from oslo_config import cfg
import testtools

from scavenger_openstack.metrics import options

ANY = ('0.0.0.0', '0', '0.0', '00.0.0.0', '[::]', '[::0]', '[0::]',
       '[0:0:0:0:0:0:0:0]', '[::0.0.0.0]', '[::ffff:0.0.0.0]', '[::FFFF:0]',
       '[::ffff:0:0]')


class MetricsListen(testtools.TestCase):

    def set(self, text: str) -> str:
        conf = cfg.ConfigOpts()
        conf.register_opt(options.listen_opt('a program', ''))
        conf([], default_config_files=[], default_config_dirs=[])
        conf.set_override('metrics_listen', text)
        return str(conf.metrics_listen)

    def test_an_address_and_a_port(self) -> None:
        for address in ('127.0.0.1', '10.0.0.10', '[::1]', '[fd00::]',
                        '[fe80::f:1]', '[::ffff:10.0.0.1]'):
            for port in (1, 9877, 65535):
                text = f'{address}:{port}'
                self.assertEqual(text, self.set(text))
        self.assertEqual('', self.set(''))

    def test_not_everywhere(self) -> None:
        """VMs and containers would reach it, however that is written."""
        for address in ANY:
            self.assertRaises(ValueError, self.set, f'{address}:9877')

    def test_nothing_else(self) -> None:
        for text in ('127.0.0.1', '127.0.0.1:0', '127.0.0.1:65536', '*:1',
                     'localhost:1', '127.0.0.1:1\n', '::1:9877'):
            self.assertRaises(ValueError, self.set, text)
