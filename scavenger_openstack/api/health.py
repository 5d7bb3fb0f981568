# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""``/healthcheck``: whether this process can serve requests.

It looks whether the database can be read and written, and then asks what
``[healthcheck] backends`` lists, such as ``disable_by_file``.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from typing import Any

from oslo_config import cfg
from oslo_middleware import healthcheck

from scavenger_openstack import errors

PATH = '/healthcheck'


def application(check: Callable[[], None], conf: cfg.ConfigOpts) -> Any:
    """WSGI.

    :param check: raises DatabaseError when the database cannot be used, or
        only be read
    """
    backends = healthcheck.Healthcheck(None, conf)

    def called(environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        try:
            check()
        except errors.DatabaseError as exc:
            text = public(exc).encode()
            start('503 Service Unavailable',
                  [('Content-Type', 'text/plain; charset=UTF-8'),
                   ('Content-Length', str(len(text)))])
            return [b'' if environ['REQUEST_METHOD'] == 'HEAD' else text]
        answer: Iterable[bytes] = backends(environ, start)
        return answer
    return called


def public(error: errors.DatabaseError) -> str:
    """What every client may read: neither a path nor the name of a server."""
    if isinstance(error, errors.SchemaError):
        return ('The tables in the database are not those of this version; '
                'the administrator has to run "scavenger-manage db upgrade".')
    if isinstance(error, errors.CommitUncertain):
        return ('The connection to the database was lost while the change '
                'was being stored: look whether it is there before doing it '
                'again.')
    return ('The database cannot be used now; the log of scavenger-api says '
            'why.')
