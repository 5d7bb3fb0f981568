# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import sqlalchemy
import testtools

from scavenger_openstack.conductor.admission import accounts
from scavenger_openstack.conductor.admission import keys
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
