# SPDX-License-Identifier: Apache-2.0

"""Which ``scavenger:`` extra specs there are, for Nova's API.

It refuses others, and wrong values, from microversion 2.86 on.
Entry point ``nova.api.extra_spec_validators``.
"""

from __future__ import annotations

from nova.api.validation.extra_specs import base

from scavenger_openstack.algorithms import flavor
from scavenger_openstack.types import Priority

NUMBER_ABOVE_0 = r'(?=.*[1-9])' + flavor.NUMBER
"""What is 0 in the end by its exponent is refused by the agent alone."""

APPLICATION = r'[^\x00-\x1f\x7f]{1,' f'{flavor.APPLICATION_CHARS}}}'

DESCRIPTIONS = {
    'scavenger:floor_cpu_cores':
        'CPU below which no limit goes, in cores, such as 0.5.',
    'scavenger:floor_memory_mb':
        'Memory below which no limit goes, in MiB.',
    'scavenger:floor_io_bytes_per_s':
        'Disk throughput below which no limit goes, in bytes per second, '
        'reads and writes of all disks together.',
    'scavenger:floor_io_ops_per_s':
        'Disk operations per second below which no limit goes, reads and '
        'writes of all disks together.',
    'scavenger:floor_egress_bytes_per_s':
        'Sending below which no limit goes, in bytes per second.',
    'scavenger:floor_ingress_bytes_per_s':
        'Receiving by each network card below which no limit goes, in bytes '
        'per second.'}


def register() -> list[base.ExtraSpecValidator]:
    """A validator for each key."""
    return [
        base.ExtraSpecValidator(
            name=flavor.PRIORITY,
            description='Whether instances are protected (foreground, which '
                        'they are without this) or may be limited for the '
                        'sake of others (background).',
            value={'type': str, 'description': 'The priority.',
                   'enum': [str(priority) for priority in Priority]}),
        base.ExtraSpecValidator(
            name=flavor.APPLICATION,
            description='What the instances do: those of one project with '
                        'the same are compared with each other.',
            value={'type': str, 'description': 'A name.',
                   'pattern': APPLICATION}),
        base.ExtraSpecValidator(
            name=flavor.PROTECT,
            description='Whether others are limited when an instance that is '
                        'foreground is disturbed (true, which is so without '
                        'this), or only shown (false).',
            value={'type': str, 'description': 'true or false.',
                   'enum': [flavor.YES, flavor.NO]}),
        *(base.ExtraSpecValidator(
            name=key, description=DESCRIPTIONS[key],
            value={'type': str, 'description': 'A number above 0.',
                   'pattern': NUMBER_ABOVE_0})
          for key in flavor.FLOORS)]
