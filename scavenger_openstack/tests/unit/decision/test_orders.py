# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator
import math
from typing import Any

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import testtools

from scavenger_openstack.decision import decider
from scavenger_openstack.decision import orders
from scavenger_openstack.decision.orders import Orders
from scavenger_openstack.decision.orders import Override
from scavenger_openstack.decision import settle
from scavenger_openstack.knobs import DEFAULT_FLOORS
from scavenger_openstack.tests.unit.decision.controllers import Fixed
from scavenger_openstack.tests.unit.examples import ENCODABLE
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Mode
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Rates
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadRates
from scavenger_openstack.wire import fit

CORES = Knob.CPU_CORES
VM = '11111111-1111-1111-1111-111111111111'

WORKLOADS = (
    Workload('/batch/a', Priority.BACKGROUND, group='/batch',
             floor={CORES: 0.2}),
    Workload('/batch/b', Priority.BACKGROUND, group='/batch', project='p'),
    Workload(VM, Priority.BACKGROUND, instance=VM, group=VM, project='p'),
    Workload('/services/s', Priority.FOREGROUND, group='/services/s'),
    Workload('fg', Priority.FOREGROUND, instance='fg', group='fg'))
RATES = Rates(1.0, 1.0, tuple(WorkloadRates(one, 1.0) for one in WORKLOADS))


ODD = ('/kubepods/' + 'a' * 293, '/batch/a ', '/batch/\udcff', '/batch/a\n',
       '/batch/\ufffd')


def of_names(asked: Override, *names: str, group: str = ''
             ) -> orders.Resolved:
    """What of an override is for workloads of these names."""
    return orders.resolve(1.0, Rates(1.0, 1.0, tuple(
        WorkloadRates(Workload(name, Priority.BACKGROUND, group=group), 1.0)
        for name in names)), Orders(overrides=orders.Overrides([asked])))


def override(workload: str = '/batch/a', value: Any = 0.5,
             knob: Knob = CORES, **fields: Any) -> Override:
    return Override(**{'id': 'o', 'workload': workload, 'instance': '',
                       'knob': knob, 'value': value, 'reason': 'asked for',
                       'until_s': 10.0, **fields})


def resolve(*overrides: Override, now: float = 1.0, **words: Any
            ) -> orders.Resolved:
    return orders.resolve(now, RATES, Orders(
        overrides=orders.Overrides(overrides)), **words)


class Counted(orders.Overrides):
    """Tells how often all of them were looked at."""

    turns = 0

    def __iter__(self) -> Iterator[Override]:
        self.turns += 1
        return super().__iter__()


class RefusedModes(testtools.TestCase):

    def test_what_is_less_careful_than_the_file(self) -> None:
        own = {'a': Mode.OBSERVE, 'b': Mode.ENFORCE, 'c': Mode.OFF}
        for name, mode, why in (
                ('a', Mode.ENFORCE, 'says observe'), ('a', Mode.OBSERVE, ''),
                ('a', Mode.OFF, ''), ('b', Mode.ENFORCE, ''),
                ('b', Mode.OFF, ''), ('c', Mode.OBSERVE, 'says off'),
                ('d', Mode.OFF, 'no controller of that name')):
            refused = orders.refused_modes(own, {name: mode})
            self.assertIn(why, refused.get(f'mode {name}', ''))
            self.assertEqual(bool(why), bool(refused))
            if name in own:
                self.assertEqual(
                    bool(why), mode is not orders.mode(
                        name, own[name], Orders(modes={name: mode})))


class Overrides(testtools.TestCase):

    def refused(self, why: str, *overrides: Override, **words: Any) -> None:
        found = resolve(*overrides, **words)
        self.assertEqual({}, found.overrides)
        self.assertIn(why, found.refused['override o'])

    def test_one(self) -> None:
        found = resolve(override())
        self.assertEqual({('/batch/a', CORES): Cap(
            '/batch/a', CORES, 0.5, 'operator', 'asked for (override o)')},
            found.overrides)
        self.assertEqual({}, found.refused)

    def test_no_limit(self) -> None:
        self.assertEqual({('/batch/a', CORES): None},
                         resolve(override(value=None)).overrides)

    def test_by_instance(self) -> None:
        found = resolve(override('other', instance=VM))
        self.assertEqual([(VM, CORES)], list(found.overrides))

    def test_it_ends(self) -> None:
        self.assertEqual(orders.Resolved(), resolve(override(), now=10.0))

    def test_never_below_the_floor(self) -> None:
        for workload, least in (('/batch/a', 0.2), ('/batch/b', 0.1)):
            [cap] = resolve(override(workload, 0.0)).overrides.values()
            assert cap is not None
            self.assertEqual(least, cap.value)
            self.assertIn('raised to the floor', cap.reason)

    def test_never_foreground(self) -> None:
        self.refused('foreground', override('/services/s'))
        self.refused('foreground', override('fg', instance='fg'))

    def test_a_group_with_one_that_is_foreground(self) -> None:
        for first, second in ((Priority.BACKGROUND, Priority.FOREGROUND),
                              (Priority.FOREGROUND, Priority.BACKGROUND)):
            found = orders.resolve(1.0, Rates(1.0, 1.0, tuple(
                WorkloadRates(Workload(f'/mixed/{name}', priority,
                                       group='/mixed'), 1.0)
                for name, priority in (('a', first), ('b', second)))), Orders(
                    overrides=orders.Overrides(
                        [override('/mixed', 1, Knob.CPU_IDLE)])))
            self.assertEqual({}, found.overrides)
            self.assertIn('foreground', found.refused['override o'])

    def test_unknown(self) -> None:
        self.refused('no such workload', override('/batch/c'))
        self.refused('no such workload', override(instance='gone'))

    def test_knobs_of_groups(self) -> None:
        for knob, value in ((Knob.CPU_IDLE, 1), (Knob.CPU_SET, '0')):
            self.assertEqual([('/batch', knob)], list(resolve(override(
                '/batch', value, knob)).overrides))
            self.assertEqual([(VM, knob)], list(resolve(override(
                VM, value, knob)).overrides))
            self.refused('no such group', override('/batch/a', value, knob))
            self.refused('foreground', override('/services/s', value, knob))

    def test_knobs_without_a_floor(self) -> None:
        for knob in (Knob.PAUSED, Knob.LLC_WAYS):
            self.refused('no floor', override(value=1, knob=knob))

    def test_only_what_this_host_limits(self) -> None:
        self.refused('[agent] protect', override(),
                     limited=[Knob.MEMORY_BYTES])

    def test_what_the_fast_loop_writes(self) -> None:
        self.refused('blind isolation', override('/batch', '0', Knob.CPU_SET),
                     taken={('/batch', Knob.CPU_SET)})

    def test_names_as_they_are_reported(self) -> None:
        for name in ODD:
            with self.subTest(name):
                self.assertEqual([(name, CORES)], list(of_names(
                    override(fit.name(name)), name, '/batch/a').overrides))
                [group] = of_names(override(fit.name(name), '0', Knob.CPU_SET),
                                   f'{name}/job', group=name).overrides
                self.assertEqual((name, Knob.CPU_SET), group)

    def test_two_names_that_are_reported_as_one(self) -> None:
        """Neither is limited for the other."""
        for names in (('/batch/a ', r'/batch/a\x20'),
                      ('/batch/\n', r'/batch/\n'),
                      (ODD[0], fit.name(ODD[0]))):
            found = of_names(override(fit.name(names[0])), *names)
            self.assertEqual({}, found.overrides)
            self.assertIn('2 cgroups', found.refused['override o'])

    def test_long_names_that_begin_alike(self) -> None:
        one, two = ODD[0], ODD[0] + '/b'
        self.assertEqual([(two, CORES)], list(of_names(
            override(fit.name(two)), one, two).overrides))

    def test_many(self) -> None:
        """Each is looked up: no tick looks at those of other workloads."""
        asked = Counted(override(f'/other/{number}', id=str(number))
                        for number in range(2000))
        asked = Counted((*asked, override(), override(value=0.7, id='p')))
        for _ in range(2):
            found = orders.resolve(1.0, RATES, Orders(overrides=asked))
            self.assertEqual({('/batch/a', CORES): 0.7}, {
                key: cap and cap.value
                for key, cap in found.overrides.items()})
            self.assertEqual({f'override {number}': 'no such workload on '
                              'this host' for number in range(2000)},
                             found.refused)
        self.assertEqual(3, asked.turns)
        # Those that have ended are refused no more.
        self.assertEqual({}, orders.resolve(
            10.0, RATES, Orders(overrides=asked)).refused)

    @settings(max_examples=400, deadline=None)
    @given(st.lists(st.builds(
        Override, id=st.sampled_from('abc'),
        workload=st.sampled_from(['/batch', '/', '', 'x', *(
            one.id for one in WORKLOADS)]),
        instance=st.sampled_from(['', '', VM, 'fg', 'x']),
        knob=st.sampled_from(Knob),
        value=st.none() | st.floats() | st.sampled_from(['0', '', 'x', '9-']),
        reason=st.text(ENCODABLE, max_size=3), until_s=st.floats()),
        max_size=5),
        st.sets(st.sampled_from(['p', VM, 'fg', '/batch/a'])),
        st.dictionaries(st.sampled_from(['one', 'x']), st.sampled_from(Mode)))
    def test_whatever_is_asked(self, overrides: Any, exempt: Any, modes: Any
                               ) -> None:
        """No foreground workload is limited, no floor passed, and whatever
        becomes of it is a number or a CPU list."""
        one = decide(Orders(overrides=orders.Overrides(overrides),
                            exempt=frozenset(exempt), modes=modes))
        allowed = {'/batch', '/batch/a', '/batch/b', VM}
        for (workload, knob), cap in one.wanted.items():
            self.assertIn(workload, allowed)
            self.assertNotIn(knob, (Knob.PAUSED, Knob.LLC_WAYS))
            floor = {'/batch/a': {CORES: 0.2}}.get(
                workload, DEFAULT_FLOORS).get(knob)
            if floor is not None:
                assert not isinstance(cap.value, str)
                self.assertTrue(floor <= cap.value < math.inf)


def decide(asked: Orders, *caps: Cap, mode: Mode = Mode.ENFORCE
           ) -> settle.Decided:
    proposal = decider.Decider([(
        Fixed('one', *caps), mode)]).propose_from(RATES, orders=asked)
    return settle.settle(proposal, {(cap.workload, cap.knob): None
                                    for cap in proposal.caps})


class Precedence(testtools.TestCase):
    """Source: DESIGN 7.5."""

    def setUp(self) -> None:
        super().setUp()
        self.wishes = [Cap(name, CORES, 1.0, 'one', 'wished')
                       for name in ('/batch/a', '/batch/b', VM)]

    def values(self, asked: Orders) -> dict[str, object]:
        return {key[0]: cap.value
                for key, cap in decide(asked, *self.wishes).wanted.items()}

    def test_an_override_is_above_wishes(self) -> None:
        """Also one that is looser, or for no limit."""
        for value in (0.5, 2.0):
            self.assertEqual(
                {'/batch/a': value, '/batch/b': 1.0, VM: 1.0},
                self.values(Orders(overrides=orders.Overrides(
                    [override(value=value)]))))
        none = Orders(overrides=orders.Overrides([override(value=None)]))
        self.assertEqual({'/batch/b': 1.0, VM: 1.0}, self.values(none))
        self.assertEqual([('/batch/a', CORES)], decide(none).unlimited)

    def test_an_exemption_is_above_wishes(self) -> None:
        self.assertEqual({'/batch/a': 1.0}, self.values(
            Orders(exempt=frozenset({'p'}))))
        self.assertEqual({'/batch/a': 1.0, '/batch/b': 1.0}, self.values(
            Orders(exempt=frozenset({VM}))))

    def test_an_override_is_above_exemptions(self) -> None:
        self.assertEqual({'/batch/a': 1.0, '/batch/b': 0.5}, self.values(
            Orders(exempt=frozenset({'p'}),
                   overrides=orders.Overrides([override('/batch/b')]))))

    def test_an_exempt_group_is_left_alone(self) -> None:
        self.wishes = [Cap('/batch', Knob.CPU_IDLE, 1, 'one', 'wished')]
        self.assertEqual({'/batch': 1}, self.values(Orders()))
        self.assertEqual({}, self.values(Orders(exempt=frozenset({'p'}))))

    def test_nor_is_all_background_work_that_holds_it(self) -> None:
        self.wishes = [Cap('background', Knob.LLC_WAYS, 2, 'one', 'wished')]
        self.assertEqual({'background': 2}, self.values(Orders()))
        self.assertEqual({}, self.values(Orders(exempt=frozenset({'p'}))))
        self.assertEqual({'background': 2}, self.values(
            Orders(exempt=frozenset({'fg'}))))

    def test_what_is_exempt_is_not_killed(self) -> None:
        found = orders.exempt(WORKLOADS, Orders(exempt=frozenset({'p'})))
        self.assertEqual({'/batch', '/batch/b', VM, 'background'}, found)


class Modes(testtools.TestCase):

    def test_more_careful_only(self) -> None:
        cap = Cap('/batch/a', CORES, 1.0, 'one', 'wished')
        for own, asked, acts in (
                (Mode.ENFORCE, Mode.ENFORCE, True),
                (Mode.ENFORCE, Mode.OBSERVE, False),
                (Mode.ENFORCE, Mode.OFF, False),
                (Mode.OBSERVE, Mode.ENFORCE, False)):
            found = decide(Orders(modes={'one': asked}), cap, mode=own).wanted
            self.assertEqual(acts, bool(found), f'{own} {asked}')

    def test_of_a_controller(self) -> None:
        asked = Orders(modes={'one': Mode.OBSERVE})
        self.assertEqual(
            [Mode.OBSERVE, Mode.OFF, Mode.ENFORCE],
            [orders.mode('one', Mode.ENFORCE, asked),
             orders.mode('one', Mode.OFF, asked),
             orders.mode('two', Mode.ENFORCE, asked)])
