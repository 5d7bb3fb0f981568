# SPDX-License-Identifier: Apache-2.0

"""Tests that a guest with a PMU runs; see ``test_guest_pmu``."""
