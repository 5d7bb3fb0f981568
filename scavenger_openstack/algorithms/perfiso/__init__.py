# SPDX-License-Identifier: Apache-2.0

"""PerfIso: idle CPUs, and shares of disks, for the foreground."""
