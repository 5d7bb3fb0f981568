# SPDX-License-Identifier: Apache-2.0

"""Asking before much of the free memory or disk is taken."""

from __future__ import annotations

from collections.abc import Iterable
import shutil
import sys
from typing import TextIO

from scavenger_openstack import amounts
from scavenger_openstack import errors
from scavenger_openstack.ibench.arguments import Start
from scavenger_openstack.ibench.arguments import Surroundings

SHARE = 0.5
"""Above this share of what is free it is asked."""


def check_room(starts: Iterable[tuple[Start, float]], chosen: Surroundings,
               *, yes: bool, questions: TextIO | None = None,
               answers: TextIO | None = None) -> None:
    """Ask where kernels take more than :data:`SHARE` of what is free.

    :param starts: each kernel, with its highest intensity in percent
    :param yes: the operator has agreed beforehand
    :raises ConfigError: it does not fit at all, the answer is no, or there
        is no terminal to ask at.
    """
    memory = disk = 0.0
    for start, percent in starts:
        share = percent / 100
        if start.soi.name != 'memory_capacity':
            share = 1.0     # the footprint of a rate does not change with it
        memory += share * (start.memory_bytes or 0)
        disk += (percent / 100 if start.soi.name == 'storage_capacity'
                 else 1.0) * (start.disk_bytes or 0)
    rooms = [('memory', memory, chosen.memory.available_bytes,
              'memory that is available below ' + chosen.memory.whole)]
    if disk and chosen.path is not None:
        rooms.append(('disk', disk, shutil.disk_usage(chosen.path).free,
                      f'space that is free at {chosen.path}'))
    for noun, wanted, free, where in rooms:
        if wanted > free:
            raise errors.ConfigError(
                f'{amounts.of_bytes(wanted)} of {noun} do not fit: there '
                f'are {amounts.of_bytes(free)} of {where}; choose a lower '
                'intensity or a smaller --size')
        if wanted > SHARE * free and not yes:
            _ask(f'it takes {amounts.of_bytes(wanted)}, more than '
                 f'{SHARE:.0%} of the {amounts.of_bytes(free)} of {where}',
                 questions or sys.stderr, answers or sys.stdin)


def _ask(what: str, questions: TextIO, answers: TextIO) -> None:
    if not answers.isatty() or not questions.isatty():
        raise errors.ConfigError(
            f'{what}: agree with --yes, or choose a lower intensity or a '
            'smaller --size')
    print(f'scavenger-ibench: {what}. Go on? [y/N] ', end='',
          file=questions, flush=True)
    if answers.readline().strip().lower() not in ('y', 'yes'):
        raise errors.ConfigError('nothing was started')
