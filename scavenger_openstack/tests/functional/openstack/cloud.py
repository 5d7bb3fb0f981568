# SPDX-License-Identifier: Apache-2.0

"""What tests and people ask of the OpenStack of the tests."""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import pathlib
import time
from typing import Any

from keystoneauth1 import identity
from keystoneauth1 import session

from scavenger_openstack.tests.functional import domain_image
from scavenger_openstack.tests.functional.openstack import configuration

REQUEST_S = 120.0
WAIT_S = 180.0
AGAIN_S = 0.2

MICROVERSIONS = {'compute': '2.96', 'placement': '1.39'}
MEMORY_MIB = 96
DISK_BYTES = 4 << 20


class Refused(Exception):
    """OpenStack answered with an error."""

    def __init__(self, what: str, status: int, text: str) -> None:
        super().__init__(f'{what}: {status} {text[:500]}')
        self.status = status
        self.text = text


@dataclasses.dataclass(frozen=True)
class Flavor:
    """A flavor for the guests of the tests, and what makes it special."""

    name: str
    id: str


class Cloud:
    """OpenStack as one user of one project sees it."""

    def __init__(self, site: configuration.Site, user: str = 'admin',
                 project: str = 'admin') -> None:
        self._site = site
        self._session = session.Session(auth=identity.V3Password(
            auth_url=site.keystone, username=user,
            password=configuration.PASSWORD, project_name=project,
            user_domain_name='Default', project_domain_name='Default'))
        self._image = ''

    def as_user(self, user: str, project: str) -> Cloud:
        """The same as another user."""
        found = Cloud(self._site, user, project)
        found._image = self.image()     # which only we may make public
        return found

    def in_new_project(self, name: str) -> Cloud:
        """The administrator in a project that is made now."""
        [user] = self.identity('GET', '/users?name=admin')['users']
        self._make_project(name)
        self._grant('admin', user['id'], name)
        return self.as_user('admin', name)

    def compute(self, method: str, path: str, body: Any = None,
                version: str = MICROVERSIONS['compute']) -> Any:
        """The JSON that Nova answers, ``None`` for nothing.

        :raises Refused: it answers an error.
        """
        return self._ask('compute', version, method, path, json=body)

    def placement(self, method: str, path: str, body: Any = None) -> Any:
        """As :meth:`compute`."""
        return self._ask('placement', MICROVERSIONS['placement'], method,
                         path, json=body)

    def interference(self, method: str, path: str, body: Any = None) -> Any:
        """As :meth:`compute`, of our own API."""
        return self._ask('interference', '', method, path, json=body)

    def identity(self, method: str, path: str, body: Any = None) -> Any:
        """As :meth:`compute`."""
        return self._ask('identity', '', method, path, json=body)

    def _ask(self, service: str, version: str, method: str, path: str,
             **more: Any) -> Any:
        if more.get('json', 0) is None:
            del more['json']
        headers = more.pop('headers', {})
        if version:
            headers['OpenStack-API-Version'] = f'{service} {version}'
        url = (f'{self._site.keystone}{path}' if service == 'identity'
               else path)
        answer = self._session.request(
            url, method, raise_exc=False, headers=headers,
            timeout=REQUEST_S, endpoint_filter=None
            if service == 'identity' else {
                'service_type': service,
                'region_name': configuration.REGION}, **more)
        if answer.status_code >= 400:
            raise Refused(f'{method} {path}', answer.status_code, answer.text)
        if not answer.content or 'json' not in answer.headers.get(
                'Content-Type', ''):
            return None
        return answer.json()

    def wait(self, what: str, done: Callable[[], Any],
             timeout_s: float = WAIT_S) -> Any:
        """What ``done`` returns at last.

        :raises TimeoutError: nothing that is true.
        """
        deadline = time.monotonic() + timeout_s
        while not (found := done()):
            if time.monotonic() > deadline:
                raise TimeoutError(f'not within {timeout_s:.0f} s: {what}')
            time.sleep(AGAIN_S)
        return found

    # --- made once

    def make_catalog(self) -> None:
        """Users, services and endpoints, and the tenant ``demo``."""
        self._make_project('service')
        self._make_project('demo')
        for name in configuration.CATALOG:
            self.make_service(name)
        self.make_user('demo', 'demo', 'member')
        self.read_catalog()

    def read_catalog(self) -> None:
        """See what has been added: the token has the catalog of before."""
        self._session.invalidate()

    def make_service(self, name: str) -> None:
        """One of the catalog, with its user."""
        kind, path = configuration.CATALOG[name]
        self.make_user(name, 'service', 'admin', 'service')
        service = self.make_type(name, kind)
        for interface in ('public', 'internal', 'admin'):
            self.make_endpoint(service, interface, self._site.url(name) + path)

    def forget_service(self, name: str) -> None:
        """Delete one with its user and endpoints, as far as it is there."""
        for kind in ('services', 'users'):
            for one in self.identity('GET', f'/{kind}?name={name}')[kind]:
                self.identity('DELETE', f'/{kind}/{one["id"]}')

    def make_type(self, name: str, kind: str) -> str:
        """A service without endpoints; its id."""
        made: str = self.identity('POST', '/services', {
            'service': {'name': name, 'type': kind}})['service']['id']
        return made

    def make_endpoint(self, service: str, interface: str, url: str) -> None:
        """Where a service is; tokens that are there do not have it."""
        self.identity('POST', '/endpoints', {'endpoint': {
            'service_id': service, 'interface': interface, 'url': url,
            'region_id': configuration.REGION}})

    def make_user(self, name: str, project: str, *roles: str) -> None:
        """One with these roles in a project."""
        user = self.identity('POST', '/users', {'user': {
            'name': name, 'domain_id': 'default',
            'password': configuration.PASSWORD}})['user']['id']
        for role in roles:
            self._grant(role, user, project)

    def _grant(self, role: str, user: str, project: str) -> None:
        """
        :param user: its id; ``role`` and ``project`` are names
        """
        [there] = self.identity('GET', f'/projects?name={project}')['projects']
        [given] = self.identity('GET', f'/roles?name={role}')['roles']
        self.identity('PUT', f'/projects/{there["id"]}/users/{user}/roles/'
                             f'{given["id"]}')

    def _make_project(self, name: str) -> None:
        self.identity('POST', '/projects', {'project': {
            'name': name, 'domain_id': 'default'}})

    def image(self) -> str:
        """The id of the image of all guests, uploaded at the first call."""
        if not self._image:
            guest = domain_image.image()
            kernel = self._upload('kernel', 'aki', guest.kernel)
            initrd = self._upload('initrd', 'ari', guest.initrd)
            self._image = self._upload(
                'guest', 'raw', DISK_BYTES, kernel_id=kernel,
                ramdisk_id=initrd, os_command_line=domain_image.APPEND,
                os_shutdown_timeout='1',
                # Tenants may write that, and it has no effect.
                scavenger_priority='background')
        return self._image

    def _upload(self, name: str, kind: str, data: pathlib.Path | int,
                **properties: str) -> str:
        """
        :param data: a file, or the size of a disk that is empty
        """
        made = self._ask('image', '', 'POST', '/v2/images', json={
            'name': name, 'disk_format': kind, 'visibility': 'public',
            'container_format': 'bare' if kind == 'raw' else kind,
            **properties})
        self._ask('image', '', 'PUT', f'/v2/images/{made["id"]}/file',
                  data=(bytes(data) if isinstance(data, int)
                        else data.read_bytes()),
                  headers={'Content-Type': 'application/octet-stream'})
        found: str = made['id']
        return found

    # --- for tests

    def flavor(self, name: str, specs: dict[str, str] | None = None,
               vcpus: int = 1) -> Flavor:
        """Make a flavor with these extra specs."""
        made = self.compute('POST', '/flavors', {'flavor': {
            'name': name, 'ram': MEMORY_MIB, 'vcpus': vcpus, 'disk': 1}})
        found = Flavor(name, made['flavor']['id'])
        if specs:
            self.compute('POST', f'/flavors/{found.id}/os-extra_specs',
                         {'extra_specs': specs})
        return found

    def boot(self, name: str, flavor: Flavor,
             hints: dict[str, str] | None = None, **more: Any) -> str:
        """Ask for a server; its id.

        :param hints: for the scheduler
        """
        made = self.compute('POST', '/servers', {'server': {
            'name': name, 'flavorRef': flavor.id, 'networks': 'none',
            'imageRef': self.image(), **more},
            'os:scheduler_hints': hints or {}})
        found: str = made['server']['id']
        return found

    def server(self, server: str) -> dict[str, Any]:
        """How it is."""
        found: dict[str, Any] = self.compute(
            'GET', f'/servers/{server}')['server']
        return found

    def active(self, server: str, timeout_s: float = WAIT_S
               ) -> dict[str, Any]:
        """Wait until it runs; how it is then.

        :raises Refused: it came to an error.
        """
        return self.state(server, 'ACTIVE', timeout_s)

    def state(self, server: str, status: str, timeout_s: float = WAIT_S
              ) -> dict[str, Any]:
        """As :meth:`active`, for another status."""
        def reached() -> dict[str, Any] | None:
            now = self.server(server)
            if now['status'] == 'ERROR' != status:
                raise Refused(f'server {now["name"]}', 500,
                              str(now.get('fault', {}).get('message')))
            return now if (now['status'] == status
                           and not now['OS-EXT-STS:task_state']) else None

        found: dict[str, Any] = self.wait(f'{server} is {status}', reached,
                                          timeout_s)
        return found

    def act(self, server: str, action: str, argument: Any = None) -> None:
        """Such as ``os-stop``, or ``reboot`` with a type."""
        self.compute('POST', f'/servers/{server}/action', {action: argument})

    def compute_service(self, host: str) -> dict[str, Any]:
        """What Nova knows of the nova-compute of a host."""
        found: dict[str, Any] = self.compute(
            'GET', f'/os-services?host={host}&binary=nova-compute'
            )['services'][0]
        return found

    def reported(self, host: str) -> str:
        """When the nova-compute of a host last said that it is there."""
        return self.compute_service(host)['updated_at'] or ''

    def delete(self, server: str, timeout_s: float = WAIT_S) -> None:
        """Delete a server, which may be gone, and wait until it is."""
        try:
            self.compute('DELETE', f'/servers/{server}')
        except Refused as exc:
            if exc.status != 404:
                raise

        def gone() -> bool:
            try:
                self.server(server)
            except Refused as exc:
                if exc.status != 404:
                    raise
                return True
            return False

        self.wait(f'{server} is gone', gone, timeout_s)
