# SPDX-License-Identifier: Apache-2.0

"""The calls of the API, and its errors as exceptions of openstacksdk."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
import json
from typing import Any
from typing import TypeVar

from openstack import exceptions
from openstack import proxy
import requests

from scavenger_openstack.sdk.v1.hosts import Aggregate
from scavenger_openstack.sdk.v1.hosts import Host
from scavenger_openstack.sdk.v1.hosts import Overview
from scavenger_openstack.sdk.v1.hosts import Report
from scavenger_openstack.sdk.v1.hosts import Summary
from scavenger_openstack.sdk.v1.hosts import Workload
from scavenger_openstack.sdk.v1.incidents import Antagonist
from scavenger_openstack.sdk.v1.incidents import Cap
from scavenger_openstack.sdk.v1.incidents import Eviction
from scavenger_openstack.sdk.v1.incidents import Incident
from scavenger_openstack.sdk.v1.incidents import Override
from scavenger_openstack.sdk.v1.incidents import Spec
from scavenger_openstack.sdk.v1.profiles import Profile
from scavenger_openstack.sdk.v1.profiles import Profiling
from scavenger_openstack.sdk.v1 import resource
from scavenger_openstack.sdk.v1.rules import Audit
from scavenger_openstack.sdk.v1.rules import Exemption
from scavenger_openstack.sdk.v1.rules import Governor
from scavenger_openstack.sdk.v1.rules import Priority
from scavenger_openstack.sdk.v1.rules import Protection
from scavenger_openstack.types import printable

SERVICE_TYPE = 'interference'
MICROVERSION = '1.0'
TIMEOUT_S = 60
MOST_ALLOWED = 12
"""So many of the values that a field takes are in a sentence."""

_Kind = TypeVar('_Kind', bound=resource.Resource)


class Proxy(proxy.Proxy):
    """Version 1 of the interference API.

    A listing yields rows, page by page.  It takes the filters of the API
    reference, ``limit``, the rows of a page, ``max_items`` and ``marker``.
    Each change takes its ``reason``, for the audit.

    :raises HttpException: the API refused; ``details`` says why.
    :raises SDKException: something else than this API answered.
    """

    api_version = '1'
    skip_discovery = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.default_microversion = self.default_microversion or MICROVERSION
        if self.endpoint_override:
            self.endpoint_override = (
                self.endpoint_override.rstrip('/').removesuffix('/v1') + '/v1')

    def request(self, url: str, method: str, *args: Any, **kwargs: Any
                ) -> requests.Response:
        """Send a request, and raise what the API answers to a bad one."""
        try:
            json.dumps([kwargs.get('params'), kwargs.get('json')],
                       ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise resource.not_unicode() from None
        kwargs.setdefault('timeout', TIMEOUT_S)
        response = super().request(url, method, *args, **kwargs)
        try:
            exceptions.raise_from_response(response)
        except exceptions.HttpException as exc:
            exc.details = explain(
                f'HTTP {response.status_code} {response.reason}',
                response.text)
            raise
        return response

    def hosts(self, **query: Any) -> Iterator[Host]:
        """List hosts."""
        return Host.list(self, **query)

    def get_host(self, name: str) -> Host:
        """Return a host, with what is set for it."""
        return self._get(Host, name)

    def update_host(self, name: str, **changes: Any) -> Host:
        """Set modes and parameters of a host."""
        return self._update(Host, name, **changes)

    def get_aggregate(self, name: str) -> Aggregate:
        """Return the hosts of an aggregate, and what is set for them."""
        return self._get(Aggregate, name)

    def update_aggregate(self, name: str, **changes: Any) -> Aggregate:
        """Set modes and parameters of the hosts of an aggregate."""
        return self._update(Aggregate, name, **changes)

    def workloads(self, **query: Any) -> Iterator[Workload]:
        """List instances and containers."""
        return Workload.list(self, **query)

    def get_summary(self) -> Summary:
        """Return what a scheduler needs of all hosts."""
        return self._whole(Summary)

    def get_overview(self) -> Overview:
        """Return what is open and in force in the cloud."""
        return self._whole(Overview)

    def get_report(self, **query: Any) -> Report:
        """Return the sums of a span.

        :param query: ``since``, ``until``, and ``limit``, rows of each list
        """
        return self._whole(Report, **query)

    def incidents(self, **query: Any) -> Iterator[Incident]:
        """List incidents, the newest first."""
        return Incident.list(self, **query)

    def get_incident(self, id: str) -> Incident:
        """Return an incident with its evidence."""
        return self._get(Incident, id)

    def antagonists(self, **query: Any) -> Iterator[Antagonist]:
        """List what disturbed others, the most disturbing first."""
        return Antagonist.list(self, **query)

    def evictions(self, **query: Any) -> Iterator[Eviction]:
        """List what Nova was asked to take away."""
        return Eviction.list(self, **query)

    def create_eviction(self, **fields: Any) -> Eviction:
        """Have Nova take an instance away."""
        return self._create(Eviction, **fields)

    def get_eviction(self, id: str) -> Eviction:
        """Return an eviction, and what came of it."""
        return self._get(Eviction, id)

    def caps(self, **query: Any) -> Iterator[Cap]:
        """List limits."""
        return Cap.list(self, **query)

    def overrides(self, **query: Any) -> Iterator[Override]:
        """List the limits that operators set."""
        return Override.list(self, **query)

    def set_override(self, host: str, knob: str, workload: str,
                     **fields: Any) -> Override:
        """Set a limit until it expires."""
        override = self._override(host, knob, workload)
        override._update(**fields)
        return override.commit(self)

    def delete_override(self, host: str, knob: str, workload: str, *,
                        reason: str, ignore_missing: bool = True) -> None:
        """End an override before it expires."""
        self._end(Override, self._override(host, knob, workload),
                  reason, ignore_missing)

    def priorities(self, **query: Any) -> Iterator[Priority]:
        """List the rules that say what is background."""
        return Priority.list(self, **query)

    def set_priority(self, **fields: Any) -> Priority:
        """Set the priority of an instance, a project or an aggregate."""
        return self._create(Priority, **fields)

    def delete_priority(self, id: str, *, reason: str,
                        ignore_missing: bool = True) -> None:
        """Remove a rule."""
        self._end(Priority, id, reason, ignore_missing)

    def exemptions(self, **query: Any) -> Iterator[Exemption]:
        """List what is exempt from limits."""
        return Exemption.list(self, **query)

    def set_exemption(self, **fields: Any) -> Exemption:
        """Exempt an instance, a project or an aggregate."""
        return self._create(Exemption, **fields)

    def delete_exemption(self, id: str, *, reason: str,
                         ignore_missing: bool = True) -> None:
        """End an exemption."""
        self._end(Exemption, id, reason, ignore_missing)

    def profiles(self, **query: Any) -> Iterator[Profile]:
        """List profiles."""
        return Profile.list(self, **query)

    def create_profile(self, **fields: Any) -> Profile:
        """Store a profile in place of an older one."""
        return self._create(Profile, **fields)

    def get_profile(self, id: str) -> Profile:
        """Return a profile."""
        return self._get(Profile, id)

    def delete_profile(self, id: str, *, reason: str,
                       ignore_missing: bool = True) -> None:
        """Delete a profile."""
        self._end(Profile, id, reason, ignore_missing)

    def profilings(self, **query: Any) -> Iterator[Profiling]:
        """List the profiles that hosts were asked to measure."""
        return Profiling.list(self, **query)

    def create_profiling(self, **fields: Any) -> Profiling:
        """Have a host measure a profile."""
        return self._create(Profiling, **fields)

    def get_profiling(self, id: str) -> Profiling:
        """Return a measurement, and how far it is."""
        return self._get(Profiling, id)

    def delete_profiling(self, id: str, *, reason: str,
                         ignore_missing: bool = True) -> None:
        """End a measurement."""
        self._end(Profiling, id, reason, ignore_missing)

    def specs(self, **query: Any) -> Iterator[Spec]:
        """List what applications measured undisturbed."""
        return Spec.list(self, **query)

    def protection(self, **query: Any) -> Iterator[Protection]:
        """List where protection was switched off, or on again."""
        return Protection.list(self, **query)

    def set_protection(self, **fields: Any) -> Protection:
        """Switch protection of the cloud, an aggregate or a host."""
        return self._update(Protection, None, **fields)

    def governor(self, **query: Any) -> Iterator[Governor]:
        """List how many limits may be set in a minute."""
        return Governor.list(self, **query)

    def set_governor(self, **fields: Any) -> Governor:
        """Set how many limits may be set in a minute."""
        return self._update(Governor, None, **fields)

    def audit(self, **query: Any) -> Iterator[Audit]:
        """List changes, the newest first."""
        return Audit.list(self, **query)

    def _whole(self, kind: type[_Kind], **query: Any) -> _Kind:
        return self._get_resource(kind, None).fetch(
            self, requires_id=False, **query)

    def _override(self, host: str, knob: str, workload: str
                  ) -> Override:
        return Override.existing(
            self._get_connection(), host=host, knob=knob, workload=workload)

    def _end(self, kind: type[resource.Resource],
             value: str | resource.Resource, reason: str,
             ignore_missing: bool) -> None:
        try:
            self._get_resource(kind, value).delete(
                self, params={'reason': reason})
        except exceptions.NotFoundException:
            if not ignore_missing:
                raise


def explain(status: str, text: str) -> str:
    """Return one sentence of the body of an error.

    :param status: what stands for a body that is not from the API
    """
    try:
        error = json.loads(text)['error']
        title = error.get('title') or status
        detail = error.get('detail') or error.get('message') or ''
    except (ValueError, LookupError, TypeError, AttributeError,
            RecursionError):
        return f'{printable(status)}.'
    message = ': '.join(str(part).rstrip('.')
                        for part in (title, detail) if part)
    rest = '; '.join(_rest(error))
    return printable(f'{message} ({rest}).' if rest else f'{message}.')


def _rest(error: Mapping[str, Any]) -> Iterator[str]:
    if error.get('field'):
        yield f'field {error["field"]}'
    if error.get('allowed') not in (None, '', []):
        yield f'allowed: {_allowed(error["allowed"])}'
    if error.get('request_id'):
        yield f'request {error["request_id"]}'


def _allowed(value: Any) -> str:
    if isinstance(value, list):
        more = len(value) - MOST_ALLOWED
        return ', '.join(map(_allowed, value[:MOST_ALLOWED])) + (
            f' and {more} more' if more > 0 else '')
    return value if isinstance(value, str) else json.dumps(value)
