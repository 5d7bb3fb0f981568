# SPDX-License-Identifier: Apache-2.0

"""The weigher with interference profiles, in Nova's own scheduler."""

from __future__ import annotations

import json
from typing import Any

import fixtures
import nova.conf
from nova import objects
from nova.scheduler import weights as scheduler_weights
from nova import weights as nova_weights

from scavenger_openstack.nova import placed
from scavenger_openstack.nova import summary
from scavenger_openstack.nova import weights
from scavenger_openstack.tests.unit.nova.scheduling import SchedulingCase
from scavenger_openstack.tests.unit.nova.scheduling import spec
from scavenger_openstack.tests.unit.nova.scheduling import states
from scavenger_openstack.tests.unit.nova.scheduling import told

IMAGE = '0b1c7a52-6c1d-4a51-8d65-5f1e6ac0f0aa'

LOUD: dict[str, Any] = {'tolerated': {'tlb': 1.0}, 'caused': {'tlb': 0.75}}
MEEK: dict[str, Any] = {'tolerated': {'tlb': 0.25}, 'caused': {'tlb': 0.0}}


def profile(kind: str, target: str, project: str = '', **levels: Any
            ) -> dict[str, Any]:
    """A profile as the summary shows it."""
    return {'kind': kind, 'target': target, 'project': project, **levels}


def wanted(background: bool = False, application: str = '', project: str = 'p'
           ) -> objects.RequestSpec:
    """An instance of flavor m1, id 42, of an image."""
    request = spec(background)
    request.project_id = project
    request.image = objects.ImageMeta(id=IMAGE)
    request.flavor.update({'name': 'm1', 'flavorid': '42'})
    if application:
        request.flavor.extra_specs['scavenger:application'] = application
    return request


class Profiles(SchedulingCase):

    def weigh(self, request: objects.RequestSpec, *names: str) -> list[float]:
        return self.weigher.weigh_objects(
            [nova_weights.WeighedObject(state, 0.0)
             for state in states(*names)], request)

    def test_away_from_what_it_harms(self) -> None:
        """And from what harms it, as much as ``harm / (1 + harm)``."""
        for newcomer, resident in (LOUD, MEEK), (MEEK, LOUD):
            for background in True, False:
                self.say(told('a', **resident), told('b'),
                         profiles=[profile('flavor', 'm1', **newcomer)])
                request = wanted(background)
                self.assertEqual(['b', 'a'],
                                 self.weighed(request, 'a', 'b'))
                harmed, other = self.weigh(request, 'a', 'b')
                self.assertAlmostEqual(0.5 / 1.5, other - harmed)

    def test_slack_is_no_harm(self) -> None:
        self.say(told('a', **LOUD), told('b'), told('c', tolerated={
            'tlb': 0.75}), profiles=[profile('flavor', 'm1', **LOUD)])
        self.assertEqual([0.0, 0.0, 0.0],
                         self.weigh(wanted(), 'a', 'b', 'c'))

    def test_more_harm_is_always_worse(self) -> None:
        """But an incident that is open is worse than any."""
        sois = 'tlb', 'l1i', 'l1d', 'vector'
        self.say(*(told(f'h{count}', tolerated=dict.fromkeys(
            sois[:count], 0.0)) for count in range(5)),
            told('open', incidents=1), profiles=[profile(
                'image', IMAGE, caused=dict.fromkeys(sois, 1.0))])
        names = ['h0', 'h1', 'h2', 'h3', 'h4', 'open']
        self.assertEqual(names, self.weighed(wanted(), *reversed(names)))

    def test_which_profile_an_instance_has(self) -> None:
        """Application before flavor before image, own project before all."""
        best_first = [
            ('application', 'web', 'p'), ('application', 'web', ''),
            ('flavor', 'm1', 'p'), ('flavor', 'm1', ''),
            ('flavor', '42', 'p'), ('flavor', '42', ''),
            ('image', IMAGE, 'p'), ('image', IMAGE, '')]
        of_others = [('application', 'web', 'q'), ('flavor', 'm2', ''),
                     ('image', 'm1', ''), ('flavor', 'web', 'p')]
        for place in range(len(best_first) + 1):
            self.say(told('a', tolerated={'tlb': 0.0}), profiles=[
                profile(*key, caused={'tlb': 0.25 + number / 16})
                for number, key in [*enumerate(best_first)][place:]] + [
                profile(*key, caused={'tlb': 1.0}) for key in of_others])
            [weight] = self.weigh(wanted(application='web'), 'a')
            harm = 0.25 + place / 16 if place < len(best_first) else 0.0
            self.assertAlmostEqual(-harm / (1 + harm), weight, 9, str(place))

    def test_a_request_without_a_project_or_image(self) -> None:
        self.say(told('a', **MEEK), profiles=[
            profile('application', 'web', **LOUD),
            profile('flavor', '', **LOUD), profile('image', '', **LOUD)])
        self.assertEqual([0.0], self.weigh(spec(background=False), 'a'))
        request = spec(background=False)
        request.flavor.extra_specs['scavenger:application'] = 'web'
        self.assertGreater(0.0, self.weigh(request, 'a')[0])
        request.image = None
        self.assertGreater(0.0, self.weigh(request, 'a')[0])

    def test_as_without_profiles(self) -> None:
        """Whatever stands in the place of one, to the last bit."""
        hosts = [told('a', incidents=2, background_vcpus=3.0), told('b'),
                 told('c', headroom={'cpu_cores': 1.0}),
                 told('d', silent=True)]
        names = 'a', 'b', 'c', 'd', 'e'
        requests = wanted(True), wanted(False)
        self.say(*hosts)
        plain = [self.weigh(request, *names) for request in requests]
        self.assertEqual([-1.375, 0.0, 0.0, 0.0, 0.0], plain[1])
        right = [profile('flavor', 'm1', **LOUD)]
        wrong: list[Any] = [
            None, 7, 'tlb', [1], {'tlb': 0.0, 'cold': 0.5},
            {'tlb': -0.1},
            {'tlb': 1.1}, {'tlb': 10 ** 400}, {'tlb': '0.5'}, {'tlb': None},
            {'tlb': True}, {'tlb': [0.5]}, {'tlb': {}},
            {f'soi-{number}': 0.5 for number in range(100000)}]
        for odd in wrong:
            for side in 'tolerated', 'caused':
                self.say(*({**host, side: odd} for host in hosts),
                         profiles=right)
                self.assertEqual(plain, [self.weigh(request, *names)
                                         for request in requests])
                self.say(*({**host, **MEEK} for host in hosts), profiles=[
                    profile('flavor', 'm1', **{side: odd})])
                self.assertEqual(plain, [self.weigh(request, *names)
                                         for request in requests])
        hostile: tuple[Any, ...] = (
            7, 'x', {}, None, [1, None, 'x', [], {}],
            [profile('flavor', 'm1')],
            [{**LOUD, 'kind': 'flavor', 'target': ['m1'], 'project': ''}],
            [{**LOUD, 'kind': 'flavor'}],
            right * (summary.MOST_PROFILES + 1))
        for entries in hostile:
            self.say(*({**host, **MEEK} for host in hosts), profiles=entries)
            self.assertEqual(plain, [self.weigh(request, *names)
                                     for request in requests], str(entries))
        for number in 'NaN', 'Infinity', '-Infinity', '1e999':
            self.api.answer = json.dumps({
                'hosts': [{**host, **MEEK} for host in hosts],
                'profiles': [profile('flavor', 'm1', caused={'tlb': 'X'})]
                }).replace('"X"', number)
            self.summary.refresh()
            self.assertEqual(plain, [self.weigh(request, *names)
                                     for request in requests], number)

    def test_a_wrong_profile_beside_a_right_one(self) -> None:
        """The others count, and the log tells of it once."""
        log = self.useFixture(fixtures.FakeLogger(summary.__name__))
        for _ in range(3):
            self.say(told('a', **MEEK), told('b', tolerated=1), profiles=[
                profile('flavor', 'm1', **LOUD), 7])
            self.assertEqual(['b', 'a'], self.weighed(wanted(), 'a', 'b'))
        [line] = log.output.splitlines()
        self.assertIn('ignored: 2', line)

    def test_the_scale_beside_other_weighers(self) -> None:
        """A weight that no profile changes is worth what it was."""
        self.say(told('a', incidents=1, background_vcpus=8.0, **MEEK),
                 told('b'), profiles=[profile('flavor', 'm1', **LOUD)])
        for request, worst in ((wanted(), -0.5 / 1.5 / 3),
                               (wanted(project='q'), -0.5 / 1.5 / 3),
                               (spec(background=False), 0.0)):
            best, last = \
                scheduler_weights.HostWeightHandler().get_weighed_objects(
                    [self.weigher], states('a', 'b'), request)
            self.assertAlmostEqual(2 / 3, best.weight)
            self.assertAlmostEqual(worst, last.weight)

    def test_what_was_just_placed(self) -> None:
        """It is not in the summary yet: it counts as one more of the same,
        for a while."""
        both: dict[str, Any] = {'tolerated': {'tlb': 0.25},
                                'caused': {'tlb': 0.75}}
        self.say(told('a'), told('b'),
                 profiles=[profile('flavor', 'm1', **both)])
        request = wanted()
        request.flavor.update({'root_gb': 0, 'ephemeral_gb': 0, 'swap': 0})
        request.pci_requests = request.numa_topology = None
        hosts = states('a', 'b')
        handler = scheduler_weights.HostWeightHandler()
        placed_on = []
        for _ in range(2):
            best = handler.get_weighed_objects([self.weigher], hosts,
                                               request)[0].obj
            best.consume_from_request(request)
            placed_on.append(best.host)
        self.assertEqual({'a', 'b'}, set(placed_on))
        weighed = [nova_weights.WeighedObject(state, 0.0) for state in hosts]
        for later_s, harm in ((0.0, 1.0), (placed.FRESH_S, 1.0),
                              (1.0, 0.0)):
            self.now_s += later_s
            self.assertEqual(
                [-harm / (1 + harm)] * 2,
                self.weigher.weigh_objects(weighed, request), str(later_s))
        self.assertEqual([0.0, 0.0], self.weigher.weigh_objects(
            weighed, spec(background=False)))

    def test_as_nova_scheduler_loads_it(self) -> None:
        """By its name, beside a weigher of Nova that wants the emptiest."""
        handler = scheduler_weights.HostWeightHandler()
        weighers = [kind() for kind in handler.get_matching_classes([
            f'{weights.__name__}.InterferenceWeigher',
            'nova.scheduler.weights.cpu.CPUWeigher'])]
        self.say(told('meek', **MEEK), told('loud', **LOUD),
                 profiles=[profile('application', 'loud', **LOUD)])
        meek, loud = states('meek', 'loud')
        for state, used in (meek, 0), (loud, 2):
            state.vcpus_total, state.vcpus_used = 64, used
            state.cpu_allocation_ratio = 1.0
            state.cell_uuid = None
        nova.conf.CONF.set_override('cpu_weight_multiplier', 0.1,
                                    'filter_scheduler')
        self.addCleanup(nova.conf.CONF.clear_override,
                        'cpu_weight_multiplier', 'filter_scheduler')
        for request, first in ((wanted(), 'meek'),
                               (wanted(application='loud'), 'loud')):
            weighed = handler.get_weighed_objects(weighers, [meek, loud],
                                                  request)
            self.assertEqual(first, weighed[0].obj.host)
