# SPDX-License-Identifier: Apache-2.0

"""What tests of pages take for answers of the API has the API's form."""

from __future__ import annotations

import re
from typing import Any
import urllib.parse

import jsonschema
import testtools

from scavenger_openstack.api.routes import ROUTES
from scavenger_openstack.api import validation
from scavenger_openstack.tests.unit import panel_answers


def schema_of(method: str, path: str) -> Any:
    """The schema of the answers of the most literal route."""
    for route in sorted(ROUTES, key=lambda route: '{' in route.path):
        pattern = re.sub('{[a-z]+}', '[^/]+', route.path)
        if route.method == method and re.fullmatch(pattern, path):
            return route.answer
    raise AssertionError(f'there is no {method} {path}')


class Answers(testtools.TestCase):

    def check(self, method: str, path: str, answer: Any) -> None:
        jsonschema.Draft202012Validator(
            schema_of(method, path),
            format_checker=validation.FORMATS).validate(answer)

    def test_each(self) -> None:
        for (method, path), answer in panel_answers.ANSWERS.items():
            self.assertIsNotNone(answer, urllib.parse.unquote(path))
            self.check(method, path, answer)

    def test_the_overview_of_nothing(self) -> None:
        self.check('GET', '/v1/overview', panel_answers.NOTHING)
        self.check('GET', '/v1/protection', panel_answers.listing(
            'protection', panel_answers.switch()))
