# SPDX-License-Identifier: Apache-2.0

"""Compiling the kernels once."""

from __future__ import annotations

import os
import pathlib
import subprocess
import time

import fixtures
import testtools

from scavenger_openstack import errors
from scavenger_openstack.ibench import build
from scavenger_openstack.ibench.host import cgroup
from scavenger_openstack.ibench import interrupt


class Build(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.sources = self.directory()
        self.cache = self.directory() / 'cache'
        self.source('int main(void) { return 7; }\n')

    def directory(self) -> pathlib.Path:
        return pathlib.Path(self.useFixture(fixtures.TempDir()).path)

    def source(self, text: str) -> None:
        (self.sources / 'main.c').write_text(text)

    def build(self) -> pathlib.Path:
        return build.build(self.sources, self.cache)

    def compiler(self, words: str) -> None:
        self.useFixture(fixtures.EnvironmentVariable('CC', words))

    def test_once_for_each_text_and_compiler(self) -> None:
        program = self.build()
        self.assertEqual(7, subprocess.run(
            [program], check=False).returncode)
        before = program.stat()
        self.assertEqual(before, self.build().stat())
        self.compiler('cc -g')
        self.assertNotEqual(program, self.build())
        self.source('int main(void) { return 8; }\n')
        self.assertEqual(8, subprocess.run(
            [self.build()], check=False).returncode)
        (self.sources / 'more.h').write_text('')
        self.assertEqual(3, len(list(self.cache.iterdir())))
        self.build()
        self.assertEqual(4, len(list(self.cache.iterdir())))

    def test_of_a_package(self) -> None:
        """It is taken as it is, and no compiler is needed."""
        self.compiler('/nowhere/cc')
        packaged = self.sources / build.PROGRAM
        packaged.touch(0o755)
        self.assertEqual(packaged, self.build())
        self.assertFalse(self.cache.exists())

    def test_no_compiler(self) -> None:
        self.compiler('/nowhere/cc')
        exc = self.assertRaises(errors.ConfigError, self.build)
        self.assertIn('gcc', str(exc))

    def test_a_failure_leaves_nothing(self) -> None:
        self.source('nonsense')
        exc = self.assertRaises(errors.DriverError, self.build)
        self.assertIn('main.c', str(exc))
        self.assertEqual([], list(self.cache.iterdir()))

    def test_ended_while_it_compiles(self) -> None:
        """With what the compiler has started."""
        pid = self.directory() / 'pid'
        compiler = self.directory() / 'cc'
        compiler.write_text(
            '#!/bin/sh\ntest "$1" = --version && exit\n'
            f'sleep 600 & echo $! > {pid}.new; mv {pid}.new {pid}; wait\n')
        compiler.chmod(0o755)
        self.compiler(str(compiler))

        def check() -> None:
            if pid.exists():
                raise interrupt.Interrupted

        self.assertRaises(interrupt.Interrupted, build.build, self.sources,
                          self.cache, check=check)
        self.assertEqual([], list(self.cache.iterdir()))
        until_s = time.monotonic() + 30
        while cgroup.is_alive(pid.read_text().strip()):
            self.assertLess(time.monotonic(), until_s)

    def test_a_cache_that_is_a_file(self) -> None:
        self.cache.write_text('')
        exc = self.assertRaises(errors.ConfigError, self.build)
        self.assertIn('XDG_CACHE_HOME', str(exc))

    def test_no_sources(self) -> None:
        os.unlink(self.sources / 'main.c')
        self.assertRaises(errors.ConfigError, self.build)
