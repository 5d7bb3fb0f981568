# SPDX-License-Identifier: Apache-2.0

"""Names of VMs beside their UUIDs."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

from oslo_config import cfg
from oslo_log import formatters
from oslo_log import log
import testtools

from scavenger_openstack.agent import names
from scavenger_openstack import conf as conf_
from scavenger_openstack.types import Instance
from scavenger_openstack.types import Priority

UUID = '7f1bb3a0-5f0a-4e6c-8a3e-1a0b6f5b7c01'
OTHER = UUID[:-1] + '2'


def instance(uuid: str, name: str, display_name: str) -> Instance:
    return Instance(uuid, name, display_name, 'm1.small', Priority.BACKGROUND,
                    'flavor', 2, 2 ** 31, True)


class NamesTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.names = names.Names()
        self.names.follow([instance(UUID, 'instance-00000001', 'web'),
                           instance(OTHER, 'instance-00000002', '')])

    def test_each_is_named(self) -> None:
        self.assertEqual(
            f'instance-00000001 (web, {UUID}) and instance-00000002 '
            f'({OTHER}): x', self.names.beside(f'{UUID} and {OTHER}: x'))

    def test_not_twice_and_not_what_is_not_known(self) -> None:
        for text in (f'domain instance-00000001 ({UUID})', '/batch/a',
                     UUID[:-1] + '9'):
            self.assertEqual(text, self.names.beside(text))
            self.assertNotIn('9', str(self.names.of(text)))

    def test_one_that_has_ended_is_named(self) -> None:
        self.names.follow([])
        self.assertIn('web', self.names.beside(UUID))

    def test_so_many_are_remembered(self) -> None:
        for number in range(2 * names.MOST):
            self.names.learn(str(number), 'n', '')
        self.assertEqual(UUID, self.names.beside(UUID))

    def test_there_and_back(self) -> None:
        found = json.loads(json.dumps(self.names.of([OTHER, (UUID,), OTHER])))
        self.assertEqual(
            {OTHER: {'name': 'instance-00000002', 'display_name': ''},
             UUID: {'name': 'instance-00000001', 'display_name': 'web'}},
            found)
        other = names.Names()
        other.read(found)
        self.assertEqual(found, other.of(str(found)))

    def test_a_line_of_the_log(self) -> None:
        """Tenants choose names, terminals obey."""
        self.names.follow([instance(UUID, 'vm7', '\x1b[2J\n' + OTHER)])
        record = logging.LogRecord('n', 20, 'p', 1, '%s is', (UUID,), None)
        self.assertTrue(conf_.LogFilter(self.names.beside).filter(record))
        self.assertEqual(f'vm7 ("\\u001b[2J {OTHER[:27]}", {UUID}) is',
                         record.getMessage())

    def test_a_name_that_could_be_taken_for_the_line(self) -> None:
        for given, quoted in (('a.b-c_1', 'a.b-c_1'), ('\xe9 2', '\xe9 2'),
                              ('web) is idle (x', '"web) is idle (x"'),
                              ('a"', r'"a\""')):
            self.names.follow([instance(UUID, 'vm7', given)])
            self.assertEqual(f'vm7 ({quoted}, {UUID})',
                             self.names.beside(UUID))

    def test_a_traceback(self) -> None:
        self.names.follow([instance(UUID, 'vm7', 'web')])
        try:
            raise ValueError(f'\x1b[2J\n2026-01-01 {UUID} \u2028')
        except ValueError:
            record = logging.LogRecord('n', 40, 'p', 1, 'x', None,
                                       sys.exc_info(), None, 'Stack\n\x1b')
        log_filter = conf_.LogFilter(self.names.beside)
        conf = cfg.ConfigOpts()
        log.register_options(conf)
        for formatter in logging.Formatter(), formatters.ContextFormatter(
                config=conf):
            self.assertTrue(log_filter.filter(record))
            first, *lines = formatter.format(record).split('\n')
            self.assertEqual({'    '}, {line[:4] for line in lines})
            self.assertIn(f'    2026-01-01 vm7 (web, {UUID}) \\u2028', lines)
            self.assertIn('    ValueError: \\x1b[2J', lines)
            self.assertIn('    \\x1b', lines)


class StatusTest(testtools.TestCase):

    def test_each_row_has_the_names_of_its_vms(self) -> None:
        row = {'uuid': UUID, 'name': 'vm7', 'display_name': 'web'}
        document: dict[str, Any] = {
            'instances': [row],
            'caps': [{'workload': UUID}, {'workload': '/batch'}],
            'would': [], 'incidents': [{'victim': OTHER,
                                        'antagonists': [UUID]}]}
        names.complete(document)
        found = {UUID: {'name': 'vm7', 'display_name': 'web'}}
        self.assertEqual(
            [{'workload': UUID, 'names': found}, {'workload': '/batch'}],
            document['caps'])
        self.assertEqual(found, document['incidents'][0]['names'])

    def test_without_vms(self) -> None:
        document: dict[str, Any] = {'caps': [{'workload': UUID}]}
        names.complete(document)
        self.assertEqual({'caps': [{'workload': UUID}]}, document)
