# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import fixtures
import sqlalchemy
import testtools

from scavenger_openstack.conductor.admission import accounts
from scavenger_openstack.conductor.admission import keys
from scavenger_openstack.db import enrollment
from scavenger_openstack.db import tables
from scavenger_openstack import errors
from scavenger_openstack.wire import proof


class Replays(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        engine = sqlalchemy.create_engine('sqlite://')
        self.addCleanup(engine.dispose)
        self.keys = keys.Keys(engine, accounts.Accounts())

    def test_the_same_proof(self) -> None:
        sender = proof.Proof('h', 'n', 'p')
        self.keys.check_new(sender)
        self.assertRaises(errors.Unreachable, self.keys.check_new, sender)
        self.keys.check_new(sender._replace(host='other'))
        self.keys.check_new(sender._replace(proof='q'))


class Floods(testtools.TestCase):
    """Senders that invent names, after a start."""

    def setUp(self) -> None:
        super().setUp()
        self.engine = sqlalchemy.create_engine(
            'sqlite://', poolclass=sqlalchemy.StaticPool)
        self.addCleanup(self.engine.dispose)
        tables.METADATA.create_all(self.engine)
        self.tokens = self.enroll(*(f'h{number}' for number in range(50)))
        self.keys = keys.Keys(self.engine, accounts.Accounts(lambda: 0.0))

    def enroll(self, *names: str) -> dict[str, str]:
        with self.engine.begin() as connection:
            return {name: proof.key(enrollment.enroll(
                connection, name, now_s=1.0).token) for name in names}

    def starve(self) -> None:
        for number in range(10 * int(accounts.NEWCOMERS['requests'].most)):
            try:
                self.keys.fitting(f'x{number}', lambda key: False)
            except errors.Busy:
                return
        self.fail('names may be invented without end')

    def test_enrolled_hosts(self) -> None:
        self.starve()
        for name, token in self.tokens.items():
            self.assertEqual(token, self.keys.fitting(
                name, token.__eq__), name)
        self.assertRaises(errors.Busy, self.keys.fitting, 'h1',
                          lambda key: False)

    def test_enrolled_meanwhile(self) -> None:
        self.starve()
        token = self.enroll('new', 'h1')
        for name in token:
            self.assertRaises(errors.Busy, self.keys.fitting, name,
                              token[name].__eq__)
        with fixtures.MonkeyPatch(f'{keys.__name__}.PROVED_S', -1.0):
            self.assertRaises(errors.Busy, self.keys.fitting, 'x',
                              lambda key: False)
        for name in token:
            self.assertEqual(token[name], self.keys.fitting(
                name, token[name].__eq__))
