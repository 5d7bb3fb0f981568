# SPDX-License-Identifier: Apache-2.0

"""What a migration may import."""

from __future__ import annotations

import pathlib

import testtools

from scavenger_openstack.db import migrations

VERSIONS = pathlib.Path(migrations.__file__).parent / 'versions'


class Migrations(testtools.TestCase):
    """Tables as they are now are no part of a migration that another one
    follows."""

    def test_several_import_no_tables(self) -> None:
        files = [path for path in VERSIONS.glob('r*.py')
                 if 'scavenger_openstack.db import tables'
                 in path.read_text()]
        others = set(VERSIONS.glob('r*.py')) - set(files)
        self.assertFalse(files and others, files)
        self.assertTrue(files or others)
