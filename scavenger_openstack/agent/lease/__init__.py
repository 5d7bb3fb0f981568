# SPDX-License-Identifier: Apache-2.0

"""Leases: how a limit outlives neither its agent nor its workload."""
