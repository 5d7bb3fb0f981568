# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import contextlib
import io

import testtools

from scavenger_openstack.cmd import ending
from scavenger_openstack import errors


def ends(exc: BaseException) -> tuple[int, str]:
    """Exit code and standard error of work that raises."""
    def work() -> int:
        raise exc

    err = io.StringIO()
    with contextlib.redirect_stderr(err):
        code = ending.code('scavenger-x', work)
    return code, err.getvalue()


class ExitTest(testtools.TestCase):

    def test_work_decides(self) -> None:
        self.assertEqual(0, ending.code('scavenger-x', lambda: 0))
        self.assertEqual(1, ending.code('scavenger-x', lambda: 1))

    def test_usage(self) -> None:
        self.assertEqual((2, 'scavenger-x: [agent] driver: no such\n'),
                         ends(errors.ConfigError('[agent] driver: no such')))

    def test_failed(self) -> None:
        for exc in (errors.DriverError('no'), errors.LeaseError('no'),
                    OSError('no')):
            self.assertEqual((1, 'scavenger-x: no\n'), ends(exc))

    def test_interrupted(self) -> None:
        self.assertEqual((130, ''), ends(KeyboardInterrupt()))

    def test_one_line_without_control_characters(self) -> None:
        """Tenants choose names; terminals obey."""
        self.assertEqual(
            (1, 'scavenger-x: \\x1b[2J gone\n'),
            ends(errors.DriverError('\x1b[2J\ngone')))

    def test_a_terminal_that_lacks_a_character(self) -> None:
        """An escape stands for it."""
        def work() -> int:
            print('ü中')
            return 0

        out = io.TextIOWrapper(io.BytesIO(), encoding='ascii')
        with contextlib.redirect_stdout(out):
            self.assertEqual(0, ending.code('scavenger-x', work))
        self.assertEqual(b'\\xfc\\u4e2d\n', out.buffer.getvalue())

    def test_our_faults_are_not_hidden(self) -> None:
        self.assertRaises(ZeroDivisionError, ends, ZeroDivisionError())
