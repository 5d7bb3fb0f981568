# SPDX-License-Identifier: Apache-2.0

"""The panel in Horizon, in a browser, on a real cloud.

The agent of one host has :mod:`.blunt`, so that there is something to see at
once; all else is as shipped.  No page may write an error to the console, or
have a fault of accessibility that axe-core calls serious.
"""

from __future__ import annotations

from collections.abc import Iterator
import contextlib
import pathlib
import re
from typing import Any
import uuid

import fixtures
from playwright import sync_api
from testtools import content

from scavenger_openstack.api import policies
from scavenger_openstack.tests.functional.openstack import browser
from scavenger_openstack.tests.functional.openstack.case import BACKGROUND
from scavenger_openstack.tests.functional.openstack.case import SOON_S
from scavenger_openstack.tests.functional.openstack import guests
from scavenger_openstack.tests.functional.openstack import limited
from scavenger_openstack.tests.functional.openstack import packages
from scavenger_openstack.tests.functional.openstack import panel
from scavenger_openstack.tests.functional.openstack import product
from scavenger_openstack.tests.functional.openstack import watching
from scavenger_openstack.tests import tiers

ADMIN = '/admin/interference/'
TENANT = '/project/disturbances/'
TABS = ('Overview', 'Incidents', 'Antagonists', 'Limits', 'Hosts',
        'Profiles')

CORES = 0.35
"""What an operator leaves the hog: no controller chooses that."""
PERIOD_US = 100_000
SOON_MS = SOON_S * 1e3
WIDE = 1.02
"""So much wider than the window a page may be, for rounding."""

expect = sync_api.expect


class PanelCase(limited.LimitedCase):

    def setUp(self) -> None:
        super().setUp()
        if why := browser.missing():
            self.skipTest(why)
        try:
            self.url = self.stack.panel()
        except packages.Unavailable as exc:
            self.skipTest(str(exc))
        self.here, self.other = self.stack.hypervisors
        self.chromium = self.useFixture(browser.Chromium())

    def visit(self, user: str, **more: Any) -> browser.Visit:
        """A user who has logged in."""
        visit = self.useFixture(browser.Visit(self.chromium, self.url,
                                              **more))
        self.addOnException(lambda exc: self.keep(visit))
        visit.log_in(user)
        return visit

    def keep(self, visit: browser.Visit) -> None:
        """Keep the screen and a trace of a visit that has not ended."""
        with contextlib.suppress(sync_api.Error):
            path = visit.keep(self.id().rpartition('.')[2])
            self.addDetail('screen and trace',
                           content.text_content(f'{path}.*'))

    def sound(self, visit: browser.Visit, what: str) -> None:
        """A page has no fault; the test goes on to find all."""
        width, window = visit.page.evaluate(
            '[document.documentElement.scrollWidth, window.innerWidth]')
        faults: list[str] = [*visit.faults, *visit.violations()]
        if width > WIDE * window:
            faults.append(f'{width} pixels wide')
        if faults:
            self.keep(visit)
            self.addDetailUniqueName(what, content.text_content(
                '\n'.join(faults)))
            self.force_failure = True
        visit.faults.clear()

    def tab(self, visit: browser.Visit, name: str) -> sync_api.Locator:
        """Open a tab of operators by its name; what is in it."""
        visit.page.locator('#interference').get_by_role(
            'link', name=name, exact=True).click()
        fragment = visit.page.locator(
            f'#interference__{name.lower()} .interference-fragment')
        expect(fragment).to_be_visible()
        return fragment

    def disturbed(self) -> tuple[str, str]:
        """The hog, which is named and limited, and its victim.

        Each in a project of its own, whose names are :attr:`projects`.
        """
        directory = pathlib.Path(self.useFixture(fixtures.TempDir()).path)
        changed = contextlib.ExitStack()
        self.addCleanup(changed.close)
        changed.enter_context(watching.blunt_detector(
            self.stack, directory / 'plugins'))
        self.projects = tuple(f'{name}-{uuid.uuid4().hex[:8]}'
                              for name in ('batch', 'shop'))
        batch, shop = map(self.cloud.in_new_project, self.projects)
        hog = self.boot('hog', BACKGROUND, batch, host=self.here.hostname)
        guests.tell(self.here, self.domain(hog), 'rest')
        web = self.boot('web', cloud=shop, host=self.here.hostname)
        self.settle(hog, 'boot')
        guests.tell(self.here, self.domain(hog), 'cpu 1')
        self.cloud.wait('the hog is named and limited', lambda: self.caps(
            hog) and hog in {one['instance'] for one in
                             self.cloud.interference('GET', '/v1/antagonists'
                                                     )['antagonists']}, SOON_S)
        return hog, web

    def quotas(self) -> list[float]:
        """What the cgroups of guests on the first host may use, in cores."""
        found = []
        for path in self.here.tree.path('cpu', '/machine').rglob(
                'cpu.cfs_quota_us'):
            with contextlib.suppress(FileNotFoundError):
                if (quota := int(path.read_text())) > 0:
                    found.append(quota / PERIOD_US)
        return found


@tiers.only_in_all('each test takes some minutes of an emulated cloud')
class Panel(PanelCase):

    def test_what_an_operator_reads(self) -> None:
        hog, web = self.disturbed()
        for theme in panel.THEMES:
            visit = self.visit('admin', theme=theme)
            visit.open(ADMIN)
            for name in TABS:
                fragment = self.tab(visit, name)
                expect(fragment.locator('.interference-problem')
                       ).to_have_count(0)
                self.sound(visit, f'{name}, {theme}')
            expect(self.tab(visit, 'Antagonists')).to_contain_text('hog')
            expect(self.tab(visit, 'Hosts')).to_contain_text(
                self.other.hostname)
            self.one_incident(visit, theme)

    def one_incident(self, visit: browser.Visit, theme: str) -> None:
        """Find one by a filter, and open it."""
        page = visit.page
        for host, count in ((self.other.hostname, 0),
                            (self.here.hostname, 1)):
            self.tab(visit, 'Incidents')
            form = page.get_by_role('search', name='Filter of incidents')
            form.get_by_label('Host', exact=True).fill(host)
            form.get_by_role('button', name='Filter').click()
            page.wait_for_url(re.compile(rf'host={host}'))
            fragment = page.locator('#interference__incidents '
                                    '.interference-fragment')
            expect(fragment.get_by_role('cell', name=host)).to_have_count(
                count) if not count else expect(fragment.get_by_role(
                    'cell', name=host).first).to_be_visible()
        rows = fragment.get_by_role('row').filter(has_text='web')
        rows.first.get_by_role('link').first.click()
        expect(page.get_by_role('heading', name='web').first).to_be_visible()
        expect(page.get_by_role('cell', name='hog').first).to_be_visible()
        self.sound(visit, f'an incident, {theme}')

    def test_what_an_operator_changes(self) -> None:
        hog, _ = self.disturbed()
        visit = self.visit('admin')
        visit.open(ADMIN)
        self.override(visit, hog)
        self.remove(visit, hog)
        self.kill_switch(visit, hog)
        self.assertEqual([], visit.faults)

    def override(self, visit: browser.Visit, hog: str) -> None:
        """Its limit in the API, in the table and in its cgroup."""
        page = visit.page
        self.tab(visit, 'Limits').get_by_role(
            'row').filter(has_text='hog').filter(has_text='cpu_cores'
            ).get_by_text('Override').click()
        dialog = page.locator('.modal-content')
        expect(dialog).to_contain_text('floor')
        self.sound(visit, 'the form of a limit')
        dialog.get_by_label('Limit', exact=True).fill(f'{CORES} cores')
        dialog.get_by_label('Reason').fill('a <b>test</b>')
        dialog.get_by_role('button', name='Set').click()
        row = page.locator('[aria-labelledby=overrides]').get_by_role(
            'row').filter(has_text='hog')
        expect(row).to_contain_text('a <b>test</b>')
        [override] = self.cloud.interference(
            'GET', '/v1/caps/overrides')['overrides']
        self.assertEqual((hog, 'cpu_cores', CORES), (
            override['instance'], override['knob'], override['value']))
        self.cloud.wait('the cgroup has the limit', lambda: any(
            abs(cores - CORES) < 0.01 for cores in self.quotas()), SOON_S)
        # By itself: the page is loaded again.
        expect(row.get_by_role('cell', name='yes')).to_be_visible(
            timeout=SOON_MS)

    def remove(self, visit: browser.Visit, hog: str) -> None:
        page = visit.page
        page.locator('[aria-labelledby=overrides]').get_by_role(
            'row').filter(has_text='hog').get_by_text('Remove').click()
        dialog = page.locator('.modal-content')
        dialog.get_by_label('Reason').fill('a test has ended')
        self.sound(visit, 'the form that removes')
        dialog.get_by_role('button', name='Remove').click()
        expect(page.locator('[aria-labelledby=overrides]')).to_have_count(0)
        self.assertEqual([], self.cloud.interference(
            'GET', '/v1/caps/overrides')['overrides'])
        self.cloud.wait('the cgroup has it no longer', lambda: all(
            abs(cores - CORES) > 0.01 for cores in self.quotas()), SOON_S)

    def kill_switch(self, visit: browser.Visit, hog: str) -> None:
        page = visit.page
        self.addCleanup(self.protect, True)
        self.stack.headroom_known = False
        self.tab(visit, 'Overview').get_by_text(
            'Turn protection off').click()
        dialog = page.locator('.modal-content')
        dialog.get_by_label('Reason').fill('a test')
        dialog.get_by_role('button', name='Change').click()
        # It has to be meant.
        expect(dialog).to_contain_text('Confirm')
        self.assertEqual([], self.cloud.interference(
            'GET', '/v1/protection?enabled=false')['protection'])
        dialog.get_by_text('without bounds').click()
        self.sound(visit, 'the form of the kill switch')
        dialog.get_by_role('button', name='Change').click()
        banner = page.get_by_role('region', name='Protection is off')
        expect(banner).to_contain_text('a test')
        self.sound(visit, 'the overview without protection')
        self.cloud.wait('no limit is left', lambda: not self.caps(hog)
                        and not self.quotas(), SOON_S)
        banner.get_by_text('Turn on').click()
        dialog.get_by_label('Reason').fill('a test has ended')
        dialog.get_by_role('button', name='Change').click()
        expect(banner).to_have_count(0)
        self.cloud.wait('limits are set again', lambda: self.caps(hog),
                        SOON_S)

    def test_what_a_tenant_reads(self) -> None:
        """Of its own instances, and of no other."""
        hog, web = self.disturbed()
        incident = self.cloud.interference(
            'GET', f'/v1/incidents?victim={web}')['incidents'][0]['id']
        hosts = self.here.hostname, self.other.hostname, 'blunt'
        for own, server, project, hidden in (
                ('web', web, self.projects[1], ('hog', hog, *hosts)),
                ('hog', hog, self.projects[0], ('web', web, *hosts))):
            self.cloud.make_user(f'user-{project}', project, 'member')
            for theme in panel.THEMES:
                visit = self.visit(f'user-{project}', theme=theme)
                visit.open(TENANT)
                self.of_tenant(visit, own, hidden)
                visit.open(f'/project/instances/{server}/')
                visit.page.locator('#content_body').get_by_role(
                    'link', name='Disturbances').click()
                self.of_tenant(visit, own, hidden)
                if own == 'web':
                    visit.open(f'{TENANT}{incident}/')
                    self.of_tenant(visit, own, hidden)
            # Not even by its address.
            if own == 'hog':
                self.assertEqual(404, visit.open(f'{TENANT}{incident}/'))
            visit.open(ADMIN)
            expect(visit.page.locator('#interference')).to_have_count(0)

    def of_tenant(self, visit: browser.Visit, own: str,
                  hidden: tuple[str, ...]) -> None:
        """A page is about an instance of the tenant, and of no other."""
        fragment = visit.page.locator('.interference-fragment')
        expect(fragment).to_contain_text(own)
        expect(fragment.get_by_role('alert')).to_have_count(0)
        html = fragment.inner_html()
        for name in hidden:
            self.assertNotIn(name, html)
        self.sound(visit, f'a tenant with {own}, {visit.page.url}')

    def test_our_api_is_down_slow_or_refuses(self) -> None:
        """The page says so in time, and comes back by itself."""
        api = self.stack.services['scavenger-api']
        visit = self.visit('admin')
        visit.open(ADMIN)
        alert = visit.page.locator('.interference-fragment').get_by_role(
            'alert')
        file = self.stack.conductor.file
        for states, words in (
                (lambda: watching.down(api), 'cannot be reached'),
                (lambda: watching.hanging(api), 'did not answer within'),
                (lambda: self.forbidding(product.Program(api, file)),
                 'does not allow')):
            with states():
                for name in TABS:
                    visit.open(f'{ADMIN}?tab=interference__{name.lower()}')
                    expect(alert.filter(has_text=words)).to_be_visible()
                self.sound(visit, words)
            if words != 'does not allow':
                # A refusal is not asked again.
                expect(alert).to_have_count(0, timeout=SOON_MS)

    @contextlib.contextmanager
    def forbidding(self, program: product.Program) -> Iterator[None]:
        """Our API has a policy that allows nothing."""
        policy = program.file.with_name('policy.yaml')
        policy.write_text(''.join(
            f'"{rule.name}": "!"\n' for rule in policies.RULES))
        try:
            with watching.changed(
                    '[database]\n', '[oslo_policy]\npolicy_file = '
                    f'{policy}\n\n[database]\n', '', program):
                yield
        finally:
            policy.unlink()
