# SPDX-License-Identifier: Apache-2.0

"""Start programs with ``--help``, one after the other, in one process.

    python -m scavenger_openstack.tests.unit.benchmarks.help_of FILE...

Prints, as JSON, how each ended and what it wrote: most of the time of a start
is that of what all of them import.
"""

from __future__ import annotations

import contextlib
import io
import json
import pathlib
import runpy
import sys
import traceback


def help_of(program: pathlib.Path) -> tuple[object, str]:
    """The exit code of a program, and its output or what it raised."""
    sys.argv = [str(program), '--help']
    sys.path.insert(0, str(program.parent))
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out):
            runpy.run_path(str(program), run_name='__main__')
    except SystemExit as exc:
        return exc.code, out.getvalue()
    except BaseException:
        return 'raised', traceback.format_exc()
    finally:
        del sys.path[0]
        # Another directory may have modules of the same names.
        for name, module in list(sys.modules.items()):
            path = getattr(module, '__file__', None)
            if path and pathlib.Path(path).parent == program.parent:
                del sys.modules[name]
    return 'returned', out.getvalue()


if __name__ == '__main__':
    print(json.dumps({name: help_of(pathlib.Path(name))
                      for name in sys.argv[1:]}))
