# SPDX-License-Identifier: Apache-2.0

"""Where the images of guests are kept, with packages that hold nothing."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import time

import fixtures
import testtools

from scavenger_openstack.tests.functional import guest_image
from scavenger_openstack.tests.functional import guest_init

VERSION = '{}.{}'.format(*sys.version_info)

PROGRAMS = {
    'apt-get': """#!/bin/sh
case "$*" in
*-s*) echo "Inst iproute2 (1 x [all])"; echo "Inst linux-image-1 (1 x)" ;;
*download*) : > "$PWD/p.deb"; echo made >> "$LOG" ;;
esac
""",
    'dpkg-deb': f"""#!/bin/sh
mkdir -p "$3/usr/bin" "$3/boot"
echo > "$3/usr/bin/python{VERSION}"
echo > "$3/boot/vmlinuz-1"
"""}
"""What would take a minute and a network."""


class InitTest(testtools.TestCase):

    def test_outside_of_a_guest_it_does_nothing(self) -> None:
        # In a user namespace it could do no harm, whatever it tried.
        alone = ['unshare', '--user']
        if not shutil.which('unshare') or subprocess.run(
                [*alone, 'true'], stderr=subprocess.DEVNULL).returncode:
            self.skipTest('needs user namespaces: allow them')
        done = subprocess.run(
            [*alone, sys.executable, guest_init.__file__],
            capture_output=True, text=True, timeout=60)
        self.assertEqual((1, ''), (done.returncode, done.stdout))
        self.assertIn('only for the first process of a guest', done.stderr)
        self.assertEqual(1, done.stderr.count('\n'), done.stderr)


class CacheTest(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        self.top = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        programs = self.top / 'programs'
        programs.mkdir()
        for name, text in PROGRAMS.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        self.log = self.top / 'log'
        for name, value in (
                ('XDG_CACHE_HOME', str(self.top / 'cache')),
                ('LOG', str(self.log)),
                ('PATH', f'{programs}:{os.environ["PATH"]}')):
            self.useFixture(fixtures.EnvironmentVariable(name, value))
        self.kind = guest_image.ARCHITECTURES['x86_64']

    def base(self) -> guest_image.Base:
        return guest_image.base(self.kind, ())

    def made(self) -> int:
        """How often something was fetched since the last time."""
        count = self.log.read_text().count('made') if self.log.exists() else 0
        self.log.unlink(missing_ok=True)
        return count

    def test_it_is_made_once(self) -> None:
        first = self.base()
        self.assertEqual(VERSION, first.python)
        self.assertEqual(2, self.made())
        self.assertEqual((first, 0), (self.base(), self.made()))
        mode = stat.S_IMODE(first.directory.parent.stat().st_mode)
        self.assertEqual(0o700, mode)

    def test_half_of_one_is_made_anew(self) -> None:
        first = self.base()
        (first.directory / 'made.json').unlink()
        (first.directory / 'kernel').unlink()
        self.made()
        self.assertEqual((first, 2), (self.base(), self.made()))
        self.assertTrue((first.directory / 'kernel').exists())

    def test_an_old_one_goes(self) -> None:
        old = self.base().directory
        long_ago = time.time() - 2 * guest_image.KEEP_S
        os.utime(old, (long_ago, long_ago))
        self.kind = dataclasses.replace(self.kind, name='other')
        self.base()
        self.assertFalse(old.exists())

    def test_what_others_can_write_to_is_not_booted(self) -> None:
        found = guest_image.cache_directory()
        for path in (found, found.parent):
            path.chmod(0o777)
            error = self.assertRaises(guest_image.Unavailable,
                                      guest_image.cache_directory)
            self.assertIn(str(path), str(error))
            path.chmod(0o755)
            if not os.geteuid():
                os.chown(path, 65534, 65534)
                self.assertRaises(guest_image.Unavailable,
                                  guest_image.cache_directory)
                os.chown(path, 0, 0)
        self.assertEqual(found, guest_image.cache_directory())
        shutil.rmtree(found)
