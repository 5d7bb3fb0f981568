# SPDX-License-Identifier: Apache-2.0

"""The files in which cgroups tell what they have used, and what these say.

The working set is what a workload uses without the page cache that the
kernel can drop.  The kernel's own MemAvailable counts file pages on the LRU
lists and reclaimable slab as available, so these must not count as used
here, or `MemTotal - MemAvailable - background` would take them off twice.
cgroup v1 has no count of reclaimable slab; it stays in.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import os
from typing import NamedTuple

from scavenger_openstack.drivers.kernel.cgroup_mounts import Mount
from scavenger_openstack.drivers.kernel import rows
from scavenger_openstack.restore import grammar

NS_PER_S = 1e9
US_PER_S = 1e6

# Places in a workload's list of values, what others follow first.
(CPU_S, THROTTLED_S, USED_BYTES, DROPPABLE_BYTES, IO_BYTES, IO_OPS,
 PSI_CPU_S, PSI_IO_S, PSI_MEMORY_S, REFAULT_BYTES) = range(10)
_PLACES = 10
_PAGE = os.sysconf('SC_PAGE_SIZE')

Values = list[float | None]
Parse = Callable[[bytes, Values], None]


def nothing() -> Values:
    return [None] * _PLACES


class Source(NamedTuple):
    """A file and the places of what it tells.

    ``files``: the first that exists.  The first of ``fields`` is its own
    place.  ``follows``: own places of other files, all before its own; it
    is read when one of those has changed, and now and then.  ``off``: how it
    begins while the kernel does not count it.  ``of_refaults``: it is read
    while page cache is read again on this host, and now and then.
    """

    mount: str
    files: tuple[str, ...]
    parse: Parse
    fields: tuple[int, ...]
    follows: tuple[int, ...] = ()
    off: bytes | None = None
    of_refaults: bool = False


def seconds(place: int, per_s: float, key: bytes = b'') -> Parse:
    """A parser of a time that is alone in its file, or follows ``key``."""
    def parse(data: bytes, values: Values) -> None:
        values[place] = (rows.number(data, key) if key else int(data)) / per_s
    return parse


def cpu_stat_us(data: bytes, values: Values) -> None:
    """Parse v2 ``cpu.stat``, without the controller not what is throttled."""
    values[CPU_S] = rows.number(data, b'usage_usec ') / US_PER_S
    values[THROTTLED_S] = (
        rows.number(data, b'throttled_usec ') / US_PER_S
        if b'\nthrottled_usec ' in data else None)


def used_bytes(data: bytes, values: Values) -> None:
    """Parse v1 ``memory.usage_in_bytes``, v2 ``memory.current``."""
    values[USED_BYTES] = int(data)


def droppable_v1(data: bytes, values: Values) -> None:
    """v1 ``memory.numa_stat`` (half the cost), else ``memory.stat``; the
    lines that count descendants, too."""
    if b'hierarchical_file=' in data:
        values[DROPPABLE_BYTES] = _PAGE * rows.number(
            data, b'hierarchical_file=')
    else:
        values[DROPPABLE_BYTES] = rows.total(
            data, b'total_inactive_file ', b'total_active_file ')


def droppable_v2(data: bytes, values: Values) -> None:
    """Parse v2 ``memory.stat``."""
    values[DROPPABLE_BYTES] = rows.total(
        data, b'inactive_file ', b'active_file ', b'slab_reclaimable ')


def refaults_v1(data: bytes, values: Values) -> None:
    """Parse v1 ``memory.stat``, of cgroups below, too."""
    _refaults(data, b'total_workingset_refault', values)


def page_cache_v1(data: bytes, values: Values) -> None:
    """Parse all of v1 ``memory.stat``."""
    droppable_v1(data, values)
    refaults_v1(data, values)


def page_cache_v2(data: bytes, values: Values) -> None:
    """Parse v2 ``memory.stat``."""
    droppable_v2(data, values)
    _refaults(data, b'workingset_refault', values)


def _refaults(data: bytes, key: bytes, values: Values) -> None:
    """Kernels before 5.9 count none but those of files, under a shorter name;
    of version 1 those before 6.1 count none."""
    name = key + (b'_file ' if key + b'_file ' in data else b' ')
    values[REFAULT_BYTES] = (_PAGE * rows.number(data, name)
                             if b'\n' + name in data else None)


def some_s(data: bytes) -> float:
    """Return the total of the ``some`` line of a pressure file."""
    some = rows.row(data, b'some ')
    return rows.first_number(some[some.index(b'total=') + 6:]) / US_PER_S


def psi(place: int) -> Parse:
    """A parser of a pressure file."""
    def parse(data: bytes, values: Values) -> None:
        values[place] = some_s(data)
    return parse


def throttle_totals(place: int, devices: Sequence[bytes]) -> Parse:
    """A parser of v1 ``blkio.throttle.io_*``, for these devices only: what
    passes a stacked device (dm, md) would else count twice.

    A kernel may count for a device only once it had some limit there;
    without any line nothing is known.
    """
    def parse(data: bytes, values: Values) -> None:
        if data.startswith(b'Total'):
            int(data[6:])
            values[place] = None
            return
        keys = [b'%s Total ' % device for device in devices]
        counts = any(data.startswith(key) or b'\n' + key in data
                     for key in keys)
        if not counts:
            rows.number(data, b'Total ')
        values[place] = rows.total(data, *keys) if counts else None
    return parse


def io_stat(devices: Sequence[bytes]) -> Parse:
    """A parser of v2 ``io.stat``, for these devices only; one without I/O
    has no row, or no counts in it."""
    def parse(data: bytes, values: Values) -> None:
        total = operations = 0
        is_known = not data
        for line in data.decode(errors='replace').split('\n'):
            device, counts = grammar.device_row(line)
            is_known |= ':' in device or '=' in counts
            if counts and device.encode() in devices:
                numbers = grammar.pairs(counts)
                total += sum(int(numbers.get(key, 0))
                             for key in ('rbytes', 'wbytes'))
                operations += sum(int(numbers.get(key, 0))
                                  for key in ('rios', 'wios'))
        if not is_known:
            raise ValueError('no row of a device')
        values[IO_BYTES] = total
        values[IO_OPS] = operations
    return parse


def sources(mounts: Mapping[str, Mount], devices: Sequence[bytes], *,
            pressure: bool = True, refaults: bool = False) -> list[Source]:
    """The files that tell about a workload on this host.

    :param devices: ``major:minor`` of the disks to count; may change later
    :param pressure: read the three PSI files, too
    :param refaults: how much page cache was read again, too
    """
    present: list[Source] = []

    def add(controller: str, version: int, parse: Parse,
            fields: tuple[int, ...], *files: str,
            follows: tuple[int, ...] = (),
            off: bytes | None = None, of_refaults: bool = False) -> None:
        mount = mounts.get(controller)
        if mount is not None and mount.version == version:
            present.append(Source(mount.path, files, parse, fields, follows,
                                  off, of_refaults))

    # A throttled group adds up when it may run again.
    add('cpuacct', 1, seconds(CPU_S, NS_PER_S), (CPU_S,), 'cpuacct.usage')
    add('cpu', 1, seconds(THROTTLED_S, NS_PER_S, b'throttled_time '),
        (THROTTLED_S,), 'cpu.stat', follows=(CPU_S,), off=b'nr_periods 0\n')
    if not present:
        add('unified', 2, cpu_stat_us, (CPU_S, THROTTLED_S), 'cpu.stat')
    # What neither runs nor changes in size does not change what it holds.
    add('memory', 1, used_bytes, (USED_BYTES,), 'memory.usage_in_bytes')
    add('memory', 2, used_bytes, (USED_BYTES,), 'memory.current')
    add('memory', 1, droppable_v1, (DROPPABLE_BYTES,),
        'memory.numa_stat', 'memory.stat', follows=(CPU_S, USED_BYTES))
    if refaults:
        add('memory', 1, refaults_v1, (REFAULT_BYTES,), 'memory.stat',
            follows=(CPU_S, USED_BYTES), of_refaults=True)
        add('memory', 2, page_cache_v2, (DROPPABLE_BYTES, REFAULT_BYTES),
            'memory.stat', follows=(CPU_S, USED_BYTES))
    else:
        add('memory', 2, droppable_v2, (DROPPABLE_BYTES,), 'memory.stat',
            follows=(CPU_S, USED_BYTES))
    add('blkio', 1, throttle_totals(IO_BYTES, devices), (IO_BYTES,),
        'blkio.throttle.io_service_bytes_recursive',
        'blkio.throttle.io_service_bytes', off=b'Total')
    add('blkio', 1, throttle_totals(IO_OPS, devices), (IO_OPS,),
        'blkio.throttle.io_serviced_recursive',
        'blkio.throttle.io_serviced', follows=(IO_BYTES,), off=b'Total')
    add('blkio', 2, io_stat(devices), (IO_BYTES, IO_OPS), 'io.stat')
    if pressure:
        for place, name in ((PSI_CPU_S, 'cpu'), (PSI_IO_S, 'io'),
                            (PSI_MEMORY_S, 'memory')):
            add('unified', 2, psi(place), (place,), f'{name}.pressure')
    return present
