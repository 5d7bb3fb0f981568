# SPDX-License-Identifier: Apache-2.0

"""Placement's API, as far as the background providers need it.

Others write to the same providers: nova-compute to a host's own, operators
to whatever they like.  Each write names the generation that it is based on;
when it is refused for that, and only then, it is made again from what is
there now.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
import contextlib
from typing import Any
from typing import NamedTuple
from typing import TypeVar
from urllib import parse

from keystoneauth1 import adapter
from keystoneauth1 import exceptions as auth_exceptions

from scavenger_openstack.conductor import placement
from scavenger_openstack import errors
from scavenger_openstack.types import printable

MICROVERSION = '1.39'
"""Of Yoga: the newest whose answers are used here."""

TRIES = 5
TIMEOUT_S = 20.0
CONFLICT = 'placement.concurrent_update'
SHOWN = 300

T = TypeVar('T')


class Conflict(Exception):
    """The provider has changed since it was read."""


class Failed(errors.Unreachable):
    """Placement has a fault at this request, or is late with its answer."""


class Refused(errors.ScavengerError):
    """Placement answers an error; ``status`` is its HTTP status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(printable(message))
        self.status = status


class Usage(NamedTuple):
    """What instances hold of a provider, by resource class, as of one
    generation: each new allocation makes another one."""

    generation: int
    allocated: Mapping[str, int]


@contextlib.contextmanager
def _understood() -> Iterator[None]:
    """Around what reads answers.

    :raises Failed: one is something else.
    """
    try:
        yield
    except errors.MISREAD as exc:
        raise Failed('Placement: an answer that is not understood: '
                     f'{exc!r:.200}') from exc


class Placement:
    """A client; several threads may use it.  Each of its methods raises
    :class:`Failed` for an answer that is not one of Placement.

    :param session: an adapter of keystoneauth for the service ``placement``
    """

    def __init__(self, session: adapter.Adapter) -> None:
        self._session = session

    def prepare(self) -> None:
        """Make the resource classes and traits; may be repeated.

        :raises Refused: Placement does not want to.
        :raises Unreachable: there is no answer.
        """
        for name in placement.CLASSES:
            self._ask('PUT', f'/resource_classes/{name}')
        for name in placement.TRAITS:
            self._ask('PUT', f'/traits/{name}')

    @_understood()
    def listed(self) -> tuple[dict[str, str], dict[str, str]]:
        """UUIDs of the providers without a parent, by name, and of the
        background providers, by the name of their host."""
        roots, children = {}, {}
        for provider in self._providers():
            if provider['uuid'] == provider['root_provider_uuid']:
                roots[provider['name']] = provider['uuid']
            elif provider['name'].endswith(placement.SUFFIX):
                children[provider['name'].removesuffix(placement.SUFFIX)
                         ] = provider['uuid']
        return roots, children

    @_understood()
    def root(self, name: str) -> str | None:
        """UUID of the provider of that very name without a parent."""
        return next((provider['uuid'] for provider in self._providers(name)
                     if provider['uuid'] == provider['root_provider_uuid']),
                    None)

    @_understood()
    def make_child(self, host: str, root: str) -> str:
        """The background provider of a host, which may be there; its UUID.

        :param root: UUID of the host's own provider
        """
        name = host + placement.SUFFIX
        try:
            made = self._ask('POST', '/resource_providers', {
                'name': name, 'parent_provider_uuid': root})
        except Refused as exc:
            if exc.status != 409:
                raise
            made = next(iter(self._providers(name)), None)
            if made is None:
                raise
            if made['parent_provider_uuid'] != root:
                raise Refused(
                    f'{name} is below another provider: delete it, it will '
                    'be made again', 409) from None
        child: str = made['uuid']
        return child

    @_understood()
    def usage(self, provider: str) -> Usage:
        """What instances hold of a provider now."""
        answer = self._ask('GET', f'/resource_providers/{provider}/usages')
        return Usage(answer['resource_provider_generation'],
                     answer['usages'])

    @_understood()
    def inventory(self, provider: str) -> dict[str, placement.Amount]:
        """What is written for a provider."""
        found = self._ask('GET', f'/resource_providers/{provider}/inventories'
                          )['inventories']
        return {name: placement.Amount(one['total'], one['reserved'])
                for name, one in found.items()}

    @_understood()
    def write(self, provider: str, plan: Callable[
            [Mapping[str, int]], placement.Inventory], usage: Usage | None
            ) -> tuple[placement.Inventory, Usage]:
        """Replace the inventory of a background provider; the new one, and
        what instances hold then.

        :param plan: the inventory, from what instances hold
        :param usage: what they held when that was last known; while its
            generation lasts, that is so
        :raises Refused: also after several conflicts.
        """
        last = usage

        def once() -> tuple[placement.Inventory, Usage]:
            nonlocal last
            usage, last = last or self.usage(provider), None
            inventory = plan(usage.allocated)
            answer = self._ask(
                'PUT', f'/resource_providers/{provider}/inventories', {
                    'resource_provider_generation': usage.generation,
                    'inventories': {name: amount.inventory()
                                    for name, amount in inventory.items()}})
            return inventory, Usage(answer['resource_provider_generation'],
                                    usage.allocated)

        return self._again(provider, once)

    @_understood()
    def set_traits(self, provider: str, wanted: frozenset[str]) -> None:
        """Have a provider have these of our traits, and all of others.

        :raises Refused: also after several conflicts.
        """
        path = f'/resource_providers/{provider}/traits'

        def once() -> None:
            has = self._ask('GET', path)
            after = placement.with_traits(has['traits'], wanted)
            if after is not None:
                self._ask('PUT', path, {
                    'traits': after, 'resource_provider_generation':
                        has['resource_provider_generation']})

        self._again(provider, once)

    @_understood()
    def remove(self) -> list[str]:
        """Take away all that was made; what stays, as sentences.

        A provider that instances have allocations of stays, and so do the
        classes and traits that others use.
        """
        stays = []
        for host, child in self.listed()[1].items():
            try:
                self._ask('DELETE', f'/resource_providers/{child}')
            except Refused as exc:
                if exc.status != 409:
                    raise
                stays.append(
                    f'{host}{placement.SUFFIX}: instances have allocations '
                    'of it; move or delete those of background flavors, then '
                    'repeat this')
        for trait in placement.TRAITS:
            for one in self._ask('GET', '/resource_providers?required='
                                 + trait, missing_ok=True
                                 ).get('resource_providers', ()):
                self.set_traits(one['uuid'], frozenset())
        for path in (*(f'/traits/{name}' for name in placement.TRAITS),
                     *(f'/resource_classes/{name}'
                       for name in placement.CLASSES)):
            try:
                self._ask('DELETE', path, missing_ok=True)
            except Refused as exc:
                if exc.status != 409:
                    raise
                stays.append(f'{path.strip("/")}: it is in use')
        return stays

    def _providers(self, name: str = '') -> list[dict[str, Any]]:
        """All of them, or those of that name: one or none."""
        query = f'?name={parse.quote(name, safe="")}' if name else ''
        providers: list[dict[str, Any]] = self._ask(
            'GET', f'/resource_providers{query}')['resource_providers']
        return providers

    def _again(self, provider: str, once: Callable[[], T]) -> T:
        for _ in range(TRIES):
            try:
                return once()
            except Conflict:
                pass
        raise Refused(f'provider {provider}: changed by others at each of '
                      f'{TRIES} tries', 409)

    def _ask(self, method: str, path: str, body: Any = None, *,
             missing_ok: bool = False) -> Any:
        """The JSON of an answer, an empty object without one.

        :raises Conflict: the generation is not that any more.
        """
        try:
            answer = self._session.request(
                path, method, json=body, raise_exc=False, timeout=TIMEOUT_S,
                headers={'OpenStack-API-Version':
                         f'placement {MICROVERSION}'})
        except auth_exceptions.ConnectTimeout as exc:
            raise Failed(f'Placement: {exc}') from exc
        except auth_exceptions.ClientException as exc:
            raise errors.Unreachable(f'Placement: {exc}') from exc
        if answer.status_code >= 500:
            raise Failed(
                f'Placement: {method} {path}: HTTP {answer.status_code}')
        if missing_ok and answer.status_code in (400, 404):
            return {}       # no such trait to look for, nothing to delete
        if answer.status_code >= 400:
            codes = _codes(answer)
            if answer.status_code == 409 and CONFLICT in codes:
                raise Conflict
            raise Refused(f'Placement: {method} {path}: HTTP '
                          f'{answer.status_code} {answer.text[:SHOWN]}',
                          answer.status_code)
        if not answer.content:
            return {}
        return answer.json()


def _codes(answer: Any) -> list[str]:
    try:
        return [one.get('code', '') for one in answer.json()['errors']]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []
