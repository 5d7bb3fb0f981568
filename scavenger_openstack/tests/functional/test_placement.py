# SPDX-License-Identifier: Apache-2.0

"""Background providers in a real Placement, on SQLite and without Keystone."""

from __future__ import annotations

from typing import Any
import uuid

import fixtures
from keystoneauth1 import adapter
import testtools

from scavenger_openstack.conductor import placement
from scavenger_openstack.conductor.placement import Amount
from scavenger_openstack.conductor.placement import MEMORY_MIB
from scavenger_openstack.conductor.placement import VCPU
from scavenger_openstack.conductor import placement_api
from scavenger_openstack import errors
from scavenger_openstack.tests.functional.openstack import packages
from scavenger_openstack.tests.functional import placement_server
from scavenger_openstack.tests.functional.servers import process

SOME = {VCPU: Amount(4, 0), MEMORY_MIB: Amount(2048, 0)}


class Racing(adapter.Adapter):
    """A client; before some writes of the provider another one writes it.

    Each write of another makes a new generation.

    :param times: before so many tries of each write, then no more
    """

    def __init__(self, raw: adapter.Adapter, provider: str, times: int
                 ) -> None:
        super().__init__(raw.session)
        self._raw = raw
        self._path = f'/resource_providers/{provider}'
        self._times = times
        self._done = 0

    def request(self, url: str, method: str, **more: Any) -> Any:
        if method == 'PUT' and url.startswith(self._path):
            if self._done < self._times:
                self._done += 1
                self._write(more['headers'])
            else:
                self._done = 0
        return self._raw.request(url, method, **more)

    def _write(self, headers: dict[str, str]) -> None:
        path = f'{self._path}/aggregates'
        has = self._raw.request(path, 'GET', headers=headers).json()
        self._raw.request(path, 'PUT', headers=headers, json={
            'aggregates': [str(uuid.uuid4())], 'resource_provider_generation':
                has['resource_provider_generation']})


class Asked(fixtures.Fixture):
    """Which requests a client makes."""

    def __init__(self, raw: adapter.Adapter) -> None:
        self._raw = raw
        self.methods: list[str] = []

    def _setUp(self) -> None:
        ask = self._raw.request

        def request(url: str, method: str, **more: Any) -> Any:
            self.methods.append(method)
            return ask(url, method, **more)

        self.useFixture(fixtures.MonkeyPatch(
            'keystoneauth1.adapter.Adapter.request',
            lambda _, *words, **more: request(*words, **more)))


class Providers(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        try:
            self.server, url = placement_server.server()
        except (packages.Unavailable, process.Missing) as exc:
            self.skipTest(str(exc))
        self.raw = placement_server.client(url)
        self.placement = placement_api.Placement(self.raw)
        self.placement.prepare()
        self.host = f'host-{uuid.uuid4().hex[:8]}'
        self.root = self.ask('POST', '/resource_providers',
                             {'name': self.host})['uuid']

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """As Nova does it."""
        answer = self.raw.request(
            path, method, json=body, raise_exc=False, headers={
                'OpenStack-API-Version': 'placement 1.39'})
        return answer.json() if answer.content else {}

    def child(self) -> str:
        return self.placement.make_child(self.host, self.root)

    def write(self, child: str, inventory: placement.Inventory) -> None:
        self.placement.write(child, lambda _: inventory, None)

    def allocate(self, child: str, vcpu: int) -> str:
        """Give an instance some of the background inventory."""
        consumer = str(uuid.uuid4())
        self.ask('PUT', f'/allocations/{consumer}', {
            'allocations': {child: {'resources': {VCPU: vcpu}}},
            'project_id': 'p', 'user_id': 'u', 'consumer_generation': None,
            'consumer_type': 'INSTANCE'})
        self.addCleanup(self.ask, 'DELETE', f'/allocations/{consumer}')
        return consumer

    def candidates(self, vcpu: int) -> set[str]:
        """The background providers that have so much to give."""
        found = self.ask('GET', '/allocation_candidates?resources='
                                f'{VCPU}:{vcpu}')
        return set(found['provider_summaries'])

    def test_prepared_twice(self) -> None:
        self.placement.prepare()
        classes = {one['name'] for one in self.ask(
            'GET', '/resource_classes')['resource_classes']}
        self.assertLessEqual(set(placement.CLASSES), classes)

    def test_one_child_for_each_host(self) -> None:
        child = self.child()
        self.assertEqual(child, self.child())
        roots, children = self.placement.listed()
        self.assertEqual(child, children[self.host])
        self.assertEqual(self.root, roots[self.host])
        self.assertNotIn(self.host + placement.SUFFIX, roots)

    def test_a_child_of_another_host(self) -> None:
        """A host that was deleted and made again in between."""
        self.child()
        other = self.ask('POST', '/resource_providers', {
            'name': self.host + '-again'})['uuid']
        self.assertRaises(placement_api.Refused, self.placement.make_child,
                          self.host, other)

    def test_what_is_offered_can_be_had(self) -> None:
        child = self.child()
        self.write(child, SOME)
        self.assertEqual(SOME, self.placement.inventory(child))
        self.assertIn(child, self.candidates(4))
        self.assertNotIn(child, self.candidates(5))

    def test_nothing_is_offered(self) -> None:
        child = self.child()
        self.write(child, {name: placement.amount(0.0, 0)
                           for name in placement.CLASSES})
        self.assertNotIn(child, self.candidates(1))

    def test_less_than_what_is_allocated(self) -> None:
        """What is there stays, nothing comes, and it grows again."""
        child = self.child()
        self.write(child, SOME)
        self.allocate(child, 3)
        allocated = self.placement.usage(child).allocated
        self.assertEqual(3, allocated[VCPU])
        for level, more in ((1.0, False), (0.0, False), (4.0, True)):
            self.write(child, {
                VCPU: placement.amount(level, allocated[VCPU]),
                MEMORY_MIB: Amount(2048, 0)})
            self.assertEqual(more, child in self.candidates(1), str(level))
            self.assertEqual(3, self.placement.usage(child).allocated[VCPU])

    def test_traits_of_others_stay(self) -> None:
        generation = self.ask('GET', f'/resource_providers/{self.root}'
                              )['generation']
        self.ask('PUT', f'/resource_providers/{self.root}/traits', {
            'traits': ['HW_CPU_X86_AVX'],
            'resource_provider_generation': generation})
        for wanted in ({'CUSTOM_SCAVENGER_GRADE_B', placement.INTERFERENCE},
                       {'CUSTOM_SCAVENGER_GRADE_B'}, set()):
            self.placement.set_traits(self.root, frozenset(wanted))
            self.assertEqual(
                {'HW_CPU_X86_AVX', *wanted}, set(self.ask(
                    'GET', f'/resource_providers/{self.root}/traits'
                    )['traits']))

    def test_others_write_in_between(self) -> None:
        """Such a write is made again, from what is there then."""
        child = self.child()
        for times in (1, placement_api.TRIES - 1):
            other = placement_api.Placement(Racing(self.raw, child, times))
            other.write(child, lambda _: SOME, None)
            other.set_traits(child, frozenset({placement.INTERFERENCE}))
            self.assertEqual(SOME, self.placement.inventory(child))
            other.write(child, lambda _: dict.fromkeys(SOME, Amount(1, 1)),
                        None)
            other.set_traits(child, frozenset())

    def test_others_write_always(self) -> None:
        child = self.child()
        other = placement_api.Placement(
            Racing(self.raw, child, placement_api.TRIES))
        refused = self.assertRaises(placement_api.Refused, other.write,
                                    child, lambda _: SOME, None)
        self.assertIn('changed by others', str(refused))

    def test_what_is_known_of_a_generation(self) -> None:
        """Without another allocation nothing is read; with one, it counts."""
        child = self.child()
        _, usage = self.placement.write(child, lambda _: SOME, None)
        asked = self.useFixture(Asked(self.raw))
        _, usage = self.placement.write(
            child, lambda allocated: placement.inventory(placement.State(
                {VCPU: 3.0, MEMORY_MIB: 2048.0}), allocated), usage)
        self.assertEqual(['PUT'], asked.methods)
        self.allocate(child, 3)
        del asked.methods[:]
        inventory, _ = self.placement.write(
            child, lambda allocated: placement.inventory(placement.State(
                {VCPU: 1.0, MEMORY_MIB: 2048.0}), allocated), usage)
        self.assertEqual(['PUT', 'GET', 'PUT'], asked.methods)
        self.assertEqual(Amount(3, 2), inventory[VCPU])

    def test_a_provider_by_its_name(self) -> None:
        child = self.child()
        self.assertEqual(self.root, self.placement.root(self.host))
        for name in (self.host[:-1], self.host + placement.SUFFIX,
                     f'{self.host}&in_tree={child}', 'a b/ü%'):
            self.assertIsNone(self.placement.root(name), name)

    def test_another_conflict_is_not_tried_again(self) -> None:
        """A class that is in use cannot be left out: that is no race."""
        child = self.child()
        self.write(child, SOME)
        self.allocate(child, 1)
        refused = self.assertRaises(
            placement_api.Refused, self.write, child,
            {MEMORY_MIB: Amount(2048, 0)})
        self.assertEqual(409, refused.status)

    def test_removed(self) -> None:
        """Placement is as it was found; what is in use stays, and is said."""
        child = self.child()
        self.write(child, SOME)
        self.placement.set_traits(self.root, frozenset({
            'CUSTOM_SCAVENGER_GRADE_A'}))
        consumer = self.allocate(child, 1)
        stays = self.placement.remove()
        self.assertIn(f'{self.host}{placement.SUFFIX}: instances have '
                      'allocations of it', ' '.join(stays))
        self.ask('DELETE', f'/allocations/{consumer}')
        self.assertEqual([], self.placement.remove())
        self.assertEqual([], self.placement.remove())
        self.assertEqual([], self.ask(
            'GET', f'/resource_providers/{self.root}/traits')['traits'])
        for what, ours in (('traits', placement.TRAITS),
                           ('resource_classes', placement.CLASSES)):
            self.assertNotIn(ours[0], str(self.ask('GET', f'/{what}')))

    def test_not_there(self) -> None:
        self.server.stop()
        self.addCleanup(self.server.begin)
        self.assertRaises(errors.Unreachable, self.placement.listed)
