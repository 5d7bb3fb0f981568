# SPDX-License-Identifier: Apache-2.0

"""What a host may cost, by a clock that is moved."""

from __future__ import annotations

import fixtures
import testtools

from scavenger_openstack.conductor.admission import accounts
from scavenger_openstack import errors
from scavenger_openstack.wire import report as wire

DAY_S = 86_400.0
SPOOL_BYTES = 16 << 20
"""``[conductor] spool_mib``."""
ENTRY_BYTES = 500

ONE = accounts.Sender('node-1')


class Accounts(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.now_s = 1000.0
        self.accounts = accounts.Accounts(lambda: self.now_s)

    def sent(self, sender: accounts.Sender = ONE, size: int = 1000,
             taken: bool = True, **amounts: float) -> bool:
        """Whether a report was worked on; it costs so much."""
        try:
            self.accounts.begin(sender, size)
        except errors.Busy:
            return False
        try:
            self.accounts.has_rows(sender, needed=True)
        except errors.Busy:
            self.accounts.end(sender, True, {})
            return False
        self.accounts.end(sender, taken, amounts)
        return True

    def test_a_day_without_a_conductor(self) -> None:
        """The spool is full; it is sent as fast as the agent can, where each
        entry costs 0.5 ms and one a minute is for the audit."""
        entries = SPOOL_BYTES // ENTRY_BYTES
        for _ in range(0, entries, wire.MAX_ENTRIES):
            self.assertTrue(self.sent(
                size=wire.MAX_REPORT_BYTES // 2, rows=wire.MAX_ENTRIES,
                cpu_s=0.0005 * wire.MAX_ENTRIES,
                audit=1440 * wire.MAX_ENTRIES / entries))

    def test_what_an_honest_host_costs(self) -> None:
        """The same again and again: a report in 10 s, and in each a list of
        workloads one of which is new."""
        for _ in range(int(DAY_S / 10)):
            self.now_s += 10.0
            self.assertTrue(self.sent(size=82_000, cpu_s=0.03, rows=5,
                                      audit=0.1))

    def test_more_than_a_host_may_cost(self) -> None:
        """Of each kind; and what it costs in an hour is bounded."""
        for name, amount in (('cpu_s', 2.0), ('rows', 25_000), ('audit', 500),
                             ('size', 1 << 20)):
            self.accounts = accounts.Accounts(lambda: self.now_s)
            rate = accounts.HOST.get(name, accounts.HOST[accounts.BYTES])
            count = 0
            for _ in range(36_000):
                self.now_s += 0.1
                count += self.sent(**{
                    name: amount})              # type: ignore[arg-type]
            self.assertLessEqual(count * amount, rate.most
                                 + 3601 * rate.per_s + amount, name)
            self.assertGreater(count, 0)
            # No other host waits.
            self.assertTrue(self.sent(accounts.Sender('node-2')))
            self.now_s += 25_000 / accounts.HOST[accounts.ROWS].per_s
            self.assertTrue(self.sent(), name)

    def test_what_adds_rows_is_refused_by_its_size(self) -> None:
        """Once there are too many, before it is decoded: but for one a
        minute, so that its host has directives."""
        self.assertTrue(self.sent(rows=60_000))
        taken = 0
        for _ in range(600):
            self.now_s += 1
            try:
                self.accounts.begin(ONE, accounts.LIGHT_BYTES + 1)
            except errors.Busy:
                continue
            taken += 1
            self.accounts.end(ONE, True, {})
        self.assertIn(taken, (10, 11))
        self.accounts.begin(ONE, accounts.LIGHT_BYTES)

    def test_one_report_of_a_host_at_once(self) -> None:
        self.assertTrue(self.sent())
        self.accounts.begin(ONE, 1)
        self.assertRaises(errors.Busy, self.accounts.begin, ONE, 1)
        # Nor any that says it is of this host, and may not be.
        self.assertFalse(self.sent(accounts.Sender('node-1', 'other')))
        self.assertTrue(self.sent(accounts.Sender('node-2')))
        self.accounts.end(ONE, True, {})
        self.assertTrue(self.sent())

    def test_senders_that_are_not_known(self) -> None:
        """They share what there is for them; those that are known, and 10,000
        that start at once, go on."""
        self.assertTrue(self.sent())
        for number in range(20_000):
            self.sent(accounts.Sender(f'invented-{number}'), taken=False)
        self.assertFalse(self.sent(accounts.Sender('invented'), taken=False))
        self.assertTrue(self.sent())
        waiting = {accounts.Sender(f'node-{number}')
                   for number in range(10_000)}
        for _ in range(6):
            self.now_s += 10.0
            waiting = {one for one in waiting if not self.sent(one)}
        self.assertEqual(set(), waiting)

    def test_what_costs_much_and_is_not_taken(self) -> None:
        count = 0
        for number in range(36_000):
            self.now_s += 0.1
            count += self.sent(accounts.Sender(f'invented-{number}'),
                               taken=False, cpu_s=1.0)
        rate = accounts.NEWCOMERS[accounts.CPU]
        self.assertLessEqual(count, rate.most + 3601 * rate.per_s + 1)

    def test_names_that_are_new(self) -> None:
        """10,000 at once; of those that Nova does not have a few."""
        def admitted(has_service: bool | None, count: int) -> int:
            done = 0
            for number in range(count):
                sender = accounts.Sender(f'invented-{number}')
                try:
                    self.accounts.check_newcomer(sender.host, has_service)
                except errors.Busy:
                    continue
                self.accounts.end(sender, False, {}, [has_service])
                self.accounts.end(sender, True, {}, [has_service])
                done += 1
            return done

        self.assertEqual(50_000, admitted(True, 50_000))
        self.assertEqual(accounts.WITHOUT_SERVICE.most,
                         admitted(False, 50_000))
        self.assertLessEqual(10_000, admitted(None, 10_000))
        self.assertEqual(accounts.WITHOUT_NOVA.most,
                         10_000 + admitted(None, 50_000))
        self.now_s += DAY_S
        self.assertEqual(20, admitted(False, 1000))

    def test_accounts_that_are_kept(self) -> None:
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.conductor.admission.accounts.MOST_SENDERS',
            100))
        for number in range(1000):
            self.now_s += 1.0
            self.assertTrue(self.sent(ONE, cpu_s=0.01))
            self.assertTrue(self.sent(accounts.Sender(f'node-{number}', 'x')))
        self.assertTrue(self.sent(ONE, rows=60_000))
        self.assertFalse(self.sent(ONE))
