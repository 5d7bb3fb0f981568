# SPDX-License-Identifier: Apache-2.0

"""Tests of what runs inside Nova, with Nova itself.

They run where Nova is installed:
:mod:`scavenger_openstack.tests.functional.test_nova` runs them there.
"""

from importlib import util
import unittest

if util.find_spec('nova') is None:
    raise unittest.SkipTest('needs nova: functional/test_nova runs these')
