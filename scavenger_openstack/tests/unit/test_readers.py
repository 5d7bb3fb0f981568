# SPDX-License-Identifier: Apache-2.0

"""Every reader of files and answers: it returns, or raises what it says.

What is read is a good one with something wrong in it; see :mod:`.mutations`.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
import contextlib
import io
import json
import os
import pathlib
import random
import types
from typing import Any
from xml.etree import ElementTree

import bcrypt
import fixtures
from osc_lib import exceptions
from oslo_config import cfg
import pyarrow
from pyarrow import parquet
import testtools

from scavenger_openstack.agent import check
from scavenger_openstack.agent.control_plane import directives
from scavenger_openstack.agent.control_plane import host_token
from scavenger_openstack.agent.events import history
from scavenger_openstack.agent.events import segments
from scavenger_openstack.agent.events import sentences
from scavenger_openstack.agent.events import tick_events
from scavenger_openstack.agent import status
from scavenger_openstack.agent import windows
from scavenger_openstack.api import auth
from scavenger_openstack.api import policy_file
from scavenger_openstack.cmd import agent as agent_command
from scavenger_openstack.conductor import placement_api
from scavenger_openstack import conf as conf_
from scavenger_openstack.demo import command as demo
from scavenger_openstack.drivers.libvirt import xml
from scavenger_openstack import errors
from scavenger_openstack import events
from scavenger_openstack.laboratory import replay
from scavenger_openstack.laboratory import replay_settings
from scavenger_openstack.osc.commands import cap as cap_command
from scavenger_openstack.osc.commands import incident as incident_command
from scavenger_openstack.osc import http
from scavenger_openstack.osc import plugin
from scavenger_openstack.recording import replay as recordings_
from scavenger_openstack.recording import table_files
from scavenger_openstack.restore import abilities
from scavenger_openstack.restore import actions
from scavenger_openstack.restore import domain
from scavenger_openstack.restore import network
from scavenger_openstack.restore import records
from scavenger_openstack.restore import state_directory
from scavenger_openstack.restore import watcher
from scavenger_openstack.simulator import scenario
from scavenger_openstack.tests.unit.agent import statuses
from scavenger_openstack.tests.unit.api import cloud
from scavenger_openstack.tests.unit.demo import records as demo_records
from scavenger_openstack.tests.unit.drivers.libvirt import domain_texts
from scavenger_openstack.tests.unit import mutations
from scavenger_openstack.tests.unit.mutations import FEW
from scavenger_openstack.tests.unit import recordings
from scavenger_openstack.types import Cap
from scavenger_openstack.types import Incident
from scavenger_openstack.types import Knob
from scavenger_openstack.wire import codec
from scavenger_openstack.wire.json_fields import as_json
from scavenger_openstack.wire import report

VM = '7f1bb3a0-5f0a-4e6c-8a3e-000000000003'
INCIDENT = Incident('1' * 32, 5.0, 'h', VM, 'io_wait', 0.03, 0.01, 'disk',
                    (('/batch/a', 0.9),), ('/batch/a',), 'limit', 'open')
CAP = {'workload': '/batch/a', 'knob': 'cpu_cores', 'value': 0.5,
       'owner': 'x', 'reason': 'why'}
STATUS = {
    **statuses.document(), 'schema': status.SCHEMA, 'interval_s': 1.0,
    'stopped': False, 'wall_time_s': 1e9, 'workloads': {'background': 1},
    'controllers': {'scavenger': {'mode': 'enforce', 'facts': {
        'memory': {'upper': 2.0 ** 30, 'violations': 1}}},
        'cpi2': {'mode': 'observe', 'facts': {'fault': 'broken'}}},
    'counters': {'removals': 3}, 'caps': [CAP, {**CAP, 'workload': VM}],
    'would': [{**CAP, 'knob': 'cpu_set', 'value': '0-3'}],
    'unmet_bytes': {'/batch/a': 7}, 'actions': [{
        'kind': 'kill', 'workload': '/batch/a', 'reason': 'r', 'owner': 'o'}],
    'incidents': [as_json(INCIDENT)], 'problems': ['p'], 'missing': ['m'],
    'isolation': {'mode': 'off', 'state': 'off'}, 'protect': ['cpu'],
    'grade': {'letter': 'A', 'text': 'A'}, 'history': {'fault': ''},
    'libvirt': {'state': 'answers', 'since_s': 3, 'why': 'w',
                'domains': {VM: 31}, 'waits': ['k'], 'versions': {
                    'daemon': '9', 'library': '9', 'qemu': '8'}},
    'conductor': {'answered_s': 1.0, 'spool_bytes': 5, 'dropped': 1,
                  'parameters': {'a.b': 3}, 'refused': {'override x': 'y'},
                  'fault': 'f'},
    'instances': [{
        'uuid': VM, 'name': 'i-3', 'display_name': 'web', 'flavor': 'small',
        'priority': 'background', 'source': 'flavor', 'vcpus': 2,
        'memory_allotment_bytes': 2 ** 30, 'ignored': ['x'],
        'cpu_cores': 1.5, 'memory_bytes': 5, 'io_bytes_per_s': 1.0,
        'io_ops_per_s': 2.0, 'net_tx_bytes_per_s': 3.0}]}
EVENTS = (
    tick_events.agent_event(1e9, 'started', 'one enforce', 7),
    events.limit_event(1e9, 'set', Cap(VM, Knob.CPU_CORES, 0.5, 'one',
                                       'because'), original=2.0, lowest=0.5,
                       highest=0.7, since_s=9e8, why='why'),
    events.incident_event(1e9, 'began', 'one', INCIDENT, 0.0),
    report.Kill(sequence=1, time_s=1e9, workload='/b', processes=3,
                owner='o', reason='why'))
SCENARIO = b"""
schema: 1
about: text
draws: {day: {uniform: [100, 200]}}
machine: {cpus: 8, threads_per_core: 2}
tenants:
  - id: web
    count: {integer: [2, 5]}
    alike: true
    cores: {uniform: [0.1, 1]}
    cpu_s: 0.004
    phases: &p
      - {shape: wave, period_s: $day, depth: 0.3}
  - id: batch
    priority: background
    pinned: [6, 7]
    phases: *p
"""
TABLE = (b'time_s,workload,priority,application,cpu_model,cpu_cores,cpi,'
         b'run_delay,io_wait_s_per_op,llc_misses_per_s,io_bytes_per_s,'
         b'net_tx_bytes_per_s,memory_bytes,host\n'
         b'0,web,foreground,shop,epyc,1.5,1.1,0.1,,,,,1e9,h\n'
         b'1,web,foreground,shop,epyc,1.5,1.1,0.1,,,,,1e9,h\n'
         b'1,"batch ""a""",background,,epyc,2,,,,,,,,h\n')
CONFIG = (b'[agent]\nhost = a\nstop_file = stop\ninterval_s = 1\n'
          b'protect = cpu, memory\n[cgroups]\nbackground_parents = /batch\n'
          b'[scavenger]\nmode = enforce\nmemory_c = 3\n[network]\n'
          b'links = eth0=1e9\n')
POLICY = (b'"interference:hosts:list": "rule:admin_api or role:x"\n'
          b'"admin_api": "(role:admin and not role:y)"\n')
LINKS = [{'ifindex': 7, 'ifname': 'tap1', 'group': 'default'}, {},
         {'ifindex': 9, 'ifname': 'scv7', 'group': '23712',
          'linkinfo': {'info_kind': 'ifb'}}]
DOMAIN_ACTION = {
    'do': 'domain', 'uri': 'qemu:///system', 'uuid': VM, 'pid': 1,
    'started': 1}
API_CAP = {
    'id': '1', 'host': 'h', 'workload': '/batch/a', 'instance': '',
    'name': '', 'project': 'p', 'knob': 'cpu_cores', 'value': 0.5,
    'original': None, 'owner': 'o', 'reason': 'r', 'why': '', 'incidents': [],
    'set_at': '2026-11-23T12:00:00.000Z', 'removed_at': None,
    'override': None}
API_INCIDENT = {
    'id': '1', 'host': 'h', 'victim': VM, 'victim_instance': VM,
    'victim_name': 'web', 'project': 'p', 'signal': 'cpi', 'value': 2.0,
    'threshold': 1.0, 'cause': 'cpu', 'controller': 'c', 'action': 'a',
    'outcome': 'open', 'begun_at': '2026-11-23T12:00:00.000Z',
    'changed_at': '2026-11-23T12:01:00.000Z', 'ended_at': None,
    'antagonists': [{'workload': '/batch/a', 'name': '', 'score': 0.9}],
    'suspects': [{'workload': '/batch/a', 'name': '', 'score': 0.9,
                  'antagonist': True}], 'caps': [API_CAP],
    'evidence': [{'workload': one, 'signal': 'cpi', 'times_at': [
        '2026-11-23T12:00:00.000Z', '2026-11-23T12:00:10.000Z'],
        'values': [1.0, None]} for one in (VM, '/batch/a')]}


class Answers:
    """Answers each request with the same, in place of a session of
    keystoneauth."""

    def __init__(self, data: bytes, code: int = 200) -> None:
        self._data, self._code = data, code

    def request(self, *words: object, **more: object) -> Any:
        return types.SimpleNamespace(
            status_code=self._code, reason='x', content=self._data,
            text=self._data.decode(errors='replace'),
            json=lambda: json.loads(self._data))


class Readers(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.useFixture(fixtures.FakeLogger())
        self.directory = pathlib.Path(
            self.useFixture(fixtures.TempDir()).path)
        self.path = self.directory / 'file'

    def read(self, texts: Iterable[Any], how: Callable[[Any], object],
             *refusals: type[Exception]) -> None:
        """Read or refuse each text, with the reader's own errors; the first
        is the sample that the others are made of, and is read."""
        for number, data in enumerate(texts):
            try:
                how(data)
            except refusals:
                self.assertNotEqual(0, number, f'{data!r:.3000}')
            except BaseException:
                self.addDetail('read', testtools.content.text_content(
                    f'{data!r:.3000}'))
                raise

    def in_file(self, how: Callable[[], object]) -> Callable[[bytes], object]:
        def write(data: bytes) -> object:
            self.path.write_bytes(data)
            return how()
        return write

    def quiet(self, main: Callable[[list[str]], int], *words: str) -> int:
        """The exit code of a program."""
        out = io.TextIOWrapper(io.BytesIO(), 'utf-8')
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            return main(list(words))

    def test_scenario(self) -> None:
        self.read(mutations.texts(SCENARIO), self.in_file(
            lambda: scenario.read(self.path).draw(3)), errors.ConfigError)

    def test_status(self) -> None:
        def show() -> None:
            document = {**status.read(self.path), 'refused': ['x'],
                        'watcher': {'running': True, 'cannot_restore': {}}}
            status.is_stale(document, 9.5)
            status.table(document, 9.5)
            check.line(check.findings(document, 9.5), document, 9.5)

        self.read(mutations.as_json(STATUS), self.in_file(show),
                  errors.ScavengerError)

    def test_status_of_the_command(self) -> None:
        (self.directory / 'agent.conf').touch()
        self.path = self.directory / 'status.json'
        self.read(mutations.as_json(STATUS, 'json', FEW), self.in_file(
            lambda: self.quiet(
                agent_command.main, 'status', '--json', '--state-dir',
                str(self.directory), '--config-file',
                str(self.directory / 'agent.conf'))))

    def test_history(self) -> None:
        path = self.directory / f'{1:010}-{"0" * 32}-{1:016}.events'

        def show() -> None:
            path.write_bytes(segments.encode(1, self.path.read_bytes()))
            reader = history.Reader(self.directory)
            for event in reader.events():
                sentences.line(event, reader.names)
                history.as_json(event, reader.names)

        for event in EVENTS:
            line = {'entry': json.loads(codec.encode(event)),
                    'names': {VM: {'name': 'i', 'display_name': 'web'}}}
            self.read(mutations.as_json(line), self.in_file(show))

    def test_windows(self) -> None:
        host = recordings.Host(self.directory / 'recording', asked=True)
        host.ticks(8)
        host.recorder.close()
        state = json.loads(json.dumps(host.decider.state()))
        loop: Any = recordings.Host(
            self.directory / 'other', asked=True).decider
        self.read(mutations.as_json(state), self.in_file(
            lambda: windows.load(self.path, loop, 2000.0)))

    def test_directives(self) -> None:
        good = json.loads(codec.encode(report.Directives(
            issued_s=1000.0, digest='one', modes={'scavenger': 'observe'},
            exempt=['p'], tags=[report.Tag(
                instance='a', priority='background',
                floor={'cpu_cores': 1.0})],
            parameters={'scavenger.memory_c': 3.0}, specs=[report.Spec(
                project='p', application='p/web', cpu_model='cpu',
                signal='cpi', mean=1.8, stddev=0.1, n=500)],
            governed=True,
            overrides=[report.Override(
                id='o', workload='/batch/a', knob=knob, value=value,
                reason='why', expires_s=1100.0) for knob, value in (
                    ('cpu_set', '0-3'), ('cpu_cores', 0.5))])))
        self.path = self.directory / directives.FILE
        kept = directives.Directives(self.directory, allow_background=True,
                                     warn=lambda text: None)
        self.read(mutations.as_json(good), self.in_file(
            lambda: kept.load(5.0, 1010.0)))
        self.read(mutations.as_json({'directives': {
            'protection': False, 'protection_reason': 'why'}}),
            lambda data: kept.follow_kill_switch(data, 5.0))

    def test_token(self) -> None:
        self.path.touch(0o600)
        self.read(mutations.texts(b'abcdefgh-1234\n'), self.in_file(
            lambda: host_token.read(self.path)), errors.ScavengerError)

    def test_configuration(self) -> None:
        def load() -> None:
            conf = cfg.ConfigOpts()
            conf_.register(conf)
            conf_.load(conf, [f'--config-file={self.path}'], 'x')

        self.read(mutations.texts(CONFIG, number=FEW), self.in_file(load),
                  errors.ConfigError)
        self.read(mutations.texts(CONFIG, 'status', FEW), self.in_file(
            lambda: self.quiet(agent_command.main, 'status', '--config-file',
                               str(self.path))))

    def test_recordings(self) -> None:
        host = recordings.Host(self.directory / 'recording', asked=True)
        host.ticks(6)
        host.recorder.close()
        good = (self.directory / 'recording').read_bytes().splitlines()

        def play(data: bytes) -> None:
            self.path.write_bytes(data)
            recording = recordings_.read(self.path)
            with contextlib.closing(recording):
                settings, _ = replay_settings.of_header(recording.header)
                for _ in replay.run(replay.Recording(recording), settings):
                    pass

        dice = random.Random(1)
        for index in (0, 1, 2, 5):
            self.read((
                b'\n'.join((*good[:index], data, *good[index + 1:], b''))
                for data in mutations.as_json(json.loads(good[index]), index,
                                              FEW)),
                play, errors.DriverError, errors.ConfigError)
        few = b'\n'.join((*good[:2], dice.choice(good[2:]), b''))
        self.read(mutations.texts(few), play, errors.DriverError,
                  errors.ConfigError)

    def test_tables(self) -> None:
        self.read(mutations.texts(TABLE), self.in_file(
            lambda: table_files.read(self.path, {})), errors.DriverError)

    def test_parquet(self) -> None:
        columns: dict[str, Any] = {
            name: [1.0, 2.0] for name in TABLE.decode().splitlines()[0]
            .split(',')}
        columns |= {name: ['a', 'b'] for name in (
            'workload', 'application')}
        columns |= {'host': ['h', 'h'], 'cpu_model': ['a', 'a'],
                    'priority': ['foreground', '']}
        odd: tuple[Any, ...] = (
            ['x', None], [True, False], [2 ** 62, -1], [[1], []],
            [{'a': 1}, None], [b'\xff', b''], [float('nan'), 1.0],
            pyarrow.array([b'\xff\xfe', b'a']).view(pyarrow.string())
            if hasattr(pyarrow.array([b'']), 'view') else ['', ''],
            [None, None])
        for name in columns:
            for values in odd:
                parquet.write_table(pyarrow.table({**columns, name: values}),
                                    self.path)
                with contextlib.suppress(errors.DriverError):
                    table_files.read(self.path, {})
        parquet.write_table(pyarrow.table(columns), self.path)
        self.read(mutations.texts(self.path.read_bytes()), self.in_file(
            lambda: table_files.read(self.path, {})), errors.DriverError)

    def test_leases(self) -> None:
        action = {'do': 'write', 'dir': '/cg/cpu/batch/a', 'inode': 7,
                  'file': 'cpuset.cpus', 'text': '0-3'}
        good = records.dump(records.Lease('/batch/a', 'cpu_set', 'b',
                                          [action]))
        self.read(mutations.texts(good), records.parse, actions.Refused)

    def test_heartbeat_and_lock(self) -> None:
        state = state_directory.StateDir(str(self.directory))
        self.directory.chmod(0o700)
        self.assertTrue(state.open())
        self.addCleanup(state.close)
        good = json.dumps({'boot_id': records.boot_id(), 'pid': 7,
                           'expires_s': records.now_s() + 9}).encode()

        def look() -> None:
            for name in ('heartbeat', 'lock'):
                (self.directory / name).write_bytes(self.path.read_bytes())
            state.expired()
            state.holder()

        self.read(mutations.texts(good), self.in_file(look))

    def test_watcher(self) -> None:
        now = records.now_s()
        body = {'boot_id': records.boot_id(), 'pid': 7, 'closed_set': 1,
                'kinds': {'cgroup 29:1 /sys': ''}}

        def look(data: bytes) -> None:
            self.path.write_bytes(watcher.first_line(now, data) + data)
            watcher.Reader(self.path).read(now, 5.0)

        self.read(mutations.as_json(body), look)
        self.path = self.directory / watcher.WANTED
        directory = os.open(self.directory, os.O_RDONLY)
        self.addCleanup(os.close, directory)
        self.read(mutations.as_json(['net 7 ', 'cgroup 29:1 /sys']),
                  self.in_file(lambda: abilities.valid(
                      watcher.Wanted().read(directory))))

    def test_what_ip_prints(self) -> None:
        self.read(mutations.as_json(LINKS), lambda data: network.parse_links(
            data.decode(errors='replace')), ValueError)

    def test_what_virsh_prints(self) -> None:
        text = domain_texts.domain(tune="""<cputune>
            <period>100000</period><quota>50000</quota>
            <vcpupin vcpu='0' cpuset='0-3'/><emulatorpin cpuset='1'/>
            </cputune>""")

        def look(data: bytes) -> None:
            try:
                root = ElementTree.fromstring(data.decode(errors='replace'))
            except ElementTree.ParseError:
                return
            for knob, values in (
                    ('cpu_cores', {'vcpu_quota': '-1',
                                   'vcpu_period': '100000'}),
                    ('memory_bytes', {'balloon_kib': '5'}),
                    ('io_bytes_per_s', {'vda.read_bytes_sec': '5'})):
                action = {**DOMAIN_ACTION, 'knob': knob, 'values': values}
                domain.is_same(root, action)
                list(domain.commands(action, root, '--live'))

        self.read(mutations.texts(text.encode()), look)

    def test_metadata_of_a_domain(self) -> None:
        record = ('<scavenger:lease xmlns:scavenger="https://docs.scavenger-'
                  'openstack.org/lease/1/io_ops_per_s"><original '
                  'knob="io_ops_per_s" key="vda.total_iops_sec" value="50"/>'
                  '</scavenger:lease>')
        nova = domain_texts.nova({
            'scavenger:priority': 'background', 'hw:cpu_policy': 'mixed',
            'scavenger:floor_cpu_cores': '0.5'}, {'scavenger_application':
                                                  'web'})
        self.read(mutations.texts((nova + record).encode()), lambda data:
                  xml.parse(domain_texts.domain(
                      data.decode(errors='surrogateescape'))),
                  errors.DriverError)

    def test_passwords(self) -> None:
        good = b'# users\nann:%s\n' % bcrypt.hashpw(b'x', bcrypt.gensalt(4))
        self.path.touch(0o600)

        def ask() -> None:
            made = auth.HttpBasic(lambda environ, start: [], str(self.path))
            made({'HTTP_AUTHORIZATION': 'Basic YW5uOng='}, None)

        self.read(mutations.texts(good), self.in_file(ask),
                  errors.ConfigError)
        self.path.write_bytes(good)
        made = auth.HttpBasic(lambda environ, start: [], str(self.path))
        self.read(mutations.texts(b'Basic YW5uOng='), lambda data: made(
            {'HTTP_AUTHORIZATION': data.decode('latin-1')}, None))

    def test_policy(self) -> None:
        conf = cloud.configuration()

        def look() -> None:
            conf.set_override('policy_file', str(self.path), 'oslo_policy')
            policy_file.check(conf)

        policy_file.check(conf)
        self.read(mutations.texts(POLICY, number=FEW), self.in_file(look),
                  errors.ConfigError)

    def test_answers_of_the_api(self) -> None:
        def ask(command: type[Any], *words: str) -> Callable[[bytes], object]:
            def run(data: bytes) -> object:
                app = types.SimpleNamespace(
                    stdout=io.StringIO(), stderr=io.StringIO(),
                    client_manager=types.SimpleNamespace(**{
                        plugin.API_NAME: http.Client(
                            Answers(data),      # type: ignore[arg-type]
                            'http://x')}))
                made = command(app, None)
                parser = made.get_parser('x')
                return made.run(parser.parse_args(list(words)))
            return run

        for noun, row, command, words in (
                ('incidents', [API_INCIDENT], incident_command.ListIncidents,
                 ('--long',)),
                ('incident', API_INCIDENT, incident_command.ShowIncident,
                 ('1',)),
                ('caps', [API_CAP], cap_command.ListCaps, ('--long',))):
            self.read(mutations.as_json({noun: row, 'next': None}, noun),
                      ask(command, *words), exceptions.CommandError)
        self.read(mutations.as_json({'error': {
            'code': 400, 'title': 't', 'detail': 'd', 'allowed': ['a'],
            'field': 'f', 'request_id': 'r'}}), lambda data: http.explain(
                'x', data.decode(errors='replace')))

    def test_answers_of_placement(self) -> None:
        for name, words, answer in (
                ('listed', (), {'resource_providers': [
                    {'uuid': 'u', 'name': 'h', 'root_provider_uuid': 'u',
                     'parent_provider_uuid': None}]}),
                ('inventory', ('u',), {'inventories': {
                    'VCPU': {'total': 5, 'reserved': 1}}}),
                ('root', ('h',), {'resource_providers': [
                    {'uuid': 'u', 'name': 'h', 'root_provider_uuid': 'u'}]}),
                ('usage', ('u',), {'usages': {'VCPU': 1},
                                   'resource_provider_generation': 1}),
                ('make_child', ('h', 'r'), {'uuid': 'u'}),
                ('set_traits', ('u', frozenset()), {
                    'traits': ['a'], 'resource_provider_generation': 1})):
            def ask(data: bytes, name: str = name, words: Any = words
                    ) -> None:
                api = placement_api.Placement(
                    Answers(data))      # type: ignore[arg-type]
                getattr(api, name)(*words)

            self.read(mutations.as_json(answer, name), ask,
                      errors.Unreachable, placement_api.Refused)

    def test_results_of_the_demo(self) -> None:
        name, good = 'result.json', demo_records.whole()
        self.path = self.directory / name

        def draw() -> None:
            self.quiet(demo.main, '--output', str(self.directory),
                       '--picture', str(self.directory / 'x.svg'))

        self.read((json.dumps(document).encode() for document
                   in mutations.documents(good, name, FEW)),
                  self.in_file(draw), errors.ScavengerError)
