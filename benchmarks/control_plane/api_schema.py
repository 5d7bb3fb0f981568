# SPDX-License-Identifier: Apache-2.0

"""Whether the API keeps to the document that it serves, by schemathesis.

It needs that program, in an environment of its own:

    python3 -m venv ~/st && ~/st/bin/pip install schemathesis
    python benchmarks/control_plane/api_schema.py \\
        --program ~/st/bin/schemathesis

The API runs on the loopback interface, on SQLite, with the small cloud of
the unit tests.  Schemathesis reads /v1/openapi.json there and sends requests
as an administrator with a password, then as a reader of one project; each run
has the next seed, until there are enough requests.  Everything is printed
that schemathesis finds; the program ends with 1 if that is anything.
"""

from __future__ import annotations

import argparse
import collections
from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

import bcrypt
from werkzeug import serving
from werkzeug.test import Client

from scavenger_openstack.api import app
from scavenger_openstack.api.resources import audit
from scavenger_openstack.api.resources import incidents
from scavenger_openstack.api.routes import ROUTES
from scavenger_openstack.db import connect
from scavenger_openstack.db import schema
from scavenger_openstack import grounds
from scavenger_openstack.knobs import OVERRIDABLE
from scavenger_openstack.tests.unit.api import cloud

USER, PASSWORD = 'ann', 'of no worth'

KNOWN = {
    'action': list(audit.ACTIONS),
    'aggregate': ['racks'],
    'antagonist': [cloud.BATCH, cloud.NOISY],
    'cause': [*grounds.CAUSES, grounds.EVICTION],
    'expires_at': [cloud.at(86400)],
    'host': [cloud.HOST, cloud.SILENT],
    'id': [cloud.INCIDENT, cloud.PRIORITY, cloud.EXEMPTION],
    'knob': [str(knob) for knob in OVERRIDABLE],
    'name': [cloud.HOST, cloud.SILENT],
    'project': [cloud.ONE, cloud.OTHER],
    'target': [cloud.HOST, cloud.NOISY, cloud.OTHER, 'racks'],
    'victim': [cloud.VICTIM],
    'workload': [cloud.BATCH, cloud.NOISY]}
"""Parameter or field: values that this cloud takes."""

BEYOND = ['action', 'aggregate', 'cause', 'expires_at', 'host', 'knob',
          'marker', 'since', 'target', 'value',
          *sorted(incidents.HIDDEN_FILTERS)]
"""Fields of which a schema cannot say all: a host that has not reported, a
time that is over, a limit below a floor, a target that fits its scope, a
filter that readers of a project may not use, a word that neither this release
has nor anything that is stored."""

HOOKS = '''
import schemathesis


def often(known, schema):
    return {'anyOf': [{'enum': known}, schema]}


@schemathesis.hook
def before_load_schema(context, raw_schema):
    """What exists is chosen as often as anything else."""
    for path, methods in raw_schema['paths'].items():
        known = {**KNOWN, **MARKERS.get(path, {})}
        for operation in methods.values():
            for parameter in operation.get('parameters', ()):
                if parameter['name'] in known:
                    parameter['schema'] = often(
                        known[parameter['name']], parameter['schema'])
            if 'requestBody' in operation:
                body = operation['requestBody']['content'][
                    'application/json']['schema']['properties']
                for name in body.keys() & known:
                    body[name] = often(known[name], body[name])


@schemathesis.check
def refused_beyond_the_schema(context, response, case):
    """What passes the schema is refused for what no schema can say."""
    if response.status_code != 400 or not (
            case.meta and case.meta.generation.mode.is_positive):
        return
    error = response.json()['error']
    if error.get('field') not in BEYOND and 'NUL' not in error['detail']:
        raise AssertionError(f'the schema allows this: {error}')
'''

CONFIGURATION = '''
[checks.positive_data_acceptance]
# 400 has a check of its own.
expected-statuses = ["2xx", "400", "401", "403", "404", "409"]
'''


class _Quiet(serving.WSGIRequestHandler):

    def log(self, type: str, message: str, *args: Any) -> None:
        pass


class Served:
    """An API that counts what it answers."""

    def __init__(self, application: app.Application) -> None:
        self.answers: collections.Counter[str] = collections.Counter()
        self._application = application
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start: Any
                 ) -> Iterable[bytes]:
        def counted(status: str, *rest: Any) -> Any:
            with self._lock:
                self.answers[status.split()[0]] += 1
            return start(status, *rest)
        return self._application(environ, counted)

    @contextlib.contextmanager
    def at(self) -> Iterator[str]:
        """The URL that it is at."""
        server = serving.make_server('127.0.0.1', 0, self, threaded=True,
                                     request_handler=_Quiet)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f'http://127.0.0.1:{server.server_port}'
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


def hooks(engine: Any) -> str:
    """A module for schemathesis, with markers that are of this database."""
    client = Client(app.create(engine, cloud.configuration(), 'noauth'))
    pages = {route.path: client.get(f'{route.path}?limit=1').json or {}
             for route in ROUTES
             if 'marker' in route.query.get('properties', ())}
    markers = {path: {'marker': [page['next']]}
               for path, page in pages.items() if page.get('next')}
    return (f'{HOOKS}\n\nKNOWN = {KNOWN!r}\nMARKERS = {markers!r}\n'
            f'BEYOND = {BEYOND!r}\n')


def application(engine: Any, here: pathlib.Path, role: str
                ) -> tuple[app.Application, list[str]]:
    """The API, and what tells it that a request is of this role."""
    if role != 'admin':
        headers = cloud.ROLES[role] or {}
        arguments = [text for name, value in headers.items()
                     for text in ('--header', f'{name}: {value}')]
        # Without authentication there is none to ignore.
        return app.create(engine, cloud.configuration(), 'noauth'), [
            *arguments, '--exclude-checks', 'ignored_auth']
    users = here / 'users'
    users.touch(0o600)
    hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
    users.write_text(f'{USER}:{hashed}\n')
    return app.create(
        engine, cloud.configuration(http_basic_file=str(users)),
        'http_basic'), ['--auth', f'{USER}:{PASSWORD}']


def run(program: str, role: str, examples: int, seed: int, seconds: float
        ) -> tuple[collections.Counter[str], bool]:
    """One run of schemathesis on a new database.

    :returns: status -> answers, and whether all was well
    """
    with tempfile.TemporaryDirectory() as directory:
        here = pathlib.Path(directory)
        engine = connect.engine(f'sqlite:///{here}/scavenger.sqlite')
        schema.upgrade(engine)
        cloud.fill(engine)
        (here / 'hooks.py').write_text(hooks(engine))
        (here / 'schemathesis.toml').write_text(
            f'hooks = "{here}/hooks.py"\n{CONFIGURATION}')
        made, arguments = application(engine, here, role)
        served = Served(made)
        with served.at() as url:
            done = subprocess.run(
                [program, '--no-color', '--config-file',
                 'schemathesis.toml', 'run', f'{url}/v1/openapi.json',
                 '--max-examples', str(examples), '--seed', str(seed),
                 '--continue-on-failure', '--request-timeout', '60',
                 *arguments],
                cwd=here, timeout=seconds, check=False)
        engine.dispose()
    broken = [status for status in served.answers if status >= '500']
    return served.answers, done.returncode == 0 and not broken


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--program', default='schemathesis')
    parser.add_argument('--requests', type=int, default=20_000)
    parser.add_argument('--examples', type=int, default=100,
                        help='of each operation in a run')
    parser.add_argument('--seed', type=int, default=1, help='the first one')
    parser.add_argument('--roles', nargs='+', default=['admin', 'reader'],
                        choices=[role for role in cloud.ROLES
                                 if cloud.ROLES[role] is not None])
    parser.add_argument('--seconds', type=float, default=3600.0,
                        help='that a run may take')
    options = parser.parse_args()
    if shutil.which(options.program) is None:
        sys.exit(f'api_schema: there is no program {options.program}; --help '
                 'says how to install it')
    total: collections.Counter[str] = collections.Counter()
    begun, seed, failed = time.monotonic(), options.seed, []
    while not total or total.total() < options.requests:
        for role in options.roles:
            print(f'seed {seed} as {role}', flush=True)
            answers, well = run(options.program, role, options.examples, seed,
                                options.seconds)
            total += answers
            print(f'seed {seed} as {role}: {answers.total()} requests, '
                  f'{_listed(answers)}', flush=True)
            if not well:
                failed.append(f'seed {seed} as {role}')
        seed += 1
    print(f'{total.total()} requests in {time.monotonic() - begun:.0f} s: '
          f'{_listed(total)}')
    if failed:
        sys.exit(f'api_schema: failures with {", ".join(failed)}')


def _listed(answers: collections.Counter[str]) -> str:
    return ', '.join(f'{number} of {status}'
                     for status, number in sorted(answers.items()))


if __name__ == '__main__':
    main()
