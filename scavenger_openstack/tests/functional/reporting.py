# SPDX-License-Identifier: Apache-2.0

"""An agent with its watcher, and a conductor made of files.

``python -m scavenger_openstack.tests.functional.reporting OPTION...``, in the
directory of those files: each report is a line of ``reports``, ``directives``
is what it answers, and while there is ``away`` it does not.  With ``run``
before the options there is no watcher.
"""

from __future__ import annotations

import pathlib
import sys
from typing import Any

from scavenger_openstack.agent import parts
from scavenger_openstack.cmd import agent
from scavenger_openstack.cmd import standalone
from scavenger_openstack import errors
from scavenger_openstack.wire import codec
from scavenger_openstack.wire import report


def answer(data: bytes) -> bytes:
    """What the files say.

    :raises ScavengerError: the conductor is away.
    """
    if pathlib.Path('away').exists():
        raise errors.ScavengerError('it is away')
    told = codec.decode(data, report.Report, report.MAX_REPORT_BYTES)
    with pathlib.Path('reports').open('ab') as file:
        file.write(data + b'\n')
    found = None
    try:
        found = codec.decode(pathlib.Path('directives').read_bytes(),
                             report.Directives, report.MAX_ANSWER_BYTES)
    except FileNotFoundError:
        pass
    return codec.encode(report.Answer(
        acknowledged=told.entries[-1].sequence if told.entries else 0,
        workloads_digest=told.workloads_digest,
        directives=found if found and found.digest != told.directives_digest
        else None))


def main() -> int:
    load = parts.load_sync

    def with_files(conf: Any, call: object, store: Any, clock: Any) -> Any:
        return load(conf, answer, store, clock)

    parts.load_sync = with_files
    return (agent.main() if sys.argv[1:2] == ['run'] else standalone.main())


if __name__ == '__main__':
    sys.exit(main())
