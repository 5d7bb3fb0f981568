# SPDX-License-Identifier: Apache-2.0

"""Unit tests: no server, no root, and no other machine than this one."""

import gc

# Before any test module makes a property of its own.
from scavenger_openstack.tests.unit import examples as examples

# Else a seventh of the time goes into looking at what all these modules made
# when they were imported, which stays.
gc.set_threshold(20_000, 20, 20)
