# SPDX-License-Identifier: Apache-2.0


"""The status as people read it."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
from typing import Any

import fixtures
from hypothesis import given
from hypothesis import settings
import testtools

from scavenger_openstack.agent import status
from scavenger_openstack import errors
from scavenger_openstack.grounds import Ground
from scavenger_openstack.grounds import GroundKind
from scavenger_openstack.tests.unit.agent.statuses import ACTIONS
from scavenger_openstack.tests.unit.agent.statuses import CAPS
from scavenger_openstack.tests.unit.agent.statuses import document
from scavenger_openstack.tests.unit.agent.statuses import INCIDENTS
from scavenger_openstack.tests.unit.odd_names import begins
from scavenger_openstack.tests.unit.odd_names import NAMES
from scavenger_openstack.types import Action
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Decision
from scavenger_openstack.types import Incident
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Resource
from scavenger_openstack.wire import json_fields
from scavenger_openstack.wire.json_fields import as_json

INCIDENT = Incident(
    '1', 5.0, 'h', '/services/web', 'io_wait', 0.0312, 0.01, 'disk',
    (('/batch/a', 0.9),), ('/batch/a', '/batch/b'), 'limit /batch/a',
    'confirmed')


def there_and_back(value: Any) -> Any:
    return json.loads(json.dumps(as_json(value)))


class CodecTest(testtools.TestCase):
    """Whatever the types allow can be written, read, and printed."""

    @settings(deadline=None)
    @given(INCIDENTS)
    def test_incidents(self, incident: Incident) -> None:
        found = there_and_back(incident)
        self.assertEqual(incident, json_fields.incident(found, 'incident'))
        status.table(document(incidents=[found]), 10.0)

    @settings(deadline=None)
    @given(CAPS)
    def test_caps(self, cap: Cap) -> None:
        found = there_and_back(cap)
        self.assertEqual(cap, json_fields.cap(found, 'cap'))
        status.table(document(caps=[found], would=[found]), 10.0)

    @settings(deadline=None)
    @given(ACTIONS)
    def test_actions(self, action: Action) -> None:
        status.table(document(actions=[there_and_back(action)]), 10.0)


class TableTest(testtools.TestCase):

    def said(self, *incidents: Incident, **differing: Any) -> str:
        return status.table(document(**differing, incidents=[
            there_and_back(one) for one in incidents]), 10.0)

    def test_what_suffers_without_an_incident(self) -> None:
        self.assertIn(
            'suffers    /services/web: nothing to compare with yet\n',
            self.said(controllers={'attribution': {
                'mode': 'observe', 'facts': {'suffering': {
                    '/services/web': 'nothing to compare with yet'}}}}))

    def test_an_incident_says_who_suffers_by_whom_and_what_was_done(
            self) -> None:
        self.assertIn(
            'incident: victim /services/web, cause disk: io_wait 0.0312, '
            'threshold 0.01; antagonists: /batch/a, /batch/b; action: limit '
            '/batch/a; outcome: confirmed', self.said(INCIDENT))

    def test_what_disturbed_earlier_is_apart(self) -> None:
        text = self.said(dataclasses.replace(
            INCIDENT, antagonists=('/batch/a',), named_earlier=('/batch/b',)))
        self.assertIn('antagonists: /batch/a; named earlier: /batch/b; ',
                      text)
        text = self.said(dataclasses.replace(
            INCIDENT, antagonists=(), named_earlier=('/batch/b',)))
        self.assertIn('antagonists: none named; named earlier: /batch/b; ',
                      text)

    def test_an_incident_without_antagonists_action_and_numbers(self
                                                                ) -> None:
        self.assertIn(
            'cpi unknown, threshold unknown; antagonists: none named; '
            'action: none; outcome: open', self.said(
                Incident('1', 5.0, 'h', 'v', 'cpi', None, None, 'c')))

    def test_grounds(self) -> None:
        """One sentence each, at most 16."""
        grounds = tuple(Ground(f'/batch/{number}', GroundKind.DIRECT, 0.5,
                               1.9, 2.0) for number in range(1000))
        text = self.said(dataclasses.replace(INCIDENT, grounds=grounds))
        self.assertIn('; grounds: the disk served /batch/0 during 50 % of the '
                      '1.9 s that /services/web waited for the disk', text)
        self.assertEqual(16, text.count('the disk served'))

    def test_what_evidence_is_gathered(self) -> None:
        self.assertEqual([0, 0, 2], [status.asked(one) for one in (
            None, Decision(), Decision(asks=(
                ('a', Resource.CPU), ('a', Resource.DISK),
                ('b', Resource.CPU))))])
        for asks, said in ((0, False), (2, True)):
            self.assertEqual(said, 'direct evidence of 2 workloads' in
                             self.said(controllers={'attribution': {
                                 'mode': 'observe', 'asks': asks}}))

    def test_experiments_that_would_be_made(self) -> None:
        for would, lines in ([], 0), (['hog', 'mate'], 1):
            text = self.said(controllers={'attribution': {
                'mode': 'observe', 'facts': {'would_examine': would}}})
            self.assertEqual(lines, text.count('hog, mate'))

    def test_what_is_only_remembered(self) -> None:
        self.assertIn(
            'remembers  /batch/a: its limit was removed 340 s ago',
            self.said(controllers={'attribution': {
                'mode': 'enforce', 'facts': {
                    'remembered': {'/batch/a': 340.2}}}}))

    def test_page_cache(self) -> None:
        for rule, is_shown in (('cutting', True), ('holding', True),
                               ('growing', False), ('off', False)):
            facts: dict[str, Any] = {'page_cache': {
                'rule': rule, 'refault_bytes_per_s': 2.5 * 2**20}}
            memory: dict[str, Any]
            for memory in ({}, {'memory': {'upper': 2.0**30}}):
                text = self.said(controllers={'scavenger': {
                    'mode': 'enforce', 'facts': {**facts, **memory}}})
                self.assertEqual(is_shown, '2.50 MiB/s' in text, text)

    def test_a_detector_that_failed(self) -> None:
        self.assertIn('cpi2       observe; FAILED: KeyError: 3', self.said(
            controllers={'cpi2': {'mode': 'observe', 'facts': {
                'fault': 'KeyError: 3'}}}))

    def test_the_conductor(self) -> None:
        facts = {'answered_s': 0.0, 'spool_bytes': 0, 'dropped': 0,
                 'fault': ''}
        for changes, told in (
                ({}, 'has not answered yet'),
                ({'answered_s': 988.0}, 'answered 12 s ago'),
                ({'answered_s': 988.0, 'spool_bytes': 3 * 2 ** 20,
                  'dropped': 7, 'waiting_s': 612.4, 'set_aside': 2,
                  'fault': 'it is away'},
                 'answered 12 s ago, waiting to be reported: 3 MiB, the '
                 'oldest for 612 s; lost for want of room: 7; set aside, the '
                 'conductor did not take them: 2: it is away'),
                ({'parameters': {'a.b': 3.0, 'a.c': 'x'},
                  'refused': {'parameter a.c': 'wrong', 'priority v': 'why'}},
                 'has not answered yet; parameters from there: a.b = 3.0; '
                 'not followed: parameter a.c: wrong, priority v: why'),
                ({'parameters': {'a\nb': '\x1b[2J'}},
                 'has not answered yet; parameters from there: a\\nb = '
                 '\\x1b[2J'),
                ({'refused': dict.fromkeys('abcde', 'x')},
                 'has not answered yet; not followed: a: x, b: x, c: x, d: x '
                 'and more')):
            self.assertIn(f'conductor  {told}\n', self.said(
                wall_time_s=1000.0, conductor={**facts, **changes}) + '\n')

    def test_what_waits_for_libvirt(self) -> None:
        text = self.said(libvirt={
            'state': 'does not answer', 'since_s': 12,
            'domains': {'u-1': 30}, 'waits': ['u-2 cpu_cores']})
        self.assertIn('libvirt    does not answer for 12 s\n', text)
        self.assertIn('domain u-1 has not answered, or a job held it, for '
                      '30 s\n', text)
        self.assertIn('neither set nor removed yet: u-2 cpu_cores', text)
        text = self.said(libvirt={
            'state': 'answers', 'since_s': None, 'domains': {}, 'waits': []})
        self.assertIn('libvirt    answers\n', text)

    def test_refused_leases_and_a_history_that_is_not_written(self) -> None:
        text = self.said(refused=['/x/a.json.refused'],
                         history={'file': 'f', 'fault': 'f: disk full'})
        self.assertIn('refused lease: /x/a.json.refused; its limit may be '
                      'in force', text)
        self.assertIn('history    f: disk full', text)

    def test_who_moves_with_the_fast_loop(self) -> None:
        text = self.said(isolation={
            'state': 'running on CPUs 2-7', 'left_out': {'/b': 'no set'},
            'groups': {'/a': '2-7', '/c': '3'}})
        self.assertIn('isolation  running on CPUs 2-7 (groups and VMs: 2)\n'
                      'left out   /b: no set\n', text)
        self.assertIn('isolation  off\n',
                      self.said(isolation={'state': 'off'}))

    def test_amounts_have_the_units_that_people_read(self) -> None:
        text = self.said(unmet_bytes={'/batch/a': 64 * 2 ** 20}, caps=[
            there_and_back(Cap('/batch/a', knob, value, 'scavenger', 'why'))
            for knob, value in (
                (Knob.MEMORY_BYTES, 22_810 * 2.0 ** 20),
                (Knob.CPU_CORES, 1.25), (Knob.CPU_SET, '0-1'),
                (Knob.IO_BYTES_PER_S, 12.5e6), (Knob.IO_OPS_PER_S, 100.0),
                (Knob.EGRESS_BYTES_PER_S, 125e3))])
        for words in ('memory_bytes 22,810 MiB why', 'cpu_cores 1.25 cores '
                      'why', 'cpu_set CPUs 0-1 why', 'io_bytes_per_s 12.5 '
                      'MB/s why', 'io_ops_per_s 100 operations/s why',
                      'egress_bytes_per_s 0.125 MB/s why', '/batch/a: 64 MiB'):
            self.assertIn(words, ' '.join(text.split()))

    def test_the_limits_of_a_workload_stand_together(self) -> None:
        text = self.said(caps=[
            there_and_back(Cap(workload, knob, 1, 'a', 'why'))
            for knob in (Knob.CPU_IDLE, Knob.CPU_CORES)
            for workload in ('/b', '/a')])
        self.assertEqual(
            [('/a', 'cpu_cores'), ('/a', 'cpu_idle'),
             ('/b', 'cpu_cores'), ('/b', 'cpu_idle')],
            [tuple(line.split()[:2]) for line in text.splitlines()
             if line.startswith('  /')])

    def test_names_of_any_width(self) -> None:
        uuids = [f'7f1bb3a0-5f0a-4e6c-8a3e-{i:012x}'
                 for i in range(len(NAMES))]
        lines = self.said(
            controllers={name[:2]: {'mode': 'off!'} for name in (
                'perfcloud', *NAMES)},
            caps=[there_and_back(Cap(name, Knob.CPU_CORES, 0.5, 'x', 'why'))
                  for name in (*NAMES, *uuids)],
            instances=[{
                'uuid': uuid, 'name': f'i-{uuid[-2:]}', 'display_name': name,
                'flavor': name, 'priority': 'background', 'source': 'flavor',
                'vcpus': 1, 'memory_allotment_bytes': 0, 'ignored': ()}
                for name, uuid in zip(NAMES, uuids, strict=True)]
        ).splitlines()
        for word, count in (('background (flavor)', len(NAMES)),
                            ('cpu_cores  0.5', 2 * len(NAMES)),
                            ('why (x)', 2 * len(NAMES))):
            self.assertEqual(1, len(begins(lines, word)), word)
            self.assertEqual(count, sum(word in line for line in lines))
        self.assertEqual({11}, begins(lines, 'off!'))

    def test_limits_of_a_status_that_is_old(self) -> None:
        """The agent hangs or is gone, and its limits with it."""
        uuid = '7f1bb3a0-5f0a-4e6c-8a3e-000000000003'
        caps = [there_and_back(Cap(workload, Knob.CPU_CORES, 0.5, 'x', 'why'))
                for workload in ('/batch/a', uuid)]
        rows = [{'uuid': uuid, 'name': 'n', 'display_name': '', 'flavor': '',
                 'priority': 'background', 'source': 'flavor', 'vcpus': 1,
                 'memory_allotment_bytes': 0, 'ignored': ()}]
        for time_s, title, of_vm in (
                (9.0, 'limits in force:', '  limits: 0.5 cores'),
                (1.0, 'limits at the last tick; the watcher '
                 'restores them:',
                 '  limits at the last tick: 0.5 cores')):
            lines = self.said(time_s=time_s, caps=caps,
                              instances=rows).splitlines()
            self.assertIn(title, lines)
            self.assertIn(f'      {uuid}{of_vm}', lines)

    def test_an_old_status_does_not_say_that_the_agent_runs(self) -> None:
        text = self.said(time_s=-25.0, state='running')
        self.assertIn(
            'state      STALE: no tick for 35 s, and one is due every 1 s: '
            'the agent hangs or was killed. See its log, start it again\n',
            text)
        self.assertNotIn('running', text)
        self.assertIn('state      running\n', self.said(state='running'))

    def test_the_watcher(self) -> None:
        for facts, line in (
                ({'running': True, 'cannot_restore': {}},
                 'running: it restores every limit if the agent fails'),
                ({'running': True, 'cannot_restore': {'tc': 'no tc here'}},
                 'running: it restores every limit if the agent fails; but '
                 'not those of tc, which are not set: no tc here'),
                ({'running': False, 'cannot_restore': {}},
                 'NOT RUNNING: nothing restores limits if the agent fails. '
                 'Start scavenger-restore --watch')):
            self.assertIn(f'watcher    {line}\n', self.said(watcher=facts))
        caps = [there_and_back(Cap('/batch/a', Knob.CPU_CORES, 0.5, 'x',
                                   'why'))]
        self.assertIn('no watcher runs: scavenger-restore --all restores them',
                      self.said(time_s=1.0, caps=caps, watcher=facts))

    def test_vms_are_named_beside_their_uuids(self) -> None:
        uuid = '7f1bb3a0-5f0a-4e6c-8a3e-1a0b6f5b7c01'
        text = self.said(
            Incident('1', 5.0, 'h', 'v', 'cpi', 2.0, 1.0, 'cpu',
                     antagonists=(uuid,)),
            instances=[{
                'uuid': uuid, 'name': 'instance-00000001',
                'display_name': 'web', 'flavor': 'm1.small', 'vcpus': 2,
                'priority': 'background', 'source': 'flavor', 'ignored': [],
                'memory_allotment_bytes': 2 ** 31}],
            caps=[there_and_back(Cap(uuid, Knob.CPU_CORES, 0.5, 'o', 'why')),
                  there_and_back(Cap('/batch', Knob.CPU_IDLE, 1, 'o', 'r'))],
            problems=[f'{uuid} cpu_set: not set'], libvirt={
                'state': 'answers', 'since_s': None, 'domains': {uuid: 30},
                'waits': []})
        named = f'instance-00000001 (web, {uuid})'
        for line in (f'  {named}  cpu_cores  0.5 cores  why (o)',
                     f'problem: {named} cpu_set: not set',
                     f'domain {named} has not answered, or a job held it, '
                     'for 30 s'):
            self.assertIn(f'{line}\n', text + '\n')
        self.assertIn(f'antagonists: {named}; action', text)

    def test_names_cannot_tell_the_terminal_what_to_do(self) -> None:
        self.assertIn('victim \\x1b[2J', self.said(
            Incident('1', 5.0, 'h', '\x1b[2J', 's', None, None, 'c')))

    def test_numbers_that_no_clock_shows(self) -> None:
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'status')
        for field in ('time_s', 'interval_s'):
            for number in ('9' * 400, '9' * 5000, 'NaN', 'Infinity', '-1e400',
                           'true', '"1"', '[]', 'null'):
                path.write_text(json.dumps({
                    **document(schema=status.SCHEMA), field: 'here'}).replace(
                        '"here"', number))
                self.assertRaises(errors.ScavengerError, status.read, path)

    def test_a_document_that_is_not_understood(self) -> None:
        for wrong in ({'caps': [{'knob': 'x'}]}, {'incidents': 7},
                      {'pid': None, 'counters': None}):
            with testtools.ExpectedException(errors.ScavengerError,
                                             '.*cannot be understood.*'):
                status.table(document(**wrong), 10.0)


class LimitsTest(testtools.TestCase):

    def test_they_come_change_and_go(self) -> None:
        one, two = (Cap(name, Knob.CPU_CORES, 0.5, 'scavenger', 'a "reason"')
                    for name in ('/batch/a', '/batch/b'))
        limits = status.Limits()
        for caps in ([one], [one, two], [two._replace(reason='another'), one],
                     [one._replace(value='0-1')], []):
            self.assertEqual([cap._asdict() for cap in caps],
                             json.loads(limits.encoded(caps)))

    def test_in_the_file(self) -> None:
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 's.json')
        for schema, fields in (({'schema': 2, 'time_s': 1.0}, {}), (
                {'schema': 2, 'time_s': 2.0}, {'caps': b'[1]',
                                               'instances': b'[]'})):
            status.write(path, schema, **fields)
            self.assertEqual({**schema, **{
                name: json.loads(text) for name, text in fields.items()}},
                status.read(path))


class ReadTest(testtools.TestCase):

    def test_a_directory_is_closed_again(self) -> None:
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path) / 'x'
        path.mkdir()
        before = os.listdir('/proc/self/fd')
        for _ in range(3):
            self.assertRaises(errors.ScavengerError, status.open_file, path)
        self.assertEqual(before, os.listdir('/proc/self/fd'))

    def test_another_version(self) -> None:
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 's.json')
        for other in (0, 1, 3, '2', [2], None):
            status.write(path, document(schema=other))
            self.assertIn('not a status of version 2; restart the agent', str(
                self.assertRaises(errors.ScavengerError, status.read, path)))

    def test_only_what_an_agent_wrote(self) -> None:
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 's.json')
        status.write(path, document(schema=status.SCHEMA))
        self.assertEqual(2, status.read(path)['schema'])

        def refused() -> str:
            return str(self.assertRaises(errors.ScavengerError, status.read,
                                         path))

        path.chmod(0o660)
        self.assertIn('others may have written it', refused())
        path.chmod(0o600)
        if os.geteuid() == 0:
            os.chown(path, 12345, 12345)
            self.assertIn('owner 12345', refused())
            os.chown(path, 0, 0)
        status.read(path)
        path.write_text('[' * 100000)       # deeper than Python goes
        self.assertIn('not readable', refused())
        path.rename(path.with_name('other'))
        status.write(path.with_name('other'), document(schema=2))
        path.symlink_to('other')
        self.assertIn('not readable', refused())
        path.unlink()
        os.mkfifo(path)
        self.assertIn('not a regular file', refused())
