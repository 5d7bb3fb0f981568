# SPDX-License-Identifier: Apache-2.0

"""Hardware counters of workloads."""
