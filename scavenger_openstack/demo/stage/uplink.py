# SPDX-License-Identifier: Apache-2.0

"""An uplink that foreground and background share, in namespaces of its own.

::

    scv-ID-fg:eth0 -- fg0:scv-ID-host:up0 [100 Mbit/s TBF] -- scv-ID-sink:eth0
    scv-ID-bg:eth0 -- bg0:

The host's part only forwards.  Its queue is first in, first out, as that of
a plain network card; what the background sends is limited, if at all, where
it leaves the background: on ``scv-ID-bg:eth0``.  The link is slow, and frames
are of 64000 bytes and not segmented late, so that the queue sees packets of
equal size and the traffic costs little CPU: router and far end, which are
other machines in life, are played by the same CPUs.  At 200 Mbit/s they cost
the service 10 % of its latency with frames of 9000 bytes, 4 % with 32000.
"""

from __future__ import annotations

import pathlib
import re
import subprocess
import time

from scavenger_openstack import errors

NETNS = pathlib.Path('/run/netns')
MTU = 64000
SINK_ADDRESS = '10.77.3.2'
PORT = 7001
COMMAND_S = 20.0
REMOVE_S = 10.0
QUEUE = ('burst', '64kb', 'latency', '100ms')
ROLES = ('host', 'fg', 'bg', 'sink')
NAME = re.compile(rf'scv-([0-9a-f]{{6}})-({"|".join(ROLES)})')


def run(*argv: str) -> str:
    """Run one network command and return what it prints.

    :raises DriverError: it is not installed, or it failed.
    """
    try:
        done = subprocess.run(argv, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=COMMAND_S,
                              start_new_session=True, check=False)
    except FileNotFoundError as exc:
        raise errors.DriverError(f'{argv[0]} is not installed; the demo '
                                 'needs iproute2 and util-linux') from exc
    except subprocess.TimeoutExpired as exc:
        raise errors.DriverError(
            f'{" ".join(argv)}: no answer in {COMMAND_S:.0f} s') from exc
    if done.returncode:
        raise errors.DriverError(
            f'{" ".join(argv)}: {done.stderr.strip() or done.returncode}; '
            'the demo needs network namespaces, veth and TBF')
    return done.stdout


def left_over() -> dict[str, list[str]]:
    """Namespaces with a name as the demo gives them, by the demo's id."""
    found: dict[str, list[str]] = {}
    for path in NETNS.glob('scv-*'):
        if match := NAME.fullmatch(path.name):
            found.setdefault(match[1], []).append(path.name)
    return found


def delete(netns: str) -> None:
    """Delete a namespace with its devices; gone already is fine.

    :raises DriverError: it does not go.
    """
    if (NETNS / netns).exists():
        run('ip', 'netns', 'del', netns)


class Uplink:
    """The namespaces of one demo."""

    def __init__(self, name: str, bytes_per_s: float) -> None:
        self.bytes_per_s = bytes_per_s
        self.netns = {role: f'scv-{name}-{role}' for role in ROLES}
        self.link = f'{self.netns["host"]}:up0'
        self.background = f'{self.netns["bg"]}:eth0'

    def make(self) -> None:
        """Lay the cables.

        :raises DriverError: this kernel or these tools cannot.
        """
        host = self.netns['host']
        for netns in self.netns.values():
            run('ip', 'netns', 'add', netns)
            run('ip', '-n', netns, 'link', 'set', 'lo', 'up')
        for role, near, net in (('fg', 'fg0', '10.77.1'),
                                ('bg', 'bg0', '10.77.2'),
                                ('sink', 'up0', '10.77.3')):
            far = self.netns[role]
            run('ip', '-n', host, 'link', 'add', near, 'mtu', str(MTU),
                'type', 'veth', 'peer', 'name', 'eth0', 'mtu', str(MTU),
                'netns', far)
            for netns, device, address in ((host, near, f'{net}.1/24'),
                                           (far, 'eth0', f'{net}.2/24')):
                run('ip', '-n', netns, 'addr', 'add', address, 'dev', device)
                run('ip', '-n', netns, 'link', 'set', device,
                    'gso_max_segs', '1', 'up')
            run('ip', '-n', far, 'route', 'add', 'default', 'via',
                f'{net}.1')
        # not `ip netns exec`: it would hide the cgroup mounts
        run('nsenter', f'--net={NETNS / host}', 'sh', '-c',
            'echo 1 > /proc/sys/net/ipv4/ip_forward')
        run('tc', '-n', host, 'qdisc', 'add', 'dev', 'up0', 'root', 'tbf',
            'rate', f'{self.bytes_per_s * 8:.0f}bit', *QUEUE)

    def limit_background(self, bytes_per_s: float) -> None:
        """A fixed rate for what the background sends."""
        run('tc', '-n', self.netns['bg'], 'qdisc', 'replace', 'dev', 'eth0',
            'root', 'tbf', 'rate', f'{bytes_per_s * 8:.0f}bit', *QUEUE)

    def free_background(self) -> None:
        run('tc', '-n', self.netns['bg'], 'qdisc', 'del', 'dev', 'eth0',
            'root')

    def qdiscs(self) -> str:
        """What shapes the background now, without its counters."""
        return run('tc', '-n', self.netns['bg'], 'qdisc', 'show', 'dev',
                   'eth0').strip()

    def remove(self) -> None:
        """Delete the namespaces.

        :raises DriverError: one does not go in :data:`REMOVE_S`.
        """
        until_s = time.monotonic() + REMOVE_S
        for netns in self.netns.values():
            while True:
                try:
                    delete(netns)
                    break
                except errors.DriverError:
                    if time.monotonic() > until_s:
                        raise
                    time.sleep(0.1)
