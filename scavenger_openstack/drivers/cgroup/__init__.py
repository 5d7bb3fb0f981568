# SPDX-License-Identifier: Apache-2.0

"""Cgroups, v1 and v2, as workloads with counters and limits."""
