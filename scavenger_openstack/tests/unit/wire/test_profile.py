# SPDX-License-Identifier: Apache-2.0

"""Interference profiles as JSON: what is taken, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import testtools

from scavenger_openstack import errors
from scavenger_openstack.ibench.catalogue import SOIS
from scavenger_openstack.wire import profile

ESTIMATE = {'value': 0.4, 'low': 0.35, 'high': 0.45}
WHOLE: dict[str, Any] = {
    'kind': 'application', 'target': 'web', 'project': 'p1',
    'source': 'measured', 'form': 'short', 'measured_s': 1764460000.0,
    'host': 'compute-1',
    'qos': {'signal': 'p99_s', 'alone': 0.0011, 'bound': 0.0012},
    'tolerated': {'memory_capacity': ESTIMATE},
    'caused': {'llc_capacity': {'value': 0, 'low': 0, 'high': 1}},
    'missing': {'prefetcher': 'this host has one CPU'}}


def text(**changes: Any) -> bytes:
    """The profile as a file has it; a change to None leaves a field out."""
    return json.dumps({name: value for name, value in {
        **WHOLE, **changes}.items() if value is not None}).encode()


class Profile(testtools.TestCase):

    def refused(self, data: bytes) -> str:
        try:
            profile.parse(data)
        except errors.WireError as exc:
            return str(exc)
        self.fail(f'taken: {data!r:.200}')
        return ''

    def test_names_are_those_of_the_catalogue(self) -> None:
        self.assertEqual([soi.name for soi in SOIS],
                         list(profile.SOI_NAMES))

    def test_each_field_comes_back(self) -> None:
        document = profile.parse(text())
        self.assertEqual(WHOLE, profile.as_json(document))
        self.assertEqual((0.4, 0.35, 0.45),
                         document.tolerated['memory_capacity'])

    def test_what_may_be_left_out(self) -> None:
        """Is empty, but for the quality of service, which is none."""
        document = profile.parse(text(
            project=None, form=None, host=None, qos=None, caused=None,
            missing=None))
        self.assertIsNone(document.qos)
        self.assertEqual(
            {**{name: WHOLE[name] for name in WHOLE if name != 'qos'},
             'project': '', 'form': 'long', 'host': '', 'caused': {},
             'missing': {}}, profile.as_json(document))
        self.assertEqual(document, profile.of_json(
            profile.as_json(document)))

    def test_what_is_refused(self) -> None:
        """Each with the name of the field."""
        for changes, field in (
                ({'kind': 'host'}, 'kind'), ({'kind': None}, 'kind'),
                ({'kind': {}}, 'kind'), ({'target': ''}, 'target'),
                ({'target': 'x' * 256}, 'target'),
                ({'target': 'a\x1b[2J'}, 'target'),
                ({'target': 'a '}, 'target'), ({'target': '\ud800'}, 'target'),
                ({'target': 7}, 'target'), ({'target': None}, 'target'),
                ({'project': 'x' * 65}, 'project'),
                ({'project': 'a\n'}, 'project'),
                ({'source': 'guessed'}, 'source'),
                ({'source': None}, 'source'), ({'form': ''}, 'form'),
                ({'measured_s': -1}, 'measured_s'),
                ({'measured_s': 1e300}, 'measured_s'),
                ({'measured_s': True}, 'measured_s'),
                ({'measured_s': None}, 'measured_s'),
                ({'host': 'a b'}, 'host'),
                ({'qos': {'signal': 'p99_s', 'alone': 1.0}}, 'qos.bound'),
                ({'qos': []}, 'qos'),
                ({'tolerated': []}, 'tolerated'),
                ({'tolerated': {'disk': ESTIMATE}}, 'tolerated'),
                ({'caused': {'l1d': []}}, 'caused.l1d'),
                ({'caused': {'l1d': {'value': 0.1}}}, 'caused.l1d.low'),
                ({'caused': {'l1d': {**ESTIMATE, 'high': 1.1}}},
                 'caused.l1d.high'),
                ({'caused': {'l1d': {**ESTIMATE, 'low': -0.1}}},
                 'caused.l1d.low'),
                ({'caused': {'l1d': {**ESTIMATE, 'value': '0.4'}}},
                 'caused.l1d.value'),
                ({'caused': {'l1d': {**ESTIMATE, 'low': 0.41}}},
                 'caused.l1d'),
                ({'caused': {'l1d': {**ESTIMATE, 'high': 0.39}}},
                 'caused.l1d'),
                ({'caused': {'l1d': {**ESTIMATE, 'more': 1}}},
                 'caused.l1d.more'),
                ({'tolerated': {}, 'caused': {}}, 'tolerated'),
                ({'missing': {'disk': 'no disk'}}, 'missing'),
                ({'missing': {'l1d': 'a\nb'}}, 'missing.l1d'),
                ({'missing': {'l1d': 'x' * 2001}}, 'missing.l1d'),
                ({'more': 1}, 'more')):
            sentence = self.refused(text(**changes))
            self.assertEqual(field, sentence.partition(':')[0], sentence)
            self.assertTrue(sentence.isprintable(), sentence)

    def test_texts_that_are_no_profile(self) -> None:
        for data in (b'', b'{', b'[]', b'null', b'\xff', b'[' * 9000,
                     text().replace(b'0.35', b'NaN'),
                     text().replace(b'0.35', b'Infinity'),
                     text().replace(b'0.35', b'1e999'),
                     text().replace(b'"target"', b'"kind"'),
                     text() + b' ' * profile.MAX_PROFILE_BYTES):
            self.refused(data)

    def test_a_profile_that_is_too_large_after_it_was_read(self) -> None:
        """Such as the body of a request, which was read already."""
        self.assertRaises(errors.WireError, profile.of_json, {
            **WHOLE, 'missing': dict.fromkeys(profile.SOI_NAMES, 'x' * 1900)})
