# SPDX-License-Identifier: Apache-2.0

"""Tags of instances from notifications of Nova."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Mapping
import re
from typing import Any
from typing import NamedTuple

from oslo_config import cfg
import oslo_messaging

from scavenger_openstack.algorithms import classify
from scavenger_openstack.algorithms import flavor
from scavenger_openstack import errors
from scavenger_openstack.nova import options
from scavenger_openstack.wire import fit

TOPIC = 'scavenger-conductor'
VERSION = '1.0'

ACTIONS = ('create', 'rebuild', 'resize_finish', 'finish_resize',
           'resize_revert', 'resize.revert', 'unshelve', 'power_on',
           'live_migration_post_dest', 'live_migration.post.dest')
"""After these an instance runs, perhaps elsewhere or as another flavor: the
names of both formats of notifications."""

DELETED = frozenset(('instance.delete.end', 'compute.instance.delete.end'))

_EVENT = re.compile(r'(compute\.)?instance\.('
                    + '|'.join(map(re.escape, ACTIONS))
                    + r')\.(start|end)')
_PUBLISHER = re.compile(r'(?:nova-compute:|compute\.)(.+)', re.S)


class Event(NamedTuple):
    """An instance on a host; ``specs`` is ``None`` when the notification
    does not have them, and empty when the instance is gone."""

    instance: str
    project: str
    host: str
    specs: Mapping[str, str] | None


def event(message: Any) -> Event | None:
    """Return what a notification says, ``None`` if it is of no interest."""
    deleted = message['event_type'] in DELETED
    if not deleted and not _EVENT.fullmatch(message['event_type']):
        return None
    host = _PUBLISHER.fullmatch(message['publisher_id'] or '')
    if host is None:
        return None     # it comes from another program of Nova
    payload = message['payload']
    specs = None
    if 'nova_object.data' in payload:
        payload = payload['nova_object.data']
        specs = payload['flavor']['nova_object.data']['extra_specs']
        instance = payload['uuid']
    else:
        instance = payload['instance_id']
    if not isinstance(instance, str) or not fit.is_uuid(instance):
        return None
    return Event(instance, str(payload.get('tenant_id') or ''), host[1],
                 {} if deleted else specs)


def tag(event: Event, specs: Mapping[str, str]) -> dict[str, Any]:
    """Return what is sent to the conductor, as JSON.

    The priority is what the flavor alone says; the conductor knows what
    operators have set for aggregate, project and instance, and the agent what
    the application is without a name for it.
    """
    specified = flavor.read(specs)
    classified = classify.classify(flavor=specified.priority)
    return {'instance': event.instance, 'project': event.project,
            'host': event.host, 'priority': str(classified.priority),
            'source': classified.source,
            'application': fit.maybe_name(
                flavor.application(specified.application)),
            'protect': specified.protect,
            'floor': {str(knob): value
                      for knob, value in specified.floor.items()}}


def warnings(event: Event, specs: Mapping[str, str]) -> Iterator[str]:
    """Return what an operator has to know of extra specs that are ignored."""
    for fault in flavor.read(specs).wrong:
        yield (f'instance {event.instance}: extra spec {fault.key!a:.80} = '
               f'{fault.value!a:.80} of its flavor is ignored: {fault.why}')


def client(conf: cfg.ConfigOpts) -> Any:
    """A client for casts to the conductor, which never waits for a broker
    for long.

    :raises ConfigError: ``transport_url`` is no URL.
    :raises MessagingException: it cannot be used.
    """
    section = conf[options.SECTION]
    try:
        transport = oslo_messaging.get_rpc_transport(
            conf, url=section.transport_url or None)
    except ValueError:
        # Its text may quote the password, and so may what led to it.
        raise errors.ConfigError(
            f'[{options.SECTION}] transport_url cannot be read as a URL: in '
            'names and passwords write / as %2F, # as %23, @ as %40 and so on'
            ) from None
    # "retry=0": without, a cast waits for a broker for ever.
    return oslo_messaging.get_rpc_client(transport, oslo_messaging.Target(
        exchange=section.control_exchange, topic=TOPIC, version=VERSION)
        ).prepare(retry=0)
