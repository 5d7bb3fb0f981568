# SPDX-License-Identifier: Apache-2.0

"""Tests that take CPUs offline, in a guest; see ``test_guest_cpus``."""
