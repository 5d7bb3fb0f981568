# SPDX-License-Identifier: Apache-2.0

"""The stage of a demo: cgroups, disk and uplink of its own."""
