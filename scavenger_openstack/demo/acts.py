# SPDX-License-Identifier: Apache-2.0

"""What both acts do before and after they play."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
import os
import pathlib
import sys
from typing import Any
from typing import Protocol

from scavenger_openstack.demo import figures
from scavenger_openstack.demo.stage import cgroups
from scavenger_openstack.demo.stage import stage as stage_
from scavenger_openstack import errors
from scavenger_openstack import text as text_

MIB = 2**20
LINK_BYTES_PER_S = 12.5e6
SPARE_MIB = 512
EXIT = {figures.PASSED: 0, figures.FAILED: 1, figures.INCONCLUSIVE: 3,
        figures.NOT_JUDGED: 0}


class Playing(Protocol):
    """An act that has begun."""

    def stop(self) -> None:
        """End the agent.

        :raises DriverError: it did not end as it should.
        """


def check(options: argparse.Namespace, *controllers: str) -> list[int]:
    """See whether there is room, and make that of the result; the CPUs.

    :param controllers: of cgroups, which are needed besides
    :raises DriverError: there is not.
    """
    cgroups.check(*controllers)
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        raise errors.DriverError('the demo needs two CPUs at least; here is '
                                 'one')
    _check_memory(options.memory)
    options.output.mkdir(parents=True, exist_ok=True)
    return cpus


def _check_memory(memory_mib: int) -> None:
    for line in pathlib.Path('/proc/meminfo').read_text().splitlines():
        if line.startswith('MemAvailable:'):
            free_mib = int(line.split()[1]) // 1024
            if free_mib < memory_mib + SPARE_MIB:
                raise errors.DriverError(
                    f'{free_mib} MiB of memory are available, the demo '
                    f'needs {memory_mib + SPARE_MIB}; free some or lower '
                    '--memory')


def strike(playing: Playing | None, stage: stage_.Stage,
           problems: list[str]) -> None:
    """Remove everything; what does not go is said and added."""
    if playing:
        try:
            playing.stop()
        except errors.DriverError as exc:
            problems.append(str(exc))
    problems += stage.remove()
    for problem in problems:
        print(f'scavenger-demo: {problem}; run scavenger-demo --clean',
              file=sys.stderr)


def write(options: argparse.Namespace, json_file: str, html_file: str, *,
          result: Mapping[str, Any], stored: str, page: str, text: str,
          following: str) -> int:
    """Store and print the result; the exit code.

    :param stored: what the JSON file has
    :param following: what to do next
    """
    (options.output / json_file).write_text(stored + '\n')
    (options.output / html_file).write_text(page)
    print(text_.json_page(result) if options.json else text)
    print(f'{options.output}/{json_file} and {options.output}/{html_file} '
          f'written\n{following}', file=sys.stderr)
    return EXIT[result['verdict']]
