# SPDX-License-Identifier: Apache-2.0



from __future__ import annotations

import json
import os
from typing import Any
import uuid

import testtools

from scavenger_openstack.restore import actions
from scavenger_openstack.restore import grammar
from scavenger_openstack.restore import network

TAP = {'do': 'tap', 'netns': '', 'dev': 'tap5f0a1b2c-3d', 'ifindex': 5}


class Tap(testtools.TestCase):
    """What a lease may hold about a tap, and what not."""

    def test_allowed(self) -> None:
        allowed: tuple[dict[str, Any], ...] = (
            {}, {'netns': 'ns-1.x'}, {'dev': 'vnet0'},
            {'ifindex': 2**31 - 1}, {'also': []},
            {'also': [6, 2**31 - 1]}, {'also': [6] * 255},
            {'do': 'tc', 'also': [6], 'noqueue': [5, 6]})
        for changes in allowed:
            actions.validate({**TAP, **changes}, [])

    def test_refused(self) -> None:
        wrongs: list[dict[str, Any]] = [
            {'dev': 'a;reboot'}, {'dev': '$(id)'}, {'dev': '-batch'},
            {'dev': 'a b'}, {'dev': '../a'}, {'dev': ''}, {'dev': 'a' * 16},
            {'dev': 'a\n'}, {'dev': None}, {'dev': ['a']},
            {'netns': '/proc/1/ns/net'}, {'netns': '..'}, {'netns': '-a'},
            {'netns': 'a;b'}, {'netns': None}, {'netns': 'a' * 65},
            {'ifindex': 0}, {'ifindex': -1}, {'ifindex': '5'},
            {'ifindex': '5; ip link del eth0'}, {'ifindex': True},
            {'ifindex': 5.0}, {'ifindex': None}, {'ifindex': 2**31},
            {'also': 6}, {'also': '6'}, {'also': None}, {'also': (6,)},
            {'also': [0]}, {'also': ['6']}, {'also': [True]},
            {'also': [2**31]}, {'also': [[6]]}, {'also': [6] * 256},
            {'noqueue': [6]}, {'argv': ['sh']}, {'ifb': 'eth0'},
            *({'do': 'tc', 'noqueue': wrong} for wrong in (
                6, '6', None, [0], ['6'], [True], [2**31], [6] * 257)),
            {'do': 'ip'},
            {'do': ['tap']}, {'do': {}}, {'do': 'TAP'}, {'do': 'tap '}]
        for wrong in wrongs:
            self.assertRaises(actions.Refused, actions.validate,
                              {**TAP, **wrong}, [])
        for missing in ('netns', 'dev', 'ifindex'):
            self.assertRaises(actions.Refused, actions.validate,
                              {key: value for key, value in TAP.items()
                               if key != missing}, [])

    def test_one_odd_device(self) -> None:
        """It hides no other."""
        odd: list[Any] = [
            5, None, [], {}, {'ifindex': []}, {'ifname': 'x'},
            {'ifindex': 3, 'ifname': 7}, {'ifindex': 4, 'ifname': 'a',
                                          'linkinfo': [], 'group': []}]
        names, kinds = network.parse_links(json.dumps([*odd, {
            'ifindex': 9, 'ifname': 'scv7', 'group': '23712',
            'linkinfo': {'info_kind': 'ifb'}}]))
        self.assertEqual('scv7', names[9])
        self.assertIn(('scv7', network.PREFERENCE, 'ifb'), kinds)
        for text in ('', '5', '{}', '[' * 2000, 'null'):
            self.assertRaises(ValueError, network.parse_links, text)

    def test_the_name_of_an_ifb_fits(self) -> None:
        self.assertLess(len(f'{grammar.IFB}{2**31 - 1}'), 16)

    def test_no_such_namespace(self) -> None:
        name = f'scv-{uuid.uuid4().hex[:8]}'
        self.assertFalse(os.path.exists(f'/run/netns/{name}'))
        for kind in ('tap', 'tc'):
            exc = self.assertRaises(
                actions.Gone, actions.run, {**TAP, 'do': kind, 'netns': name},
                [])
            self.assertIn(f'namespace {name} is no longer there', str(exc))
