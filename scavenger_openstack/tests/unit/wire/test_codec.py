# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import example
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import testtools

from scavenger_openstack import errors
from scavenger_openstack.tests.unit.examples import ENCODABLE
from scavenger_openstack.tests.unit.wire.messages import answers
from scavenger_openstack.tests.unit.wire.messages import ANY_NUMBER
from scavenger_openstack.tests.unit.wire.messages import ANY_TEXT
from scavenger_openstack.tests.unit.wire.messages import reports
from scavenger_openstack.tests.unit.wire.messages import scalars
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import fit
from scavenger_openstack.wire import patterns
from scavenger_openstack.wire import report

MOST = report.MAX_REPORT_BYTES


anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(ENCODABLE, max_size=5), inner, max_size=3),
    max_leaves=8)


def paths(document: Any, path: tuple[Any, ...] = ()
          ) -> list[tuple[Any, ...]]:
    """Where each value of a JSON document is."""
    inner = (document.items() if isinstance(document, dict) else
             enumerate(document) if isinstance(document, list) else ())
    return [path, *(found for key, one in inner
                    for found in paths(one, (*path, key)))]


def put(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    for key in path[:-1]:
        document = document[key]
    document[path[-1]] = value
    return None


FULL = report.Report(
    host='h', boot_id='b', run_id='r', sent_s=1.0,
    facts=report.Facts(modes={'scavenger': 'enforce'}, grade='A'),
    workloads=[report.Workload(id='w', priority='background',
                               floor={'cpu_cores': 0.1})],
    entries=[report.Incident(
        sequence=1, time_s=1.0, id='0' * 32, what='began', begun_s=1.0,
        victim='v', signal='cpi', suspects=[report.Suspect(workload='w')],
        grounds=[report.Ground(kind='direct', workload='w', share=0.86,
                               waited_s=1.9, threads=['ksmd'])],
        evidence=[report.Series(workload='w', signal='cpi', times_s=[1.0],
                                values=[None])])])


class RoundTrip(testtools.TestCase):

    @settings(max_examples=150, deadline=None)
    @given(reports)
    def test_reports(self, value: report.Report) -> None:
        data = codec.checked(value, report.Report, MOST)
        self.assertEqual(value, codec.decode(data, report.Report, MOST))

    @settings(max_examples=100, deadline=None)
    @given(answers)
    def test_answers(self, value: report.Answer) -> None:
        data = codec.checked(value, report.Answer, report.MAX_ANSWER_BYTES)
        self.assertEqual(value, codec.decode(
            data, report.Answer, report.MAX_ANSWER_BYTES))

    @settings(max_examples=100, deadline=None)
    @given(ANY_TEXT)
    @example('/batch/\udcff')
    @example('a\0b\\u0000')
    @example('')
    def test_names(self, text: str) -> None:
        """Each is one line, short enough, and stays as it is."""
        found = fit.name(text)
        self.assertTrue(found.isprintable())
        self.assertTrue(1 <= len(found) <= patterns.NAME)
        self.assertEqual(found, fit.name(found))
        codec.checked(report.Kill(
            sequence=1, time_s=1.0, workload=found, processes=1, owner='o',
            reason=fit.sentence(text)), report.AnyEntry, MOST)

    def test_blanks_at_the_end(self) -> None:
        """Some databases take 'a' and 'a ' for one name."""
        self.assertEqual(['a', r'a\x20', r'a\x20\x20', r'\x20', ' a'], [
            fit.name(text) for text in ('a', 'a ', 'a  ', ' ', ' a')])
        self.assertEqual(patterns.NAME, len(fit.name('a' * 254 + ' ')))

    def test_long_names_stay_different(self) -> None:
        one, two = (fit.name('a' * 300 + end) for end in 'xy')
        self.assertNotEqual(one, two)

    @given(ANY_NUMBER)
    @example(math.nan)
    @example(-math.inf)
    def test_numbers(self, value: float) -> None:
        found = fit.number(value)
        self.assertEqual(value if math.isfinite(value) else None, found)

    def test_a_cpu_list_that_is_too_long(self) -> None:
        self.assertIsNone(fit.value('1,' * 4000))
        self.assertEqual('0-3', fit.value('0-3'))

    def test_fields_of_another_version(self) -> None:
        document = json.loads(codec.encode(FULL))
        document['later'] = {'deep': [1]}
        document['entries'][0]['later'] = None
        self.assertEqual(FULL, codec.decode(
            json.dumps(document).encode(), report.Report, MOST))

    def test_directives_of_another_version(self) -> None:
        """One that does not know floors and protection, and a newer one."""
        tag = {'instance': 'i', 'priority': 'background'}
        others: list[dict[str, Any]] = [
            {}, {'floor': {'cpu_cores': 0.5}, 'protect': False}]
        for more in others:
            found = codec.decode(json.dumps({
                'issued_s': 1, 'digest': 'd', 'later': {},
                'tags': [{**tag, **more, 'later': [1]}]}).encode(),
                report.Directives, report.MAX_ANSWER_BYTES)
            self.assertEqual([report.Tag(
                instance='i', priority='background', **more)], found.tags)


class Wrong(testtools.TestCase):

    def refused(self, data: bytes, most: int = MOST) -> str:
        return str(self.assertRaises(errors.WireError, codec.decode, data,
                                     report.Report, most))

    @settings(max_examples=300, deadline=None)
    @given(st.data())
    def test_anything_anywhere(self, data: st.DataObject) -> None:
        """It is taken or refused with a short line, nothing else."""
        document = json.loads(codec.encode(FULL))
        path = data.draw(st.sampled_from(paths(document)))
        value = data.draw(anything)
        document = put(document, path, value) if not path else (
            put(document, path, value) or document)
        try:
            found = codec.decode(json.dumps(document).encode(),
                                 report.Report, MOST)
        except errors.WireError as exc:
            self.assertTrue(str(exc).isprintable())
            self.assertLessEqual(len(str(exc)), codec.MESSAGE + 3)
        else:
            codec.checked(found, report.Report, 2 * MOST)

    @settings(max_examples=300, deadline=None)
    @given(st.binary(max_size=200), st.integers(0, 500))
    def test_bytes(self, garbage: bytes, place: int) -> None:
        good = codec.encode(FULL)
        for data in (garbage, good[:place], good[:place] + garbage
                     + good[place + len(garbage):]):
            try:
                codec.decode(data, report.Report, MOST)
            except errors.WireError as exc:
                self.assertTrue(str(exc).isprintable())

    def test_the_field_is_named(self) -> None:
        document = json.loads(codec.encode(FULL))
        for path, value, named in (
                (('host',), 5, '$.host'),
                (('host',), 'x' * 256, '$.host'),
                (('sent_s',), -1, '$.sent_s'),
                (('entries', 0, 'victim'), None, '$.entries[0].victim'),
                (('entries', 0, 'id'), 'x', '$.entries[0].id'),
                (('entries', 0, 'evidence', 0, 'values'), ['x'],
                 '$.entries[0].evidence[0].values[0]'),
                (('entries', 0, 'evidence', 0, 'times_s'), [1] * 121,
                 '$.entries[0].evidence[0].times_s'),
                (('entries', 0, 'grounds', 0, 'kind'), 'a guess',
                 '$.entries[0].grounds[0].kind'),
                (('entries', 0, 'grounds', 0, 'share'), 1.1,
                 '$.entries[0].grounds[0].share'),
                (('entries', 0, 'grounds', 0, 'chance'), -0.1,
                 '$.entries[0].grounds[0].chance'),
                (('entries', 0, 'grounds', 0, 'waited_s'), -1,
                 '$.entries[0].grounds[0].waited_s'),
                (('entries', 0, 'grounds', 0, 'workload'), 'a\x1b[2J',
                 '$.entries[0].grounds[0].workload'),
                (('entries', 0, 'grounds', 0, 'workload'), 'x' * 256,
                 '$.entries[0].grounds[0].workload'),
                (('entries', 0, 'grounds', 0, 'threads'), ['x' * 65],
                 '$.entries[0].grounds[0].threads'),
                (('entries', 0, 'grounds', 0, 'threads'), ['x'] * 9,
                 '$.entries[0].grounds[0].threads'),
                (('entries', 0, 'grounds'), [{'kind': 'direct'}] * 17,
                 '$.entries[0].grounds'),
                (('workloads', 0, 'floor'), {'top speed': 1},
                 '$.workloads[0].floor'),
                (('facts', 'modes', 'scavenger'), 'On', '$.facts.modes')):
            wrong = json.loads(json.dumps(document))
            put(wrong, path, value)
            self.assertIn(named, self.refused(json.dumps(wrong).encode()))

    def test_what_is_no_json(self) -> None:
        for data in (b'', b'{', b'{"host": NaN}', b'\xff\xfe', b'[' * 100000,
                     b'{"later": ' + b'[' * 100000,
                     b'{"host": "\xed\xa0\x80"}',
                     b'{"sent_s": 1e999}', b'{"sent_s": ' + b'9' * 5000):
            self.refused(data)

    def test_surrogates_and_nul(self) -> None:
        good = codec.encode(FULL)
        for text in (b'\\ud800', b'a\\u0000', b'\\\\\\u0000', b'\0'):
            self.refused(good.replace(b'"v"', b'"' + text + b'"'))
        codec.decode(good.replace(b'"v"', b'"\\\\u0000"'), report.Report,
                     MOST)

    def test_a_part_of_what_is_no_message(self) -> None:
        """Of one with a text or number that cannot be, or without end."""
        for rest in ('"\\ud800"', '"a\\u0000"', '"\n"', 'NaN', '1e999',
                     '9' * 5000, '{"acknowledged": 9}', '1, "\\udfff": 1'):
            found = codec.decode_part(
                f'\ufeff{{"later": {rest}, "acknowledged": 5}}'.encode(),
                report.Acknowledgement, MOST)
            self.assertEqual(5, found.acknowledged)
        for data in (b'', b'[]', b'{"acknowledged": -1}',
                     b'{"acknowledged": ' + b'9' * 5000 + b'}',
                     b'{"later": ' + b'[' * 100_000,
                     b'{"acknowledged": 5}' + b' ' * MOST):
            self.assertRaises(errors.WireError, codec.decode_part, data,
                              report.Acknowledgement, MOST)

    def test_too_many(self) -> None:
        good = codec.encode(FULL)
        self.assertIn('at most 10 are taken', self.refused(good, 10))
        many = json.loads(good)
        many['workloads'] *= 2001
        self.assertIn('$.workloads', self.refused(json.dumps(many).encode()))

    def test_what_the_other_end_would_not_take(self) -> None:
        for change in ({'value': math.nan, 'victim': ''},
                       {'victim': 'a\udcff'}, {'victim': 7},
                       {'time_s': math.inf}):
            self.assertRaises(
                errors.WireError, codec.checked,
                codec.replace(FULL.entries[0], **change), report.AnyEntry,
                MOST)
