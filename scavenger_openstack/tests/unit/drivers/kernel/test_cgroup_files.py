# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import errno
import os
import pathlib

import fixtures
import testtools

from scavenger_openstack.drivers.kernel.cgroup_files import CgroupDirectory


class TestTwoThreads(testtools.TestCase):

    def test_a_file_that_another_thread_opens_again(self) -> None:
        """What a read has opened does not close meanwhile, so that its number
        would be another file's."""
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        (path / 'cpu.max').write_text('before')
        directory = CgroupDirectory(str(path), version=2)
        real, calls, others = os.pread, [0], []

        def pread(fd: int, size: int, offset: int) -> bytes:
            calls[0] += 1
            if calls[0] == 1:       # here the other thread has its turn
                (path / 'cpu.max').unlink()
                (path / 'cpu.max').write_text('later')
                others.append(directory.read('cpu.max'))
            elif calls[0] == 2:
                raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
            return real(fd, size, offset)

        self.useFixture(fixtures.MonkeyPatch('os.pread', pread))
        self.assertEqual('before', directory.read('cpu.max'))
        self.assertEqual(['later'], others)
