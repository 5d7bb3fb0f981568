# SPDX-License-Identifier: Apache-2.0

"""Ask the panel's views for pages, in Horizon's interpreter.

For panel_pages.py, which gives the URL of an API and the pages, and reads the
last line of the output: a JSON list of what each page took.
"""

from __future__ import annotations

import importlib
import itertools
import json
import sys
import time
from typing import Any
import unittest

from django import urls
from keystoneauth1 import token_endpoint

from scavenger_openstack.tests.unit.dashboard import cloud

AJAX = {'HTTP_X_REQUESTED_WITH': 'XMLHttpRequest'}
"""As the browser asks for a tab."""

asked: dict[str, Any] = {}
measured: list[dict[str, Any]] = []
calls: list[tuple[str, float, int]] = []
"""Path, seconds and bytes of each call of the API for a page."""
reader: dict[str, str] = {}
"""What tells the API, which asks no Keystone, that a reader asks; nothing
tells it that an administrator does."""


class Token(token_endpoint.Token):

    def get_headers(self, session: Any) -> dict[str, str]:
        return {**super().get_headers(session), **reader}


class Pages(cloud.TestCase):

    def _setup_user(self, **more: Any) -> None:
        self.api.url = asked['url']
        super()._setup_user(**more)

    def test_pages(self) -> None:
        self._ask('an unmeasured one', asked['pages'][0], 3)
        measured.clear()
        for page in asked['pages']:
            self._ask(page['name'], page, asked['times'])

    def _ask(self, name: str, page: dict[str, Any], times: int) -> None:
        row: dict[str, Any] = {'name': name, 'page_s': [], 'api_s': [],
                               'page_bytes': 0, 'api_bytes': 0, 'calls': []}
        measured.append(row)
        arguments = itertools.cycle(page.get('arguments', [[]]))
        queries = itertools.cycle(page.get('queries', [{}]))
        projects = itertools.cycle(page.get('projects', ['']))
        reader.clear()
        for _ in range(times):
            try:
                path = urls.reverse(page['url'], args=next(arguments))
            except urls.NoReverseMatch as exc:
                row['skipped'] = str(exc)[:60]
                return
            if project := next(projects):
                self._setup_user(tenant_id=project)
                reader.update({'X-Roles': 'reader', 'X-Project-Id': project})
            calls.clear()
            began_s = time.perf_counter()
            answer = self.client.get(path, next(queries), **AJAX)
            row['page_s'].append(time.perf_counter() - began_s)
            if answer.status_code != 200:
                row['skipped'] = f'HTTP {answer.status_code}'
                return
            row['page_bytes'] = max(row['page_bytes'], len(answer.content))
            row['api_s'].append(sum(took_s for _, took_s, _ in calls))
            row['api_bytes'] = max(row['api_bytes'], sum(
                size for _, _, size in calls))
            row['calls'] = [path for path, _, _ in calls]
            if b'interference-problem' in answer.content:
                row['skipped'] = 'the API did not answer in time, or refused'
                return


def timed(call: Any) -> Any:
    """Return the plug-in's function for a call, with a clock around it."""
    def wrapped(request: Any, method: str, path: str, **more: Any) -> Any:
        began_s = time.perf_counter()
        answer = call(request, method, path, **more)
        calls.append((path, time.perf_counter() - began_s,
                      len(json.dumps(answer))))
        return answer
    return wrapped


def main() -> int:
    asked.update(json.loads(sys.argv[1]))
    # After the tests have set up Django.
    client = importlib.import_module('scavenger_openstack.dashboard.client')
    client._call = timed(client._call)
    client.token_endpoint.Token = Token
    result = unittest.TextTestRunner(stream=sys.stderr).run(
        unittest.defaultTestLoader.loadTestsFromTestCase(Pages))
    print(json.dumps(measured))
    return 0 if result.wasSuccessful() else 1
