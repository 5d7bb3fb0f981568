# SPDX-License-Identifier: Apache-2.0

"""The kernels of iBench for tests: compiled once, and how each is run."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import functools
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
from typing import Any
import unittest

import scavenger_openstack

SOURCES = pathlib.Path(scavenger_openstack.__file__).parent.joinpath(
    'ibench', 'kernels')
WARNINGS = ('-Wall', '-Wextra', '-Werror')
CACHES = ('l1d=32768', 'l1i=32768', 'l2=262144')
MIB = 1 << 20

KERNELS: dict[str, tuple[str, ...]] = {
    'memory_capacity': (f'size={16 * MIB}',),
    'memory_bandwidth': (f'size={160 * MIB}', 'sets=4096', 'ways=8'),
    'storage_capacity': (f'size={4 * MIB}', 'path={directory}'),
    'storage_bandwidth': (f'size={4 * MIB}', 'path={directory}'),
    'network_bandwidth': ('address={address}', 'threads=2'),
    'llc_capacity': ('sets=4096', 'ways=11', *CACHES),
    'llc_bandwidth': ('sets=4096', 'ways=11', *CACHES),
    'l2_capacity': ('size=262144', 'ways=8', *CACHES),
    'l2_bandwidth': ('size=262144', *CACHES),
    'l1i': ('l1i=32768', 'ways=8'),
    'l1d': ('l1d=32768', 'ways=8'),
    'tlb': ('entries=1500',),
    'integer': (),
    'floating_point': (),
    'prefetcher': ('l1i=32768',),
    'interconnect': ('cpus={cpus}',),
    'vector': (),
}
"""Each kernel and the arguments it needs, small enough for a busy host."""

HOLDS = {'memory_capacity', 'storage_capacity', 'llc_capacity',
         'l2_capacity', 'l1i', 'l1d', 'tlb'}

COUNTS_BYTES = {'memory_bandwidth', 'storage_capacity', 'storage_bandwidth',
                'network_bandwidth', 'llc_bandwidth', 'l2_bandwidth'}


def compile_program(target: pathlib.Path, *options: str) -> None:
    """Compile all kernels with one call, as the package does."""
    compiler = shutil.which('cc')
    assert compiler is not None
    subprocess.run(
        [compiler, '-O2', '-pthread', *WARNINGS, *options, '-o', str(target),
         *map(str, sorted(SOURCES.glob('*.c')))], check=True, timeout=300)


@functools.cache
def directory() -> pathlib.Path:
    """A directory on a disk, removed when the tests end."""
    path = tempfile.mkdtemp(prefix='ibench-', dir='/var/tmp')
    atexit.register(shutil.rmtree, path)
    return pathlib.Path(path)


@functools.cache
def program() -> pathlib.Path:
    """The compiled program."""
    target = directory() / 'scavenger-soi'
    compile_program(target)
    return target


@contextlib.contextmanager
def started(*command: object, **options: Any) -> Iterator[
        subprocess.Popen[str]]:
    """A program that runs until the block ends."""
    with subprocess.Popen(
            list(map(str, command)), stdout=subprocess.PIPE, text=True,
            **options) as process:
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def remote_end(path: pathlib.Path) -> Iterator[tuple[int, str]]:
    """A remote end of SoI5: its PID and its address."""
    with started(path, 'serve', 'address=127.0.0.1:0') as process:
        assert process.stdout is not None
        event = json.loads(process.stdout.readline())
        yield process.pid, f'127.0.0.1:{event["port"]}'


def arguments(name: str, *, address: str, cpus: list[int]) -> list[str]:
    """What kernel ``name`` needs, with the places of this host."""
    return [text.format(directory=directory(), address=address,
                        cpus=','.join(map(str, cpus)))
            for text in KERNELS[name]]


def run(path: pathlib.Path, *command: object, timeout: float = 120,
        **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the program to its end."""
    return subprocess.run(
        [str(path), *map(str, command)], capture_output=True, text=True,
        check=False, timeout=timeout, **options)


def events(output: str) -> list[dict[str, Any]]:
    """The JSON objects of the lines of ``output``."""
    return [json.loads(line) for line in output.splitlines()]


def metered(path: pathlib.Path, command: list[str], *, percent: float,
            held: int, meter: Callable[[int], int]) -> int:
    """What ``meter`` reads of the process once it reports to hold ``held``.

    The process is stopped meanwhile.
    """
    with started(path, *command, 'every_s=0.02') as process:
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            if (event.get('percent') == percent
                    and event.get('held_bytes') == held):
                process.send_signal(signal.SIGSTOP)
                return meter(process.pid)
    raise AssertionError(f'{command}: it never held {held} bytes')


def two_cpus(test: unittest.TestCase) -> list[int]:
    """Two of the CPUs that the test may use."""
    cpus = sorted(os.sched_getaffinity(0))[:2]
    if len(cpus) < 2:
        test.skipTest('messages between CPUs need two of them')
    return cpus


def needs_compiler(test: unittest.TestCase) -> None:
    """Skip the test where the kernels cannot be compiled."""
    if not shutil.which('cc'):
        test.skipTest('no C compiler')
