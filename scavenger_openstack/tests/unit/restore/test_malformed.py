# SPDX-License-Identifier: Apache-2.0

"""Lease files that hold anything: no other one suffers."""

from __future__ import annotations

import json
import os
import pathlib
import tempfile
from typing import Any

import fixtures
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import testtools

from scavenger_openstack.agent.lease import leases
from scavenger_openstack.restore import actions
from scavenger_openstack.restore import messages
from scavenger_openstack.restore import records
from scavenger_openstack.restore import restoration
from scavenger_openstack.tests.unit.examples import ENCODABLE

WRITE = {'do': 'write', 'dir': '/cg/cpu/batch/a', 'inode': 7,
         'file': 'cpu.cfs_quota_us', 'text': '-1'}
TAP = {'do': 'tap', 'netns': '', 'dev': 'scv-none', 'ifindex': 2 ** 31 - 1,
       'also': [2 ** 31 - 2]}
DOMAIN = {'do': 'domain', 'uri': 'qemu:///system', 'uuid': 8 * '0' + 3 *
          ('-' + 4 * '0') + '-' + 12 * '0', 'pid': 2 ** 22 + 1, 'started': 1,
          'knob': 'cpu_cores',
          'values': {'vcpu_quota': '-1', 'vcpu_period': '100000'}}
RESCTRL = {'do': 'resctrl', 'dir': '/cg/resctrl'}
RECORD: dict[str, Any] = {
    'schema': 1, 'workload': '/batch/a', 'knob': 'cpu_cores',
    'boot_id': records.boot_id(), 'pid': 9, 'created_s': 1.5,
    'original': None, 'steps': [WRITE, TAP, DOMAIN, RESCTRL]}

ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats()
    | st.text(ENCODABLE)
    | st.sampled_from(['do', 'write', '/', '-1', 'tc', '\udc80', '\ud800',
                       '0-99999', 'qemu:///system', '٣', 10 ** 400]),
    lambda below: (st.lists(below, max_size=3)
                   | st.dictionaries(st.text(ENCODABLE, max_size=4), below,
                                     max_size=3)),
    max_leaves=6)


def places(found: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of everything within a JSON document, itself too."""
    below = (found.items() if isinstance(found, dict) else
             enumerate(found) if isinstance(found, list) else ())
    return [path, *(one for key, value in below
                    for one in places(value, (*path, key)))]


def changed(found: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy with ``value`` at ``path``."""
    if not path:
        return value
    copy = dict(found) if isinstance(found, dict) else list(found)
    copy[path[0]] = changed(found[path[0]], path[1:], value)
    return copy


MALFORMED = st.builds(
    lambda path, value: changed(RECORD, path, value),
    st.sampled_from(places(RECORD)), ANYTHING)


class Malformed(testtools.TestCase):

    @settings(deadline=None, max_examples=300)
    @given(MALFORMED)
    def test_read_or_refused(self, record: Any) -> None:
        """What can be read can be carried out: it ends in one of the ways
        in which a lease ends."""
        try:
            lease = records.parse(json.dumps(record).encode())
        except actions.Refused:
            return
        os.fsencode(lease.workload)
        for step in lease.actions:
            actions.check(step)

    @settings(deadline=None, max_examples=40)
    @given(st.lists(MALFORMED, min_size=1, max_size=8))
    def test_the_others_are_restored(self, bad: list[Any]) -> None:
        with tempfile.TemporaryDirectory() as directory:
            self.pass_over(pathlib.Path(directory), bad)

    def test_those_that_stopped_it(self) -> None:
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.pass_over(path, [
            None, '', [], {**RECORD, 'steps': [{}]},
            {**RECORD, 'steps': ['write']}, {**RECORD, 'steps': [None]},
            {**RECORD, 'steps': [{'do': []}]},
            {**RECORD, 'steps': [{**WRITE, 'dir': '/cg/\ud800'}]},
            {**RECORD, 'workload': '\ud800'}])

    def test_a_fault_of_ours_stops_no_other(self) -> None:
        """Whatever a step does when it is carried out."""
        def fails(step: object) -> bool:
            raise KeyError(step)

        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        self.useFixture(fixtures.MonkeyPatch(
            'scavenger_openstack.restore.actions.PROGRAMS',
            {**actions.PROGRAMS, 'tap': actions.Program(
                actions.PROGRAMS['tap'].validate, fails)}))
        said = self.pass_over(path, [{**RECORD, 'steps': [TAP]}])
        self.assertIn('please report', said)

    def pass_over(self, state: pathlib.Path, bad: list[Any]) -> str:
        """One pass, and one start of an agent; what was said."""
        state.chmod(0o700)
        said: list[str] = []
        for attempt in ('watcher', 'agent'):
            where = state / attempt / 'leases'
            where.mkdir(parents=True, mode=0o700)
            good = [self.put(where, f'{number:03}', {**RECORD, 'steps': [TAP]},
                             boot_id='another')
                    for number in (0, 500, 999)]
            for number, record in enumerate(bad):
                self.put(where, f'{number + 1:03}', record)
            if attempt == 'watcher':
                fd = os.open(where.parent, os.O_RDONLY)
                try:
                    restoration.restore_all(fd, messages.Say(said.append),
                                            delete=True)
                finally:
                    os.close(fd)
            else:
                held = leases.Leases(where.parent)
                held.open()
                held.close()
            self.assertEqual([], [path for path in good if path.exists()])
        return '\n'.join(said)

    def put(self, where: pathlib.Path, name: str, record: Any,
            **more: Any) -> pathlib.Path:
        path = where / f'{name}.json'
        path.write_text(json.dumps({**record, **more} if more else record))
        path.chmod(0o600)
        return path
