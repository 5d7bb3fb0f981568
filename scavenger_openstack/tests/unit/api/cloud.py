# SPDX-License-Identifier: Apache-2.0

"""A small cloud in a database, and an API that shows it."""

from __future__ import annotations

import functools
import json
import pathlib
import tempfile
import time
from typing import Any

import fixtures
import jsonschema
from oslo_config import cfg
from sqlalchemy import Engine
from sqlalchemy import insert
from sqlalchemy import select
import testtools
from werkzeug.test import Client
from werkzeug.test import TestResponse

from scavenger_openstack.api import app
from scavenger_openstack.api.routes import Route
from scavenger_openstack.api import validation
from scavenger_openstack import conf as conf_
from scavenger_openstack.db import connect
from scavenger_openstack.db import schema
from scavenger_openstack.db import tables
from scavenger_openstack.text import iso

NOW_S = time.time()

ONE, OTHER, OPERATORS = 'project-one', 'project-other', 'project-operators'
VICTIM = '11111111-1111-4111-8111-111111111111'
NOISY = '22222222-2222-4222-8222-222222222222'
BATCH = '/batch/noisy'
INCIDENT, INCIDENT_OF_OTHER = 'a' * 32, 'b' * 32
OVERRIDE, PRIORITY, EXEMPTION = 'c' * 32, 'd' * 32, 'e' * 32
EVICTION, PROFILING = '9' * 32, '6' * 32
PROFILE, PROFILE_OF_OTHER, PROFILE_OF_ALL = '1' * 32, '2' * 32, '3' * 32
HOST, SILENT = 'host-one', 'host-silent'

OTHER_SIDE = (OTHER, NOISY, BATCH, HOST, SILENT, 'noisy', 'CPU hog',
              INCIDENT_OF_OTHER, PROFILE_OF_OTHER, '0.77')
"""What no reader of project one may find in an answer."""

ROLES: dict[str, dict[str, str] | None] = {
    'admin': {'X-Roles': 'admin,member,reader', 'X-Project-Id': OPERATORS,
              'X-User-Id': 'ann', 'X-User-Domain-Id': 'default',
              'X-Project-Domain-Id': 'default'},
    'service': {'X-Roles': 'service', 'X-Project-Id': 'service'},
    'operator': {'X-Roles': 'reader', 'X-Project-Id': OPERATORS},
    'reader': {'X-Roles': 'reader', 'X-Project-Id': ONE},
    'member': {'X-Roles': 'member,reader', 'X-Project-Id': ONE},
    'stranger': {'X-Roles': 'reader', 'X-Project-Id': 'project-three'},
    'nobody': {'X-Roles': '', 'X-Project-Id': ONE},
    'of a domain': {'X-Roles': 'admin,member,reader', 'X-Domain-Id': 'one'},
    'of the system': {'X-Roles': 'admin,member,reader',
                      'OpenStack-System-Scope': 'all'},
    'unscoped': {'X-Roles': 'reader', 'X-Project-Id': ''},
    'anonymous': None,
}
"""Headers of each role; ``None``: the request does not say who it is."""


def at(seconds: float) -> str:
    """A time, by its distance from now."""
    return iso(NOW_S + seconds)


def estimate(value: float) -> dict[str, float]:
    return {'value': value, 'low': value / 2, 'high': 1.0}


def profile(**changes: Any) -> dict[str, Any]:
    """A profile as a file has it."""
    return {'kind': 'application', 'target': 'db', 'project': ONE,
            'source': 'measured', 'form': 'long', 'measured_s': NOW_S - 60,
            'host': HOST, 'qos': {'signal': 'p99_s', 'alone': 0.001,
                                  'bound': 0.002},
            'tolerated': {'llc_capacity': estimate(0.25)},
            'caused': {'llc_capacity': estimate(0.5), 'l1d': estimate(0.0)},
            'missing': {'prefetcher': f'{HOST} has one CPU'}, **changes}


def fill(engine: Engine) -> None:
    """Two hosts, a victim, a noisy VM and a noisy container."""
    hour_s = int(NOW_S // 3600 * 3600)
    with connect.writing(engine) as connection:
        def add(table: Any, **values: Any) -> int:
            done = connection.execute(insert(table).values(**values))
            assert done.inserted_primary_key is not None
            return done.inserted_primary_key[0]

        one = add(tables.hosts, name=HOST, version='1', enforcing=True,
                  facts={'grade': 'A', 'modes': {'scavenger': 'enforce'},
                         'precision': {'attribution': {'confirmed': 3}}},
                  settings={}, first_seen_s=NOW_S - 900,
                  last_seen_s=NOW_S - 5)
        two = add(tables.hosts, name=SILENT, version='1', enforcing=False,
                  facts={'stopped': 'the stop file is there'}, settings={},
                  first_seen_s=NOW_S - 9000, last_seen_s=NOW_S - 9000)
        add(tables.aggregate_hosts, aggregate='racks', host=HOST, named=True,
            nova=False)
        there = {'host_id': one, 'vcpus': 2.0, 'since_s': NOW_S - 900}
        add(tables.workloads, **there, name=VICTIM, kind='instance',
            instance=VICTIM, display_name='web', project=ONE,
            application='web', priority='foreground',
            floor={'cpu_cores': 1.0})
        add(tables.workloads, **there, name=NOISY, kind='instance',
            instance=NOISY, display_name='CPU hog', project=OTHER,
            priority='background', floor={'cpu_cores': 0.5})
        add(tables.workloads, **there, name=BATCH, kind='container',
            priority='background', floor={'cpu_cores': 0.1})
        add(tables.workloads, **there, name='/batch/gone', kind='container',
            priority='background', floor={}, until_s=NOW_S - 60)
        begun = {'signal': 'run_delay', 'value': 0.9, 'threshold': 0.2,
                 'cause': 'cpu', 'outcome': 'confirmed',
                 'controller': 'attribution',
                 'action': f'cpu_cores 0.5 for {BATCH}', 'ended_s': None,
                 'begun_s': NOW_S - 300, 'changed_s': NOW_S - 200}
        first = add(tables.incidents, **begun, host_id=one, uuid=INCIDENT,
                    victim=VICTIM, victim_instance=VICTIM, project=ONE,
                    grounds=[
                        {'kind': 'direct', 'workload': BATCH, 'share': 0.61,
                         'waited_s': 1.9, 'window_s': 2.0},
                        {'kind': 'direct', 'workload': NOISY, 'share': 0.23,
                         'waited_s': 1.9, 'window_s': 2.0},
                        {'kind': 'direct', 'share': 0.14, 'waited_s': 1.9,
                         'window_s': 2.0, 'threads': ['kvm-noisy']},
                        {'kind': 'timing', 'workload': NOISY, 'share': 0.77,
                         'chance': 0.0004},
                        {'kind': 'share', 'workload': VICTIM,
                         'share': 0.02}],
                    evidence=[{'workload': name, 'signal': 'cpu_cores',
                               'times_s': [NOW_S - 290, NOW_S - 280],
                               'values': [1.0, None]}
                              for name in (VICTIM, NOISY, BATCH)])
        second = add(tables.incidents, **begun, host_id=two,
                     uuid=INCIDENT_OF_OTHER, victim=NOISY,
                     victim_instance=NOISY, project=OTHER, evidence=[])
        for incident in (first, second):
            add(tables.suspects, incident_id=incident, workload=NOISY,
                instance=NOISY, project=OTHER, score=0.77, antagonist=False,
                begun_s=NOW_S - 300)
            add(tables.suspects, incident_id=incident, workload=BATCH,
                score=0.99, antagonist=True, begun_s=NOW_S - 300)
        limit = {'host_id': one, 'workload': BATCH, 'knob': 'cpu_cores',
                 'owner': 'attribution', 'reason': 'it disturbs', 'why': '',
                 'value': 0.5, 'original': None, 'incidents': INCIDENT}
        add(tables.caps, **limit, set_s=NOW_S - 200, changed_s=NOW_S - 200)
        add(tables.caps, **limit, set_s=NOW_S - 800, changed_s=NOW_S - 700,
            removed_s=NOW_S - 700)
        for hour, workload, project, victim, seconds in (
                (hour_s, BATCH, '', VICTIM, 100.0),
                (hour_s - 3600, BATCH, '', VICTIM, 50.5),
                (hour_s, NOISY, OTHER, VICTIM, 20.0),
                (hour_s, BATCH, '', '/other', 7.0),
                (hour_s - 90 * 86400, NOISY, OTHER, VICTIM, 9999.0)):
            add(tables.antagonist_hours, host_id=one, hour_s=hour,
                workload=workload, project=project, victim=victim,
                victim_project=ONE, cause='cpu', incidents=1,
                interference_s=seconds, confirmed=1, refuted=0,
                instance=workload if workload == NOISY else '')
        asked = {'reason': 'maintenance', 'created_by': 'ann',
                 'created_s': NOW_S - 60}
        add(tables.overrides, **asked, host_id=one, uuid=OVERRIDE,
            workload=BATCH, knob='cpu_cores', value=0.3,
            expires_s=NOW_S + 3600)
        add(tables.overrides, **asked, host_id=one, uuid='f' * 32,
            workload=BATCH, knob='memory_bytes', value=None,
            expires_s=NOW_S - 1)
        add(tables.rules, **asked, uuid=PRIORITY, kind='priority',
            scope='project', target=OTHER, value='background')
        add(tables.rules, **asked, uuid=EXEMPTION, kind='exemption',
            scope='instance', target=VICTIM)
        add(tables.switches, scope='host', target=HOST, protection=False,
            reason='an upgrade', caps_per_minute=3, changed_by='ann',
            changed_s=NOW_S - 50)
        add(tables.evictions, **asked, uuid=EVICTION, instance=NOISY,
            host=HOST, project=OTHER, how='stop', state='done',
            detail='its status is SHUTOFF', changed_s=NOW_S - 50,
            ended_s=NOW_S - 50)
        add(tables.profilings, **asked, uuid=PROFILING, host_id=one,
            workload=BATCH, kind='application', target='noisy',
            project=OTHER, form='short', seconds=60.0, used_s=60.0,
            state='measuring', detail='', changed_s=NOW_S - 50,
            until_s=NOW_S + 9000, unfinished=one)
        add(tables.claims, name='evictions', holder='a conductor',
            expires_s=NOW_S + 7200)
        for uuid, project, kind, target in (
                (PROFILE, ONE, 'application', 'web'),
                (PROFILE_OF_OTHER, OTHER, 'application', 'noisy'),
                (PROFILE_OF_ALL, '', 'flavor', 'm1.large')):
            document = {**profile(), 'project': project, 'kind': kind,
                        'target': target}
            add(tables.profiles, uuid=uuid, project=project, kind=kind,
                target=target, created_by='ann', created_s=NOW_S - 60,
                document=document)
        add(tables.specs, project=ONE, application='web', cpu_model='cpu',
            signal='cpi', mean=1.2, stddev=0.1, n=1000, m2=10.0,
            day_s=int(NOW_S // 86400 * 86400))
        add(tables.audit, time_s=NOW_S - 60, actor='ann', project=OPERATORS,
            request_id='req-1', action='protection.set', before=None,
            target=f'host/{HOST}', after={'enabled': False}, reason='an '
            'upgrade')


def add_background(engine: Engine) -> str:
    """A background instance of project one that disturbed another: it is
    limited, was limited, and is being evicted.  Its UUID."""
    own = '33333333-3333-4333-8333-333333333333'
    with connect.writing(engine) as connection:
        host_id = connection.scalar(select(tables.hosts.c.id).where(
            tables.hosts.c.name == HOST))
        connection.execute(insert(tables.workloads).values(
            host_id=host_id, vcpus=2.0, since_s=NOW_S - 900.5, name=own,
            kind='instance', instance=own, display_name='nightly',
            project=ONE, priority='background', floor={'cpu_cores': 0.1}))
        limit = {'host_id': host_id, 'workload': own, 'instance': own,
                 'project': ONE, 'knob': 'cpu_cores', 'original': None,
                 'owner': 'attribution', 'incidents': INCIDENT_OF_OTHER,
                 'reason': f'it disturbs {NOISY}',
                 'why': f'{NOISY} on {HOST} is gone'}
        for begin, end, steps in (
                (-7200.25, -7100.25, None), (-4000, -3900, None),
                (-1000, -900, None),
                (-500, None, [[NOW_S - 500, 1.0], [NOW_S - 400, 0.25]])):
            connection.execute(insert(tables.caps).values(
                **limit, set_s=NOW_S + begin, changed_s=NOW_S + begin,
                removed_s=None if end is None else NOW_S + end, value=0.25,
                steps=steps))
        connection.execute(insert(tables.evictions).values(
            uuid='8' * 32, instance=own, host=HOST, project=ONE, how='stop',
            reason=f'it disturbs {NOISY}', created_by='noisy neighbour',
            created_s=NOW_S - 60, state='asked', detail=f'of {HOST}',
            changed_s=NOW_S - 60, unfinished=own))
        connection.execute(insert(tables.evictions).values(
            uuid='7' * 32, instance=own, host=HOST, project=ONE,
            how='live-migrate', reason='', created_by='', detail='',
            created_s=NOW_S - 6000, state='done', changed_s=NOW_S - 5900,
            ended_s=NOW_S - 5900))
    return own


@functools.cache
def _filled() -> bytes:
    """A database file with the cloud, made once."""
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory, 'scavenger.sqlite')
        engine = connect.engine(f'sqlite:///{path}')
        schema.upgrade(engine)
        fill(engine)
        engine.dispose()    # the last connection empties the journal
        return path.read_bytes()


def configuration(**options: Any) -> cfg.ConfigOpts:
    """No file; options of the section [api]."""
    conf = cfg.ConfigOpts()
    conf_.register(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    conf.set_override('operator_projects', [OPERATORS], 'api')
    # However long ago, on a busy machine, NOW_S was.
    conf.set_override('silent_s', 7200.0, 'api')
    for name, value in options.items():
        conf.set_override(name, value, 'api')
    return conf


PATHS = {
    'name': HOST, 'host': HOST, 'knob': 'cpu_cores', 'aggregate': 'racks',
    'workload': BATCH,
    '/v1/incidents/{id}': INCIDENT,
    '/v1/priorities/{id}': PRIORITY,
    '/v1/exemptions/{id}': EXEMPTION,
    '/v1/evictions/{id}': EVICTION,
    '/v1/profiles/{id}': PROFILE,
    '/v1/profilings/{id}': PROFILING,
}


def url(route: Route) -> str:
    """Where something of this cloud is found."""
    path = route.path.replace('{id}', PATHS.get(route.path, ''))
    return path.format(**PATHS)


def validate(answer: TestResponse, schema: dict[str, Any]) -> None:
    """That each schema is one, test_openapi looks at.

    :raises jsonschema.ValidationError: the answer is not as published
    """
    jsonschema.Draft202012Validator(
        schema, format_checker=validation.FORMATS).validate(answer.json)


def document(answer: TestResponse) -> dict[str, Any]:
    """The JSON object of an answer."""
    found: Any = answer.json
    return found


def error_of(answer: TestResponse) -> dict[str, Any]:
    found: dict[str, Any] = document(answer)['error']
    return found


class Api(testtools.TestCase):
    """An API on a database of its own; each request has a role.

    With a class of ``tests.functional.servers.databases`` behind it, it is
    on that database.
    """

    engine: Engine

    def setUp(self) -> None:
        super().setUp()
        self.log = self.useFixture(fixtures.FakeLogger())
        self.later_s = 0.0
        if not hasattr(self, 'engine'):
            self.directory = pathlib.Path(
                self.useFixture(fixtures.TempDir()).path)
            path = self.directory / 'scavenger.sqlite'
            path.write_bytes(_filled())
            self.engine = connect.engine(f'sqlite:///{path}')
            self.addCleanup(self.engine.dispose)
        else:
            fill(self.engine)
        self.start()

    def start(self, **options: Any) -> None:
        """Let an API answer that has cached nothing.

        :param options: of the section [api]
        """
        self.client = Client(app.create(
            self.engine, configuration(**options), 'noauth',
            # No test lasts into the next hour.
            clock=lambda: NOW_S + self.later_s))

    @functools.cached_property
    def anonymous(self) -> Client:
        """It says to an API with a password file nothing."""
        return Client(app.create(
            self.engine, configuration(http_basic_file=self.password_file()),
            'http_basic'))

    def password_file(self) -> str:
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path, 'users')
        path.touch(0o600)
        return str(path)

    def call(self, method: str, url: str, body: Any = None, *,
             role: str = 'admin', **options: Any) -> TestResponse:
        headers = ROLES[role]
        client = self.anonymous if headers is None else self.client
        headers = {**(headers or {}), **options.pop('headers', {})}
        if body is not None:
            options = {'data': body if isinstance(body, bytes)
                       else json.dumps(body),
                       'content_type': 'application/json', **options}
        return client.open(url, method=method, headers=headers, **options)

    def ok(self, method: str, url: str, body: Any = None, *,
           role: str = 'admin') -> Any:
        """What is in an answer that is no error."""
        answer = self.call(method, url, body, role=role)
        self.assertIn(answer.status_code, (200, 204), answer.text)
        return answer.json if answer.status_code == 200 else None

    def refused(self, status: int, method: str, url: str, body: Any = None,
                **options: Any) -> dict[str, Any]:
        """The error that is answered, which has the form of all errors."""
        answer = self.call(method, url, body, **options)
        self.assertEqual(status, answer.status_code,
                         f'{method} {url}: {answer.text[:500]}')
        self.assertEqual('application/json', answer.content_type)
        error = error_of(answer)
        self.assertEqual(status, error['code'])
        self.assertEqual(answer.headers['X-Openstack-Request-Id'],
                         error['request_id'])
        self.assertNotIn('Traceback', answer.text)
        return error

    def audited(self) -> list[dict[str, Any]]:
        return self.ok('GET', '/v1/audit')['audit']
