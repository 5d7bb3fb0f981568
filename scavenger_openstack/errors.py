# SPDX-License-Identifier: Apache-2.0

"""What can go wrong, for the caller to decide on.

Each message says what, where and what to do; none of them is a traceback
for an operator to read.
"""

from __future__ import annotations

from collections.abc import Mapping

MISREAD = (ArithmeticError, AttributeError, LookupError, RecursionError,
           TypeError, ValueError)
"""What reading a document raises that is of another shape than its kind."""

EXTRAS: Mapping[str, tuple[str, ...]] = {
    'archive': ('fsspec', 'pyarrow'),
    'control': ('alembic', 'bcrypt', 'flask', 'jsonschema', 'keystoneauth1',
                'keystonemiddleware', 'microversion_parse', 'novaclient',
                'oslo_messaging', 'oslo_middleware', 'oslo_policy',
                'oslo_reports', 'oslo_service', 'oslo_upgradecheck',
                'prometheus_client', 'pymysql', 'sqlalchemy'),
    'rpc': ('oslo_messaging', 'oslo_service'),
    'dashboard': ('horizon', 'keystoneauth1', 'openstack_dashboard'),
    'libvirt': ('libvirt',),
    'osc': ('openstack', 'openstackclient', 'osc_lib'),
    'parquet': ('pyarrow',),
    'postgresql': ('psycopg2',),
    'sdk': ('openstack',),
    'wsgi': ('gunicorn',)}
"""Extra of this distribution -> the modules that it brings."""


class ScavengerError(Exception):
    """Anything that this project raises on purpose."""


class NoStatus(ScavengerError):
    """No agent has written a status in this directory."""


class ConfigError(ScavengerError):
    """The configuration cannot work on this host.

    Each argument is one finding, a sentence.
    """

    def __str__(self) -> str:
        return '\n'.join(map(str, self.args))


class DriverError(ScavengerError):
    """Something on the host did not do what was asked; the tick goes on.

    ``cause`` is the same for all that fails for one fact of the host, such as
    an option of its kernel, or one of its files; '' where it is not one.
    """

    def __init__(self, message: str = '', *, cause: str = '') -> None:
        super().__init__(message)
        self.cause = cause


class WorkloadGone(DriverError):
    """The workload, or the object that a lease names, is no longer there."""


class Refused(DriverError):
    """The kernel does not allow this value now.

    ``unmet_bytes`` says by how much a memory limit was missed.
    """

    def __init__(self, message: str, unmet_bytes: int = 0) -> None:
        super().__init__(message)
        self.unmet_bytes = unmet_bytes


class Unsupported(DriverError):
    """This knob does not exist for this workload on this host."""


class Denied(DriverError):
    """The host takes no such write, and hardly would a moment later."""


class Overtaken(DriverError):
    """Another program has set the knob that was about to be written."""


class LeaseError(ScavengerError):
    """A lease cannot be had or has run out: do not write."""


class NotRestorable(LeaseError):
    """No watcher could restore a limit of this kind: none is set."""


class AlreadyRunning(ScavengerError):
    """Another agent has the state directory, or what is to be limited."""


class WireError(ScavengerError):
    """What came over the wire, or was to go there, is not of its type."""


class DatabaseError(ScavengerError):
    """The database cannot be used now; the message says why, and what helps.
    """


class SchemaError(DatabaseError):
    """The tables are not those of this version."""


class CommitUncertain(DatabaseError):
    """The connection was lost in a commit: stored, or not."""


class ForeignReport(WireError):
    """A host reported in the name of another."""


class OtherRelease(WireError):
    """The agent and the conductor are of releases that do not fit."""


class Unreachable(ScavengerError):
    """The control plane cannot be reached or did not answer: try later."""


class Busy(Unreachable):
    """The conductor takes no more from this host now.  That says nothing of
    what was sent: send it again later.
    """


def missing_package(exc: ImportError, first: str = 'control') -> str:
    """What to install for a module that is not there; '' when that is of no
    extra.

    :param first: the extra to name where several have it
    """
    if not isinstance(exc, ModuleNotFoundError):
        return ''
    module = (exc.name or '').partition('.')[0]
    extra = next((name for name in (first, *EXTRAS)
                  if module in EXTRAS[name]), None)
    return '' if extra is None else (
        f'the Python package {module} is missing: install '
        f'scavenger_openstack[{extra}]')
