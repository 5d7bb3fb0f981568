# SPDX-License-Identifier: Apache-2.0

"""The Debian packages: built here, installed in a stock guest.

``guest_packages.sh`` has the steps.  By itself this module prints what they
say: ``python -m scavenger_openstack.tests.functional.test_guest_packages``.
"""

from __future__ import annotations

import datetime
from email import utils
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import fixtures
import testtools
from testtools import content

from scavenger_openstack.tests import tiers

TOP = pathlib.Path(__file__).parents[3]
STEPS = 'scavenger_openstack/tests/functional/guest_packages.sh'
BUILD_S = 3600
GUEST_S = 5400

NEEDED = {'dpkg-buildpackage': 'dpkg-dev', 'dh': 'debhelper',
          'dh_apparmor': 'dh-apparmor', 'lintian': 'lintian', 'git': 'git',
          'cc': 'gcc', 'qemu-system-x86_64': 'qemu-system-x86',
          'debootstrap': 'debootstrap', 'ssh': 'openssh-client',
          'mkfs.ext4': 'e2fsprogs'}
"""Programs and their packages: the profile ``guest`` of ``bindep.txt``."""

NAMES = {'python3-scavenger-openstack', 'scavenger-agent', 'scavenger-api',
         'scavenger-client', 'scavenger-common', 'scavenger-conductor',
         'scavenger-control', 'scavenger-dashboard'}

DONE = ['install', 'observe', 'confine', 'control', 'enforce',
        'half_an_upgrade', 'upgrade', 'refuse_removal', 'remove', 'purge']


def why_not() -> str:
    """Why there are no packages or no guest here; '' when there are."""
    missing = [package for program, package in NEEDED.items()
               if not shutil.which(program)]
    if missing:
        return f'install {" ".join(missing)}'
    if os.geteuid():
        return 'needs root to make the image of the guest'
    return '' if (TOP / '.git').exists() else 'needs a git clone'


def build(directory: pathlib.Path, *versions: str) -> list[pathlib.Path]:
    """Build from a clean clone; of each version the directory of packages.

    :raises subprocess.CalledProcessError: with what the build printed.
    """
    built = []
    clone = directory / 'build' / 'clone'
    subprocess.run(
        ['git', '-c', f'safe.directory={TOP}/.git', 'clone', '--quiet',
         '--no-hardlinks', f'file://{TOP}', str(clone)], check=True)
    changelog = clone / 'debian' / 'changelog'
    entry = changelog.read_text()
    *words, date = entry.strip().split('  ')
    for hours, version in enumerate(versions, 1):
        later = utils.format_datetime(utils.parsedate_to_datetime(date)
                                      + datetime.timedelta(hours=hours))
        changelog.write_text(re.sub(r'\(.*?\)', f'({version})',
                                    '  '.join([*words, later]), count=1)
                             + '\n\n' + entry)
        began = time.monotonic()
        subprocess.run(['dpkg-buildpackage', '-us', '-uc', '-b'], cwd=clone,
                       check=True, stdout=subprocess.PIPE, text=True,
                       stderr=subprocess.STDOUT, timeout=BUILD_S,
                       env={name: value for name, value in os.environ.items()
                            if name != 'PYTHONPATH'})
        print(f'built {version} in {time.monotonic() - began:.0f} s')
        built.append(directory / f'packages-{version}')
        built[-1].mkdir()
        for path in sorted((directory / 'build').glob('*.deb')):
            print(f'    {path.name}: {path.stat().st_size / 2**20:.1f} MiB')
            path.rename(built[-1] / path.name)
    return built


def hints(directory: pathlib.Path) -> str:
    """Return what lintian prints where it has an error or a warning."""
    done = subprocess.run(
        ['lintian', '--fail-on', 'error,warning',
         *sorted(map(str, directory.glob('*.deb')))],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        check=False, timeout=BUILD_S)
    return done.stdout if done.returncode else ''


def run_guest(*packages: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Run the steps in a guest that has these two builds."""
    copies = [word for path in packages for word in ('--copy', str(path))]
    return subprocess.run(
        ['tools/guest.sh', '--memory', '2048', *copies,
         f'{STEPS} ' + ' '.join(f'/opt/{path.name}' for path in packages)],
        cwd=TOP, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        check=False, timeout=GUEST_S)


@tiers.only_in_all('it builds the packages twice and boots a whole Debian')
class Packages(testtools.TestCase):

    def setUp(self) -> None:
        super().setUp()
        if reason := why_not():
            self.skipTest(reason)

    def test_from_install_to_purge(self) -> None:
        """Observe, enforce, upgrade with a limit in force, remove, purge."""
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        try:
            packages = build(directory, '0.1.1', '0.1.2')
        except subprocess.CalledProcessError as exc:
            self.addDetail('build', content.text_content(exc.stdout))
            raise
        for path in packages:
            self.assertEqual(NAMES, {deb.name.partition('_')[0]
                                     for deb in path.iterdir()})
            self.assertEqual('', hints(path))
        done = run_guest(*packages)
        print(done.stdout)
        self.addDetail('guest', content.text_content(done.stdout))
        self.assertEqual(DONE, re.findall(r'^STEP (\w+): [0-9.]+ s$',
                                          done.stdout, re.M))
        self.assertEqual(0, done.returncode)


if __name__ == '__main__':
    with tempfile.TemporaryDirectory() as name:
        outcome = run_guest(*(
            map(pathlib.Path, sys.argv[1:3]) if len(sys.argv) == 3
            else build(pathlib.Path(name), '0.1.1', '0.1.2')))
        print(outcome.stdout)
        sys.exit(outcome.returncode)
