# SPDX-License-Identifier: Apache-2.0

"""Shared links, and what background workloads send and receive."""
