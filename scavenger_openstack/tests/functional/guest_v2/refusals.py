# SPDX-License-Identifier: Apache-2.0

"""What an operator reads when cgroup v2 does not let us: one clear line."""

from __future__ import annotations

from collections.abc import Callable
import json
import os
import traceback

from scavenger_openstack import errors
from scavenger_openstack.tests.functional.guest_v2 import tree
from scavenger_openstack.types import Knob
from scavenger_openstack.types import Value

NOBODY = 65534

KNOBS: dict[Knob, tuple[Value, str, str]] = {
    Knob.CPU_CORES: (0.5, 'cpu', 'cpu.max'),
    Knob.CPU_IDLE: (1, 'cpu', 'cpu.idle'),
    Knob.CPU_SET: ('1', 'cpuset', 'cpuset.cpus'),
    Knob.MEMORY_BYTES: (64 * tree.MIB, 'memory', 'memory.high'),
    Knob.IO_BYTES_PER_S: (1_000_000, 'io', 'io.max'),
    Knob.IO_OPS_PER_S: (100, 'io', 'io.max'),
    Knob.PAUSED: (1, '', 'cgroup.freeze')}
"""A value for each knob, the controller that it needs, and its file."""


def as_nobody(work: Callable[[], object]) -> object:
    """What ``work`` returns, as JSON, when a user without rights does
    it."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            os.write(writer, json.dumps(work()).encode())
            os._exit(0)
        except BaseException:
            os.write(writer, json.dumps(traceback.format_exc()).encode())
            os._exit(1)
    os.close(writer)
    with open(reader) as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    found: object = json.loads(said)
    return found


class MissingControllers(tree.GuestTestCase):

    def test_missing_controller_is_named_with_the_cure(self) -> None:
        bare = self.useFixture(tree.Tree(controllers=()))
        bare.make('/batch/a')
        self.parent, self.job = f'{bare.name}/batch', f'{bare.name}/batch/a'
        driver = self.driver()
        # What needs no controller is there all the same.
        self.assertIsNotNone(self.one(driver).cpu_s)
        self.assertIsNone(self.one(driver).memory_bytes)
        self.assertIsNone(self.one(driver).io_bytes)
        for knob, (value, controller, file) in KNOBS.items():
            if not controller:
                driver.write(self.job, knob, value)
                continue
            for action, *more in ((driver.read,), (driver.restore_actions,),
                                  (driver.write, value)):
                exc = self.assertRaises(errors.Unsupported, action, self.job,
                                        knob, *more)
                self.assertNotIn('\n', str(exc))
                self.assertRegex(str(exc), f'{bare.path("/batch/a")}/'
                                 f'{file.partition(".")[0]}')
                self.assertIn(f'echo +{controller} > {bare.path("")}/'
                              'cgroup.subtree_control', str(exc))
        # The cure works: level by level.
        for name in ('', '/batch'):
            exc = self.assertRaises(errors.Unsupported, driver.read,
                                    self.job, Knob.CPU_CORES)
            self.assertIn(f'{bare.path(name)}/cgroup.subtree_control',
                          str(exc))
            bare.write(name, 'cgroup.subtree_control', '+cpu')
        driver.write(self.job, Knob.CPU_CORES, 0.5)
        self.assertEqual('50000 100000', bare.read('/batch/a', 'cpu.max'))


class Delegation(tree.GuestTestCase):

    def write_all(self) -> dict[str, str]:
        """Write every knob; what each came to."""
        driver = self.driver()
        found = {}
        for knob, (value, _, _) in KNOBS.items():
            try:
                driver.write(self.job, knob, value)
                found[str(knob)] = 'ok'
            except errors.DriverError as exc:
                found[str(knob)] = str(exc)
        driver.close()
        return found

    def test_not_delegated_is_named_with_the_cure(self) -> None:
        before = self.tree.texts()
        found = as_nobody(self.write_all)
        assert isinstance(found, dict), found
        for knob, (_, _, file) in KNOBS.items():
            said = found[str(knob)]
            self.assertNotIn('\n', said)
            self.assertIn(f'{self.tree.path("/batch/a")}/{file}', said)
            self.assertIn('Permission denied', said)
            self.assertIn('CAP_DAC_OVERRIDE', said)
        self.assertEqual(before, self.tree.texts())

    def test_delegated_subtree_needs_no_rights(self) -> None:
        for where, _, names in os.walk(self.tree.path('')):
            for path in (where, *(f'{where}/{name}' for name in names)):
                os.chown(path, NOBODY, NOBODY)
        found = as_nobody(self.write_all)
        assert isinstance(found, dict), found
        self.assertEqual({'ok'}, set(found.values()), str(found))
        self.assertEqual(str(136 * tree.MIB),
                         self.tree.read('/batch/a', 'memory.max'))
