# SPDX-License-Identifier: Apache-2.0

"""``scavenger-manage placement`` and ``flavors``: what is in other services
of OpenStack."""

from __future__ import annotations

import argparse
import contextlib
import functools
import re
import sys
import time

from oslo_config import cfg

from scavenger_openstack.algorithms import flavor
from scavenger_openstack.conductor import leader
from scavenger_openstack.conductor.nova import protocol as nova_protocol
from scavenger_openstack.conductor import placement
from scavenger_openstack.conductor import placement_api
from scavenger_openstack.conductor import placement_writer
from scavenger_openstack.conductor import sessions
from scavenger_openstack.db import claims
from scavenger_openstack.db import connect
from scavenger_openstack.db import enrollment
from scavenger_openstack.db import reports
from scavenger_openstack.db import schema
from scavenger_openstack import errors
from scavenger_openstack.types import printable

SIZES = ('1x1024', '2x4096', '4x8192')
_SIZE = re.compile(r'([1-9][0-9]{0,3})x([1-9][0-9]{0,7})')

WORK_S = 900.0
HOLDER = 'scavenger-manage'


def remove(conf: cfg.ConfigOpts, prog: str) -> int:
    """Take away what conductors told Placement; 1 when some of it stays.

    :raises ConfigError: a conductor would write it again.
    """
    placement = placement_api.Placement(sessions.make_placement(
        conf, sessions.make_session(conf)))
    engine = connect.engine_of(conf)
    try:
        with connect.reading(engine) as connection:
            schema.check(connection)
        claim = claims.Claim(placement_writer.CLAIM, HOLDER, time.monotonic)
        if not connect.retried(engine, functools.partial(
                claim.take, now=time.time(), hold_s=WORK_S, by_clock=True),
                on_duplicate=True):
            raise errors.ConfigError(
                'a conductor keeps Placement up to date: set [placement] '
                'enabled = false, start all conductors again, and repeat '
                f'this {leader.HOLD_S:.0f} s later')
        try:
            stays = placement.remove()
            connect.retried(engine, lambda connection: reports.add_audit(
                connection, [{
                    'time_s': time.time(), 'actor': enrollment.ACTOR,
                    'action': 'placement.remove', 'target': '',
                    'reason': '', 'after': {'stays': len(stays)}}]))
        finally:
            # Else it ends by itself, after WORK_S.
            with contextlib.suppress(errors.DatabaseError):
                connect.retried(engine, functools.partial(
                    claim.extend, now=time.time(), hold_s=0.0),
                    idempotent=True)
    finally:
        engine.dispose()
    for sentence in stays:
        print(f'{prog}: stays: {printable(sentence)}', file=sys.stderr)
    if not stays:
        print('Placement has no background providers, classes and traits')
    return 1 if stays else 0


def size(text: str) -> tuple[int, int]:
    """Virtual CPUs and MiB of "2x4096"."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise argparse.ArgumentTypeError(
            f'{text!r} is no size such as 2x4096: virtual CPUs x MiB')
    return int(match[1]), int(match[2])


def background_specs(vcpus: int, ram_mib: int) -> dict[str, str]:
    """The extra specs of a background flavor that is scheduled by Placement.

    Of the host itself it asks for as good as nothing: Nova wants something.
    """
    return {flavor.PRIORITY: 'background',
            'resources:VCPU': '0', 'resources:MEMORY_MB': '1',
            f'resources:{placement.VCPU}': str(vcpus),
            f'resources:{placement.MEMORY_MIB}': str(ram_mib)}


def create_flavors(conf: cfg.ConfigOpts, options: argparse.Namespace,
                   prog: str) -> int:
    """Make those that are not there; 1 when one is there and differs."""
    nova = sessions.make_nova(conf, sessions.make_session(conf))
    there = nova.flavors()
    differ = 0
    for vcpus, ram_mib in options.sizes or map(size, SIZES):
        name = f'{options.name}.{vcpus}x{ram_mib}'
        specs = background_specs(vcpus, ram_mib)
        present = there.get(name)
        if present is None:
            if not options.dry_run:
                nova.make_flavor(name, nova_protocol.Flavor(
                    '', vcpus, ram_mib, options.disk_gib, specs),
                    public=options.public)
            print(f'{name}: ' + ('would be made' if options.dry_run
                                 else 'made'))
        elif (present.vcpus, present.ram_mib) == (vcpus, ram_mib) and (
                specs.items() <= present.specs.items()):
            print(f'{name}: it is there')
        else:
            differ = 1
            print(f'{prog}: {name}: it is there, and other than it would be '
                  'made: delete it, or choose another --name',
                  file=sys.stderr)
    return differ
