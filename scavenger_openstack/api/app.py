# SPDX-License-Identifier: Apache-2.0

"""The WSGI application: HTTP outside, values inside.

Each request goes one way: a row of the table of URLs, the caller, its
policy, path, query and body against their schemas, one transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from http import HTTPStatus
import logging
import time
from typing import Any

import flask
import microversion_parse
from oslo_config import cfg
from oslo_middleware import cors
from oslo_middleware import request_id
from werkzeug import exceptions
from werkzeug import routing

from scavenger_openstack.api import auth as authentication
from scavenger_openstack.api import cached
from scavenger_openstack.api.call import Call
from scavenger_openstack.api import faults
from scavenger_openstack.api import health
from scavenger_openstack.api import openapi
from scavenger_openstack.api import policies
from scavenger_openstack.api.resources import summary as host_summary
from scavenger_openstack.api.routes import Route
from scavenger_openstack.api.routes import ROUTES
from scavenger_openstack.api import validation
from scavenger_openstack import conf as conf_package
from scavenger_openstack.conf import check as conf_check
from scavenger_openstack.conf import control as conf_control
from scavenger_openstack.db import connect
from scavenger_openstack.db.resources.rankings import Rankings
from scavenger_openstack.db.resources.residents import Residents
from scavenger_openstack.db import schema
from scavenger_openstack import errors
from scavenger_openstack import text as formats
from scavenger_openstack.types import printable

LOG = logging.getLogger(__name__)

SERVICE = 'interference'
VERSIONS = ['1.0']
VERSION_HEADER = 'OpenStack-API-Version'
PATIENCE_S = 5.0
"""How long a write is tried again after deadlocks."""

ALLOWED_HEADERS = ['X-Auth-Token', 'Authorization', VERSION_HEADER,
                   'X-OpenStack-Request-ID']
"""What a page of another origin may send, where [cors] allows its origin."""

EXPOSED_HEADERS = [VERSION_HEADER, 'X-OpenStack-Request-ID']
"""What it may read of an answer."""

METHODS = ['GET', 'PUT', 'POST', 'DELETE', 'PATCH']

OVERVIEW_S = 10.0
"""For how long all requests share one overview, which counts what is open
and in force."""

WEEK_S = 600.0
"""The same of the sums of the days before the last 24 hours."""

HEALTH_S = 1.0
"""The same of what ``/healthcheck`` tries."""

Application = Callable[[dict[str, Any], Any], Iterable[bytes]]


class _Rest(routing.PathConverter):
    """All that is left of a URL, which may begin with a slash."""

    regex = '.+?'
    part_isolating = False


def create(engine: Any, conf: cfg.ConfigOpts | None = None,
           auth: str | None = None,
           clock: Callable[[], float] = time.time) -> Application:
    """The application, in all its middleware.

    :param engine: see :func:`.connect.engine`
    :param conf: default: no configuration file
    :param auth: in place of ``[api] auth_strategy``
    :param clock: UNIX time in seconds
    :raises ConfigError: the configuration cannot work.
    """
    if conf is None:
        conf = cfg.ConfigOpts()
        conf_package.register(conf)
        conf([], default_config_files=[], default_config_dirs=[])
    wrong_values = list(conf_check.wrong_values(
        conf, [('api', conf_control.API_OPTS)]))
    if wrong_values:
        raise errors.ConfigError(*wrong_values)
    auth = auth or conf.api.auth_strategy
    if auth == authentication.NOAUTH:
        LOG.warning('[api] auth_strategy = noauth: every client that reaches '
                    'this API may do everything')
    app = flask_app(engine, conf, auth, ROUTES, clock)
    checked = authentication.protected(app.wsgi_app, auth, conf)
    healthy = health.application(lambda: _check_health(engine), conf)

    def called(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        if environ.get('PATH_INFO') == health.PATH:
            return healthy(environ, start)
        try:
            return checked(environ, start)
        except Exception as error:      # of the middleware: ours answers
            with app.request_context(environ):
                answer: Iterable[bytes] = _error(error, None)(environ, start)
                return answer

    cors.set_defaults(allow_headers=ALLOWED_HEADERS, allow_methods=METHODS,
                      expose_headers=EXPOSED_HEADERS)
    made: Application = request_id.RequestId(cors.CORS(called, conf))
    return made


def _check_health(engine: Any) -> None:
    def check(connection: Any) -> None:
        schema.check(connection)
        schema.check_writable(connection)

    connect.retried(engine, check, patience_s=HEALTH_S)


def flask_app(engine: Any, conf: cfg.ConfigOpts, auth: str,
              routes: Iterable[Route],
              clock: Callable[[], float] = time.time) -> flask.Flask:
    app = flask.Flask(__name__, static_folder=None)
    app.url_map.merge_slashes = False
    app.url_map.converters['rest'] = _Rest
    app.config['MAX_CONTENT_LENGTH'] = validation.BODY_MOST_BYTES
    allows = policies.allows(policies.enforcer(conf),
                             frozenset(conf.api.operator_projects))

    rankings, summary = Rankings(), cached.Cache()
    overview, week = cached.Cache(OVERVIEW_S), cached.Cache(WEEK_S)
    residents = Residents(host_summary.levels)

    def versions() -> flask.Response:
        return _json({'versions': [_version()]})

    def version() -> flask.Response:
        return _json({'version': _version()})

    def described() -> flask.Response:
        return _json(openapi.document(routes, VERSIONS[-1]))

    def view(route: Route) -> Callable[..., flask.Response]:
        def answer(**path: str) -> flask.Response:
            caller = authentication.caller(flask.request.environ)
            if caller is None:
                raise exceptions.Unauthorized(
                    'Say who you are: see WWW-Authenticate.')
            call = Call(
                noun=route.noun, caller=caller, request_id=_request_id(),
                now_s=clock(), silent_s=conf.api.silent_s, path=path,
                profile_hosts=conf.api.profile_hosts,
                profile_seconds_per_day=conf.api.profile_seconds_per_day,
                query={}, body={}, allows=allows,
                rankings=rankings, summary=summary, overview=overview,
                week=week, residents=residents)
            return _answer(route, call, engine)
        return answer

    for url, public in (('/', versions), ('/v1', version), ('/v1/', version),
                        ('/v1/openapi.json', described)):
        _add(app, url, 'GET', url, public)
    for route in routes:
        _add(app, route.path, route.method, route.id, view(route))

    app.before_request(_negotiate)
    app.after_request(_finish)
    app.register_error_handler(
        Exception, lambda error: _error(error, authentication.challenge(auth)))
    return app


def _add(app: flask.Flask, url: str, method: str, name: str, view: Any
         ) -> None:
    url = url.replace('{workload}', '<rest:workload>')
    app.add_url_rule(url.replace('{', '<').replace('}', '>'),
                     endpoint=name.replace('.', '_'), view_func=view,
                     methods=[method], provide_automatic_options=False)


def _answer(route: Route, call: Call, engine: Any) -> flask.Response:
    if route.policy:
        call.require(route.rule)
    for name, text in call.path.items():
        validation.check_text(text, name)
    request = flask.request
    call.query = validation.query(request.args.items(multi=True),
                                  route.query)
    if route.body is not None:
        if request.mimetype != 'application/json':
            raise exceptions.UnsupportedMediaType(
                'The body has to be application/json.')
        call.body = validation.body(request.get_data(cache=False),
                                    route.body)

    def work(connection: Any) -> Any:
        result = route.handle(call, connection)
        if not call.enforced:   # before anything is stored or shown
            raise RuntimeError(f'{route.id}: no policy was enforced')
        return result

    try:
        if route.method == 'GET':
            result = connect.read(engine, work)
        else:
            result = connect.retried(engine, work, patience_s=PATIENCE_S,
                                     on_duplicate=True)
    except errors.ScavengerError:
        raise
    except Exception:
        try:
            connect.read(engine, schema.check)
        except errors.SchemaError:
            raise       # tables of another version explain the most
        except errors.DatabaseError as exc:
            LOG.error('%s: %s', call.request_id, exc)
        raise
    if result is None:
        return flask.Response(status=HTTPStatus.NO_CONTENT)
    if not isinstance(result, cached.Encoded):
        return _json(result)
    response = flask.Response(result.body, content_type='application/json')
    response.set_etag(result.etag)
    response.make_conditional(request)      # 304 to one that has it
    return response


def _version() -> dict[str, Any]:
    return {'id': 'v1', 'status': 'CURRENT', 'version': VERSIONS[-1],
            'min_version': VERSIONS[0],
            'links': [{'rel': 'self',
                       'href': flask.request.root_url + 'v1/'}]}


def _negotiate() -> None:
    # Not all headers: those of Keystone's middleware may be None.
    version = flask.request.headers.get(VERSION_HEADER)
    try:
        microversion_parse.extract_version(
            {VERSION_HEADER: version} if version else {}, SERVICE, VERSIONS)
    except ValueError as exc:
        raise faults.Fault(
            HTTPStatus.NOT_ACCEPTABLE, 'There is no such version.',
            VERSION_HEADER, VERSIONS) from exc
    except TypeError as exc:
        raise faults.bad('That is not a version.', VERSION_HEADER,
                         [f'{SERVICE} {text}' for text in VERSIONS]) from exc


def _finish(response: flask.Response) -> flask.Response:
    response.headers[VERSION_HEADER] = f'{SERVICE} {VERSIONS[-1]}'
    response.headers.add('Vary', VERSION_HEADER)
    response.headers['Cache-Control'] = (
        'no-cache' if 'ETag' in response.headers else 'no-store')
    return response


def _error(error: Exception, challenge: str | None) -> flask.Response:
    id_, headers = _request_id(), {}
    if isinstance(error, faults.Fault):
        body = faults.document(error.status, error.detail, id_, error.field,
                               error.allowed)
    elif isinstance(error, exceptions.HTTPException) and error.code:
        body = _of_http(error, id_)
        headers = {name: value for name, value in error.get_headers()
                   if name == 'Allow'}
        if error.code == HTTPStatus.UNAUTHORIZED and challenge:
            headers['WWW-Authenticate'] = challenge
    elif isinstance(error, errors.DatabaseError):
        LOG.error('%s: %s', id_, error)
        body = faults.document(HTTPStatus.SERVICE_UNAVAILABLE,
                               health.public(error), id_)
        headers = {'Retry-After': '10'}
    else:
        LOG.error('%s: %s %s failed', id_, flask.request.method,
                  printable(flask.request.path), exc_info=error)
        body = faults.document(
            HTTPStatus.INTERNAL_SERVER_ERROR,
            f'This is a fault of the API; its log has more with {id_}.', id_)
    return _json(body, body['error']['code'], headers)


def _of_http(error: exceptions.HTTPException, id_: str) -> dict[str, Any]:
    if isinstance(error, exceptions.MethodNotAllowed):
        return faults.document(405, 'This URL has no such method.', id_,
                               'method', sorted(error.valid_methods or ()))
    if isinstance(error, exceptions.RequestEntityTooLarge):
        return faults.document(413, 'The body is too long.', id_, 'body',
                               f'{validation.BODY_MOST_BYTES} bytes')
    if isinstance(error, exceptions.NotFound):
        return faults.document(404, 'There is no such URL.', id_)
    return faults.document(error.code or 500, error.description or '', id_)


def _json(value: Any, status: int = 200,
          headers: dict[str, str] | None = None) -> flask.Response:
    return flask.Response(formats.json_line(value, compact=True) + '\n',
                          status, headers, content_type='application/json')


def _request_id() -> str:
    return str(flask.request.environ.get(request_id.ENV_REQUEST_ID, ''))
