# SPDX-License-Identifier: Apache-2.0

"""The frame of these commands: options, Ctrl-C, table or JSON, page."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from collections.abc import Sequence
import sys
from typing import Any

from scavenger_openstack import errors
from scavenger_openstack.ibench import interrupt as interrupt_
from scavenger_openstack.ibench import options as options_
from scavenger_openstack import text

EXIT_INTERRUPTED = 130

Document = dict[str, Any]


def parser(description: str | None, *, seconds: float
           ) -> argparse.ArgumentParser:
    """Return a parser with what all have.

    :param description: the docstring of the program
    :param seconds: the default duration of a measurement
    """
    made = argparse.ArgumentParser(
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument('--seconds', metavar='S', type=options_.seconds,
                      default=seconds,
                      help=f'of each measurement (default {seconds:g})')
    made.add_argument('--json', action='store_true',
                      help='print one JSON document')
    return made


def main(parser: argparse.ArgumentParser,
         measure: Callable[[argparse.Namespace, interrupt_.Interrupt],
                           Document],
         lines: Callable[[Document], Sequence[str]],
         page: Callable[[Document], str] | None = None) -> int:
    """Measure, print, write the page; return the exit code.

    What cannot be is a sentence on standard error and status 2, a failure
    1, an interrupt 130: all that was made is removed then.
    """
    options = parser.parse_args()
    interrupt = interrupt_.Interrupt()
    try:
        document = measure(options, interrupt)
    except interrupt_.Interrupted:
        print(f'{parser.prog}: interrupted; all that it made is removed',
              file=sys.stderr)
        return EXIT_INTERRUPTED
    except errors.ConfigError as exc:
        print(f'{parser.prog}: {exc}', file=sys.stderr)
        return 2
    except (errors.ScavengerError, OSError) as exc:
        print(f'{parser.prog}: {exc}', file=sys.stderr)
        return 1
    print(text.json_page(document) if options.json
          else '\n'.join(lines(document)))
    if page is not None and options.html:
        options.html.write_text(page(document))
    return 0
