# SPDX-License-Identifier: Apache-2.0

"""``scavenger-manage`` in the process of a test."""

from __future__ import annotations

import pathlib

import fixtures

from scavenger_openstack.cmd import manage
from scavenger_openstack.tests.functional.servers import databases


class Command(databases.Mixin):
    """Runs the command with a configuration that names a database."""

    def command(self, url: str, *words: str) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).path,
                            'scavenger.conf')
        path.write_text(f'[database]\nconnection = {url}\n' if url else '')
        streams = [self.useFixture(fixtures.StringStream(name)).stream
                   for name in ('stdout', 'stderr')]
        with (fixtures.MonkeyPatch('sys.stdout', streams[0]),
              fixtures.MonkeyPatch('sys.stderr', streams[1])):
            code = manage.main(['--config-file', str(path), *words])
        texts = []
        for stream in streams:
            stream.seek(0)
            texts.append(stream.read())
        return code, *texts     # type: ignore[return-value]

    def refused(self, url: str, *words: str) -> str:
        """The one line that a command says that fails."""
        code, _, err = self.command(url, *(words or ('db', 'version')))
        self.assertEqual((1, 1), (code, err.count('\n')), err)
        self.assertNotIn('Traceback', err)
        return err
