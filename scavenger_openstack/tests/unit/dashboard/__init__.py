# SPDX-License-Identifier: Apache-2.0

"""Tests of the Horizon plug-in, with Horizon itself.

They run where Horizon is installed:
:mod:`scavenger_openstack.tests.functional.test_horizon` runs them there.
"""

from importlib import util
import os
import unittest

if util.find_spec('openstack_dashboard') is None:
    raise unittest.SkipTest('needs horizon: functional/test_horizon runs '
                            'these')

os.environ.setdefault('DJANGO_SETTINGS_MODULE', f'{__name__}.settings')

import django
from django.test import utils

django.setup()
utils.setup_test_environment()
