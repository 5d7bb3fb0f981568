# SPDX-License-Identifier: Apache-2.0

"""``/healthcheck``: whether this process can serve requests.

It looks whether the database can be read and written, and then asks what
``[healthcheck] backends`` lists, such as ``disable_by_file``.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
import logging
from typing import Any

from oslo_config import cfg
from oslo_middleware import healthcheck

from scavenger_openstack import errors
from scavenger_openstack.log_once import LogOnce

LOG = logging.getLogger(__name__)

PATH = '/healthcheck'


def application(check: Callable[[], None], conf: cfg.ConfigOpts) -> Any:
    """WSGI.

    :param check: raises DatabaseError when the database cannot be used, or
        only be read; what else it raises is in the log
    """
    backends = healthcheck.Healthcheck(None, conf)

    log_once = LogOnce()

    def called(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        try:
            check()
            answer: Iterable[bytes] = backends(environ, start)
        except errors.DatabaseError as exc:
            text = public(exc)
        except Exception as exc:
            text = 'The check failed; the log of scavenger-api says why.'
            if log_once.due(PATH, repr(exc)):
                LOG.exception('%s failed', PATH)
        else:
            log_once.over(PATH)
            return answer
        start('503 Service Unavailable',
              [('Content-Type', 'text/plain; charset=UTF-8'),
               ('Content-Length', str(len(text)))])
        return [b'' if environ.get('REQUEST_METHOD') == 'HEAD'
                else text.encode()]
    return called


def public(error: errors.DatabaseError) -> str:
    """Return what every client may read: neither a path nor the name of a
    server."""
    if isinstance(error, errors.SchemaError):
        return ('The tables in the database are not those of this version; '
                'the administrator has to run "scavenger-manage db upgrade".')
    if isinstance(error, errors.CommitUncertain):
        return ('The connection to the database was lost while the change '
                'was being stored: look whether it is there before doing it '
                'again.')
    return ('The database cannot be used now; the log of scavenger-api says '
            'why.')
