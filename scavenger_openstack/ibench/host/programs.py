# SPDX-License-Identifier: Apache-2.0

"""Calls of the host's own programs: ip, losetup."""

from __future__ import annotations

import subprocess

from scavenger_openstack import errors

ANSWER_S = 60.0


def call(*argv: str, package: str) -> str:
    """Run a program and return what it prints.

    :param package: what installs it
    :raises DriverError: it is not installed, fails, or does not answer.
    """
    try:
        done = subprocess.run(
            argv, capture_output=True, text=True, check=False,
            stdin=subprocess.DEVNULL, start_new_session=True,
            timeout=ANSWER_S)
    except FileNotFoundError as exc:
        raise errors.DriverError(
            f'{argv[0]} is not installed: install {package}') from exc
    except subprocess.TimeoutExpired as exc:
        raise errors.DriverError(f'{" ".join(argv)}: no answer in '
                                 f'{ANSWER_S:.0f} s') from exc
    if done.returncode:
        raise errors.DriverError(
            f'{" ".join(argv)}: '
            f'{done.stderr.strip() or f"exit status {done.returncode}"}')
    return done.stdout
