# SPDX-License-Identifier: Apache-2.0

"""Horizon as users see it, in a browser.

Debian's Chromium without a screen, driven by Playwright; nothing is fetched
from outside.  What a page writes to its console, and what axe-core says of
its accessibility, belongs to the result of a test.
"""

from __future__ import annotations

from collections.abc import Iterator
import pathlib
import re
import time
from typing import Any

from axe_playwright_python import sync_playwright as axe
import fixtures
from playwright import sync_api

from scavenger_openstack.tests.functional.openstack import configuration
from scavenger_openstack.tests.functional.openstack import packages
from scavenger_openstack.tests.functional.servers import process

PROGRAM = 'chromium'
OPTIONS = ('--no-sandbox', '--disable-gpu', '--disable-background-networking',
           '--disable-component-update', '--disable-sync', '--no-first-run',
           '--no-pings', '--disable-dev-shm-usage', '--force-color-profile='
           'srgb', '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1')
"""It runs as root, without a GPU, and reaches loopback only."""

ANSWER_MS = 60_000.0
"""So long a browser waits for what has to come, also for what a page loads
again after our API was too slow for a busy machine."""

sync_api.expect.set_options(timeout=ANSWER_MS)

WIDTHS = {'desk': (1280, 900), 'wide': (1920, 1080), 'phone': (390, 844)}
"""Sizes of a window in CSS pixels."""

KEPT = packages.TOP / '.stestr' / 'panel'
"""Screens and traces of tests that failed, for ``playwright show-trace``."""

OURS = '#content_body', '#modal_wrapper .modal-content'
HORIZONS = ('.page-breadcrumb', '.page-header', '.modal-header .close',
            '#instance_details')
"""Where a page is ours, and what Horizon puts in there."""

SERIOUS = 'serious', 'critical'
"""Grades of axe-core that no page may have."""


def missing() -> str:
    """Why there is no browser, and what to do; '' when there is."""
    try:
        process.program(PROGRAM)
    except process.Missing as exc:
        return str(exc)
    return ''


class Chromium(fixtures.Fixture):
    """A browser; :attr:`browser` is Playwright's.

    :raises process.Missing: it is not installed.
    """

    browser: sync_api.Browser

    def _setUp(self) -> None:
        program = process.program(PROGRAM)
        playwright = sync_api.sync_playwright().start()
        self.addCleanup(playwright.stop)
        self.browser = playwright.chromium.launch(
            executable_path=program, args=list(OPTIONS))
        self.addCleanup(self.browser.close)


class Visit(fixtures.Fixture):
    """One user of Horizon in a window; :attr:`page` is Playwright's.

    ``faults`` are errors in the console, scripts that failed and answers of
    5xx since the beginning; a test that causes some clears it.

    :param url: of Horizon
    :param theme: one of :data:`.panel.THEMES`
    :param size: of the window, see :data:`WIDTHS`
    """

    page: sync_api.Page

    def __init__(self, chromium: Chromium, url: str, theme: str = 'default',
                 size: tuple[int, int] = WIDTHS['desk']) -> None:
        super().__init__()
        self._chromium = chromium
        self._url = url
        self._theme = theme
        self._size = size
        self.faults: list[str] = []

    def _setUp(self) -> None:
        width, height = self._size
        self.context = self._chromium.browser.new_context(
            viewport={'width': width, 'height': height}, locale='en-GB',
            timezone_id='UTC', reduced_motion='reduce')
        self.addCleanup(self.context.close)
        self.context.set_default_timeout(ANSWER_MS)
        self.context.add_cookies([{
            'name': 'theme', 'value': self._theme, 'url': self._url}])
        self.context.tracing.start(snapshots=True)
        self.context.tracing.start_chunk()
        self.page = self.context.new_page()
        self.page.on('console', self._console)
        self.page.on('pageerror', lambda error: self.faults.append(
            f'script: {error}'))
        self.page.on('response', self._response)

    def log_in(self, user: str) -> None:
        """Log in by the form; the project is the user's only or first."""
        self.open('/auth/login/')
        self.page.get_by_label('User Name').fill(user)
        self.page.get_by_label('Password', exact=True).fill(
            configuration.PASSWORD)
        self.page.get_by_role('button', name='Sign In').click()
        self.page.wait_for_url(re.compile(r'^(?!.*/auth/login)'))

    def open(self, path: str) -> int:
        """Open a page of Horizon; its HTTP status."""
        answer = self.page.goto(f'{self._url}{path}')
        return answer.status if answer else 0

    def violations(self) -> Iterator[str]:
        """What axe-core says against our part of the page, of
        :data:`SERIOUS` grades."""
        here = [part for part in OURS if self.page.locator(part).count()]
        answer = axe.Axe().run(self.page, context={
            'include': [[part] for part in here],
            'exclude': [[part] for part in HORIZONS]}).response
        for rule in answer['violations']:
            if rule['impact'] in SERIOUS:
                for node in rule['nodes']:
                    yield (f'{rule["id"]}: {node["target"]}: '
                           f'{node["failureSummary"]}: {node["html"]}')

    def keep(self, name: str) -> pathlib.Path:
        """Keep the screen, and what happened since it was kept before.

        :returns: the path of both files, without an ending
        """
        KEPT.mkdir(parents=True, exist_ok=True)
        path = KEPT / f'{name}-{time.strftime("%H%M%S")}'
        self.page.screenshot(path=f'{path}.png', full_page=True)
        self.context.tracing.stop_chunk(path=f'{path}.zip')
        self.context.tracing.start_chunk()
        return path

    def _console(self, message: Any) -> None:
        if message.type == 'error':
            self.faults.append(f'{message.location.get("url")}: '
                               f'{message.text}')

    def _response(self, answer: sync_api.Response) -> None:
        if answer.status >= 500:
            self.faults.append(f'{answer.status} of {answer.url}')
