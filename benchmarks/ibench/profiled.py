# SPDX-License-Identifier: Apache-2.0

"""Profiles of services and commands, made by ``scavenger-ibench profile``."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import json
import os
import pathlib
import shlex
import sys
import tempfile
import time
from typing import Any

import stage as stage_

from scavenger_openstack import errors
from scavenger_openstack.ibench import catalogue
from scavenger_openstack.ibench import interrupt as interrupt_
from scavenger_openstack.ibench import run

WINDOWS = 4
"""Numbers that the client prints in a turn; the first is not counted."""

Document = dict[str, Any]


def profile_service(stage: stage_.Stage, service: stage_.Service,
                    sois: Sequence[catalogue.Soi], *, seconds: float,
                    repeats: int, slack: float = 1.0) -> Document:
    """Return the profile of a service: the QoS is that 95 % of the requests
    are answered within its target.

    :param slack: so many times the target
    :raises ConfigError: it cannot be made.
    :raises Interrupted: a signal came.
    """
    application = service.application
    assert stage.host.cgroup is not None
    pipe = stage.directory / 'p95'
    command = stage_.client_command(
        stage, application, seconds=seconds / WINDOWS,
        target_s=application.target_s, endless=True)

    @contextlib.contextmanager
    def meter() -> Iterator[None]:
        # It opens the pipe, and so begins, when the profile reads from it.
        with contextlib.suppress(FileNotFoundError):
            pipe.unlink()
        os.mkfifo(pipe)
        client = run.start_process(
            ['sh', '-c', f'exec > {shlex.quote(str(pipe))}; exec '
             + shlex.join(command)], None, (stage.other_cpu,))
        try:
            yield
        finally:
            run.end_process(client)

    return _profile(
        ['--cgroup', stage.host.cgroup.path, '--meter', f'cat {pipe}',
         '--qos', f'p95_s<{slack * application.target_s:g}',
         '--address', stage.link.address, '--path', str(stage.directory)],
        sois, stage.host.interrupt, enter=stage.link.enter, meter=meter,
        seconds=seconds, repeats=repeats)


def profile_command(command: Sequence[str], sois: Sequence[catalogue.Soi],
                    interrupt: interrupt_.Interrupt, *, cpu: int,
                    seconds: float, repeats: int) -> Document:
    """Return the profile of a command that ends: the QoS is its duration,
    plus 5 %.

    :param cpu: where it runs
    :raises ConfigError: it cannot be made.
    :raises Interrupted: a signal came.
    """
    return _profile(
        ['--command', shlex.join(command), '--workload-cpus', str(cpu)],
        sois, interrupt, enter=(), meter=contextlib.nullcontext,
        seconds=seconds, repeats=repeats)


def _profile(words: Sequence[str], sois: Sequence[catalogue.Soi],
             interrupt: interrupt_.Interrupt, *, enter: Sequence[str],
             meter: Callable[[], contextlib.AbstractContextManager[None]],
             seconds: float, repeats: int) -> Document:
    with tempfile.TemporaryDirectory() as top, meter():
        file = pathlib.Path(top) / 'profile.json'
        _run([*enter, sys.executable, '-m',
              'scavenger_openstack.cmd.ibench', 'profile', *words, '--sois',
              ','.join(soi.name for soi in sois), '--seconds',
              f'{seconds:g}', '--repeats', str(repeats), '--yes',
              '--output', str(file)], interrupt)
        return dict(json.loads(file.read_text()))


def _run(command: Sequence[str], interrupt: interrupt_.Interrupt) -> None:
    with tempfile.TemporaryFile() as output:
        process = run.start_process(
            ['sh', '-c', 'exec "$@" 2>&1 >/dev/null', 'sh', *command], None)
        assert process.stdout is not None
        try:
            os.set_blocking(process.stdout.fileno(), False)
            while process.poll() is None:
                output.write(process.stdout.read() or b'')
                interrupt.wait_until(time.monotonic()
                                     + interrupt_.SLICE_S)
            output.write(process.stdout.read() or b'')
            if process.returncode:
                output.seek(0)
                raise errors.ConfigError(
                    output.read().decode().strip()[-400:])
        finally:
            run.end_process(process)
