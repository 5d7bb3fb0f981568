# SPDX-License-Identifier: Apache-2.0

"""Shared links, and the egress of background workloads."""
