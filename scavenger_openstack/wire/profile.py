# SPDX-License-Identifier: Apache-2.0

"""Interference profiles: what a workload tolerates and causes, by source.

Source: iBench, sections IV and V-A.
"""

from __future__ import annotations

SOI_NAMES = (
    'memory_capacity', 'memory_bandwidth', 'storage_capacity',
    'storage_bandwidth', 'network_bandwidth', 'llc_capacity',
    'llc_bandwidth', 'l2_capacity', 'l2_bandwidth', 'l1i', 'l1d', 'tlb',
    'integer', 'floating_point', 'prefetcher', 'interconnect', 'vector')
"""The 17 sources of interference (SoIs), in the order of the paper."""
