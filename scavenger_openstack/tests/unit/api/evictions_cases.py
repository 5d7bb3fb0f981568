# SPDX-License-Identifier: Apache-2.0

"""``/v1/evictions``, on whatever database ``engine`` is."""

from __future__ import annotations

import threading
from typing import Any
from typing import TYPE_CHECKING

from sqlalchemy import update

from scavenger_openstack.db import connect
from scavenger_openstack.db import evictions
from scavenger_openstack.db import tables
from scavenger_openstack.tests.unit.api import cloud

if TYPE_CHECKING:
    Base = cloud.Api
else:
    Base = object


class Evictions(Base):

    WISH = {'instance': cloud.NOISY, 'how': 'stop', 'reason': 'it disturbs'}

    def actions(self) -> list[str]:
        return [row['action'] for row in self.ok(
            'GET', f'/v1/audit?target={cloud.NOISY}')['audit']]

    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ok(
            'GET', f'/v1/evictions?instance={cloud.NOISY}&state=asked'
            )['evictions']
        return found

    def test_asked(self) -> None:
        made = self.ok('POST', '/v1/evictions', self.WISH)['eviction']
        self.assertEqual(
            (cloud.HOST, cloud.OTHER, 'asked', 'ann', 'it disturbs'),
            tuple(made[name] for name in (
                'host', 'project', 'state', 'created_by', 'reason')))
        self.assertEqual(made, self.ok(
            'GET', f'/v1/evictions/{made["id"]}')['eviction'])
        self.assertEqual([made], self.rows())
        self.assertEqual(['eviction.ask'], self.actions())
        self.refused(409, 'POST', '/v1/evictions', self.WISH)

    def test_two_at_once(self) -> None:
        """The second waits for the first, and is refused."""
        statuses: list[int] = []
        second = threading.Thread(target=lambda: statuses.append(self.call(
            'POST', '/v1/evictions', self.WISH).status_code))
        with connect.writing(self.engine) as connection:
            evictions.add(
                connection, uuid='f' * 32, instance=cloud.NOISY,
                host=cloud.HOST, project=cloud.OTHER, how='stop', reason='',
                created_by='policy', created_s=cloud.NOW_S, state='asked',
                detail='', changed_s=cloud.NOW_S)
            second.start()
            second.join(0.5)
        second.join()
        self.assertEqual([409], statuses)
        self.assertEqual(1, len(self.rows()))

    def test_again_after_it_has_ended(self) -> None:
        self.ok('POST', '/v1/evictions', self.WISH)
        with connect.writing(self.engine) as connection:
            [row] = evictions.unfinished(connection, cloud.NOISY)
            evictions.move(connection, row['id'], 'asked', 'failed', '',
                           cloud.NOW_S)
        self.ok('POST', '/v1/evictions', self.WISH)

    def test_a_dry_run_changes_nothing(self) -> None:
        made = self.ok('POST', '/v1/evictions', {**self.WISH, 'dry_run': True}
                       )['eviction']
        self.assertEqual(('', 'dry run', cloud.HOST), tuple(
            made[name] for name in ('id', 'state', 'host')))
        self.assertEqual(([], []), (self.rows(), self.actions()))

    def test_never_the_foreground(self) -> None:
        for dry_run in (True, False):
            error = self.refused(409, 'POST', '/v1/evictions', {
                **self.WISH, 'instance': cloud.VICTIM, 'dry_run': dry_run})
            self.assertIn('foreground', error['detail'])

    def test_not_there(self) -> None:
        self.refused(404, 'POST', '/v1/evictions', {
            **self.WISH, 'instance': '3' * 8 + cloud.NOISY[8:]})
        self.refused(404, 'GET', f'/v1/evictions/{"0" * 32}')
        self.refused(400, 'POST', '/v1/evictions', {**self.WISH,
                                                    'how': 'delete'})

    def test_no_conductor_would_do_it(self) -> None:
        with connect.writing(self.engine) as connection:
            connection.execute(update(tables.claims).values(
                expires_s=cloud.NOW_S - 9000))
        error = self.refused(409, 'POST', '/v1/evictions', self.WISH)
        self.assertIn('[nova] enabled', error['detail'])
