# SPDX-License-Identifier: Apache-2.0

"""The API for commands: each failure is one sentence."""

from __future__ import annotations

from typing import Any

from keystoneauth1 import exceptions as auth_exceptions
from openstack import exceptions as sdk_exceptions
from osc_lib import clientmanager
from osc_lib import exceptions
import requests

from scavenger_openstack.osc.terminal import printable
from scavenger_openstack import sdk
from scavenger_openstack.sdk.v1 import _proxy
from scavenger_openstack.sdk.v1 import resource


class Client(_proxy.Proxy):
    """The API, for commands."""

    def request(self, url: str, method: str, *args: Any, **kwargs: Any
                ) -> requests.Response:
        """Send a request.

        :raises CommandError: with one sentence, for whatever goes wrong.
        """
        try:
            return super().request(url, method, *args, **kwargs)
        except sdk_exceptions.HttpException as exc:
            raise exceptions.CommandError(exc.details) from exc
        except auth_exceptions.ClientException as exc:
            raise exceptions.CommandError(_unreachable(
                str(self.endpoint_override).removesuffix('/v1'), exc)) from exc

    def listing(self, noun: str, *, limit: int | None = None, **query: Any
                ) -> tuple[list[dict[str, Any]], str | None]:
        """Return rows, and the marker of those that follow, if any.

        :param noun: the name of the listing
        :param limit: so many rows at most, ``None`` for all
        """
        [kind] = (kind for kind in resource.Resource.__subclasses__()
                  if kind.resources_key == noun)
        pages = list(kind.pages(self, max_items=limit, **query))
        return [row for rows, _ in pages for row in rows], pages[-1][1]


def connect(instance: clientmanager.ClientManager) -> Client:
    """Return the client for the endpoint of the catalog, or of the options.

    :raises CommandError: there is no endpoint.
    """
    region = instance.region_name
    try:
        endpoint = instance.get_endpoint_for_service_type(
            _proxy.SERVICE_TYPE, region_name=region,
            interface=instance.interface)
    except auth_exceptions.CatalogException:
        endpoint = None
    if not endpoint:
        raise exceptions.CommandError(
            f'There is no {instance.interface or "public"} endpoint of the '
            f'service "{_proxy.SERVICE_TYPE}"'
            f'{f" in region {region}" * bool(region)}'
            ': add it to the catalog with "openstack endpoint create", or '
            f'set {_proxy.SERVICE_TYPE}_endpoint_override in clouds.yaml; '
            'without Keystone use --os-auth-type http_basic and '
            '--os-endpoint.')
    sdk.register(instance.sdk_connection, Client)
    client: Client = getattr(instance.sdk_connection, _proxy.SERVICE_TYPE)
    return client


def _unreachable(url: str, exc: BaseException) -> str:
    if isinstance(exc, auth_exceptions.ConnectTimeout):
        return f'{url} did not answer within {_proxy.TIMEOUT_S} s.'
    if not isinstance(exc, auth_exceptions.ConnectionError):
        return printable(str(exc))
    cause: BaseException | None = exc
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return printable(f'{url} cannot be reached: {cause.strerror}.')
        cause = cause.__cause__ or cause.__context__
    return printable(f'{url} cannot be reached: {exc}')
