# SPDX-License-Identifier: Apache-2.0


"""A libvirtd of a test: a hypervisor with guests, seen from the host.

Its files, its hostname and its cgroups are its own; processes, network
devices and clocks are the machine's, as on a real hypervisor.  Several of
them run side by side, so guests can migrate between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent import futures
import contextlib
import importlib
import json
import os
import pathlib
import platform
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any
import uuid

import fixtures

from scavenger_openstack.tests.functional import base
from scavenger_openstack.tests.functional import domain_console
from scavenger_openstack.tests.functional import domain_guest
from scavenger_openstack.tests.functional import domain_image
from scavenger_openstack.tests.functional import guest_image
from scavenger_openstack.tests.functional import hypervisor_supervisor
from scavenger_openstack.tests.functional import namespaces

START_TIMEOUT_S = 60
VIRSH_TIMEOUT_S = 60
SUPERVISOR_TIMEOUT_S = hypervisor_supervisor.CLEAR_DEADLINE_S + 10

AT_A_TIME = 2
"""Domains are started by so many virsh at once: more are not faster."""

LIBVIRTD = '/usr/sbin/libvirtd'
CAPABILITIES = 'libvirt/qemu/capabilities'
"""Below /var/cache: what libvirtd knows of each QEMU, a file for each."""

LIBVIRTD_CONF = """\
host_uuid = "{host_uuid}"
auth_unix_rw = "none"
auth_unix_ro = "none"
unix_sock_group = "root"
"""

QEMU_CONF = """\
user = "+0"
group = "+0"
dynamic_ownership = 0
remember_owner = 0
security_driver = "none"
security_default_confined = 0
namespaces = [ ]
stdio_handler = "file"
migration_address = "{address}"
"""
"""Root with no labels: the tests are root, and there is no virtlogd."""

ONE_DISK = 'cgroup_controllers = [ "cpu", "cpuset", "cpuacct", "memory" ]\n'
"""All guests stay in the blkio cgroup of their libvirtd."""


class Unavailable(Exception):
    """No hypervisor can run here; the message says why and what to do."""


class HypervisorError(Exception):
    """A hypervisor of the tests did not do what it was told."""


def unavailable() -> str:
    """Why no hypervisor can run here, and what to do; '' when it can."""
    if os.geteuid() != 0:
        return 'needs root: it makes cgroups and namespaces'
    missing = set(base.CONTROLLERS) - set(base.mounts())
    if missing:
        return ('needs cgroup v1 controllers: '
                + ', '.join(sorted(missing)))
    if platform.machine() != 'x86_64':
        return 'needs an x86_64 machine: its guests are x86_64'
    directory = pathlib.Path(tempfile.gettempdir()).resolve()
    for hidden in hypervisor_supervisor.BOUND.values():
        if directory.is_relative_to(hidden):
            return (f'needs a directory for its files that is not below '
                    f'{hidden}: set TMPDIR')
    for program, package in ((LIBVIRTD, 'libvirt-daemon'),
                             ('virsh', 'libvirt-clients'),
                             ('qemu-system-x86_64', 'qemu-system-x86'),
                             ('qemu-system-i386', 'qemu-system-x86')):
        if not shutil.which(program):
            return f'needs {program}: install {package}'
    try:
        importlib.import_module('libvirt')
    except ImportError:
        return 'needs libvirt-python: run tools/setup.sh test'
    return ''


class Hypervisor(fixtures.Fixture):
    """A running libvirtd; what it ever started ends with the fixture.

    Also when the process of the tests is killed: see
    :mod:`.hypervisor_supervisor`.  Every wait has a deadline.

    :param own_network: in a network namespace of its own; two hypervisors
        between which guests with NICs migrate need that, as the tap has one
        name on both.  Default: in that of the tests, where the agent is on
        a real host.
    :param disk_bytes_per_s: what the disk below all guests can do, for reads
        and for writes, where that of the machine is too fast to be a
        bottleneck before the CPUs are
    :param unified: with the cgroup v2 tree beside version 1, where perf
        counts; else libvirt does not see that there is one

    Once it is set up:

    * ``uri``: for libvirt-python and virsh, from anywhere on the machine
    * ``hostname``, ``host_uuid``: as libvirtd reports them
    * ``address``: of loopback, where its QEMUs listen for guests that come
    * ``tree``: the :class:`.base.CgroupTree` that holds everything; its
      domains are below ``tree.name + '/machine'``
    * ``directory``: its files, all below one temporary directory
    * ``disks``: a directory for disks, of the same name for every QEMU
    * ``run_dir``: libvirt's run directory for QEMU, with ``NAME.pid`` and
      ``NAME.xml`` of each running domain (``/run/libvirt/qemu`` of a host)
    * ``netns``: name of its own network namespace, or None
    """

    uri: str
    hostname: str
    host_uuid: str
    address: str
    tree: base.CgroupTree
    directory: pathlib.Path
    disks: pathlib.Path
    run_dir: pathlib.Path

    def __init__(self, *, own_network: bool = False,
                 disk_bytes_per_s: int | None = None,
                 unified: bool = False) -> None:
        super().__init__()
        self._unified = unified
        self._disk_bytes_per_s = disk_bytes_per_s
        self.netns = (f'scv-hv-{uuid.uuid4().hex[:8]}' if own_network
                      else None)
        self._pid: int | None = None
        self._started = False
        self._listening: dict[str, domain_console.Console] = {}

    def _setUp(self) -> None:
        if why := unavailable():
            raise Unavailable(why)
        self._supervisor = subprocess.Popen(
            [sys.executable, '-I', hypervisor_supervisor.__file__,
             str(os.getpid())], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True)
        self._answers = b''
        self.addCleanup(self._end_supervisor)
        self.directory = pathlib.Path(self._answer()['directory'])
        # If the supervisor should have been killed.
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.tree = self.useFixture(base.CgroupTree())
        cgroups = {str(where): str(self.tree.path(controller))
                   for controller, where in self.tree.mounts.items()}
        if self._unified:
            where = base.unified()
            cgroups[str(where)] = f'{where}{self.tree.name}'
            # With it libvirt would use version 1 only.
            cgroups.pop(str(self.tree.mounts['cpuacct']))
        self._order('adopt', cgroups=cgroups)
        # Before the tree's own clean-up, which then finds nothing.
        self.addCleanup(self._end_supervisor)
        if self.netns:
            self.at_end('ip', 'netns', 'delete', self.netns)
            namespaces.run('ip', 'netns', 'add', self.netns)
            namespaces.run('ip', '-n', self.netns, 'link', 'set', 'lo', 'up')
        self.tree.make('/libvirtd')
        for path in cgroups.values():
            pathlib.Path(path, 'libvirtd').mkdir(parents=True, exist_ok=True)
        number = uuid.uuid4()
        self.host_uuid = str(number)
        self.hostname = f'hv-{self.host_uuid[:8]}'
        self.address = '127.' + '.'.join(
            str(1 + byte % 254) for byte in number.bytes[:3])
        self.run_dir = self.directory / 'run/libvirt/qemu'
        self.disks = self.directory / 'disks'
        self.disks.mkdir()
        self._consoles = self.directory / 'lib/consoles'
        self._consoles.mkdir()
        self._socket = self.directory / 'run/libvirt/libvirt-sock'
        self.uri = f'qemu+unix:///system?socket={self._socket}'
        (self.directory / 'etc/libvirtd.conf').write_text(
            LIBVIRTD_CONF.format(host_uuid=self.host_uuid))
        self._write_qemu_conf()
        self._share_capabilities()
        self.start_again()

    def _write_qemu_conf(self) -> None:
        rate = self._disk_bytes_per_s
        (self.directory / 'etc/qemu.conf').write_text(
            QEMU_CONF.format(address=self.address)
            + (ONE_DISK if rate else ''))
        if rate:
            device = os.stat(self.disks).st_dev
            for way in ('read', 'write'):
                self.tree.write(
                    'blkio', '/libvirtd', f'blkio.throttle.{way}_bps_device',
                    f'{os.major(device)}:{os.minor(device)} {rate}')

    def _share_capabilities(self) -> None:
        """Let this libvirtd know what an earlier one found out of QEMU.

        That takes it seconds.  It looks whether that still holds: whether
        QEMU, kernel and libvirt are the same.
        """
        try:
            shared = guest_image.cache_directory() / 'capabilities'
        except guest_image.Unavailable:
            return
        own = self.directory / 'cache' / CAPABILITIES
        own.mkdir(parents=True)
        shared.mkdir(exist_ok=True)
        for path in shared.glob('*.xml'):
            shutil.copy(path, own)

        def keep() -> None:
            for path in own.glob('*.xml'):
                known = shared / path.name
                if not known.exists() \
                        or known.read_bytes() != path.read_bytes():
                    copy = shared / f'{path.name}.{os.getpid()}'
                    shutil.copy(path, copy)
                    copy.rename(known)

        self.addCleanup(keep)

    # --- libvirtd itself

    @property
    def pid(self) -> int:
        """The process of libvirtd.

        :raises HypervisorError: it was killed.
        """
        if self._pid is None:
            raise HypervisorError('this libvirtd was killed')
        return self._pid

    def start_again(self) -> None:
        """Start libvirtd and wait until it answers; its guests went on.

        It gets a second try: beside other tests, which mount and unmount,
        it was seen to end at once.

        :raises HypervisorError: it does not answer in time.
        """
        try:
            self._start_once()
        except HypervisorError as exc:
            print(f'{exc}: tried again', file=sys.stderr)
            self._start_once()

    def _start_once(self) -> None:
        self._socket.unlink(missing_ok=True)
        self._pid = self._order('start', command=[LIBVIRTD],
                                hostname=self.hostname, netns=self.netns)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._socket.exists():
            if not os.path.exists(f'/proc/{self.pid}/exe') \
                    or time.monotonic() > deadline:
                raise HypervisorError(f'libvirtd did not start: {self.log()}')
            time.sleep(0.01)
        while True:
            try:
                self.virsh('list', '--all')
                return
            except HypervisorError as exc:
                # The socket is there before libvirtd listens to it.
                if 'Connection refused' not in str(exc) \
                        or time.monotonic() > deadline:
                    raise HypervisorError(f'{exc}: {self.log()}') from None
            time.sleep(0.01)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """End libvirtd by a signal and wait for that; its guests go on."""
        self._order('kill', number=int(number))
        self._pid = None

    def cpu_s(self) -> float:
        """CPU seconds that this libvirtd has used, without its QEMUs."""
        # The clock of a process as clock_getcpuclockid(3) numbers it.
        return time.clock_gettime(~self.pid << 3 | 2)

    def log(self) -> str:
        """The last words of libvirtd."""
        log = self.directory / 'log/libvirtd.log'
        return log.read_text(errors='replace')[-4000:] if log.exists() else ''

    # --- domains

    def virsh(self, *arguments: str,
              timeout_s: float = VIRSH_TIMEOUT_S) -> str:
        """What virsh prints.  One argument may be several commands, with
        ``;`` between them.

        :raises HypervisorError: it failed, or did not end in time.
        """
        try:
            done = subprocess.run(
                ['virsh', '-q', '-c', self.uri, *arguments],
                stdin=subprocess.DEVNULL, capture_output=True, text=True,
                timeout=timeout_s, env={**os.environ, 'LC_ALL': 'C'})
        except subprocess.TimeoutExpired:
            raise HypervisorError(
                f'virsh {" ".join(arguments)}: not within {timeout_s} s') \
                from None
        if done.returncode:
            raise HypervisorError(f'virsh {" ".join(arguments)}: '
                                  f'{done.stderr.strip()}{self._qemu_log()}')
        return done.stdout

    def _qemu_log(self) -> str:
        """The last words of the QEMU that wrote last."""
        logs = sorted((self.directory / 'log/libvirt/qemu').glob('*.log'),
                      key=lambda path: path.stat().st_mtime)
        return '' if not logs else f'; {logs[-1].name}: ' + logs[-1].read_text(
            errors='replace')[-600:]

    def connect(self) -> Any:
        """A connection of libvirt-python, closed with the fixture."""
        libvirt = importlib.import_module('libvirt')
        connection = libvirt.open(self.uri)
        self.addCleanup(connection.close)
        self.addCleanup(self._wake)
        return connection

    def _wake(self) -> None:
        """A libvirtd that a test has stopped would never close."""
        if self._pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGCONT)

    def define(self, *guests: domain_guest.DomainGuest) -> None:
        """Make guests known, persistent and shut off."""
        commands = []
        for guest in guests:
            path = self.directory / f'{guest.name}.xml'
            path.write_text(guest.xml())
            commands.append(f'define {path}')
        self.virsh('; '.join(commands))

    def start_all(self, guests: Sequence[domain_guest.DomainGuest]) -> None:
        """Define many guests and start them, some at a time; their
        consoles can be asked for one by one.

        The first one by itself: where two virsh at once make the cgroup
        that all of them are in, libvirt can find files of it missing."""
        self.define(*guests)
        first = [] if self._started else [guests[:1]]
        rest = guests[len(first):]
        with futures.ThreadPoolExecutor(AT_A_TIME) as pool:
            for parts in (first, [rest[number::AT_A_TIME]
                                  for number in range(AT_A_TIME)]):
                list(pool.map(self._start_each, filter(None, parts)))
        self._started = True

    def _start_each(self, guests: Sequence[domain_guest.DomainGuest]) -> None:
        self.virsh('; '.join(
            f'start {guest.name}' + ' --paused' * guest.paused
            for guest in guests))

    def define_and_start(self, guest: domain_guest.DomainGuest
                         ) -> domain_console.Console:
        """Define a guest that has an image, start it, and wait until its
        workload obeys; its console."""
        self.start_all([guest])
        return self.console(guest.name)

    def console(self, name: str, *, reset: bool = True
                ) -> domain_console.Console:
        """The console of a guest that runs here, once its workload obeys.

        After a migration, ask the hypervisor that it runs on now, with
        ``reset=False`` so that it goes on with its work.  A console has one
        reader at a time.
        """
        console = domain_console.Console(self._consoles / name, reset=reset)
        self.useFixture(console)
        self._listening[name] = console
        return console

    def qemu_pid(self, name: str) -> int:
        """The process of a running domain."""
        return int((self.run_dir / f'{name}.pid').read_text())

    def migrate(self, name: str, target: Hypervisor,
                *options: str) -> None:
        """Migrate a domain live, peer to peer as Nova does it.

        Its console here is closed.  Nothing reads it meanwhile, and after
        some 300 bytes its socket is full; a serial port that waits then goes
        on waiting on the other side, where there is no socket yet (QEMU
        7.2), and the guest is never heard of again.
        """
        if name in self._listening:
            self._listening.pop(name).close()
        via = target.directory / f'migrate-{uuid.uuid4().hex[:8]}'
        self.virsh('migrate', '--live', '--p2p', '--persistent',
                   '--undefinesource', '--unsafe', *options, '--domain',
                   name, '--desturi', target.uri,
                   '--migrateuri', f'unix://{via}')

    # --- the supervisor

    def at_end(self, *command: str) -> None:
        """Have a command run when everything here has ended, even if the
        tests are killed: say it before you make what it removes."""
        self._order('at_end', command=command)

    def _order(self, what: str, **arguments: Any) -> Any:
        assert self._supervisor.stdin
        self._supervisor.stdin.write(json.dumps(
            {'do': what, **arguments}).encode() + b'\n')
        self._supervisor.stdin.flush()
        answer = self._answer()
        if 'error' in answer:
            raise HypervisorError(answer['error'])
        return answer['done']

    def _answer(self) -> dict[str, Any]:
        assert self._supervisor.stdout
        fd = self._supervisor.stdout.fileno()
        deadline = time.monotonic() + SUPERVISOR_TIMEOUT_S
        while b'\n' not in self._answers:
            ready, _, _ = select.select(
                [fd], [], [], max(0.0, deadline - time.monotonic()))
            read = os.read(fd, 65536) if ready else b''
            if not read:
                raise HypervisorError(
                    'no answer of the supervisor'
                    + ('' if ready else f' within {SUPERVISOR_TIMEOUT_S} s'))
            self._answers += read
        line, self._answers = self._answers.split(b'\n', 1)
        found: dict[str, Any] = json.loads(line)
        return found

    def _end_supervisor(self) -> None:
        if self._supervisor.stdin and self._supervisor.stdin.closed:
            return
        try:
            _, said = self._supervisor.communicate(
                timeout=SUPERVISOR_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._supervisor.kill()
            self._supervisor.communicate()
            raise HypervisorError(
                'the supervisor did not end in time') from None
        if self._supervisor.returncode:
            raise HypervisorError(
                f'the supervisor ended with {self._supervisor.returncode}: '
                f'{said.decode().strip()}')


class HypervisorTestCase(base.FunctionalTestCase):
    """A test with hypervisors; it skips, loudly, where it cannot run."""

    def setUp(self) -> None:
        super().setUp()
        if why := unavailable():
            self.skipTest(why)
        try:
            domain_image.image()
        except domain_image.Unavailable as exc:
            self.skipTest(str(exc))

    def hypervisor(self, *, own_network: bool = False, unified: bool = False
                   ) -> Hypervisor:
        if unified and base.unified() is None:
            self.skipTest('needs a cgroup v2 tree: mount -t cgroup2')
        return self.useFixture(Hypervisor(own_network=own_network,
                                          unified=unified))
