# SPDX-License-Identifier: Apache-2.0

"""Where a demo plays: cgroups, disk and uplink of its own."""
