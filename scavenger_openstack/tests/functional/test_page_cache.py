# SPDX-License-Identifier: Apache-2.0


"""Page cache on the real kernel: a stream beside a service with files."""

from __future__ import annotations

import os
import pathlib
import textwrap
import time

import fixtures

from scavenger_openstack.algorithms.scavenger import scavenger
from scavenger_openstack.decision import rates as decision_rates
from scavenger_openstack.drivers.cgroup.cgroups import Cgroups
from scavenger_openstack import errors
from scavenger_openstack.tests.functional.cgroup_cases import CgroupsCase
from scavenger_openstack.tests.functional.cgroup_cases import MIB
from scavenger_openstack.tests.functional.cgroup_cases import restore
from scavenger_openstack import types

READ = textwrap.dedent('''
    import time
    print("up", flush=True)
    with open({path!r}, "rb", buffering=0) as file:
        while True:
            file.seek(0)
            while file.read(1 << 20):
                time.sleep({rest})
    ''')
GROW = textwrap.dedent('''
    import time
    print("up", flush=True)
    kept = []
    for _ in range(40):
        kept.append(b"x" * (4 << 20))
        time.sleep(0.25)
    print("done", flush=True)
    time.sleep(60)
    ''')
HOST_MIB, FILES_MIB, STREAM_MIB = 256, 144, 176
NOTHING = scavenger.Params(use_memory=False, use_page_cache=False)
PARAMS = scavenger.Params(use_memory=False)


class PageCacheTest(CgroupsCase):
    """A cgroup plays the memory of the host."""

    def setUp(self) -> None:
        super().setUp()
        self.tree.put('memory', '', str(HOST_MIB * MIB))
        self.tree.make('/fg')
        self.tree.make('/fg/web')
        self.host = self.driver('stream', memory_root=self.tree.name)
        self.batch = f'{self.parent}/stream'
        folder = pathlib.Path(self.useFixture(fixtures.TempDir(
            rootdir='/var/tmp')).path)
        for name, size in ('files', FILES_MIB), ('stream', STREAM_MIB):
            with (folder / name).open('wb') as file:
                for _ in range(size):
                    file.write(os.urandom(MIB))
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        self.folder = folder

    def sample(self, driver: Cgroups) -> types.HostSample:
        memory = driver.memory()
        assert memory is not None
        return types.HostSample(
            'node7', 'boot', time.clock_gettime(time.CLOCK_BOOTTIME),
            time.time(), driver.sample(),
            memory_total_bytes=memory.total, memory_free_bytes=memory.free,
            memory_available_bytes=memory.available,
            refault_bytes=memory.refaults,
            memory_limit_ends=driver.memory_limit_ends)

    def play(self, params: scavenger.Params, seconds: int
             ) -> tuple[float, float]:
        """Return what the service and the stream read again, in MiB/s, in the
        second half."""
        controller = scavenger.Controller(params, interval_s=1.0)
        before = self.sample(self.host)
        middle = None
        for tick in range(seconds):
            time.sleep(1)
            sample = self.sample(self.host)
            if tick == seconds // 2:
                middle = sample
            decision = controller.step(sample.time_s, decision_rates.rates(
                before, sample))
            before = sample
            limits = [int(cap.value) for cap in decision.caps
                      if cap.knob is types.Knob.MEMORY_BYTES]
            if limits:
                try:
                    self.host.write(self.batch, types.Knob.MEMORY_BYTES,
                                    min(limits))
                except errors.Refused:
                    pass    # the next tick tries again
        assert middle is not None
        found = decision_rates.rates(middle, sample)
        batch = found.workloads[0].refault_bytes_per_s
        assert found.refault_bytes_per_s is not None and batch is not None
        return (found.refault_bytes_per_s - batch) / MIB, batch / MIB

    def test_a_stream_beside_a_service(self) -> None:
        self.up(READ.format(path=str(self.folder / 'files'), rest=0.005),
                '/fg/web')
        time.sleep(2)
        actions = self.host.restore_actions(self.batch,
                                            types.Knob.MEMORY_BYTES)
        self.up(READ.format(path=str(self.folder / 'stream'), rest=0.001),
                '/bg/stream')
        service, stream = self.play(NOTHING, 8)
        self.assertGreater(service, 10.0)
        ours, stream_ours = self.play(PARAMS, 16)
        restore(actions)
        self.assertLess(ours, service / 10, (service, ours))
        # It reads what it has to read all the same, from the disk.
        self.assertGreater(stream_ours, stream / 10)

    def test_growth_beside_a_service_is_not_ended(self) -> None:
        """A limit of version 1 would end it: it leaves room."""
        self.up(READ.format(path=str(self.folder / 'files'), rest=0.005),
                '/fg/web')
        time.sleep(2)
        actions = self.host.restore_actions(self.batch,
                                            types.Knob.MEMORY_BYTES)
        process = self.up(GROW, '/bg/stream')
        self.play(PARAMS, 13)
        restore(actions)
        self.assertIsNone(process.poll())
        assert process.stdout is not None
        self.assertEqual('done\n', process.stdout.readline())
