# SPDX-License-Identifier: Apache-2.0

"""The programs of a folder of ``benchmarks/``, as modules of a test."""

from __future__ import annotations

import pathlib
import sys

import fixtures
import testtools


def use(case: testtools.TestCase, folder: pathlib.Path) -> None:
    """Let a test import the programs of a folder, and forget them after it."""
    if not folder.exists():
        case.skipTest('no benchmarks/ beside the package: run the tests '
                      'from a checkout')
    case.useFixture(fixtures.PythonPathEntry(str(folder)))
    case.addCleanup(lambda: [sys.modules.pop(path.stem, None)
                             for path in folder.glob('*.py')])
