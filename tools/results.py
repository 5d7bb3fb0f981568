# SPDX-License-Identifier: Apache-2.0

"""Print test results as they come, then count them in one plain line.

Reads subunit from standard input.  Exits with 0 when nothing failed.  With
``--again`` the few tests that failed run once more, by themselves, in the
order of their names; those that pass then are counted as passed, and listed:
each is a test that needs a quieter machine than it had, or a rare fault.
"""

from __future__ import annotations

import argparse
import pathlib
import signal
import subprocess
import sys
import tempfile
from typing import Any
from typing import IO

import subunit
import testtools

WORDS = {'success': 'ok', 'skip': 'SKIPPED', 'fail': 'FAILED',
         'inprogress': 'DID NOT END', 'xfail': 'ok',
         'uxsuccess': 'FAILED'}

PREFIX = 'scavenger_openstack.tests.'
AGAIN_TIMEOUT_S = 1800
"""For all of them; an emulated guest alone may take 1500 s."""
ONLY_IN_ALL = 'runs in tools/test.sh all'
"""The reason of tests.tiers.only_in_all begins so."""
NO_MATCH = 'The specified regex doesn\'t match with anything'


class Printer:
    """Prints each test that ends, and remembers what it came to."""

    def __init__(self) -> None:
        self.passed: list[str] = []
        self.failed: list[str] = []
        self.skipped: list[tuple[str, str]] = []
        self.only_again: list[str] = []

    def __call__(self, test: dict[str, Any]) -> None:
        name, status = test['id'], test['status']
        if status in ('exists', 'unknown'):
            return
        started, ended = test['timestamps']
        took_s = ((ended - started).total_seconds()
                  if started and ended else 0.0)
        name = name.removeprefix(PREFIX)
        print(f'{WORDS[status]:>7} {took_s:7.2f} s  {name}')
        reason = test['details'].get('reason')
        self.count(status, name, reason.as_text() if reason else 'no reason')
        if name in self.failed:
            for title, content in test['details'].items():
                if content.content_type.type == 'text':
                    text = content.as_text().strip()
                    if text:
                        print(f'--- {title}\n{text}')
        sys.stdout.flush()

    def count(self, status: str, name: str, reason: str) -> None:
        if WORDS[status] == 'ok':
            self.passed.append(name)
        elif status == 'skip':
            self.skipped.append((name, reason))
        else:
            self.failed.append(name)

    def again(self, most: int) -> None:
        """Run the tests that failed once more, if they are at most ``most``.

        A test whose class could not be set up has no name that can be run.
        """
        names = sorted(name for name in self.failed
                       if name.startswith(('unit.', 'functional.')))
        if not names or len(names) > most or names != sorted(self.failed):
            return
        print(f'\n== once more, by themselves: {len(names)} that failed',
              flush=True)
        before, self.failed = self.failed, []
        known, skips = len(self.passed), len(self.skipped)
        with tempfile.NamedTemporaryFile('w', suffix='.tests') as ids:
            ids.writelines(f'{PREFIX}{name}\n' for name in names)
            ids.flush()
            with subprocess.Popen(
                    ['timeout',
                     # Else Ctrl-C would not reach it.
                     *(['--foreground'] if sys.stderr.isatty() else []),
                     '--signal=INT', '--kill-after=60',
                     str(AGAIN_TIMEOUT_S), 'stestr', 'run', '--subunit',
                     '--serial', '--load-list', ids.name],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE) as stestr:
                assert stestr.stdout
                listen(stestr.stdout, self)
        passed = set(self.passed[known:])
        del self.skipped[skips:]    # they have failed before
        self.only_again = [name for name in before if name in passed]
        self.failed = [name for name in before if name not in passed]


class Plain(testtools.StreamResult):
    """Passes on what was said outside of any test, at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.said = bytearray()

    def status(self, test_id: str | None = None, *args: Any,
               file_bytes: bytes | None = None, **kwargs: Any) -> None:
        if test_id is None and file_bytes:
            self.said += bytes(file_bytes)

    def stopTestRun(self) -> None:
        text = self.said.decode(errors='replace').replace(NO_MATCH, '')
        if text.strip():
            print(text.rstrip())


def listen(stream: IO[bytes], printer: Printer) -> None:
    """Print and count what subunit tells."""
    result = testtools.CopyStreamResult(
        [Plain(), testtools.StreamToDict(printer)])
    result.startTestRun()
    subunit.ByteStreamToStreamResult(
        stream, non_subunit_name='output').run(result)
    result.stopTestRun()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--checks', type=pathlib.Path, required=True,
                        help='what was checked besides the tests: lines of '
                             '"success", "fail" or "skip", a space, a name, '
                             'and for "skip" a tab and the reason')
    parser.add_argument('--again', type=int, default=0, metavar='N',
                        help='run tests that failed once more, by '
                             'themselves, where they are at most N')
    args = parser.parse_args()
    # On Ctrl-C the tests end; what they said until then is worth a summary.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    printer = Printer()
    listen(sys.stdin.buffer, printer)
    checks = args.checks.read_text().splitlines()
    # Where a check or a whole stage failed, passing again helps nothing.
    if not any(line.startswith('fail ') for line in checks):
        printer.again(args.again)

    for line in checks:
        status, _, said = line.partition(' ')
        name, _, reason = said.partition('\t')
        printer.count(status, name, reason)
    for reason in sorted({reason for _, reason in printer.skipped}):
        names = [name for name, why in printer.skipped if why == reason]
        if reason.startswith(ONLY_IN_ALL):
            print(f'\nNOT IN THIS RUN, {reason}: {len(names)} tests')
        else:
            print(f'\nSKIPPED, {reason}:', *names, sep='\n  ')
    if printer.only_again:
        print('\nFAILED FIRST, PASSED BY ITSELF:', *printer.only_again,
              sep='\n  ')
    if printer.failed:
        print('\nFAILED:', *printer.failed, sep='\n  ')
    print(f'{len(printer.passed)} passed, {len(printer.failed)} failed, '
          f'{len(printer.skipped)} skipped')
    return bool(printer.failed or not (printer.passed or printer.skipped))


if __name__ == '__main__':
    sys.exit(main())
