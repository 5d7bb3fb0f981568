# SPDX-License-Identifier: Apache-2.0

"""Pictures of the panel of a stack that runs, for the documentation."""

from __future__ import annotations

from collections.abc import Callable
import pathlib

from playwright import sync_api

from scavenger_openstack.tests.functional.openstack import browser

ADMIN = '/admin/interference/'
TENANT = '/project/disturbances/'
HIGHEST = 1600
"""CSS pixels of a picture: what is below is left out."""


def take(url: str, directory: pathlib.Path, size: str, theme: str
         ) -> list[pathlib.Path]:
    """Open each page and keep a picture of it; the files.

    :param url: of Horizon
    :param directory: exists
    :param size: one of :data:`.browser.WIDTHS`
    """
    taken: list[pathlib.Path] = []
    with browser.Chromium() as chromium:
        for user, pages in PAGES.items():
            with browser.Visit(chromium, url, theme,
                               browser.WIDTHS[size]) as visit:
                visit.log_in(user)
                for name, go in pages.items():
                    go(visit)
                    taken.append(directory / f'{name}.png')
                    _keep(visit.page, taken[-1])
    return taken


def _keep(page: sync_api.Page, path: pathlib.Path) -> None:
    """Without what is empty below the page."""
    page.wait_for_load_state('networkidle')
    # It has an answer of our API, and the script has told the times.
    sync_api.expect(page.locator('.interference-problem:visible')
                    ).to_have_count(0)
    page.wait_for_function(
        'Array.from(document.querySelectorAll(".interference-ago"))'
        '.every(ago => !ago.offsetParent || ago.textContent)')
    height = min(HIGHEST, page.evaluate('document.body.scrollHeight'))
    width = page.evaluate('window.innerWidth')
    page.screenshot(path=path, full_page=True, clip={
        'x': 0, 'y': 0, 'width': width, 'height': height})


def _tab(slug: str) -> Callable[[browser.Visit], None]:
    def go(visit: browser.Visit) -> None:
        visit.open(f'{ADMIN}?tab=interference__{slug}')
    return go


def _incident(visit: browser.Visit) -> None:
    """The newest that named a workload, or the newest of all."""
    _tab('incidents')(visit)
    rows = visit.page.locator('#interference__incidents tbody tr')
    named = rows.filter(has_text='hog')
    (named if named.count() else rows).first.get_by_role('link').first.click()
    visit.page.wait_for_load_state('networkidle')


def _override(visit: browser.Visit) -> None:
    """The form for a limit, as far as there is one to override."""
    _tab('limits')(visit)
    override = visit.page.get_by_role('link', name='Override')
    override.last.click()
    visit.page.locator('.modal-content').wait_for()


def _tenant(visit: browser.Visit) -> None:
    visit.open(TENANT)


PAGES: dict[str, dict[str, Callable[[browser.Visit], None]]] = {
    'admin': {'panel-overview': _tab('overview'),
              'panel-incidents': _tab('incidents'),
              'panel-incident': _incident,
              'panel-antagonists': _tab('antagonists'),
              'panel-limits': _tab('limits'),
              'panel-override': _override,
              'panel-hosts': _tab('hosts')},
    'demo': {'panel-tenant': _tenant}}
"""User -> the name of each picture, and how the user comes there."""
