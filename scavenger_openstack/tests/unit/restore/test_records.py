# SPDX-License-Identifier: Apache-2.0

"""Lease files: what is read back, and what is refused."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any

import fixtures
import testtools

from scavenger_openstack.restore import actions
from scavenger_openstack.restore import records
from scavenger_openstack.tests.unit.restore.sample_leases import lease
from scavenger_openstack.tests.unit.restore.sample_leases import TC
from scavenger_openstack.tests.unit.restore.sample_leases import WRITE


class Files(testtools.TestCase):
    """Lease files that are sound, and those that are not."""

    def setUp(self) -> None:
        super().setUp()
        self.path = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.dir = os.open(self.path, os.O_RDONLY)
        self.addCleanup(os.close, self.dir)

    def load(self, name: str = 'a.json') -> records.Lease:
        return records.load(self.dir, name, {os.geteuid()})

    def refused(self, *args: Any, **kwargs: Any) -> str:
        return str(self.assertRaises(actions.Refused, *args, **kwargs))

    def test_round_trip_and_note(self) -> None:
        before = lease(WRITE, TC, original='0-1', created_s=1.5, pid=9)
        (self.path / 'a.json').write_bytes(records.dump(before))
        before.name = 'a.json'
        self.assertEqual(before, self.load())
        size = (self.path / 'a.json').stat().st_size
        for cpus in ('0-1,5', '3'):
            records.remember(before, 1, self.dir, cpus)
            after = self.load()
            self.assertEqual((1, cpus), after.note)
            self.assertEqual(before, after)
        self.assertEqual(size, (self.path / 'a.json').stat().st_size)

    def test_a_torn_note_harms_nothing(self) -> None:
        data = records.dump(lease())
        for note in (b'0 0-', b'\xff\xff', b'{"', b'0'):
            torn = data[:-256] + note.ljust(255) + b'\n'
            self.assertIsNone(records.parse(torn).note)
        self.assertIsNone(records.parse(data.partition(b'\n')[0]).note)

    def test_a_note_does_not_land_in_another_record(self) -> None:
        old = lease()
        records.dump(old)
        other = records.dump(lease(workload='/batch/longer'))
        (self.path / old.name).write_bytes(other)
        records.remember(old, 0, self.dir, '0')
        self.assertEqual(other, (self.path / old.name).read_bytes())

    def test_garbage(self) -> None:
        record = json.loads(records.dump(lease()).partition(b'\n')[0])
        for data in (b'', b'\n', b'\0' * 4096, b'\xff\xfe', b'{}', b'[]',
                     b'null', b'1', b'"x"', b'{"schema": 1}', b'[' * 100000,
                     records.dump(lease())[:40]):
            self.refused(records.parse, data)
        wrongs: list[dict[str, Any]] = [
            {'schema': 2}, {'steps': []}, {'steps': {}}, {'steps': None},
            {'workload': 1}, {'knob': None}, {'workload': 'a\nfake line'},
            {'boot_id': 3}, {'created_s': 'x'}, {'pid': None},
            {'pid': 1e999}]
        for wrong in wrongs:
            self.refused(records.parse,
                         json.dumps({**record, **wrong}).encode())

    def test_only_plain_files_of_ours(self) -> None:
        path = self.path / 'a.json'
        data = records.dump(lease())
        path.write_bytes(data)
        self.assertIn('owner', self.refused(
            records.load, self.dir, 'a.json', {os.geteuid() + 1}))
        for mode in (0o620, 0o602, 0o666):
            path.chmod(mode)
            self.assertIn(f'{mode:o}', self.refused(self.load))
        path.write_bytes(data.ljust(records.MAX_BYTES + 1))
        path.chmod(0o600)
        self.assertIn('bytes', self.refused(self.load))
        path.rename(self.path / 'b.json')
        path.symlink_to('b.json')
        self.assertIn('cannot be opened', self.refused(self.load))
        path.unlink()
        os.mkfifo(path)
        self.assertIn('not a regular file', self.refused(self.load))
        path.unlink()
        path.mkdir()
        self.assertIn('not a regular file', self.refused(self.load))
        path.rmdir()
        self.assertRaises(FileNotFoundError, self.load)
