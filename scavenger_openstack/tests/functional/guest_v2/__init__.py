# SPDX-License-Identifier: Apache-2.0

"""Tests that a guest with cgroup v2 alone runs; see ``test_guest_v2``."""
